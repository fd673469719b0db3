/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and timed blocks for a library behind backend.h. */
#include "backend.h"
#include "buffer.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_SAMPLES = 4,
    MAX_CALLS = 20000,
    WARM_CALLS = 5,
    WARM_CALLS_SLOW = 2,
    SLOW_NS = 10 * 1000 * 1000, /* such a call has nothing left to warm up */
};

static int my_rank;
static int all_ranks;

int work_init(int *argc, char ***argv, int *rank, int *ranks)
{
    if (backend.init(argc, argv, rank, ranks) != 0) {
        return -1;
    }
    my_rank = *rank;
    all_ranks = *ranks;
    return 0;
}

void work_fini(void)
{
    backend.fini();
}

int work_share_path(char *path, size_t room)
{
    return backend.broadcast(path, room, 0);
}

/* Element `i` of rank `rank`: a whole number from 1 to 1024, so that a sum
 * over a few thousand ranks is exact in whatever order it is added. */
static float value_of(uint32_t seed, int rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 0x9e3779b9u;

    x = (x + seed) * 0x2c1b3c6du;
    x ^= x >> 15;
    return (float)(1 + (x >> 8) % 1024);
}

static void fill(float *at, size_t n, uint32_t seed, int rank)
{
    for (size_t i = 0; i < n; i++) {
        at[i] = value_of(seed, rank, i);
    }
}

static int expect_sum(const float *got, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (int r = 0; r < all_ranks; r++) {
            want += value_of(seed, r, i);
        }
        if (got[i] != want) {
            fprintf(stderr,
                    "allreduce of %zu floats: element %zu is %g, "
                    "should be %g\n",
                    n, i, got[i], want);
            return -1;
        }
    }
    return 0;
}

static int check_allreduce(const work_case *c, float *src, float *dst)
{
    size_t n = c->bytes / sizeof(float);

    fill(src, n, c->seed, my_rank);
    memset(dst, 0xff, c->bytes);
    if (backend.allreduce(src, dst, n) != 0 ||
        expect_sum(dst, n, c->seed) != 0) {
        return -1;
    }
    if (backend.allreduce(src, src, n) != 0) {
        return -1;
    }
    return expect_sum(src, n, c->seed);
}

static int check_broadcast(const work_case *c, float *got, float *want)
{
    for (int root = 0; root < all_ranks; root++) {
        memset(got, 0xff, c->bytes);
        fill(want, c->bytes / sizeof(float), c->seed, root);
        if (my_rank == root) {
            memcpy(got, want, c->bytes);
        }
        if (backend.broadcast(got, c->bytes, root) != 0) {
            return -1;
        }
        if (memcmp(got, want, c->bytes) != 0) {
            fprintf(stderr,
                    "broadcast of %zu bytes from rank %d: rank %d has "
                    "other bytes\n",
                    c->bytes, root, my_rank);
            return -1;
        }
    }
    return 0;
}

/* Nobody may leave the n-th barrier before all have come to it. */
static int check_barrier(struct page *page)
{
    uint64_t before = page_agree(page, page_arrived(page));

    for (uint64_t turn = 1; turn <= 100; turn++) {
        page_arrive(page);
        if (backend.barrier() != 0) {
            return -1;
        }
        if (page_arrived(page) < before + turn * (uint64_t)all_ranks) {
            fprintf(stderr, "barrier: rank %d left early\n", my_rank);
            return -1;
        }
    }
    page_sync(page);
    return 0;
}

int work_check(struct page *page, const work_case *c)
{
    buffer a;
    buffer b;
    int rc;

    if (c->op == WORK_BARRIER) {
        return check_barrier(page);
    }
    if (buffer_init(&a, c->bytes, c->huge) != 0) {
        return -1;
    }
    if (buffer_init(&b, c->bytes, c->huge) != 0) {
        buffer_fini(&a);
        return -1;
    }
    rc = c->op == WORK_ALLREDUCE ? check_allreduce(c, a.at, b.at)
                                 : check_broadcast(c, a.at, b.at);
    buffer_fini(&b);
    buffer_fini(&a);
    return rc;
}

/* The state of a timed loop. A broadcast takes its root from the next rank at
 * each call, so that every call is a hand-over. */
typedef struct loop {
    enum work_op op;
    float *buf;
    size_t bytes;
    int root;
    int failed;
} loop;

/* Sums in place grow to infinity within some hundred calls. That costs nothing
 * in hardware, and no line is ever all zero. */
static void loop_run(loop *l, uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++) {
        switch (l->op) {
        case WORK_ALLREDUCE:
            l->failed |=
                backend.allreduce(l->buf, l->buf, l->bytes / sizeof(float));
            break;
        case WORK_BROADCAST:
            l->failed |= backend.broadcast(l->buf, l->bytes, l->root);
            l->root = l->root + 1 < all_ranks ? l->root + 1 : 0;
            break;
        case WORK_BARRIER:
            l->failed |= backend.barrier();
            break;
        }
    }
}

/* The time of a call after the first, which also wakes the ranks up. */
static double loop_warm(loop *l, struct page *page)
{
    uint64_t start = page_now();
    uint64_t calls;
    bool slow;

    loop_run(l, 1);
    slow = page_now() - start > SLOW_NS;
    calls = page_agree(page, slow ? WARM_CALLS_SLOW : WARM_CALLS) - 1;
    start = page_now();
    loop_run(l, calls);
    return (double)(page_now() - start) / (double)calls;
}

/* A clock reading costs tens of ns, so short calls are timed in groups. */
static uint64_t calls_per_sample(double ns)
{
    return ns < 1000 ? 16 : ns < 4000 ? 4 : 1;
}

static uint64_t samples_for(double ns, double ms, uint64_t group)
{
    uint64_t most = MAX_CALLS / group;
    double fit = ms * 1e6 / (ns * (double)group + 1);

    if (fit < MIN_SAMPLES) {
        return MIN_SAMPLES;
    }
    return fit > (double)most ? most : (uint64_t)fit;
}

static int loop_time(loop *l, uint64_t group, uint64_t samples,
                     work_result *out)
{
    double *ns = malloc(samples * sizeof(*ns));
    uint64_t then;

    if (ns == NULL) {
        perror("malloc");
        return -1;
    }
    then = page_now();
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t now;
        loop_run(l, group);
        now = page_now();
        ns[i] = (double)(now - then) / (double)group;
        then = now;
    }
    out->median = page_median(ns, samples);
    out->low = ns[0];
    out->high = ns[samples - 1];
    out->calls = samples * group;
    free(ns);
    return l->failed;
}

int work_block(struct page *page, const work_case *c, work_result *out)
{
    loop l = {.op = c->op, .bytes = c->bytes};
    uint64_t group;
    uint64_t samples;
    double ns;
    buffer b;
    int rc;

    if (buffer_init(&b, c->bytes, c->huge) != 0) {
        return -1;
    }
    l.buf = b.at;
    fill(l.buf, (c->bytes + sizeof(float) - 1) / sizeof(float), c->seed,
         my_rank);
    page_sync(page);
    out->probe_before = page_probe(page);
    ns = loop_warm(&l, page);
    group = page_agree(page, calls_per_sample(ns));
    samples = page_agree(page, samples_for(ns, c->ms, group));
    rc = loop_time(&l, group, samples, out);
    page_sync(page);
    out->probe_after = page_probe(page);
    buffer_fini(&b);
    return rc;
}
