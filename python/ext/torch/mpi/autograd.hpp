/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives of communications. */
#pragma once

#include "mpi/record.hpp"

namespace weft_torch::mpi
{

/* Execute an operation and record its derivatives. With `direct` the dispatcher
 * is bypassed. */
Outcome with_derivatives(const Args &args, const Tensor &x,
                         const GroupPtr &group, int64_t mark, bool direct);

/* Append `node`, whose edges to tensors are set, to its chain. */
void append_node(const NodePtr &node, Group &group, int64_t mark);

/* Is this a forward operation that a backward pass recomputes, for a
 * checkpoint? Its own backward is then part of that pass; see mpi/graph.hpp. */
bool is_computed_again(int64_t mark);

/* Throws while torch.jit.trace records, which would treat the result as a
 * constant. */
void refuse_jit_trace(Kind kind);

} // namespace weft_torch::mpi
