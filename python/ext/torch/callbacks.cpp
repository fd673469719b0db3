/* SPDX-License-Identifier: Apache-2.0 */
#include "callbacks.hpp"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>

#include <c10/util/Exception.h>

#include "forks.hpp"

namespace weft_torch
{

namespace
{

/* A thread that is made meanwhile has all signals blocked: they are for the
 * program's own. */
class WithoutSignals
{
  public:
    WithoutSignals()
    {
        sigset_t all;

        sigfillset(&all);
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
            sigdelset(&all, fault); /* they are the thread's own */
        }
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~WithoutSignals()
    {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSignals(const WithoutSignals &) = delete;
    WithoutSignals &operator=(const WithoutSignals &) = delete;

  private:
    sigset_t before_;
};

class Threads
{
  public:
    void run(std::function<void()> callback)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        waiting_.push_back(std::move(callback));
        if (waiting_.size() > idle_) {
            WithoutSignals quiet;

            std::thread([this] { serve(); }).detach();
        } else {
            wake_.notify_one();
        }
    }

  private:
    void serve()
    {
        std::unique_lock<std::mutex> lock(mutex_);

        for (;;) {
            while (!waiting_.empty()) {
                std::function<void()> callback = std::move(waiting_.front());

                waiting_.pop_front();
                lock.unlock();
                callback();
                callback = nullptr;
                lock.lock();
            }
            idle_++;
            wake_.wait(lock, [this] { return !waiting_.empty(); });
            idle_--;
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> waiting_;
    size_t idle_ = 0;
};

thread_local CallbackScope *innermost = nullptr;

} // namespace

void run_elsewhere(std::function<void()> callback)
{
    /* Outlives static destructors. A forked child has none of its threads. */
    static Threads *threads = new Renewed<Threads>;

    threads->run(std::move(callback));
}

CallbackScope::CallbackScope(const weft_comm *comm, uint64_t order)
    : comm_(comm), last_(order), outer_(innermost)
{
    innermost = this;
}

CallbackScope::~CallbackScope()
{
    if (outer_ != nullptr && outer_->comm_ == comm_) {
        outer_->last_ = std::max(outer_->last_, last_);
    }
    innermost = outer_;
}

void note_call(const weft_comm *comm, uint64_t order)
{
    if (innermost == nullptr || innermost->comm_ != comm) {
        return;
    }
    if (order != innermost->last_ + 1) {
        TORCH_WARN_ONCE(
            "weft: a callback of a future communicates on a group where other "
            "calls have followed its own operation. Their order need not be "
            "the same on all ranks, and then results are wrong. Wait for the "
            "future before the next call, or give the callback a group of its "
            "own. A DDP hook whose callbacks communicate, such as PowerSGD, "
            "needs all gradients in one bucket (bucket_cap_mb) and "
            "find_unused_parameters=False.");
    }
    innermost->last_ = order;
}

} // namespace weft_torch
