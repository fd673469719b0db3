/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in arenas: torch's allocator for the CPU, with another one in front
 * that takes large tensors from the arena of a world. */
#pragma once

#include <pybind11/pybind11.h>

namespace weft_torch
{

/* Adds the functions that python/weft/torch/_shared.py calls. */
void bind_shared(pybind11::module_ &module);

} // namespace weft_torch
