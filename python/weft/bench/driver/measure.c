/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and timed blocks for a library behind backend.h. */
#include "backend.h"
#include "call.h"
#include "cycle.h"
#include "data.h"
#include "timed.h"
#include "work.h"

#include <stdio.h>
#include <string.h>

enum { ALL_ROOTS_BELOW = 8 << 20 };

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

static bool has_result(enum op op, int root)
{
    return (op != OP_REDUCE && op != OP_GATHER) || my_rank == root;
}

/* One call on fresh data and poisoned results. A broadcast has one buffer,
 * which is the source on the root and the result elsewhere. */
static int check_call(const work_case *c, data *d, int root)
{
    data_place place = {my_rank, all_ranks, root, c->seed};
    bool source = c->op != OP_BROADCAST || my_rank == root;

    memset(d->dst, 0xff, d->dst_n * sizeof(float));
    if (source) {
        data_fill(d->src, d->src_n, c->seed, my_rank);
    }
    if (call_once(c->op, d->src, d->dst, d->n, root) != 0) {
        return -1;
    }
    return has_result(c->op, root) ? data_expect(c->op, &place, d->dst, d->n)
                                   : 0;
}

static int check_roots(const work_case *c, bool in_place)
{
    int turns = op_turns(c->op, all_ranks);
    int step = c->bytes < ALL_ROOTS_BELOW || turns < 2 ? 1 : turns - 1;
    data_memory memory = {.huge = c->huge, .arena = c->arena};
    data d;
    int rc = data_init(&d, c->op, all_ranks, c->bytes, memory, in_place);

    if (rc != 0) {
        return rc;
    }
    for (int root = 0; root < turns && rc == 0; root += step) {
        rc = check_call(c, &d, root);
    }
    data_fini(&d);
    return rc;
}

int work_check(struct page *page, const work_case *c)
{
    int rc = 0;

    if (c->op == OP_BARRIER) {
        return check_barrier(page);
    }
    if (c->op == OP_CYCLE) {
        return cycle_check(c, my_rank, all_ranks);
    }
    /* A sum that is timed in place is to be right either way. */
    if (c->op != OP_BROADCAST) {
        rc = check_roots(c, false);
    }
    return rc == 0 && op_shape_of(c->op)->in_place ? check_roots(c, true) : rc;
}

/* A call after the other, each from the next root or the other way, so that
 * with any operation a call waits for the one before it. Sums in place grow to
 * infinity within some hundred calls: that costs nothing in hardware, and no
 * line is ever all zero. */
typedef struct calls {
    enum op op;
    data d;
    int root;
} calls;

static int calls_once(void *state)
{
    calls *s = state;
    int root = s->root;

    s->root = root + 1 < op_turns(s->op, all_ranks) ? root + 1 : 0;
    return call_once(s->op, s->d.src, s->d.dst, s->d.n, root);
}

int work_block(struct page *page, const work_case *c, work_result *out)
{
    const op_shape *shape = op_shape_of(c->op);
    data_memory memory = {.huge = c->huge, .arena = c->arena};
    calls s = {.op = c->op};
    timed t = {calls_once, &s, (uint64_t)op_turns(c->op, all_ranks)};
    int rc;

    if (c->op == OP_CYCLE) {
        return cycle_block(page, c, all_ranks, out);
    }
    rc = data_init(&s.d, c->op, all_ranks, c->bytes, memory, shape->in_place);
    if (rc != 0) {
        return rc;
    }
    /* Touches the results, too. */
    data_fill(s.d.dst, s.d.dst_n, c->seed + 1, my_rank);
    data_fill(s.d.src, s.d.src_n, c->seed, my_rank);
    page_sync(page);
    out->probe_before = page_probe(page);
    rc = timed_run(page, &t, c->ms, out);
    out->probe_after = page_probe(page);
    data_fini(&s.d);
    return rc;
}
