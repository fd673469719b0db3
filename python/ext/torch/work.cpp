/* SPDX-License-Identifier: Apache-2.0 */
#include "work.hpp"
#include "profile.hpp"

#include <ATen/core/jit_type.h>

#include "callbacks.hpp"
#include "errors.hpp"

namespace weft_torch
{

namespace
{

using c10::ivalue::Future;

bool request_is_over(weft_request *request)
{
    int done = 0;

    weft_request_test(request, &done);
    return done != 0;
}

/* What the library still borrows when a Work goes before its requests do. */
struct Orphan {
    Call call;
    std::atomic<size_t> left;
};

void orphan_over(weft_request *, weft_status, void *ctx)
{
    Orphan *orphan = static_cast<Orphan *>(ctx);

    if (--orphan->left == 0) {
        delete orphan;
    }
}

/* Until the deadline that the call itself carried; 0 if it had none, and then
 * the communicator's timeout counts. */
std::chrono::milliseconds time_left(const Call &call,
                                    std::chrono::steady_clock::time_point since)
{
    if (call.timeout == c10d::kUnsetTimeout) {
        return kNoTimeout;
    }
    auto gone = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - since);

    return std::max(call.timeout - gone, std::chrono::milliseconds(1));
}

/* weft_request_wait with a bound; the library does not ask for signals then. */
void wait_within(weft_request *request, weft_comm *comm,
                 std::chrono::milliseconds limit)
{
    using namespace std::chrono;
    constexpr milliseconds slice(100), least(1), most(hours(100000));
    auto end = steady_clock::now() + std::min(limit, most);

    for (;;) {
        auto left = duration_cast<milliseconds>(end - steady_clock::now());
        auto now = std::min(std::max(left, least), slice);

        weft_request_wait(request, duration<double>(now).count());
        if (left <= slice || request_is_over(request)) {
            return;
        }
        if (signal_raised()) {
            weft_comm_abort(comm, "interrupted");
            weft_request_wait(request, 0);
            return;
        }
    }
}

} // namespace

void throw_timed_out(const Call &call, std::chrono::milliseconds timeout)
{
    TORCH_CHECK_WITH(DistBackendError, false, "weft ", call.name,
                     ": Operation timed out! Timed out waiting ",
                     timeout.count(), " ms for it; it goes on");
}

void wait_for(weft_request *request, const Call &call, weft_comm *comm,
              std::chrono::steady_clock::time_point since,
              std::chrono::milliseconds timeout)
{
    bool own = timeout == kNoTimeout;
    auto limit = own ? time_left(call, since) : timeout;

    if (limit > kNoTimeout) {
        wait_within(request, comm, limit);
    } else {
        weft_request_wait(request, 0);
    }
    if (request_is_over(request)) {
        return;
    }
    if (!own) {
        throw_timed_out(call, limit);
    }
    std::string why = "Timed out waiting " + std::to_string(limit.count()) +
                      " ms for this " + call.name;

    /* As when the group's own timeout passes: nobody waits any longer. */
    weft_comm_abort(comm, why.c_str());
    weft_request_wait(request, 0);
}

c10::IValue outcome_of(const std::exception_ptr &error)
{
    auto result = error == nullptr ? c10d::WorkResult::SUCCESS
                                   : c10d::WorkResult::COMM_ERROR;

    return c10::IValue(static_cast<int64_t>(result));
}

Work::Work(Call &&call, weft_comm *comm, int rank, const std::string &title)
    : c10d::Work(rank, call.type), call_(std::move(call)), comm_(comm),
      since_(std::chrono::steady_clock::now())
{
    recordFunctionEndCallback_ = event_until_called(title, call_);
}

Work::~Work()
{
    let_go();
}

/* The last strong reference is gone. The Backend may have a weak one, which
 * keeps the object, but shall keep no tensors. */
void Work::release_resources()
{
    let_go();
}

void Work::let_go()
{
    if (!done_ && !requests_.empty()) {
        auto *orphan = new Orphan{std::move(call_), {requests_.size()}};

        for (weft_request *request : requests_) {
            weft_request_on_done(request, orphan_over, orphan);
        }
    }
    for (weft_request *request : requests_) {
        weft_request_release(request);
    }
    requests_.clear();
    Call(std::move(call_));
    future_.reset();
    outcome_.reset();
}

void Work::started()
{
    if (call_.buffers.writes_copies()) {
        watch();
    }
}

bool Work::over() const
{
    return std::all_of(requests_.begin(), requests_.end(), request_is_over);
}

void Work::request_over(weft_request *, weft_status, void *ctx)
{
    auto work = c10::intrusive_ptr<Work>::reclaim(static_cast<Work *>(ctx));

    if (--work->unfinished_ == 0) {
        work->settle();
        if (work->has_futures()) {
            run_elsewhere([work] { work->tell_futures(); });
        }
    }
}

/* Have settle() called when the last request is over. Each request then holds
 * a reference to this, so that it lives that long. */
void Work::watch()
{
    if (watched_.exchange(true)) {
        return;
    }
    unfinished_ = requests_.size();
    for (weft_request *request : requests_) {
        auto self =
            c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);

        weft_request_on_done(request, request_over, self.release());
    }
}

