/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the rows of a host are read and added to, next to a flat array
 * without any lock.
 *
 *     store_rows [keys floats batch]...
 *     store_rows hot
 *
 * One thread, random keys. For each size, million keys a second: a loop over a
 * flat array, weft_rows_gather of it by one thread, and the store without and
 * with a directory; then the same for adding. The last columns are the store's
 * share of the loop. All take turns, and medians are shown.
 * With "hot": two threads that push to and pull from the same hundred keys, as
 * a part of what they do with a hundred each. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

#include "base/time.h"
#include "store/slots.h"

#define ROUNDS 15
#define PICKED (1u << 18)
#define ROUND_KEYS 100000u
#define HOT 100
#define HOT_ROUNDS 500

enum { LOOP, GATHER, DIRECT, FOUND, ADD, PUSH, PUSH_FOUND, KINDS };
static const char *const names[KINDS] = {
    "loop", "gather", "pull", "pull+dir", "loop", "push", "push+dir"};

typedef struct setup {
    uint64_t keys;
    uint64_t length;
    uint64_t batch;
    int64_t *picked;
    uint64_t *absent;
    float *flat;
    float *values;
    wf_slots *slots[2]; /* without and with a directory */
} setup;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_error_detail());
    exit(1);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static void *need(size_t bytes)
{
    void *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (at == NULL) {
        die("no memory");
    }
    memset(at, 0, bytes);
    return at;
}

/* --- the ways --------------------------------------------------------------
 */

static void loop_gather(const setup *s, const int64_t *keys)
{
    for (uint64_t i = 0; i < s->batch; i++) {
        memcpy(s->values + i * s->length,
               s->flat + (uint64_t)keys[i] * s->length,
               s->length * sizeof(float));
    }
}

static void loop_add(const setup *s, const int64_t *keys)
{
    for (uint64_t i = 0; i < s->batch; i++) {
        float *restrict to = s->flat + (uint64_t)keys[i] * s->length;
        const float *restrict from = s->values + i * s->length;

        for (uint64_t k = 0; k < s->length; k++) {
            to[k] += from[k];
        }
    }
}

static void rows_gather(const setup *s, const int64_t *keys)
{
    weft_table table = {.at = s->flat,
                        .rows = s->keys,
                        .pitch = s->length * sizeof(float),
                        .width = s->length,
                        .type = WEFT_F32};
    weft_ids ids = {keys, WEFT_I64, s->batch, WEFT_HOST};
    weft_rows rows = {s->values, 0, WEFT_F32, WEFT_HOST};
    weft_rows_options options = {.size = sizeof(options), .threads = 1};

    if (weft_rows_gather(&table, &ids, &rows, &options) != WEFT_OK) {
        die("gather");
    }
}

static void store_run(const setup *s, const int64_t *keys, int kind)
{
    wf_slots *slots = s->slots[kind == FOUND || kind == PUSH_FOUND];
    wf_batch batch = {.keys = {keys, WEFT_I64, s->batch, WEFT_HOST},
                      .values = (char *)s->values,
                      .absent = s->absent};
    weft_status st = kind == DIRECT || kind == FOUND
                         ? wf_slots_pull(slots, &batch)
                         : wf_slots_push(slots, &batch, 0);

    if (st != WEFT_OK || batch.absents != 0) {
        die("store");
    }
}

static void run(const setup *s, const int64_t *keys, int kind)
{
    switch (kind) {
    case LOOP:
        loop_gather(s, keys);
        break;
    case GATHER:
        rows_gather(s, keys);
        break;
    case ADD:
        loop_add(s, keys);
        break;
    default:
        store_run(s, keys, kind);
        break;
    }
}

/* --- measuring -------------------------------------------------------------
 */

