/* SPDX-License-Identifier: Apache-2.0 */
/* Communications that torch.autograd.grad would leave out.
 *
 * Given inputs, torch's engine runs only the nodes that lead to one of them. A
 * receive leads to none, because its gradient is sent to another rank. So in a
 * backward pass that contains a join, all communications before the join are
 * needed, and all nodes between their results and the loss. */
#pragma once

#include "mpi/graph.hpp"

namespace weft_torch::mpi
{

/* Called by `join` when it runs, before any node that is older. */
void need_all_before(Chain &chain, Node *join);

} // namespace weft_torch::mpi
