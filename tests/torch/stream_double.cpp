/* SPDX-License-Identifier: Apache-2.0 */
/* The double of a stream: a thread that does what is queued, in order. It runs
 * the staging, and above all its failures, where there is no device. devices.py
 * compiles it and hands it to the shim.
 *
 * It cannot hold the program's own work on its tensors back: that is done by
 * the host at once. So a test waits for the streams before it looks. */
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace
{

using namespace weft_torch;

constexpr std::chrono::microseconds double_pause{50};

/* Its thread is never joined: a gate that stays shut would hold it for ever. */
class DoubleStream : public std::enable_shared_from_this<DoubleStream>
{
  public:
    void push(std::function<void()> step)
    {
        std::lock_guard<std::mutex> guard(mutex_);

        steps_.push_back(std::move(step));
        if (!std::exchange(serving_, true)) {
            std::thread([self = shared_from_this()] {
                self->serve();
            }).detach();
        }
    }

  private:
    void serve()
    {
        std::unique_lock<std::mutex> guard(mutex_);

        while (!steps_.empty()) {
            std::function<void()> step = std::move(steps_.front());

            steps_.pop_front();
            guard.unlock();
            step();
            step = nullptr;
            guard.lock();
        }
        serving_ = false;
    }

    std::mutex mutex_;
    std::deque<std::function<void()>> steps_;
    bool serving_ = false;
};

class DoubleEvent : public StreamEvent
{
  public:
    explicit DoubleEvent(DoubleStream &stream)
        : passed_(std::make_shared<std::atomic<bool>>(false))
    {
        stream.push([passed = passed_] { *passed = true; });
    }

    bool passed() const override
    {
        return *passed_;
    }

    void block_current() override
    {
    }

    void wait() const
    {
        while (!passed()) {
            std::this_thread::sleep_for(double_pause);
        }
    }

    void complete(c10::ivalue::Future &future, c10::IValue value) override
    {
        wait();
        future.markCompleted(std::move(value));
    }

  private:
    std::shared_ptr<std::atomic<bool>> passed_;
};

std::mutex double_streams_lock;
std::vector<std::weak_ptr<DoubleStream>> double_streams;

class DoubleStagingStream : public StagingStream
{
  public:
    DoubleStagingStream() : stream_(std::make_shared<DoubleStream>())
    {
        std::lock_guard<std::mutex> guard(double_streams_lock);

        double_streams.push_back(stream_);
    }

    void follow_current() override
    {
    }

    void copy(std::function<void()> copies) override
    {
        stream_->push(std::move(copies));
    }

    void call(void (*fn)(void *), void *ctx) override
    {
        stream_->push([fn, ctx] { fn(ctx); });
    }

    void wait_for(const at::Tensor &gate) override
    {
        stream_->push([gate] {
            while (__atomic_load_n(gate.data_ptr<int32_t>(),
                                   __ATOMIC_ACQUIRE) == 0) {
                std::this_thread::sleep_for(double_pause);
            }
        });
    }

    void uses(const Buffers &) override
    {
    }

    std::unique_ptr<StreamEvent> record() override
    {
        return std::make_unique<DoubleEvent>(*stream_);
    }

  private:
    std::shared_ptr<DoubleStream> stream_;
};

} // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED StagingStream *make_double_stream()
{
    return new DoubleStagingStream;
}

/* Wait for all that was queued so far. */
EXPORTED void wait_for_double_streams()
{
    std::vector<std::shared_ptr<DoubleStream>> streams;

    {
        std::lock_guard<std::mutex> guard(double_streams_lock);

        for (const auto &weak : double_streams) {
            if (auto stream = weak.lock()) {
                streams.push_back(std::move(stream));
            }
        }
    }
    for (const auto &stream : streams) {
        DoubleEvent(*stream).wait();
    }
}
