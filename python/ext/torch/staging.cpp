/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.hpp"

#include <c10/core/DeviceGuard.h>
#include <thread>

#include "errors.hpp"

namespace weft_torch
{

/* What is still under way stays: the driver and the library refer to it. */
Staging::~Staging()
{
    if (!jobs_.empty()) {
        new std::list<std::shared_ptr<Job>>(std::move(jobs_));
    }
}

StagingStream &Staging::stream_of(at::Device device, bool receives)
{
    std::unique_ptr<StagingStream> &stream =
        streams_[{device.index(), receives}];

    if (stream == nullptr) {
        stream = make_stream(device);
    }
    return *stream;
}

c10::intrusive_ptr<c10d::Work> Staging::run(Call &&call, weft_comm *comm,
                                            int rank, const std::string &title,
                                            std::mutex &lock, Starts starts)
{
    bool async = call.async;
    auto job = std::make_shared<Job>(std::move(call), comm, lock,
                                     std::move(starts), unreported_);

    {
        std::lock_guard<std::mutex> one_at_a_time(mutex_);
        c10::DeviceGuard device(job->device());
        StagingStream &stream = stream_of(job->device(), job->receives());

        reap();
        job->queue_start(stream);
        jobs_.push_back(job);
        job->queue_end(stream);
    }
    if (async) {
        return c10::make_intrusive<StagedWork>(job, host_waits_, rank, title);
    }
    job->block_current(host_waits_);
    return nullptr;
}

void Staging::reap()
{
    jobs_.remove_if(
        [](const std::shared_ptr<Job> &job) { return job->over(); });
}

void Staging::check(const weft_comm *comm, const char *what) const
{
    weft_status status = weft_comm_error(comm);

    if (status != WEFT_OK) {
        unreported_->report();
        weft_torch::check(status, what);
    }
    if (unreported_->error() != nullptr) {
        std::rethrow_exception(unreported_->report());
    }
}

void Staging::drain()
{
    std::lock_guard<std::mutex> guard(mutex_);

    for (const std::shared_ptr<Job> &job : jobs_) {
        job->wait_started();
    }
    reap();
}

void Staging::finish(std::chrono::milliseconds patience)
{
    using namespace std::chrono;
    auto end = steady_clock::now() + patience;
    std::list<std::shared_ptr<Job>> jobs;

    drain();
    {
        std::lock_guard<std::mutex> guard(mutex_);

        jobs = jobs_;
    }
    for (const std::shared_ptr<Job> &job : jobs) {
        auto time = duration_cast<milliseconds>(end - steady_clock::now());

        try {
            if (job->left()) {
                job->wait(kNoTimeout);
            } else if (!job->receives()) {
                job->wait(std::max(time, milliseconds(1)));
            }
        } catch (const std::exception &) {
            /* The Work reports it. */
        }
    }
}

void Staging::close()
{
    std::lock_guard<std::mutex> guard(mutex_);
    std::exception_ptr unreported =
        unreported_->reported ? nullptr : unreported_->error();

    for (const std::shared_ptr<Job> &job : jobs_) {
        job->cut_off(destroyed_error(job->call().name));
        /* Its memory is used until the stream is past it. */
        while (!job->held() && job->queued()) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    reap();
    if (unreported != nullptr) {
        TORCH_WARN("an operation failed that the program has not heard of, and "
                   "what it wrote is no result: ",
                   text_of(unreported));
    }
}

} // namespace weft_torch
