/* SPDX-License-Identifier: Apache-2.0 */
/* The rows against the books. */
#include <stdlib.h>

#include "soak.h"

static unsigned workers(void)
{
    return job.ranks * job.threads;
}

static int64_t sum_begun(int64_t key)
{
    int64_t sum = 0;

    for (unsigned n = 0; n < workers(); n++) {
        sum += atomic_load(&board->books[n].begun[key]);
    }
    return sum;
}

/* What must be there. What ranks of a node that is gone have pushed to copies
 * may be gone with it; and if somebody was told of losses, what others have
 * done since all hosts last knew everything. */
static int64_t sum_done(int64_t key)
{
    int64_t synced = atomic_load(&board->synced[key]);
    int64_t sum = 0;

    if (atomic_load(&board->lost) != 0) {
        return synced;
    }
    for (unsigned n = 0; n < workers(); n++) {
        if (!job_node_dies(n / job.threads)) {
            sum += atomic_load(&board->books[n].done[key]);
        }
    }
    return sum > synced ? sum : synced;
}

static void check_shared(int64_t key, int64_t got)
{
    int64_t least = sum_done(key);
    int64_t most = sum_begun(key);

    if (got < least || got > most) {
        WT_FAIL("key %lld is %lld; %lld were pushed, of %lld that were begun",
                (long long)key, (long long)got, (long long)least,
                (long long)most);
    }
}

static void check_own(int64_t key, int64_t got)
{
    unsigned number = (unsigned)((key - job.shared) % workers());
    const soak_books *books = &board->books[number];
    bool dead = job.fault == SOAK_KILL && job_is_victim(number / job.threads);

    if (!books->unknown[key] && !(dead && atomic_load(&board->struck) != 0) &&
        atomic_load(&board->lost) == 0 && got != books->value[key]) {
        WT_FAIL("key %lld of worker %u is %lld instead of %lld", (long long)key,
                number, (long long)got, (long long)books->value[key]);
    }
}

static void check_row(int64_t key, const void *values, uint64_t at)
{
    int64_t got = soak_get(values, at);

    for (uint64_t e = 1; e < job.length; e++) {
        WT_CHECK(soak_get(values, at + e) == got);
    }
    if (key < job.shared) {
        check_shared(key, got);
    } else {
        check_own(key, got);
    }
    atomic_fetch_add_explicit(&board->checked, 1, memory_order_relaxed);
}

/* Of keys that may be gone with their node each is pulled alone. */
void soak_check(weft_worker *worker)
{
    bool dead = atomic_load(&board->struck) != 0;
    uint64_t room = SOAK_ELEMENTS / job.length;
    uint64_t most = dead ? 1 : room < SOAK_BATCH ? room : SOAK_BATCH;
    int64_t keys[SOAK_BATCH];
    int64_t *values = malloc(SOAK_ELEMENTS * sizeof(*values));

    WT_CHECK(values != NULL);
    for (int64_t key = 0; key < job.keys;) {
        weft_pairs p = {.keys = {.at = keys, .type = WEFT_I64},
                        .values = values};

        while (p.keys.n < most && key < job.keys) {
            keys[p.keys.n++] = key++;
        }
        p.length = p.keys.n * job.length;
        if (soak_tolerates(weft_store_pull(worker, &p, NULL), "pull")) {
            for (unsigned i = 0; i < p.keys.n; i++) {
                check_row(keys[i], values, i * job.length);
            }
        }
    }
    free(values);
}

void soak_note_synced(void)
{
    for (int64_t key = 0; key < job.shared; key++) {
        atomic_store(&board->synced[key], sum_done(key));
    }
}
