/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of each level of the CPU. All levels give the same bits; only
 * their speed differs. */
#ifndef WF_COLL_KERNEL_TABLE_H
#define WF_COLL_KERNEL_TABLE_H

#include "base/cpu.h"
#include "base/types.h"
#include "coll/kernel/reducer.h"

/* Copy `bytes` from the beginning of a line on, which another core has written
 * and nobody else reads, and write a word into each of these lines: what it was
 * before (take.h). Of a line that `bytes` ends in, its first 8 bytes are to be
 * there, too. */
typedef void wf_take_fn(void *to, void *from, size_t bytes);

typedef struct wf_kernels {
    /* NULL where the operation is not defined on the type. */
    wf_reduce_fn *fold[WF_DTYPE_COUNT][WF_OP_COUNT];
    wf_take_fn *take; /* NULL where memcpy is as good */
} wf_kernels;

extern const wf_kernels wf_kernels_plain;
#if defined(__x86_64__)
extern const wf_kernels wf_kernels_avx2;
extern const wf_kernels wf_kernels_avx512;
#endif

/* The kernels of `level`, which must be one that this CPU can do. */
const wf_kernels *wf_kernels_of(wf_cpu_level level);

#endif
