/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a Backend method, on its way to the library. */
#pragma once

#include <memory>

#include "tensors.hpp"

namespace weft_torch
{

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

    Call(c10d::OpType type_, const char *name_, bool async_,
         std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout)
        : type(type_), name(name_), async(async_), timeout(timeout_)
    {
    }
};

} // namespace weft_torch
