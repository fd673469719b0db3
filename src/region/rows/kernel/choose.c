/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel, and how far ahead. */
#include "region/rows/kernel/rows.h"

#define LINE 64

const wf_row_kernels *wf_row_kernels_of(wf_cpu_level level)
{
#if defined(__x86_64__)
    if (level == WF_CPU_AVX512) {
        return &wf_row_kernels_avx512;
    }
    if (level == WF_CPU_AVX2) {
        return &wf_row_kernels_avx2;
    }
#endif
    (void)level;
    return &wf_row_kernels_plain;
}

unsigned wf_row_class(size_t bytes)
{
    unsigned class = 0;

    if (bytes == 0 || (bytes & (bytes - 1)) != 0) {
        return WF_ROW_ANY;
    }
    while ((size_t)1 << class < bytes) {
        class ++;
    }
    return class < WF_ROW_SIZES ? class : WF_ROW_ANY;
}

/* About 8 KiB on their way cover the latency of memory at the bandwidth of one
 * core; rows of a line need as many as the core can ask for at once. */
size_t wf_rows_ahead(size_t bytes)
{
    size_t ahead = bytes == 0 ? 0 : 8192 / bytes;

    return ahead < 4                   ? 4
           : ahead > WF_ROWS_AHEAD_MAX ? WF_ROWS_AHEAD_MAX
                                       : ahead;
}

/* Intel's prefetchers follow a row from its first lines on, and asking for the
 * others only keeps them from it: all lines took 4 to 10 % longer from 1 KiB
 * on. On AMD two lines instead of all took 40 % longer. */
size_t wf_rows_asked(size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_is("intel") && bytes > 2 * LINE) {
        return 2 * LINE;
    }
#endif
    return bytes;
}

/* A line that is written in part by streaming stores has to be read after all,
 * so the ends of a row must be few against its lines. */
bool wf_rows_streamable(const void *to, size_t pitch, size_t bytes)
{
    bool whole =
        (uintptr_t)to % LINE == 0 && pitch % LINE == 0 && bytes % LINE == 0;

    return bytes >= LINE && (whole || bytes >= 16 * LINE);
}
