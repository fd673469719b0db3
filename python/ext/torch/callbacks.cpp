/* SPDX-License-Identifier: Apache-2.0 */
#include "callbacks.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace weft_torch
{

namespace
{

class Threads
{
  public:
    void run(std::function<void()> callback)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        waiting_.push_back(std::move(callback));
        if (waiting_.size() > idle_) {
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

} // namespace

void run_elsewhere(std::function<void()> callback)
{
    static std::mutex mutex;
    static Threads *threads = nullptr; /* outlives static destructors */
    static pid_t owner = 0;
    Threads *own;

    {
        std::lock_guard<std::mutex> lock(mutex);

        /* A forked child has the object but none of its threads. */
        if (owner != getpid()) {
            owner = getpid();
            threads = new Threads;
        }
        own = threads;
    }
    own->run(std::move(callback));
}

} // namespace weft_torch
