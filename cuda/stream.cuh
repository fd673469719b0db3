/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for each stream of each device: scratch memory, and the record
 * of a number that was past the end.
 *
 * Scratch is kept from call to call, so that a call allocates nothing once the
 * largest has been seen. It grows in stream order (cudaMallocAsync). What a
 * call needs beyond kScratchKept is given back when the call has put its work
 * on the stream. Work of a captured graph uses its scratch at every replay: it
 * has a buffer of its own, which is never given back. */
#ifndef WEFT_CUDA_STREAM_CUH
#define WEFT_CUDA_STREAM_CUH

#include <cuda_runtime.h>
#include <mutex>

#include "region/cuda/abi.h"

namespace weft
{

constexpr size_t kScratchKept = size_t(256) << 20;

struct Buffer {
    char *at;
    size_t bytes;
};

struct StreamState {
    int device;
    cudaStream_t stream;
    std::mutex lock; /* from a call's first use of scratch to its last launch */
    Buffer live;
    Buffer graph;     /* of calls that were captured */
    wf_cuda_bad *bad; /* pinned host memory */
    StreamState *next;
};

/* The device of a stream; of NULL, the current one. */
int device_of(void *stream, int *out);

/* Makes the device of a stream the current one while it lives. */
class OnDeviceOf
{
  public:
    explicit OnDeviceOf(void *stream);
    ~OnDeviceOf();
    OnDeviceOf(const OnDeviceOf &) = delete;
    OnDeviceOf &operator=(const OnDeviceOf &) = delete;

  private:
    int was_ = -1; /* -1: nothing was changed */
};

/* The state for `stream` on the current device; made on first use, and then
 * there for good. */
int stream_state(void *stream, StreamState **out);

/* Cuts scratch memory into arrays. First add up, then take. */
class Scratch
{
  public:
    explicit Scratch(StreamState *state) : state_(state), lock_(state->lock)
    {
    }
    /* Gives back what is more than is kept. */
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    /* Bytes that an array takes. */
    static size_t room(size_t bytes)
    {
        return (bytes + 255) & ~size_t(255);
    }
    /* Make sure that there are so many bytes. */
    int reserve(size_t bytes);
    template <typename T> T *take(size_t count)
    {
        char *at = buffer_->at + used_;
        used_ += room(count * sizeof(T));
        return reinterpret_cast<T *>(at);
    }

  private:
    int grow(size_t bytes);

    StreamState *state_;
    Buffer *buffer_ = nullptr;
    std::lock_guard<std::mutex> lock_;
    size_t used_ = 0;
};

} // namespace weft

#endif
