/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for CPUs with AVX2, FMA and F16C; see flags.cmake. */
#include "coll/kernel/table.h"

#if defined(__x86_64__)

#if !defined(__AVX2__) || !defined(__F16C__)
#error "this file must be compiled for AVX2"
#endif

#define WF_VEC_BYTES 32
#define WF_KERNELS wf_kernels_avx2

#include "coll/kernel/kernels.h"

#endif
