/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft bench store` times between hosts: what an intent costs, and what
 * it is worth. */
#include "store.h"

#include <time.h>

enum { POLL_NS = 20000 };

bool bench_where(bench_store *b, uint64_t first, uint64_t n, uint8_t *here)
{
    for (uint64_t i = 0; i < n; i++) {
        int64_t key = (int64_t)(first + i);
        weft_pairs pairs = bench_pairs(b, &key, 1, b->values);
        int local = 0;

        if (!bench_done(weft_store_pull_local(b->worker, &pairs, &local),
                        "pull_local")) {
            return false;
        }
        here[i] = local != 0;
    }
    return true;
}

static bool intent(bench_store *b, const int64_t *keys, uint64_t n,
                   int64_t start, int64_t end)
{
    weft_ids ids = {keys, WEFT_I64, n, WEFT_HOST};

    return bench_done(weft_store_intent(b->worker, &ids, start, end), "intent");
}

bool bench_intent(bench_store *b, const int64_t *keys, uint64_t n,
                  int64_t ticks)
{
    int64_t clock = weft_worker_clock(b->worker);

    return intent(b, keys, n, clock, clock + ticks);
}

void bench_advance(bench_store *b)
{
    weft_worker_advance(b->worker);
}

bool bench_wait_sync(bench_store *b)
{
    return bench_done(weft_store_wait_sync(b->worker), "wait_sync");
}

uint64_t bench_copies(bench_store *b)
{
    weft_store_stats stats;

    weft_store_count(b->store, &stats);
    return stats.copies;
}

/* The core is left to whoever brings the keys. */
static void pause_ns(long ns)
{
    struct timespec t = {.tv_nsec = ns};

    nanosleep(&t, NULL);
}

double bench_until_local(bench_store *b, const int64_t *keys, uint64_t n)
{
    weft_pairs pairs = bench_pairs(b, keys, n, b->values);
    uint64_t begin = bench_now();
    int local = 0;
    uint64_t end;

    if (!bench_intent(b, keys, n, 1)) {
        return -1;
    }
    while (local == 0) {
        pause_ns(POLL_NS);
        if (!bench_done(weft_store_pull_local(b->worker, &pairs, &local),
                        "pull_local")) {
            return -1;
        }
    }
    end = bench_now();
    weft_worker_advance(b->worker);
    return (double)(end - begin);
}

/* As a worker that needs its core. */
static void compute(uint64_t ns)
{
    uint64_t end = bench_now() + ns;

    while (ns > 0 && bench_now() < end) {
    }
}

double bench_stream(bench_store *b, const int64_t *keys, uint64_t steps,
                    uint64_t n, uint64_t ahead, uint64_t compute_ns,
                    uint64_t *local)
{
    int64_t clock = weft_worker_clock(b->worker);
    weft_store_stats before;
    weft_store_stats after;
    uint64_t said = 0;
    uint64_t begin = bench_now();

    weft_store_count(b->store, &before);
    for (uint64_t i = 0; i < steps; i++) {
        weft_pairs pairs = bench_pairs(b, keys + i * n, n, b->values);

        for (; ahead > 0 && said < steps && said <= i + ahead; said++) {
            if (!intent(b, keys + said * n, n, clock + (int64_t)said, 0)) {
                return -1;
            }
        }
        if (!bench_done(weft_store_pull(b->worker, &pairs, NULL), "pull")) {
            return -1;
        }
        compute(compute_ns);
        if (!bench_done(weft_store_push(b->worker, &pairs, NULL), "push")) {
            return -1;
        }
        weft_worker_advance(b->worker);
    }
    weft_store_count(b->store, &after);
    *local = after.local_pulls - before.local_pulls;
    return (double)(bench_now() - begin);
}
