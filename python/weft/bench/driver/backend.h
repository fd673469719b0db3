/* SPDX-License-Identifier: Apache-2.0 */
/* What a library under test offers to the common driver. One translation unit
 * per library defines `backend`; the timed loops are the same for all. Calls
 * return 0, or say on stderr what failed and return -1. */
#ifndef BENCH_BACKEND_H
#define BENCH_BACKEND_H

#include <stddef.h>

typedef struct bench_backend {
    int (*init)(int *argc, char ***argv, int *rank, int *ranks);
    void (*fini)(void);
    int (*barrier)(void);
    /* Sum of `n` floats; in place when `src` is `dst`. */
    int (*allreduce)(const float *src, float *dst, size_t n);
    int (*broadcast)(void *buf, size_t bytes, int root);
} bench_backend;

extern const bench_backend backend;

#endif
