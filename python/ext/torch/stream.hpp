/* SPDX-License-Identifier: Apache-2.0 */
/* What the staging needs of a device: a stream, and events in it.
 *
 * The shim knows devices through c10 only; two functions that c10 does not have
 * are looked up in the driver's library when they are needed, so that one build
 * serves torch with and without CUDA. Tests without a device bring streams of
 * their own, see Buffers. */
#pragma once

#include <ATen/core/ivalue.h>
#include <functional>
#include <memory>

#include "tensors.hpp"

namespace weft_torch
{

/* An event that was recorded in a stream. */
class StreamEvent
{
  public:
    virtual ~StreamEvent() = default;

    /* Has the stream reached it? */
    virtual bool passed() const = 0;
    /* Make the device's current stream wait for it. */
    virtual void block_current() = 0;
    /* Complete `future`; whoever reads it waits for this event. */
    virtual void complete(c10::ivalue::Future &future, c10::IValue value) = 0;
};

/* A stream of our own. Everything is queued, and nothing waits. */
class StagingStream
{
  public:
    virtual ~StagingStream() = default;

    /* Wait for what is queued on the device's current stream so far. */
    virtual void follow_current() = 0;
    /* Run `copies`, whose copies go to this stream. */
    virtual void copy(std::function<void()> copies) = 0;
    /* Call fn(ctx) on a thread on which CUDA may not be used. */
    virtual void call(void (*fn)(void *), void *ctx) = 0;
    /* Wait until `gate`, a word in pinned memory, is 1. */
    virtual void wait_for(const at::Tensor &gate) = 0;
    /* Tell the allocator of device memory who else uses it. */
    virtual void uses(const Buffers &buffers) = 0;
    virtual std::unique_ptr<StreamEvent> record() = 0;
};

std::unique_ptr<StagingStream> make_stream(at::Device device);

/* Make the host wait for what is queued on `device` so far. */
void wait_for_device(at::Device device);

} // namespace weft_torch
