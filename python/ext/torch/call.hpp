/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a Backend method, on its way to the library. */
#pragma once

#include <ATen/core/ivalue.h>
#include <functional>
#include <memory>

#include "tensors.hpp"

namespace weft_torch
{

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

struct Call {
    c10d::OpType type;
    const char *name; /* as torch's profiler calls it: "all_reduce" */
    bool async;       /* the caller wants a Work */
    std::chrono::milliseconds timeout;
    Tensors inputs;  /* as the caller passed them, for the profiler */
    Tensors outputs; /* what Work::result gives */
    Buffers buffers;
    std::unique_ptr<weft_message_info> message; /* of a receive */
    uint64_t sequence = 0; /* among all calls of its group */
    uint64_t order = 0;    /* among its collectives */
    int rank = -1;         /* ours in the group, and the group's size */
    int size = 0;

    /* A collective. Options are those of any of them. */
    template <class Options>
    Call(c10d::OpType type_, const char *name_, const Options &options,
         Tensors inputs_ = {}, Tensors outputs_ = {})
        : type(type_), name(name_), async(options.asyncOp),
          timeout(options.timeout), inputs(std::move(inputs_)),
          outputs(std::move(outputs_))
    {
    }
    /* A message, which is always started. */
    Call(c10d::OpType type_, const char *name_, const Tensors &tensors)
        : type(type_), name(name_), async(true), timeout(c10d::kUnsetTimeout),
          inputs(tensors), outputs(tensors)
    {
    }
};

/* Starts a part of the operation, as a request; or carries it out. */
using Start = std::function<weft_status(weft_request **out)>;
using Starts = std::vector<Start>;

/* A function of the library: carried out now, or started if `out` is there. */
template <auto Now, auto Start, class... A>
weft_status either(weft_request **out, A... args)
{
    return out != nullptr ? Start(args..., out) : Now(args...);
}

/* An argument as the library takes it; it points to a list of parts. */
template <class T> T argument(T given)
{
    return given;
}
inline const weft_part *argument(const std::vector<weft_part> &parts)
{
    return parts.data();
}

/* The same, to be called later: it keeps the arguments. */
template <auto Now, auto Start, class... A> auto later(A... args)
{
    return [args...](weft_request **out) {
        return either<Now, Start>(out, argument(args)...);
    };
}

} // namespace weft_torch
