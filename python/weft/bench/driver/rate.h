/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the cores of a job move bytes, all of them at once. Nanoseconds, the
 * median as this rank saw it; all ranks call the same. `ms` bounds the time,
 * roughly. */
#ifndef BENCH_RATE_H
#define BENCH_RATE_H

#include "page.h"

#include <stddef.h>

/* Read `bytes` that the next rank has just written, PAGE_SLOT of them at most;
 * more is that in proportion. */
double rate_read(struct page *page, int rank, int ranks, size_t bytes,
                 double ms);

/* Change `bytes` in place. */
double rate_update(struct page *page, float *at, size_t bytes, double ms);

/* Copy `bytes`, in the fastest of several ways. */
double rate_copy(struct page *page, void *to, const void *from, size_t bytes,
                 double ms);

#endif
