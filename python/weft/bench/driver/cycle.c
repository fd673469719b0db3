/* SPDX-License-Identifier: Apache-2.0 */
/* Write, allreduce, read, less write and read; see cycle.h. */
#include "cycle.h"

#include "backend.h"
#include "data.h"
#include "timed.h"

typedef struct cycle {
    data d;
    float *at;
    size_t n;
    uint32_t turn;
    volatile uint32_t sink;
} cycle;

static int cycle_init(cycle *y, const work_case *c, int ranks)
{
    data_memory memory = {.huge = c->huge, .arena = c->arena};
    int rc;

    *y = (cycle){.n = c->bytes / sizeof(float)};
    rc = data_init(&y->d, OP_CYCLE, ranks, c->bytes, memory, true);
    y->at = y->d.src;
    return rc;
}

static void cycle_fini(cycle *y)
{
    data_fini(&y->d);
}

int cycle_check(const work_case *c, int rank, int ranks)
{
    data_place place = {.rank = rank, .ranks = ranks, .seed = c->seed};
    cycle y;
    int rc = cycle_init(&y, c, ranks);

    if (rc != 0) {
        return rc;
    }
    data_fill(y.at, y.n, c->seed, rank);
    rc = backend.allreduce(y.at, y.at, y.n);
    if (rc == 0) {
        rc = data_expect(OP_ALLREDUCE, &place, y.at, y.n);
    }
    cycle_fini(&y);
    return rc;
}

static void write_all(cycle *y)
{
    float value = (float)(1 + y->turn++ % 1024);

    for (size_t i = 0; i < y->n; i++) {
        y->at[i] = value;
    }
    /* The stores are the point; nobody may take them back. */
    __asm__ volatile("" : : "r"(y->at) : "memory");
}

/* Bits are added as numbers, which can be done many at a time. */
static void read_all(cycle *y)
{
    const uint32_t *at = (const void *)y->at;
    uint32_t sum = 0;

    for (size_t i = 0; i < y->n; i++) {
        sum += at[i];
    }
    y->sink = sum;
}

static int cycle_full(void *state)
{
    cycle *y = state;
    int rc;

    write_all(y);
    rc = backend.allreduce(y->at, y->at, y->n);
    read_all(y);
    return rc;
}

static int cycle_local(void *state)
{
    write_all(state);
    read_all(state);
    return 0;
}

int cycle_block(struct page *page, const work_case *c, int ranks,
                work_result *out)
{
    work_result local = {0};
    cycle y;
    int rc = cycle_init(&y, c, ranks);

    if (rc != 0) {
        return rc;
    }
    write_all(&y);
    page_sync(page);
    out->probe_before = page_probe(page);
    rc = timed_run(page, &(timed){cycle_full, &y, 1}, c->ms / 2, out);
    rc |= timed_run(page, &(timed){cycle_local, &y, 1}, c->ms / 2, &local);
    out->probe_after = page_probe(page);
    out->median -= local.median;
    out->low -= local.median;
    out->high -= local.median;
    cycle_fini(&y);
    return rc;
}
