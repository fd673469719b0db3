/* SPDX-License-Identifier: Apache-2.0 */
#include "callbacks.hpp"
#include "job.hpp"
#include "work.hpp"

#include <ATen/core/jit_type.h>

namespace weft_torch
{

using c10::ivalue::Future;

StagedWork::StagedWork(std::shared_ptr<Job> job, bool host_waits, int rank,
                       const std::string &title)
    : c10d::Work(rank, job->call().type, title.c_str(), job->call().inputs),
      job_(std::move(job)), host_waits_(host_waits)
{
}

bool StagedWork::isCompleted()
{
    return job_->completed();
}

bool StagedWork::isSuccess() const
{
    return job_->completed() && exception() == nullptr;
}

std::exception_ptr StagedWork::exception() const
{
    return job_->error();
}

int StagedWork::sourceRank() const
{
    TORCH_CHECK(job_->receives(), "weft: only a receive has a source rank");
    job_->wait(kNoTimeout);
    job_->throw_error();
    return int(job_->call().message->from);
}

Tensors StagedWork::result()
{
    job_->throw_error();
    return job_->call().outputs;
}

uint64_t StagedWork::getSequencenumber() const
{
    return job_->call().sequence;
}

/* The stream waits, the host goes on. */
void StagedWork::synchronize()
{
    job_->block_current();
}

void StagedWork::blockCurrentStream()
{
    synchronize();
}

/* With a timeout, or if that is asked for, the host waits too. */
bool StagedWork::wait(std::chrono::milliseconds timeout)
{
    if (host_waits_ || timeout != kNoTimeout) {
        job_->wait_and_block(timeout);
    } else {
        job_->block_current();
    }
    return true;
}

void StagedWork::abort()
{
    job_->abort();
}

namespace
{

void complete_staged(Job &job, Future &future)
{
    CallbackScope scope(job.comm(), job.call().order);
    std::exception_ptr error = job.error();

    if (error != nullptr) {
        future.setError(error);
        return;
    }
    /* Nothing may be thrown here: nobody is there to catch it. */
    try {
        job.event().complete(future, c10::IValue(job.call().outputs));
    } catch (...) {
        future.setErrorIfNeeded(std::current_exception());
    }
}

} // namespace

/* Completed when the operation has ended, not before: whoever waits for a
 * future, as DDP does, is to see that it failed. */
c10::intrusive_ptr<Future> StagedWork::getFuture()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (future_ != nullptr) {
            return future_;
        }
        std::vector<c10::Device> devices;

        if (!job_->device().is_cpu()) {
            devices.push_back(job_->device());
        }
        future_ = c10::make_intrusive<Future>(
            c10::ListType::create(c10::TensorType::get()), devices);
    }
    job_->when_ended(
        [job = job_, future = future_] { complete_staged(*job, *future); });
    return future_;
}

c10::intrusive_ptr<Future> StagedWork::getFutureResult()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (outcome_ != nullptr) {
            return outcome_;
        }
        outcome_ = c10::make_intrusive<Future>(c10::IntType::get());
    }
    job_->when_ended([job = job_, outcome = outcome_] {
        outcome->markCompleted(outcome_of(job->error()));
    });
    return outcome_;
}

} // namespace weft_torch
