/* SPDX-License-Identifier: Apache-2.0 */
/* The operations as compiled code has them:
 *
 *   weft::traced_NAME(Tensor x, Tensor? token, Tensor? of, int comm, int mark,
 *                     SymInt[] args) -> (Tensor, Tensor)
 *
 * They take and give the communicator's token (mpi/token.hpp), which is never
 * read: an operation that takes what another gives cannot be moved before it,
 * and that is the only order every compiler keeps. The backward pass does the
 * same with the token's gradient.
 *
 * What a token holds is two numbers, which the backward pass needs and which
 * are not known before the code runs: that of the operation that gave it, and
 * the rank a message came from. A derivative takes them as `of`.
 *
 * In the place of a number the mark has this rank: code that is the same on two
 * ranks but for the shapes of results must not be taken for the same. */
#pragma once

#include "mpi/autograd.hpp"
#include "mpi/bind.hpp"

namespace weft_torch::mpi
{

/* What python/weft/mpi/_compile.py and _traced.py need. */
void bind_trace(pybind11::module_ &module);

} // namespace weft_torch::mpi
