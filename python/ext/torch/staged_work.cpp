/* SPDX-License-Identifier: Apache-2.0 */
#include "callbacks.hpp"
#include "job.hpp"
#include "profile.hpp"
#include "work.hpp"

#include <ATen/core/jit_type.h>

namespace weft_torch
{

using c10::ivalue::Future;

StagedWork::StagedWork(std::shared_ptr<Job> job, bool host_waits, int rank,
                       const std::string &title)
    : c10d::Work(rank, job->call().type), job_(std::move(job)),
      host_waits_(host_waits)
{
    recordFunctionEndCallback_ = event_until_called(title, job_->call());
}

bool StagedWork::isSuccess() const
{
    return job_->completed() && exception() == nullptr;
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

void tell_outcome(Job &job, Future &outcome)
{
    outcome.markCompleted(outcome_of(job.error()));
}

} // namespace

FuturePtr StagedWork::future_in(FuturePtr &slot, FuturePtr made,
                                void (*complete)(Job &, Future &))
{
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (slot != nullptr) {
            return slot;
        }
        slot = made;
    }
    job_->when_ended([job = job_, made, complete] { complete(*job, *made); });
    return made;
}

FuturePtr StagedWork::getFuture()
{
    std::vector<c10::Device> devices;

    if (!job_->device().is_cpu()) {
        devices.push_back(job_->device());
    }
    return future_in(
        future_,
        c10::make_intrusive<Future>(
            c10::ListType::create(c10::TensorType::get()), devices),
        complete_staged);
}

FuturePtr StagedWork::getFutureResult()
{
    return future_in(outcome_, c10::make_intrusive<Future>(c10::IntType::get()),
                     tell_outcome);
}

} // namespace weft_torch
