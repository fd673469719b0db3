/* SPDX-License-Identifier: Apache-2.0 */
/* What a library under test offers to the common driver. One translation unit
 * per library defines `backend`; the timed loops are the same for all. Calls
 * return 0, or say on stderr what failed and return -1.
 *
 * `n` is the number of floats in one block; op.h tells which buffers have a
 * block for each rank. allreduce and scan are in place when `src` is `dst`; a
 * scan down begins at the last rank. */
#ifndef BENCH_BACKEND_H
#define BENCH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_backend {
    int (*init)(int *argc, char ***argv, int *rank, int *ranks);
    void (*fini)(void);
    int (*barrier)(void);
    int (*broadcast)(void *buf, size_t bytes, int root);
    int (*allreduce)(const float *src, float *dst, size_t n);
    int (*reduce)(const float *src, float *dst, size_t n, int root);
    int (*scan)(const float *src, float *dst, size_t n, bool down);
    int (*reduce_scatter)(const float *src, float *dst, size_t n);
    int (*allgather)(const float *src, float *dst, size_t n);
    int (*alltoall)(const float *src, float *dst, size_t n);
    int (*gather)(const float *src, float *dst, size_t n, int root);
    int (*scatter)(const float *src, float *dst, size_t n, int root);
    /* Optional: memory of the library's own, which other ranks read and reduce
     * where it lies. All ranks call both in the same order. NULL from `alloc`
     * is a failure. */
    void *(*alloc)(size_t bytes);
    void (*release)(void *at);
} bench_backend;

extern const bench_backend backend;

#endif