/* What others do on the machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double measure(const setup *s, int kind, unsigned round)
{
    uint64_t n = ROUND_KEYS / s->batch > 0 ? ROUND_KEYS / s->batch : 1;
    uint64_t at = (uint64_t)round * 12345 + (uint64_t)kind * 777;
    uint64_t begin = cpu_ns();

    for (uint64_t i = 0; i < n; i++) {
        run(s, s->picked + (at + i * s->batch) % (PICKED - s->batch + 1), kind);
    }
    return (double)(n * s->batch) * 1e3 / (double)(cpu_ns() - begin);
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *of, const double *by)
{
    double all[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        all[i] = by == NULL ? of[i] : of[i] / by[i];
    }
    qsort(all, ROUNDS, sizeof(all[0]), order);
    return all[ROUNDS / 2];
}

static void show(const setup *s)
{
    static double speed[KINDS][ROUNDS];

    for (unsigned i = 0; i < ROUNDS + 1; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            speed[kind][i > 0 ? i - 1 : 0] = measure(s, kind, i);
        }
    }
    printf("%8llu %5llu %5llu ", (unsigned long long)s->keys,
           (unsigned long long)s->length, (unsigned long long)s->batch);
    for (int kind = 0; kind < KINDS; kind++) {
        printf(" %8.2f", median(speed[kind], NULL));
    }
    printf("  pull %.2f %.2f of loop, %.2f %.2f of gather; push %.2f %.2f\n",
           median(speed[DIRECT], speed[LOOP]),
           median(speed[FOUND], speed[LOOP]),
           median(speed[DIRECT], speed[GATHER]),
           median(speed[FOUND], speed[GATHER]), median(speed[PUSH], speed[ADD]),
           median(speed[PUSH_FOUND], speed[ADD]));
}

/* --- setting up ------------------------------------------------------------
 */

static uint64_t all_keys(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return keys;
}

/* The first use of a page is no use of a row. */
static void touch_all(const setup *s, wf_slots *slots)
{
    float *row = need(s->length * sizeof(float));

    for (int64_t key = 0; key < (int64_t)s->keys; key++) {
        wf_batch batch = {.keys = {&key, WEFT_I64, 1, WEFT_HOST},
                          .values = (char *)row};

        if (wf_slots_push(slots, &batch, 0) != WEFT_OK) {
            die("store");
        }
    }
    free(row);
}

static wf_slots *make(weft_world *world, const setup *s, bool direct)
{
    wf_slots_options options = {.type = WEFT_F32,
                                .keys = s->keys,
                                .length = s->length,
                                .direct = direct,
                                .room = all_keys};
    wf_slots *slots = NULL;

    if (wf_slots_create(weft_world_comm(world), &options, &slots) != WEFT_OK) {
        die("store");
    }
    if (direct) {
        touch_all(s, slots);
    }
    for (uint64_t key = 0; !direct && key < s->keys; key++) {
        wf_directory_put(slots, key, WF_KEY_HERE | wf_slot_take(slots, key));
    }
    return slots;
}

static void bench(weft_world *world, uint64_t keys, uint64_t length,
                  uint64_t batch)
{
    setup s = {.keys = keys, .length = length, .batch = batch};
    uint64_t seed = 1;

    s.picked = need(PICKED * sizeof(*s.picked));
    for (uint64_t i = 0; i < PICKED; i++) {
        s.picked[i] = (int64_t)(next(&seed) % keys);
    }
    s.absent = need(batch * sizeof(*s.absent));
    s.flat = need(keys * length * sizeof(float));
    s.values = need(batch * length * sizeof(float));
    s.slots[0] = make(world, &s, true);
    s.slots[1] = make(world, &s, false);
    show(&s);
    wf_slots_destroy(s.slots[0]);
    wf_slots_destroy(s.slots[1]);
    free(s.picked);
    free(s.absent);
    free(s.flat);
    free(s.values);
}

/* --- two at once -----------------------------------------------------------
 */

typedef struct pair {
    setup s;        /* with the thread's own values */
    int way;        /* DIRECT, or LOOP: without locks, so that sums are lost */
    uint64_t first; /* its keys begin here */
    uint32_t writer;
    pthread_barrier_t *begin;
    double speed;
} pair;

