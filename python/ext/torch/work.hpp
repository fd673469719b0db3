/* SPDX-License-Identifier: Apache-2.0 */
/* Work: operations under way, behind torch's interface. */
#pragma once

#include <atomic>
#include <weft/weft.h>

#include "call.hpp"

namespace weft_torch
{

/* Wait on the host for a request of `call`, which was started at `since`. With
 * kNoTimeout as long as the call may take; if that has its own timeout and it
 * passes, the group is broken. With another `timeout`, that passing is an
 * exception, and the operation goes on. How it ended is not asked. */
void wait_for(weft_request *request, const Call &call, weft_comm *comm,
              std::chrono::steady_clock::time_point since,
              std::chrono::milliseconds timeout);
[[noreturn]] void throw_timed_out(const Call &call,
                                  std::chrono::milliseconds timeout);

/* What Work::getFutureResult gives. */
c10::IValue outcome_of(const std::exception_ptr &error);

/* One call that became one or several requests of the library.
 *
 * It is over when all requests are and what they wrote has been copied to where
 * it belongs. Whoever notices first sees to that, once: a waiter, someone who
 * asks, or, where a future or a copy needs it, the thread that completes the
 * last request. */
class Work : public c10d::Work
{
  public:
    Work(Call &&call, weft_comm *comm, int rank, const std::string &title);
    ~Work() override;

    /* Hand over a request. After the last one comes started(). */
    void add(weft_request *request)
    {
        requests_.push_back(request);
    }
    void started();
    bool isCompleted() override;
    bool isSuccess() const override;
    int sourceRank() const override;
    Tensors result() override;
    void synchronize() override
    {
    }
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;
    FuturePtr getFuture() override;
    FuturePtr getFutureResult() override;
    uint64_t getSequencenumber() const override
    {
        return call_.sequence;
    }

    /* For torch's pointers. */
    void release_resources() override;

  private:
    void let_go();
    bool over() const;
    void watch();
    void settle();
    bool has_futures() const;
    FuturePtr future_in(FuturePtr &slot, const c10::TypePtr &type);
    void tell_futures();
    static weft_request_fn request_over;

    Call call_;
    weft_comm *comm_;
    c10::SmallVector<weft_request *, 1> requests_;
    const std::chrono::steady_clock::time_point since_;
    std::atomic<size_t> unfinished_{0}; /* requests, once watched */
    std::atomic<bool> watched_{false};
    std::once_flag settled_;
    std::atomic<bool> done_{false};
    /* All under mutex_; a future is completed once. */
    FuturePtr future_;
    FuturePtr outcome_;
    bool future_completed_ = false;
    bool outcome_completed_ = false;
};

/* Several Works as one. */
class WorkList : public c10d::Work
{
  public:
    WorkList(std::vector<c10::intrusive_ptr<c10d::Work>> works, int rank);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;
    Tensors result() override;
    FuturePtr getFuture() override;

  private:
    std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace weft_torch
