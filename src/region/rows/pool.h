/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that help with row operations. There is one set of them in a
 * process, made when first needed, shared by all worlds and callers; they sleep
 * when there is nothing to do. The caller of wf_pool_run works itself and never
 * waits for a thread to begin, so the work is done even if there is none: after
 * a fork, during exit, or where no thread can be made. */
#ifndef WF_REGION_ROWS_POOL_H
#define WF_REGION_ROWS_POOL_H

#include <stdint.h>

/* No call gets more threads than this. */
#define WF_POOL_MAX 256u

typedef void wf_pool_fn(void *ctx, uint32_t part);

/* Call fn(ctx, i) once for each i below `parts`, on up to `threads` threads,
 * including the caller's. Each thread has a range of parts, the same one in the
 * next call like this, so that what it writes stays in its cache; one that is
 * done helps the others. Returns when all are done and their writes are
 * visible. Any thread may call it, but `fn` must not. */
void wf_pool_run(uint32_t threads, uint32_t parts, wf_pool_fn *fn, void *ctx);

/* Threads for a call that does not say: WEFT_THREADS, else as many as the
 * process has cores. At least 1. */
uint32_t wf_pool_threads(void);

/* For tests: helpers that exist now. */
uint32_t wf_pool_count(void);

#endif