/* All requests are over: copy, and note the outcome. */
void Work::settle()
{
    std::call_once(settled_, [this] {
        std::exception_ptr error;

        for (weft_request *request : requests_) {
            int done = 0;
            weft_status status = weft_request_test(request, &done);

            if (status != WEFT_OK && error == nullptr) {
                error = error_of(status, call_.name);
            }
        }
        if (error == nullptr) {
            /* Nothing may be thrown here: the library may be the caller. */
            try {
                call_.buffers.copy_back();
            } catch (...) {
                error = std::current_exception();
            }
        }
        finish(error);
        done_ = true;
    });
}

bool Work::has_futures() const
{
    std::lock_guard<std::mutex> lock(mutex_);

    return future_ != nullptr || outcome_ != nullptr;
}

void Work::tell_futures()
{
    FuturePtr future;
    FuturePtr outcome;
    std::exception_ptr error;

    {
        std::lock_guard<std::mutex> lock(mutex_);

        error = exception_;
        if (future_ != nullptr && !std::exchange(future_completed_, true)) {
            future = future_;
        }
        if (outcome_ != nullptr && !std::exchange(outcome_completed_, true)) {
            outcome = outcome_;
        }
    }
    CallbackScope scope(comm_, call_.order);

    if (outcome != nullptr) {
        outcome->markCompleted(outcome_of(error));
    }
    if (future != nullptr && error != nullptr) {
        future->setError(error);
    } else if (future != nullptr) {
        future->markCompleted(c10::IValue(call_.outputs));
    }
}

bool Work::isCompleted()
{
    if (!done_ && over()) {
        settle();
        tell_futures();
    }
    return done_;
}

bool Work::isSuccess() const
{
    std::lock_guard<std::mutex> lock(mutex_);

    return completed_ && exception_ == nullptr;
}

Tensors Work::result()
{
    std::exception_ptr error = exception();

    if (error != nullptr) {
        std::rethrow_exception(error);
    }
    return call_.outputs;
}

int Work::sourceRank() const
{
    TORCH_CHECK(call_.message != nullptr,
                "weft: only a receive has a source rank");
    return int(call_.message->from);
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    if (!done_) {
        for (weft_request *request : requests_) {
            wait_for(request, call_, comm_, since_, timeout);
        }
        settle();
        tell_futures();
    }
    std::exception_ptr error = exception();

    if (error != nullptr) {
        throw_interrupt();
        std::rethrow_exception(error);
    }
    return true;
}

void Work::abort()
{
    weft_comm_abort(comm_, "aborted through a Work");
}

/* The future in one of the slots, which is told when the operation is over. */
FuturePtr Work::future_in(FuturePtr &slot, const c10::TypePtr &type)
{
    FuturePtr future;

    {
        std::lock_guard<std::mutex> lock(mutex_);

        if (slot == nullptr) {
            slot = c10::make_intrusive<Future>(type);
        }
        future = slot;
    }
    watch();
    if (done_) {
        tell_futures();
    }
    return future;
}

FuturePtr Work::getFuture()
{
    return future_in(future_, c10::ListType::create(c10::TensorType::get()));
}

FuturePtr Work::getFutureResult()
{
    return future_in(outcome_, c10::IntType::get());
}

WorkList::WorkList(std::vector<c10::intrusive_ptr<c10d::Work>> works, int rank)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works))
{
}

bool WorkList::isCompleted()
{
    return std::all_of(works_.begin(), works_.end(),
                       [](const auto &work) { return work->isCompleted(); });
}

bool WorkList::isSuccess() const
{
    return std::all_of(works_.begin(), works_.end(),
                       [](const auto &work) { return work->isSuccess(); });
}

std::exception_ptr WorkList::exception() const
{
    for (const auto &work : works_) {
        if (work->exception() != nullptr) {
            return work->exception();
        }
    }
    return nullptr;
}

void WorkList::synchronize()
{
    for (auto &work : works_) {
        work->synchronize();
    }
}

bool WorkList::wait(std::chrono::milliseconds timeout)
{
    for (auto &work : works_) {
        work->wait(timeout);
    }
    return true;
}

void WorkList::abort()
{
    for (auto &work : works_) {
        work->abort();
    }
}

Tensors WorkList::result()
{
    Tensors all;

    for (auto &work : works_) {
        Tensors own = work->result();

        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

FuturePtr WorkList::getFuture()
{
    c10::List<FuturePtr> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    std::vector<c10::Device> devices;

    for (auto &work : works_) {
        auto future = work->getFuture();

        devices.insert(devices.end(), future->devices().begin(),
                       future->devices().end());
        futures.push_back(future);
    }
    auto all = c10::make_intrusive<Future>(
        c10::ListType::create(c10::TensorType::get()), devices);

    auto self =
        c10::intrusive_ptr<WorkList>::unsafe_reclaim_from_nonowning(this);

    c10::collectAll(futures)->addCallback([all, self](Future &gathered) {
        if (gathered.hasError()) {
            all->setError(gathered.exception_ptr());
        } else {
            all->markCompleted(c10::IValue(self->result()));
        }
    });
    return all;
}

} // namespace weft_torch
