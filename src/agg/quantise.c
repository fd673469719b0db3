/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/quantise/table.h"

bool wf_quantises(weft_dtype type, weft_op_kind op)
{
    return (type == WEFT_F32 || type == WEFT_C64) &&
           (op == WEFT_OP_SUM || op == WEFT_OP_AVG);
}

static size_t blocks_of(size_t n)
{
    return (n + WF_QUANT_BLOCK - 1) / WF_QUANT_BLOCK;
}

size_t wf_quantised_bytes(size_t n)
{
    return n * sizeof(int32_t) + blocks_of(n) * sizeof(int16_t);
}

size_t wf_quantised_fits(size_t bytes)
{
    const size_t whole = wf_quantised_bytes(WF_QUANT_BLOCK);
    size_t rest = bytes % whole;

    return bytes / whole * WF_QUANT_BLOCK +
           (rest > sizeof(int16_t) ? (rest - sizeof(int16_t)) / sizeof(int32_t)
                                   : 0);
}

/* --- by the level of the CPU ---------------------------------------------- */

const wf_quantiser *wf_quantiser_of(wf_cpu_level level)
{
#if defined(__x86_64__)
    if (level == WF_CPU_AVX512) {
        return &wf_quantiser_avx512;
    }
    if (level == WF_CPU_AVX2) {
        return &wf_quantiser_avx2;
    }
#endif
    (void)level;
    return &wf_quantiser_plain;
}

static const wf_quantiser *used(void)
{
    return wf_quantiser_of(wf_cpu_level_used());
}

void wf_quantise(const float *src, size_t n, uint32_t ranks, void *out)
{
    used()->quantise(src, n, ranks, out);
}

void wf_quantised_sum(const void *const part[], uint32_t ranks, size_t n,
                      void *out)
{
    used()->sum(part, ranks, n, out);
}

void wf_dequantise(const void *sum, size_t n, uint32_t ranks, uint32_t divisor,
                   float *out)
{
    used()->dequantise(sum, n, ranks, divisor, out);
}
