/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft bench store` times in C: the store, and beside it a flat array of
 * the same rows that has no locks. A library, so that torch's own calls work on
 * the same array in the same process.
 *
 * Every call has other keys than the one before: they are taken in turn from a
 * long list of random ones. The flat array is a region, as the rows of the
 * store are, so that both lie in the same kind of pages. */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SAMPLES = 4096, GROUP_KEYS = 500, FILLED_AT_ONCE = 4096 };

bool bench_done(weft_status status, const char *call)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, weft_status_text(status),
                weft_error_detail());
    }
    return status == WEFT_OK;
}

/* --- making --------------------------------------------------------------- */

bench_store *bench_open(void)
{
    bench_store *b = calloc(1, sizeof(*b));

    if (b != NULL && !bench_done(weft_world_create(NULL, &b->world), "world")) {
        free(b);
        b = NULL;
    }
    return b;
}

static bool make_flat(bench_store *b)
{
    uint64_t shape[2] = {b->keys, b->length};

    if (!bench_done(weft_region_create(weft_world_comm(b->world), 2, shape,
                                       WEFT_F32, NULL, &b->region),
                    "region")) {
        return false;
    }
    b->flat = weft_region_base(b->region);
    return true;
}

/* Numbers from 1 to 2, none like its neighbours. */
static void make_numbers(float *at, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(i + seed) * 2654435769u;

        bits = (bits >> 9) | 0x3f800000u;
        memcpy(&at[i], &bits, sizeof(bits));
    }
}

bool bench_make(bench_store *b, uint64_t keys, uint64_t length, uint64_t cache,
                bool flat)
{
    weft_store_options options = {.size = sizeof(options),
                                  .keys = keys,
                                  .length = length,
                                  .cache = cache,
                                  .type = WEFT_F32};

    b->keys = keys;
    b->length = length;
    b->values = aligned_alloc(4096, BENCH_BATCH * length * sizeof(float));
    if (b->values != NULL) {
        make_numbers(b->values, BENCH_BATCH * length, 1);
    }
    return b->values != NULL && (!flat || make_flat(b)) &&
           bench_done(weft_store_create(weft_world_comm(b->world), &options,
                                        &b->store),
                      "store") &&
           bench_done(weft_worker_create(b->store, &b->worker), "worker");
}

void bench_unmake(bench_store *b)
{
    weft_worker_destroy(b->worker);
    weft_store_destroy(b->store);
    weft_region_destroy(b->region);
    free(b->values);
    b->worker = NULL;
    b->store = NULL;
    b->region = NULL;
    b->flat = NULL;
    b->values = NULL;
}

void bench_close(bench_store *b)
{
    bench_unmake(b);
    weft_world_destroy(b->world);
    free(b);
}

float *bench_flat(bench_store *b)
{
    return b->flat;
}

void bench_ids(bench_store *b, const int64_t *ids, uint64_t count)
{
    b->ids = ids;
    b->count = count;
    b->next = 0;
}

weft_pairs bench_pairs(const bench_store *b, const int64_t *keys, uint64_t n,
                       float *values)
{
    return (weft_pairs){{keys, WEFT_I64, n, WEFT_HOST}, values, n * b->length};
}

bool bench_fill(bench_store *b, uint64_t first, uint64_t end, uint64_t seed)
{
    int64_t keys[FILLED_AT_ONCE];

    for (uint64_t at = first; at < end; at += FILLED_AT_ONCE) {
        uint64_t n = end - at < FILLED_AT_ONCE ? end - at : FILLED_AT_ONCE;
        float *rows = b->flat != NULL ? b->flat + at * b->length : b->values;
        weft_pairs pairs = bench_pairs(b, keys, n, rows);

        for (uint64_t i = 0; i < n; i++) {
            keys[i] = (int64_t)(at + i);
        }
        make_numbers(rows, n * b->length, at * b->length + seed);
        if (!bench_done(weft_store_set(b->worker, &pairs, NULL), "set")) {
            return false;
        }
    }
    return true;
}

/* --- what is timed -------------------------------------------------------- */

/* Functions that the compiler cannot see into the calls of. */
typedef bool call_fn(bench_store *b, const int64_t *keys, uint64_t n);

static bool loop_gather(bench_store *b, const int64_t *keys, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        memcpy(b->values + i * b->length,
               b->flat + (uint64_t)keys[i] * b->length,
               b->length * sizeof(float));
    }
    return true;
}

static bool loop_add(bench_store *b, const int64_t *keys, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float *restrict to = b->flat + (uint64_t)keys[i] * b->length;
        const float *restrict from = b->values + i * b->length;

        for (uint64_t k = 0; k < b->length; k++) {
            to[k] += from[k];
        }
    }
    return true;
}

static bool rows_gather(bench_store *b, const int64_t *keys, uint64_t n)
{
    weft_table table = {.at = b->flat,
                        .rows = b->keys,
                        .pitch = b->length * sizeof(float),
                        .width = b->length,
                        .type = WEFT_F32};
    weft_ids ids = {keys, WEFT_I64, n, WEFT_HOST};
    weft_rows rows = {b->values, 0, WEFT_F32, WEFT_HOST};
    weft_rows_options options = {.size = sizeof(options), .threads = 1};

    return bench_done(weft_rows_gather(&table, &ids, &rows, &options),
                      "gather");
}

static bool pull(bench_store *b, const int64_t *keys, uint64_t n)
{
    weft_pairs pairs = bench_pairs(b, keys, n, b->values);

    return bench_done(weft_store_pull(b->worker, &pairs, NULL), "pull");
}

/* One key that nobody knows before the row of the last one is here: 0 is added
 * to it, which is made from that row. */
static bool await_one(bench_store *b, const int64_t *keys, call_fn *call)
{
    int64_t key = *keys + (b->values[0] > 1e30f);

    return call(b, &key, 1);
}

static bool loop_awaited(bench_store *b, const int64_t *keys, uint64_t n)
{
    (void)n;
    return await_one(b, keys, loop_gather);
}

static bool pull_awaited(bench_store *b, const int64_t *keys, uint64_t n)
{
    (void)n;
    return await_one(b, keys, pull);
}

static bool push(bench_store *b, const int64_t *keys, uint64_t n)
{
    weft_pairs pairs = bench_pairs(b, keys, n, b->values);

    return bench_done(weft_store_push(b->worker, &pairs, NULL), "push");
}

static bool pull_push(bench_store *b, const int64_t *keys, uint64_t n)
{
    return pull(b, keys, n) && push(b, keys, n);
}

static bool loop_both(bench_store *b, const int64_t *keys, uint64_t n)
{
    return loop_gather(b, keys, n) && loop_add(b, keys, n);
}

static call_fn *const calls[] = {
    [BENCH_LOOP_GATHER] = loop_gather,
    [BENCH_GATHER] = rows_gather,
    [BENCH_PULL] = pull,
    [BENCH_LOOP_ADD] = loop_add,
    [BENCH_PUSH] = push,
    [BENCH_PULL_PUSH] = pull_push,
    [BENCH_LOOP_AWAITED] = loop_awaited,
    [BENCH_PULL_AWAITED] = pull_awaited,
    [BENCH_LOOP_BOTH] = loop_both,
};

/* --- checking ------------------------------------------------------------- */

/* The rows that a way of reading brings are those of the flat array. */
static bool reads_right(bench_store *b, int kind, const int64_t *keys,
                        uint64_t n)
{
    size_t bytes = b->length * sizeof(float);

    memset(b->values, 0xff, n * bytes);
    if (!calls[kind](b, keys, n)) {
        return false;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp(b->values + i * b->length,
                   b->flat + (uint64_t)keys[i] * b->length, bytes) != 0) {
            fprintf(stderr, "kind %d: the row of key %lld is wrong\n", kind,
                    (long long)keys[i]);
            return false;
        }
    }
    return true;
}

bool bench_check(bench_store *b, uint64_t n)
{
    const int64_t *keys = b->ids;

    for (int kind = BENCH_LOOP_GATHER; kind <= BENCH_PULL; kind++) {
        if (!reads_right(b, kind, keys, n)) {
            return false;
        }
    }
    make_numbers(b->values, n * b->length, 1);
    return loop_add(b, keys, n) && push(b, keys, n) &&
           reads_right(b, BENCH_PULL, keys, n);
}

/* --- timing --------------------------------------------------------------- */

uint64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *sample, size_t n)
{
    qsort(sample, n, sizeof(sample[0]), order);
    return sample[n / 2];
}

const int64_t *bench_next_keys(bench_store *b, uint64_t n)
{
    if (b->next + n > b->count) {
        b->next = 0;
    }
    b->next += n;
    return b->ids + b->next - n;
}

double bench_time(bench_store *b, int kind, uint64_t n, double ms)
{
    static double sample[MAX_SAMPLES];
    uint64_t group = n < GROUP_KEYS ? GROUP_KEYS / n : 1;
    uint64_t end = bench_now() + (uint64_t)(ms * 1e6);
    size_t samples = 0;

    if (!calls[kind](b, bench_next_keys(b, n), n)) {
        return -1;
    }
    while (samples < MAX_SAMPLES && (samples < 3 || bench_now() < end)) {
        uint64_t begin = bench_now();

        for (uint64_t i = 0; i < group; i++) {
            if (!calls[kind](b, bench_next_keys(b, n), n)) {
                return -1;
            }
        }
        sample[samples++] = (double)(bench_now() - begin) / (double)group;
    }
    return bench_median(sample, samples);
}
