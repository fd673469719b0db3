/* SPDX-License-Identifier: Apache-2.0 */
/* Nonlinear reductions that need a derivative, composed of operations that have
 * one. */
#pragma once

#include <c10/util/FunctionRef.h>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

/* Executes an operation through the dispatcher. */
template <class N>
using RunOf = c10::function_ref<Tensor(const ArgsOf<N> &, const Tensor &)>;

template <class N> bool is_composed(const ArgsOf<N> &args)
{
    return !is_linear(args) && !finds_extremum(args);
}

template <class N>
Tensor composed(const ArgsOf<N> &args, const Tensor &x, const Group &group,
                RunOf<N> run);

} // namespace weft_torch::mpi
