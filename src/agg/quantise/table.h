/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of quantisation for each level of the CPU. All levels give the same
 * bits; only their speed differs. */
#ifndef WF_AGG_QUANTISE_TABLE_H
#define WF_AGG_QUANTISE_TABLE_H

#include "agg/quantise.h"
#include "base/cpu.h"

/* See the functions of these names in quantise.h. */
typedef struct wf_quantiser {
    void (*quantise)(const float *src, size_t n, uint32_t ranks, void *out);
    void (*sum)(const void *const part[], uint32_t ranks, size_t n, void *out);
    void (*dequantise)(const void *sum, size_t n, uint32_t ranks,
                       uint32_t divisor, float *out);
} wf_quantiser;

extern const wf_quantiser wf_quantiser_plain;
#if defined(__x86_64__)
extern const wf_quantiser wf_quantiser_avx2;
extern const wf_quantiser wf_quantiser_avx512;
#endif

/* The loops of `level`, which must be one that this CPU can do. */
const wf_quantiser *wf_quantiser_of(wf_cpu_level level);

#endif
