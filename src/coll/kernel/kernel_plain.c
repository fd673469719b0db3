/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for any CPU. Vectors of 16 bytes are what x86-64 and Arm have
 * without asking; elsewhere the compiler takes them apart. */
#define WF_VEC_BYTES 16
#define WF_KERNELS wf_kernels_plain

#include "coll/kernel/kernels.h"
