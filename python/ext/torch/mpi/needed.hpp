/* SPDX-License-Identifier: Apache-2.0 */
/* Communications that torch.autograd.grad would leave out.
 *
 * Given inputs, torch's engine runs only the nodes that lead to one of them. A
 * receive leads to none: what it gives back is the gradient of another rank.
 * So where a backward pass begins behind a join, all communications before it
 * are needed, and with them all that their gradients come from. */
#pragma once

#include "mpi/graph.hpp"

namespace weft_torch::mpi
{

/* Called by `join` as it runs, before anything that was made before it has. */
void need_all_before(Chain &chain, Node *join);

} // namespace weft_torch::mpi
