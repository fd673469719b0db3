/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between the versions of torch that the shim is built against,
 * and the few torch headers it needs. c10d promises no stable interface, so
 * each minor version of torch gets a build of its own; whatever has to be
 * written differently for one of them is written here and nowhere else. */
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#define WEFT_TORCH_AT_LEAST(major, minor)                                      \
    (TORCH_VERSION_MAJOR > (major) ||                                          \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !WEFT_TORCH_AT_LEAST(2, 11)
#error "weft needs torch 2.11 or later"
#endif

namespace weft_torch
{

/* The factor of a pre-multiplied sum; later versions have it without "NCCL" in
 * its name and keep this one. */
using PremulFactor = c10d::NCCLPreMulSumSupplement;

} // namespace weft_torch