/* Push to and pull from a hundred keys, over and over, in any order. */
static void *pair_run(void *ctx)
{
    pair *p = ctx;
    int64_t keys[HOT];
    wf_batch batch = {.keys = {keys, WEFT_I64, HOT, WEFT_HOST},
                      .values = (char *)p->s.values};
    uint64_t seed = p->writer + 1;
    uint64_t begin;

    pthread_barrier_wait(p->begin);
    begin = wf_now_ns();
    for (int i = 0; i < HOT_ROUNDS; i++) {
        for (int k = 0; k < HOT; k++) {
            keys[k] = (int64_t)(p->first + next(&seed) % HOT);
        }
        if (p->way == LOOP) {
            loop_add(&p->s, keys);
            loop_gather(&p->s, keys);
        } else if (wf_slots_push(p->s.slots[0], &batch, p->writer) != WEFT_OK ||
                   wf_slots_pull(p->s.slots[0], &batch) != WEFT_OK) {
            die("store");
        }
    }
    p->speed = 2.0 * HOT * HOT_ROUNDS * 1e3 / (double)(wf_now_ns() - begin);
    return NULL;
}

/* Each on a core of its own, or they would take turns. */
static void pin(pthread_t thread, int core)
{
    cpu_set_t cores;

    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    pthread_setaffinity_np(thread, sizeof(cores), &cores);
}

static double run_pair(const setup *s, int way, uint64_t apart)
{
    pthread_barrier_t begin;
    pthread_t thread;
    pair p[2];

    pthread_barrier_init(&begin, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        p[i] = (pair){.s = *s,
                      .way = way,
                      .first = i * apart,
                      .writer = i,
                      .begin = &begin};
        p[i].s.values = need(HOT * s->length * sizeof(float));
    }
    if (pthread_create(&thread, NULL, pair_run, &p[1]) != 0) {
        die("thread");
    }
    pin(pthread_self(), 0);
    pin(thread, 1);
    pair_run(&p[0]);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&begin);
    free(p[0].s.values);
    free(p[1].s.values);
    return p[0].speed + p[1].speed;
}

static void bench_hot(weft_world *world, uint64_t length)
{
    setup s = {.keys = 2 * HOT, .length = length, .batch = HOT};
    double speed[4][ROUNDS]; /* loop and store; same keys and others */

    s.flat = need(s.keys * length * sizeof(float));
    s.slots[0] = make(world, &s, true);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 4; k++) {
            speed[k][i] = run_pair(&s, k < 2 ? LOOP : DIRECT, k % 2 * HOT);
        }
    }
    printf("two threads, %d keys of %llu f32: store %.2f of %.2f: %.2f; loop "
           "without locks %.2f of %.2f: %.2f\n",
           HOT, (unsigned long long)length, median(speed[2], NULL),
           median(speed[3], NULL), median(speed[2], speed[3]),
           median(speed[0], NULL), median(speed[1], NULL),
           median(speed[0], speed[1]));
    wf_slots_destroy(s.slots[0]);
    free(s.flat);
}

int main(int argc, char **argv)
{
    static const uint64_t usual[][3] = {
        {1000000, 16, 1000}, {1000000, 64, 1000},  {1000000, 128, 1000},
        {500000, 512, 1000}, {16777216, 16, 1000}, {4194304, 64, 1000},
        {16777216, 16, 1}};
    weft_world *world = NULL;

    if (weft_world_create(NULL, &world) != WEFT_OK) {
        die("world");
    }
    if (argc == 2 && strcmp(argv[1], "hot") == 0) {
        bench_hot(world, 16);
        bench_hot(world, 128);
        weft_world_destroy(world);
        return 0;
    }
    printf("%8s %5s %5s ", "keys", "f32", "batch");
    for (int kind = 0; kind < KINDS; kind++) {
        printf(" %8s", names[kind]);
    }
    printf("  (million keys/s)\n");
    for (int i = 1; i + 2 < argc; i += 3) {
        bench(world, strtoull(argv[i], NULL, 10),
              strtoull(argv[i + 1], NULL, 10), strtoull(argv[i + 2], NULL, 10));
    }
    for (size_t i = 0; argc < 4 && i < sizeof(usual) / sizeof(usual[0]); i++) {
        bench(world, usual[i][0], usual[i][1], usual[i][2]);
    }
    weft_world_destroy(world);
    return 0;
}
