/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

namespace weft_torch
{

namespace
{

using Impl = c10::impl::VirtualGuardImpl;

/* The two functions of the CUDA driver that c10 has no words for. */
struct Driver {
    int (*launch_host)(void *stream, void (*fn)(void *), void *ctx);
    int (*wait_value)(void *stream, uint64_t address, uint32_t value,
                      unsigned flags);
};

const Driver &driver()
{
    static const Driver found = [] {
        Driver d = {};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (library != nullptr) {
            void *launch = dlsym(library, "cuLaunchHostFunc");
            void *wait = dlsym(library, "cuStreamWaitValue32_v2");

            d.launch_host = reinterpret_cast<decltype(d.launch_host)>(launch);
            d.wait_value = reinterpret_cast<decltype(d.wait_value)>(wait);
        }
        return d;
    }();

    TORCH_CHECK_NOT_IMPLEMENTED(
        found.launch_host != nullptr && found.wait_value != nullptr,
        "weft: tensors on a GPU need libcuda.so.1 of CUDA 12 or later");
    return found;
}

void check_driver(int result, const char *what)
{
    TORCH_CHECK_WITH(DistBackendError, result == 0, "weft: ", what,
                     " failed with CUDA driver error ", result);
}

class CudaEvent : public StreamEvent
{
  public:
    explicit CudaEvent(const c10::Stream &stream)
        : device_(stream.device()), event_(stream.device_type())
    {
        event_.record(stream);
    }

    bool passed() const override
    {
        return event_.query();
    }

    void block_current() override
    {
        event_.block(Impl(device_.type()).getStream(device_));
    }

    /* A future notes the current stream when it is completed, and makes whoever
     * reads it wait for that. The stream itself will not do: more is queued on
     * it by then. */
    void complete(c10::ivalue::Future &future, c10::IValue value) override
    {
        c10::Stream stream =
            Impl(device_.type()).getStreamFromGlobalPool(device_);
        c10::StreamGuard current(stream);

        event_.block(stream);
        future.markCompleted(std::move(value));
    }

  private:
    at::Device device_;
    c10::Event event_;
};

class CudaStream : public StagingStream
{
  public:
    /* torch makes the stream and knows its handle; c10 alone does not in all
     * versions. */
    explicit CudaStream(at::Device device)
        : driver_(driver()), stream_(c10::Stream::DEFAULT, device)
    {
        pybind11::gil_scoped_acquire gil;
        pybind11::object stream = pybind11::module_::import("torch.cuda")
                                      .attr("Stream")(c10::str(device));

        stream_ = c10::Stream::unpack3(
            stream.attr("stream_id").cast<int64_t>(),
            stream.attr("device_index").cast<c10::DeviceIndex>(),
            device.type());
        handle_ = reinterpret_cast<void *>(
            stream.attr("cuda_stream").cast<uintptr_t>());
    }

    void follow_current() override
    {
        c10::Event before(stream_.device_type());

        before.record(Impl(stream_.device_type()).getStream(stream_.device()));
        before.block(stream_);
    }

    void copy(std::function<void()> copies) override
    {
        c10::StreamGuard guard(stream_);

        copies();
    }

    void call(void (*fn)(void *), void *ctx) override
    {
        check_driver(driver_.launch_host(handle_, fn, ctx), "cuLaunchHostFunc");
    }

    void wait_for(const at::Tensor &gate) override
    {
        check_driver(
            driver_.wait_value(
                handle_, reinterpret_cast<uint64_t>(gate.data_ptr()), 1, 0),
            "cuStreamWaitValue32");
    }

    void uses(const Buffers &buffers) override
    {
        buffers.used_on(stream_);
    }

    std::unique_ptr<StreamEvent> record() override
    {
        return std::make_unique<CudaEvent>(stream_);
    }

  private:
    const Driver &driver_;
    c10::Stream stream_;
    void *handle_ = nullptr; /* the same, as the driver knows it */
};

} // namespace

std::unique_ptr<StagingStream> make_stream(at::Device device)
{
    if (device.is_cpu()) {
        return std::unique_ptr<StagingStream>(Buffers::host_streams.load()());
    }
    return std::make_unique<CudaStream>(device);
}

void wait_for_device(at::Device device)
{
    Impl impl(device.type());

    impl.synchronizeStream(impl.getStream(device));
}

} // namespace weft_torch
