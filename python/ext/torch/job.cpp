/* SPDX-License-Identifier: Apache-2.0 */
#include "job.hpp"

#include "callbacks.hpp"
#include "errors.hpp"
#include "work.hpp"

namespace weft_torch
{

Job::Job(Call &&call, weft_comm *comm, std::mutex &lock, Starts starts,
         std::shared_ptr<Unreported> unreported)
    : call_(std::move(call)), comm_(comm), lock_(lock),
      starts_(std::move(starts)), unreported_(std::move(unreported)),
      gate_(at::zeros(
          {1}, at::TensorOptions(at::kInt).pinned_memory(!device().is_cpu()))),
      unfinished_(starts_.size())
{
}

Job::~Job()
{
    for (weft_request *request : requests_) {
        weft_request_release(request);
    }
}

void Job::queue_start(StagingStream &stream)
{
    stream.follow_current();
    if (receives()) {
        start();
        throw_error();
        return;
    }
    stream.copy([self = shared_from_this()] { self->call_.buffers.fill(); });
    stream.call(start_now, this);
}

/* A send is over for the stream when it has been started. */
void Job::queue_end(StagingStream &stream)
{
    if (call_.buffers.writes_copies()) {
        stream.wait_for(gate_);
        stream.copy(
            [self = shared_from_this()] { self->call_.buffers.copy_back(); });
    }
    event_ = stream.record();
    stream.uses(call_.buffers);
}

void Job::start_now(void *job)
{
    static_cast<Job *>(job)->start();
}

/* Give the library a part of the call, unless a stream may by now work on what
 * an earlier one left behind when it failed. */
std::exception_ptr Job::start_part(const Start &begin)
{
    std::lock_guard<std::mutex> guard(lock_);
    std::exception_ptr earlier = unreported_->error();
    weft_request *request = nullptr;

    if (earlier != nullptr) {
        return earlier;
    }
    weft_status status = begin(&request);

    if (status == WEFT_OK) {
        requests_.push_back(request);
    }
    return error_of(status, call_.name);
}

void Job::start()
{
    since_ = std::chrono::steady_clock::now();
    for (const Start &begin : starts_) {
        std::exception_ptr error = start_part(begin);

        if (error != nullptr) {
            part_over(error);
        }
    }
    for (weft_request *request : requests_) {
        weft_request_on_done(request, request_over, this);
    }
    /* The library knows the group's timeout, but not that of one call. */
    if (call_.timeout != c10d::kUnsetTimeout) {
        run_elsewhere([self = shared_from_this()] { self->wait(kNoTimeout); });
    }
    std::lock_guard<std::mutex> guard(mutex_);

    started_ = true;
    changed_.notify_all();
}

void Job::request_over(weft_request *request, weft_status, void *ctx)
{
    Job *job = static_cast<Job *>(ctx);
    int done = 0;
    weft_status status = weft_request_test(request, &done);

    job->part_over(error_of(status, job->call_.name));
}

/* Nothing here is touched after the lock is let go of: it may be gone. */
void Job::part_over(const std::exception_ptr &error)
{
    std::unique_lock<std::mutex> guard(mutex_);

    if (error_ == nullptr && !ended_) {
        error_ = error;
    }
    if (--unfinished_ == 0 && !ended_) {
        end(guard);
    }
}

void Job::cut_off(std::exception_ptr error)
{
    std::unique_lock<std::mutex> guard(mutex_);

    if (!ended_) {
        error_ = std::move(error);
        end(guard);
    }
}

/* Lets go of the lock. */
void Job::end(std::unique_lock<std::mutex> &guard)
{
    if (error_ != nullptr) {
        call_.buffers.poison();
        if (left_) {
            unreported_->note(error_);
        }
    }
    /* Publishes what the library wrote; the stream's wait sees it after that.
     */
    __atomic_store_n(gate_.data_ptr<int32_t>(), 1, __ATOMIC_RELEASE);
    ended_ = true;
    changed_.notify_all();
    auto listeners = std::exchange(listeners_, {});

    guard.unlock();
    for (auto &listener : listeners) {
        run_elsewhere(std::move(listener));
    }
}

void Job::wait_started()
{
    std::unique_lock<std::mutex> guard(mutex_);

    changed_.wait(guard, [this] { return started_; });
}

void Job::wait(std::chrono::milliseconds timeout)
{
    using namespace std::chrono;
    bool limited = timeout != kNoTimeout;
    auto end = steady_clock::now() + timeout;

    std::unique_lock<std::mutex> guard(mutex_);

    if (!limited) {
        changed_.wait(guard, [this] { return started_; });
    } else if (!changed_.wait_until(guard, end, [this] { return started_; })) {
        throw_timed_out(call_, timeout);
    }
    if (ended_) {
        return;
    }
    guard.unlock();
    for (weft_request *request : requests_) {
        auto left = duration_cast<milliseconds>(end - steady_clock::now());

        wait_for(request, call_, comm_, since_,
                 limited ? std::max(left, milliseconds(1)) : kNoTimeout);
    }
    guard.lock();
    changed_.wait(guard, [this] { return ended_; });
}

/* From now on only later calls can tell of an error. */
void Job::leave()
{
    std::lock_guard<std::mutex> guard(mutex_);

    if (error_ != nullptr) {
        std::rethrow_exception(error_);
    }
    if (!ended_) {
        check(weft_comm_error(comm_), call_.name);
        left_ = true;
    }
}

void Job::block_current(bool host_waits, std::chrono::milliseconds timeout)
{
    if (host_waits || timeout != kNoTimeout) {
        wait(timeout);
        throw_error();
    }
    leave();
    event_->block_current();
}

void Job::abort()
{
    std::lock_guard<std::mutex> guard(mutex_);

    if (!ended_) {
        weft_comm_abort(comm_, "aborted through a Work");
    }
}

bool Job::completed() const
{
    std::lock_guard<std::mutex> guard(mutex_);

    return ended_ && event_->passed();
}

bool Job::held() const
{
    std::lock_guard<std::mutex> guard(mutex_);

    return !started_ || unfinished_ > 0;
}

bool Job::queued() const
{
    return event_ != nullptr && !event_->passed();
}

bool Job::over() const
{
    return event_ != nullptr && completed() && !held();
}

bool Job::left() const
{
    std::lock_guard<std::mutex> guard(mutex_);

    return left_;
}

std::exception_ptr Job::error() const
{
    std::lock_guard<std::mutex> guard(mutex_);

    return error_;
}

void Job::throw_error() const
{
    std::exception_ptr found = error();

    if (found != nullptr) {
        throw_interrupt();
        std::rethrow_exception(found);
    }
}

void Job::when_ended(std::function<void()> fn)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (!ended_) {
            listeners_.push_back(std::move(fn));
            return;
        }
    }
    fn();
}

} // namespace weft_torch
