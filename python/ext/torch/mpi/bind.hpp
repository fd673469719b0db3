/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "versions.hpp"

namespace weft_torch::mpi
{

/* Add the class behind weft.mpi.Comm to the module. */
void bind_mpi(pybind11::module_ &module);
/* Add the functions that python/weft/mpi/_compile.py and _traced.py call. */
void bind_trace(pybind11::module_ &module);

} // namespace weft_torch::mpi
