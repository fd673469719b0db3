/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives of communications. */
#pragma once

#include "mpi/record.hpp"

namespace weft_torch::mpi
{

/* The operation with its derivatives. `direct`: nobody is to see the operation
 * below this one. */
Outcome with_derivatives(const Args &args, const Tensor &x,
                         const GroupPtr &group, int64_t mark, bool direct);

/* Make `node`, which is tied to its tensors, the last of its communicator. */
void append_node(const NodePtr &node, Group &group, int64_t mark);

/* Is this a forward operation in the midst of a backward pass, of a checkpoint
 * say? Its own backward is then part of that pass; see mpi/graph.hpp. */
bool is_computed_again(int64_t mark);

/* Throws while torch.jit.trace records: it would take the result, which comes
 * from nowhere for it, for a constant. */
void refuse_jit_trace(Kind kind);

} // namespace weft_torch::mpi
