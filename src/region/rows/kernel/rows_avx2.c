/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels for CPUs with AVX2; see flags.cmake. */
#include "region/rows/kernel/rows.h"

#if defined(__x86_64__)

#if !defined(__AVX2__)
#error "this file must be compiled for AVX2"
#endif

#define WF_VEC_BYTES 32
#define WF_ROW_KERNELS wf_row_kernels_avx2

#include "region/rows/kernel/level.h"

#endif
