/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for CPUs with AVX-512 F, BW, VL and DQ; see flags.cmake. */
#include "coll/kernel/table.h"

#if defined(__x86_64__)

#if !defined(__AVX512F__) || !defined(__AVX512BW__)
#error "this file must be compiled for AVX-512"
#endif

#define WF_VEC_BYTES 64
#define WF_KERNELS wf_kernels_avx512

#include "coll/kernel/kernels.h"

#endif
