/* SPDX-License-Identifier: Apache-2.0 */
/* Small sums that many files need. */
#ifndef WF_BASE_NUM_H
#define WF_BASE_NUM_H

#include <stdint.h>

static inline uint64_t wf_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t wf_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* To the next multiple of `unit`. */
static inline uint64_t wf_round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

#endif
