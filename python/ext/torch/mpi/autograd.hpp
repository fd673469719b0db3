/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives of communications. */
#pragma once

#include "mpi/record.hpp"

namespace weft_torch::mpi
{

/* What a compiler is told of every operation. The second tag, made for random
 * numbers, is there because the result of a constant is none: a compiler that
 * took it for one would communicate while it traces. */
inline const std::vector<at::Tag> operation_tags = {
    at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};

/* Make `y` the result of `node`, which becomes the last of its communicator. */
void set_node(const Tensor &y, const NodePtr &node, Group &group,
              const Tensor &x, int64_t mark);

/* The same of a node that is tied to its tensors already. */
void append_node(const NodePtr &node, Group &group, int64_t mark);

/* Is this a forward operation in the midst of a backward pass, of a checkpoint
 * say? Its own backward is then part of that pass; see mpi/graph.hpp. */
bool is_computed_again(int64_t mark);

/* Throws while torch.jit.trace records: it would take the result, which comes
 * from nowhere for it, for a constant. */
void refuse_jit_trace(Kind kind);

/* MAX and MIN: where the input is the result. */
Tensor mask_of(const Tensor &x, const Tensor &y);

Numbers shape_of(const Tensor &x);

} // namespace weft_torch::mpi
