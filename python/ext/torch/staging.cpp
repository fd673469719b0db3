/* SPDX-License-Identifier: Apache-2.0 */
#include "staging.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <condition_variable>
#include <dlfcn.h>
#include <thread>

#include "errors.hpp"

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
        "weft: tensors on a device need libcuda.so.1 of CUDA 12 or later");
    return found;
}

void check_driver(int result, const char *what)
{
    TORCH_CHECK_WITH(DistBackendError, result == 0, "weft: ", what,
                     " failed with CUDA driver error ", result);
}

} // namespace

/* One staged call. The driver and the library refer to it until it is over; it
 * is freed by a later call, because neither may free device things. */
struct Staging::Job {
    Call call;
    std::mutex &lock;
    std::vector<Start> starts;
    at::Tensor gate; /* pinned; how many requests are over */
    c10::Event after;
    std::vector<weft_request *> requests;
    std::mutex mutex;
    std::condition_variable changed;
    bool started = false;
    std::exception_ptr error;

    Job(Call &&call_, std::mutex &lock_, std::vector<Start> starts_,
        c10::DeviceType type)
        : call(std::move(call_)), lock(lock_), starts(std::move(starts_)),
          gate(at::zeros({1}, at::TensorOptions(at::kInt).pinned_memory(true))),
          after(type)
    {
    }

    ~Job()
    {
        for (weft_request *request : requests) {
            weft_request_release(request);
        }
    }

    void start();
    void fail(weft_status status);
    void open_gate();
    bool over();

    static void start_now(void *job)
    {
        static_cast<Job *>(job)->start();
    }
    static void request_over(weft_request *request, weft_status, void *job);
};

/* Publishes what the library wrote; the stream's wait sees it after that. */
void Staging::Job::open_gate()
{
    __atomic_add_fetch(gate.data_ptr<int32_t>(), 1, __ATOMIC_RELEASE);
}

void Staging::Job::fail(weft_status status)
{
    std::lock_guard<std::mutex> guard(mutex);

    if (error == nullptr) {
        error = error_of(status, call.name);
    }
}

void Staging::Job::request_over(weft_request *request, weft_status, void *ctx)
{
    Job *job = static_cast<Job *>(ctx);
    int done = 0;
    weft_status status = weft_request_test(request, &done);

    if (status != WEFT_OK) {
        job->fail(status);
    }
    job->open_gate();
}

/* Give the library all parts of the call. A part that fails opens the gate
 * too: a stream never waits for what will not come. */
void Staging::Job::start()
{
    for (Start &begin : starts) {
        weft_request *request = nullptr;
        weft_status status;

        {
            std::lock_guard<std::mutex> guard(lock);

            status = begin(&request);
        }
        if (status != WEFT_OK) {
            fail(status);
            open_gate();
            continue;
        }
        requests.push_back(request);
        weft_request_on_done(request, request_over, this);
    }
    std::lock_guard<std::mutex> guard(mutex);

    started = true;
    changed.notify_all();
}

bool Staging::Job::over()
{
    int32_t open = __atomic_load_n(gate.data_ptr<int32_t>(), __ATOMIC_ACQUIRE);

    return size_t(open) == starts.size() && after.query();
}

namespace
{

/* A staged call: over on the device's time, which the host only asks about. */
class StagedWork : public c10d::Work
{
  public:
    StagedWork(std::shared_ptr<Staging::Job> job, int rank,
               const std::string &title)
        : c10d::Work(rank, job->call.type, title.c_str(), job->call.inputs),
          job_(std::move(job))
    {
    }

    bool isCompleted() override
    {
        return job_->over();
    }
    bool isSuccess() const override
    {
        return job_->over() && exception() == nullptr;
    }

    std::exception_ptr exception() const override
    {
        std::lock_guard<std::mutex> guard(job_->mutex);

        return job_->error;
    }

    int sourceRank() const override
    {
        TORCH_CHECK(job_->call.message != nullptr,
                    "weft: only a receive has a source rank");
        job_->after.synchronize();
        return int(job_->call.message->from);
    }

    Tensors result() override
    {
        return job_->call.outputs;
    }
    uint64_t getSequencenumber() const override
    {
        return job_->call.sequence;
    }

    /* The streams wait, the host goes on; but with a timeout it waits. */
    void synchronize() override
    {
        at::Device device = *job_->call.buffers.device();

        job_->after.block(Impl(device.type()).getStream(device));
    }

