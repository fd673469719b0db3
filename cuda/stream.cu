/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.cuh"

#include <new>

namespace weft
{

namespace
{

std::mutex all_lock;
StreamState *all_states;

/* Lets this thread allocate while some stream is being captured. */
class AllocateWhileCapturing
{
  public:
    AllocateWhileCapturing()
    {
        cudaThreadExchangeStreamCaptureMode(&mode_);
    }
    ~AllocateWhileCapturing()
    {
        cudaThreadExchangeStreamCaptureMode(&mode_);
    }

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

int make_state(int device, cudaStream_t stream, StreamState **out)
{
    AllocateWhileCapturing allowed;
    void *bad = nullptr;
    int error = cudaHostAlloc(&bad, sizeof(wf_cuda_bad), cudaHostAllocPortable);
    StreamState *state;

    if (error != 0) {
        return error;
    }
    state = new (std::nothrow) StreamState();
    if (state == nullptr) {
        cudaFreeHost(bad);
        return cudaErrorMemoryAllocation;
    }
    state->device = device;
    state->stream = stream;
    state->bad = new (bad) wf_cuda_bad();
    *out = state;
    return 0;
}

/* There is nothing to ask a stream where there is one device only. */
bool several_devices()
{
    static const bool several = [] {
        int count = 0;
        return cudaGetDeviceCount(&count) == 0 && count > 1;
    }();

    return several;
}

bool is_handle(void *stream)
{
    return stream != nullptr && stream != cudaStreamLegacy &&
           stream != cudaStreamPerThread;
}

} // namespace

int device_of(void *stream, int *out)
{
    if (is_handle(stream) && several_devices()) {
        return cudaStreamGetDevice(static_cast<cudaStream_t>(stream), out);
    }
    return cudaGetDevice(out);
}

OnDeviceOf::OnDeviceOf(void *stream)
{
    int now;
    int wanted;

    if (is_handle(stream) && several_devices() && cudaGetDevice(&now) == 0 &&
        device_of(stream, &wanted) == 0 && wanted != now &&
        cudaSetDevice(wanted) == 0) {
        was_ = now;
    }
}

OnDeviceOf::~OnDeviceOf()
{
    if (was_ >= 0) {
        cudaSetDevice(was_);
    }
}

int stream_state(void *stream, StreamState **out)
{
    cudaStream_t wanted = static_cast<cudaStream_t>(stream);
    int device;
    int error = cudaGetDevice(&device);
    std::lock_guard<std::mutex> guard(all_lock);

    if (error != 0) {
        return error;
    }
    for (StreamState *s = all_states; s != nullptr; s = s->next) {
        if (s->stream == wanted && s->device == device) {
            *out = s;
            return 0;
        }
    }
    error = make_state(device, wanted, out);
    if (error == 0) {
        (*out)->next = all_states;
        all_states = *out;
    }
    return error;
}

int Scratch::grow(size_t bytes)
{
    void *grown = nullptr;
    int error = 0;

    if (buffer_ == &state_->graph) {
        /* The old one stays: earlier graphs use it. */
        AllocateWhileCapturing allowed;
        error = cudaMalloc(&grown, bytes);
    } else {
        if (buffer_->at != nullptr) {
            error = cudaFreeAsync(buffer_->at, state_->stream);
        }
        *buffer_ = {nullptr, 0};
        if (error == 0) {
            error = cudaMallocAsync(&grown, bytes, state_->stream);
        }
    }
    if (error != 0) {
        cudaGetLastError(); /* the return value alone tells of it */
        return error;
    }
    *buffer_ = {static_cast<char *>(grown), bytes};
    return 0;
}

int Scratch::reserve(size_t bytes)
{
    cudaStreamCaptureStatus capturing;
    int error = cudaStreamIsCapturing(state_->stream, &capturing);

    if (error != 0) {
        return error;
    }
    buffer_ = capturing == cudaStreamCaptureStatusNone ? &state_->live
                                                       : &state_->graph;
    return bytes > buffer_->bytes ? grow(bytes) : 0;
}

Scratch::~Scratch()
{
    if (buffer_ == &state_->live && buffer_->bytes > kScratchKept) {
        cudaFreeAsync(buffer_->at, state_->stream);
        *buffer_ = {nullptr, 0};
    }
}

int check(void *stream, wf_cuda_bad *out)
{
    StreamState *state;
    int error = stream_state(stream, &state);

    if (error == 0) {
        error = cudaStreamSynchronize(state->stream);
    }
    if (error != 0) {
        return error;
    }
    *out = *state->bad;
    *state->bad = {};
    return 0;
}

int trim(void *stream)
{
    StreamState *state;
    int error = stream_state(stream, &state);

    if (error != 0) {
        return error;
    }
    std::lock_guard<std::mutex> guard(state->lock);
    if (state->live.at != nullptr) {
        error = cudaFreeAsync(state->live.at, state->stream);
        state->live = {nullptr, 0};
    }
    return error != 0 ? error : cudaStreamSynchronize(state->stream);
}

} // namespace weft
