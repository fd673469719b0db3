/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of quantisation for CPUs with AVX2; see flags.cmake. */
#if defined(__x86_64__)

#if !defined(__AVX2__)
#error "this file must be compiled for AVX2"
#endif

#define WF_QUANTISER wf_quantiser_avx2

#include "agg/quantise/loops.h"

#else
typedef int wf_nothing_here;
#endif
