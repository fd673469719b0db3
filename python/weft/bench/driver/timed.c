/* SPDX-License-Identifier: Apache-2.0 */
/* The timed loop; see timed.h. */
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MIN_SAMPLES = 4,
    MIN_ROUNDS = 2, /* samples of several long calls */
    MAX_CALLS = 20000,
    WARM_CALLS = 5,
    WARM_CALLS_SLOW = 2,
    SLOW_NS = 10 * 1000 * 1000, /* such a call has nothing left to warm up */
};

static int repeat(const timed *t, uint64_t calls)
{
    int failed = 0;

    for (uint64_t i = 0; i < calls; i++) {
        failed |= t->once(t->state);
    }
    return failed;
}

/* The time of a call after the first, which also wakes the ranks up. */
static int warm(struct page *page, const timed *t, double *ns)
{
    uint64_t start = page_now();
    uint64_t calls;
    int failed;
    bool slow;

    failed = repeat(t, 1);
    slow = page_now() - start > SLOW_NS;
    calls = page_agree(page, slow ? WARM_CALLS_SLOW : WARM_CALLS) - 1;
    start = page_now();
    failed |= repeat(t, calls);
    *ns = (double)(page_now() - start) / (double)calls;
    return failed;
}

/* A clock reading costs tens of ns, so short calls are timed in groups. */
static uint64_t calls_per_sample(double ns, uint64_t together)
{
    uint64_t calls = ns < 1000 ? 16 : ns < 4000 ? 4 : 1;

    return (calls + together - 1) / together * together;
}

static uint64_t samples_for(double ns, double ms, uint64_t group)
{
    uint64_t least = group > 1 ? MIN_ROUNDS : MIN_SAMPLES;
    uint64_t most = MAX_CALLS / group;
    double fit = ms * 1e6 / (ns * (double)group + 1);

    if (fit < (double)least) {
        return least;
    }
    return fit > (double)most ? most : (uint64_t)fit;
}

int timed_run(struct page *page, const timed *t, double ms, work_result *out)
{
    double once;
    int failed = warm(page, t, &once);
    uint64_t group = page_agree(page, calls_per_sample(once, t->together));
    uint64_t samples = page_agree(page, samples_for(once, ms, group));
    double *ns = malloc(samples * sizeof(*ns));
    uint64_t then;

    if (ns == NULL) {
        perror("malloc");
        return -1;
    }
    then = page_now();
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t now;
        failed |= repeat(t, group);
        now = page_now();
        ns[i] = (double)(now - then) / (double)group;
        then = now;
    }
    out->median = page_median(ns, samples);
    out->low = ns[0];
    out->high = ns[samples - 1];
    out->calls = samples * group;
    free(ns);
    page_sync(page);
    return failed;
}
