/* SPDX-License-Identifier: Apache-2.0 */
/* The timed loop: warm-up, then as many calls as fit into the time. */
#ifndef BENCH_TIMED_H
#define BENCH_TIMED_H

#include "work.h"

/* What is timed; `once` returns other than 0 when it failed. All ranks do the
 * same number of calls. Calls in which a rank plays different parts belong
 * together: so many in a row have one time, and each counts as their mean. */
typedef struct timed {
    int (*once)(void *state);
    void *state;
    uint64_t together;
} timed;

/* Fills in all but the probes. */
int timed_run(struct page *page, const timed *t, double ms, work_result *out);

#endif
