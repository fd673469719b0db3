/* SPDX-License-Identifier: Apache-2.0 */
/* One call on tensors of a device, and the Work that stands for it. How it is
 * staged, and what becomes of errors, is described in staging.hpp. */
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <weft/weft.h>

#include "call.hpp"
#include "stream.hpp"

namespace weft_torch
{

/* The first error of a group that came after its caller had gone on. */
class Unreported
{
  public:
    void note(const std::exception_ptr &error)
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (error_ == nullptr) {
            error_ = error;
        }
    }
    std::exception_ptr error() const
    {
        std::lock_guard<std::mutex> guard(mutex_);

        return error_;
    }
    /* Like error(), where the program gets it. */
    std::exception_ptr report()
    {
        reported = true;
        return error();
    }

    std::atomic<bool> reported{false};

  private:
    mutable std::mutex mutex_;
    std::exception_ptr error_;
};

/* The driver and the library refer to it until it is over; it is freed by a
 * later call, because neither may free device things. */
class Job : public std::enable_shared_from_this<Job>
{
  public:
    Job(Call &&call, weft_comm *comm, std::mutex &lock, Starts starts,
        std::shared_ptr<Unreported> unreported);
    ~Job();

    /* Queue it on `stream`: what comes before the operation and starts it, then
     * what comes after it. */
    void queue_start(StagingStream &stream);
    void queue_end(StagingStream &stream);

    const Call &call() const
    {
        return call_;
    }
    const weft_comm *comm() const
    {
        return comm_;
    }
    at::Device device() const
    {
        return *call_.buffers.device();
    }
    bool receives() const
    {
        return call_.message != nullptr;
    }
    StreamEvent &event()
    {
        return *event_;
    }

    /* Wait until the library has been given it. */
    void wait_started();
    /* Wait on the host, as for an operation on host tensors. */
    void wait(std::chrono::milliseconds timeout);
    /* Make the current stream wait. The host goes on without knowing how it
     * ends; throws if it has failed already. With a timeout, or if that is
     * asked for, the host waits before, which throws if it fails. */
    void block_current(bool host_waits = false,
                       std::chrono::milliseconds timeout = kNoTimeout);
    /* End it now, for the caller; the library may still hold it. */
    void cut_off(std::exception_ptr error);
    void abort();

    bool completed() const; /* for the program and its streams */
    bool over() const;      /* for the library too: it can be freed */
    bool held() const;      /* by the library */
    bool queued() const;    /* on the stream, which is not past it */
    bool left() const;
    std::exception_ptr error() const;
    void throw_error() const;
    /* Have `fn` called once it has ended, on a thread that may do anything. */
    void when_ended(std::function<void()> fn);

  private:
    static void start_now(void *job);
    static weft_request_fn request_over;

    void start();
    std::exception_ptr start_part(const Start &begin);
    void leave();
    void part_over(const std::exception_ptr &error);
    void end(std::unique_lock<std::mutex> &guard);

    Call call_;
    weft_comm *comm_;  /* while it has not ended */
    std::mutex &lock_; /* one call of the library at a time */
    const Starts starts_;
    const std::shared_ptr<Unreported> unreported_;
    at::Tensor gate_; /* pinned; 1 when it has ended */
    std::unique_ptr<StreamEvent> event_;

    mutable std::mutex mutex_; /* around all that follows */
    std::condition_variable changed_;
    std::vector<weft_request *> requests_; /* complete once it is started */
    std::chrono::steady_clock::time_point since_;
    size_t unfinished_; /* parts that the library has or is to get */
    bool started_ = false;
    bool left_ = false;  /* the host has gone on */
    bool ended_ = false; /* the gate is open */
    std::exception_ptr error_;
    std::vector<std::function<void()>> listeners_;
};

/* Over on the device's time, which the host only asks about. */
class StagedWork : public c10d::Work
{
  public:
    StagedWork(std::shared_ptr<Job> job, bool host_waits, int rank,
               const std::string &title);

    bool isCompleted() override
    {
        return job_->completed();
    }
    bool isSuccess() const override;
    std::exception_ptr exception() const override
    {
        return job_->error();
    }
    int sourceRank() const override;
    Tensors result() override;
    uint64_t getSequencenumber() const override
    {
        return job_->call().sequence;
    }
    /* The stream waits, the host goes on. */
    void synchronize() override
    {
        job_->block_current();
    }
    void blockCurrentStream() override
    {
        job_->block_current();
    }
    bool wait(std::chrono::milliseconds timeout) override
    {
        job_->block_current(host_waits_, timeout);
        return true;
    }
    void abort() override
    {
        job_->abort();
    }
    /* Completed when the operation has ended, not before: whoever waits for a
     * future, as DDP does, is to see that it failed. */
    FuturePtr getFuture() override;
    FuturePtr getFutureResult() override;

  private:
    /* The future in one of the slots; `made` if there is none yet. */
    FuturePtr future_in(FuturePtr &slot, FuturePtr made,
                        void (*complete)(Job &, c10::ivalue::Future &));

    std::shared_ptr<Job> job_;
    const bool host_waits_;
    FuturePtr future_;
    FuturePtr outcome_;
};

} // namespace weft_torch