    bool wait(std::chrono::milliseconds timeout) override
    {
        auto end = std::chrono::steady_clock::now() + timeout;

        synchronize();
        while (timeout != kNoTimeout && !job_->over()) {
            TORCH_CHECK_WITH(DistBackendError,
                             std::chrono::steady_clock::now() < end, "weft ",
                             job_->call.name, ": Timed out waiting ",
                             timeout.count(), " ms for it; it goes on");
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        std::exception_ptr error = exception();

        if (error != nullptr) {
            std::rethrow_exception(error);
        }
        return true;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (future_ == nullptr) {
            at::Device device = *job_->call.buffers.device();
            Impl impl(device.type());
            c10::Stream side = impl.getStreamFromGlobalPool(device);

            future_ = c10::make_intrusive<c10::ivalue::Future>(
                c10::ListType::create(c10::TensorType::get()),
                std::vector<c10::Device>{device});
            /* A future notes the current streams when it is marked, and makes
             * whoever reads it wait for them. */
            job_->after.block(side);
            c10::StreamGuard current(side);
            future_->markCompleted(c10::IValue(job_->call.outputs));
        }
        return future_;
    }

  private:
    std::shared_ptr<Staging::Job> job_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace

/* What is still under way stays: the driver and the library refer to it. */
Staging::~Staging()
{
    if (!jobs_.empty()) {
        new std::list<std::shared_ptr<Job>>(std::move(jobs_));
    }
}

/* torch makes the stream and knows its handle; c10 alone does not in all
 * versions. */
Staging::Side &Staging::side_of(at::Device device, bool receives)
{
    auto key = std::make_pair(device.index(), receives);
    auto found = sides_.find(key);

    if (found == sides_.end()) {
        pybind11::gil_scoped_acquire gil;
        pybind11::object stream = pybind11::module_::import("torch.cuda")
                                      .attr("Stream")(c10::str(device));
        Side side = {c10::Stream::unpack3(
                         stream.attr("stream_id").cast<int64_t>(),
                         stream.attr("device_index").cast<c10::DeviceIndex>(),
                         device.type()),
                     reinterpret_cast<void *>(
                         stream.attr("cuda_stream").cast<uintptr_t>())};

        found = sides_.emplace(key, side).first;
    }
    return found->second;
}

c10::intrusive_ptr<c10d::Work> Staging::run(Call &&call, int rank,
                                            const std::string &title,
                                            std::mutex &lock,
                                            std::vector<Start> starts)
{
    std::lock_guard<std::mutex> one_at_a_time(mutex_);
    at::Device device = *call.buffers.device();
    bool receives = call.message != nullptr;
    bool async = call.async;
    Impl impl(device.type());
    Side &side = side_of(device, receives);
    c10::Stream current = impl.getStream(device);
    c10::Event before(device.type());
    auto job = std::make_shared<Job>(std::move(call), lock, std::move(starts),
                                     device.type());

    const Driver &cuda = driver();

    reap();
    before.record(current);
    before.block(side.stream);
    {
        c10::StreamGuard guard(side.stream);

        if (receives) {
            job->start();
        } else {
            job->call.buffers.fill();
            check_driver(
                cuda.launch_host(side.handle, Job::start_now, job.get()),
                "cuLaunchHostFunc");
        }
        jobs_.push_back(job);
        /* A send is over for the stream when it has been started. */
        if (job->call.buffers.writes_copies()) {
            check_driver(cuda.wait_value(
                             side.handle,
                             reinterpret_cast<uint64_t>(job->gate.data_ptr()),
                             uint32_t(job->starts.size()), 0),
                         "cuStreamWaitValue32");
            job->call.buffers.copy_back();
        }
        job->after.record(side.stream);
    }
    job->call.buffers.used_on(side.stream);
    if (async) {
        return c10::make_intrusive<StagedWork>(job, rank, title);
    }
    job->after.block(current);
    return nullptr;
}

void Staging::reap()
{
    jobs_.remove_if(
        [](const std::shared_ptr<Job> &job) { return job->over(); });
}

void Staging::wait_started()
{
    for (const std::shared_ptr<Job> &job : jobs_) {
        std::unique_lock<std::mutex> guard(job->mutex);

        job->changed.wait(guard, [&] { return job->started; });
    }
}

void Staging::drain()
{
    std::lock_guard<std::mutex> guard(mutex_);

    wait_started();
    reap();
}

void Staging::finish()
{
    std::lock_guard<std::mutex> guard(mutex_);

    wait_started();
    for (const std::shared_ptr<Job> &job : jobs_) {
        for (weft_request *request : job->requests) {
            weft_request_wait(request, 0);
        }
        /* The library is done with a job when its last callback is. */
        while (!job->over()) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    jobs_.clear();
}

void wait_for_device(at::Device device)
{
    Impl impl(device.type());

    impl.synchronizeStream(impl.getStream(device));
}

} // namespace weft_torch
