/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of quantisation for CPUs with AVX-512; see flags.cmake. */
#if defined(__x86_64__)

#if !defined(__AVX512BW__)
#error "this file must be compiled for AVX-512"
#endif

#define WF_QUANTISER wf_quantiser_avx512

#include "agg/quantise/loops.h"

#else
typedef int wf_nothing_here;
#endif
