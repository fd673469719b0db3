/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_matrix.h"

#include <stdio.h>

#include "wt_data.h"

coll_matrix coll_the;

static const char *const algorithms[COLL_SETS] = {
    "ALGORITHM=broadcast=binomial,reduce=binomial,allreduce=doubling,"
    "allgather=doubling,reduce_scatter=halving,gather=binomial,"
    "scatter=binomial,alltoall=bruck",
    "ALGORITHM=broadcast=double_tree,reduce=double_tree,allreduce=halving,"
    "allgather=bruck,reduce_scatter=pairwise,reduce_scatterv=pairwise,"
    "gather=linear,scatter=linear,alltoall=pairwise",
    "ALGORITHM=allreduce=ring,allgather=ring,reduce_scatter=ring,"
    "reduce_scatterv=ring",
    "ALGORITHM=allreduce=double_tree",
    "ALGORITHM=auto",
};

/* Only the first sets have something to say to most operations. */
static bool set_names(unsigned set, wt_coll_kind kind)
{
    return set < 2 || set == COLL_SETS - 1 || kind == WT_ALLREDUCE ||
           (set == 2 && (kind == WT_ALLGATHER || kind == WT_REDUCE_SCATTER ||
                         kind == WT_REDUCE_SCATTERV));
}

const char *coll_settings_of(unsigned rank)
{
    static _Thread_local char text[512];

    snprintf(text, sizeof(text), "ENGINE=%s %s %s NODE=%c", coll_the.engine,
             algorithms[coll_the.set], coll_the.rest,
             coll_the.nodes != NULL ? coll_the.nodes[rank] : 'a');
    return text;
}

/* --- the matrix ----------------------------------------------------------- */

/* Nothing; less than a rank each; one chunk; several chunks, in odd pieces; and
 * enough for groups of them. */
static const size_t sizes[] = {0, 1, 17, 301, 2803, 20011};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void run_case(weft_comm *comm, const wt_coll *c, bool blocking)
{
    char text[400];
    wt_call call;
    weft_status st;

    wt_call_init(&call, comm, c, NULL);
    st = blocking ? wt_call_run(&call) : wt_call_run_request(&call);
    if (st != WEFT_OK) {
        wt_coll_text(c, text, sizeof(text));
        WT_FAIL("%s, with %s: %s: %s", text, algorithms[coll_the.set],
                weft_status_name(st), weft_error_detail());
    }
    wt_call_check(&call);
    wt_call_fini(&call);
}

/* The n-th pair of a type and a reduction that this operation takes, around
 * and around. */
static void choose_pair(wt_coll *c, unsigned nth)
{
    unsigned pair = 0;

    if (!wt_coll_reduces(c->kind)) {
        c->type = (weft_dtype)(nth % WF_DTYPE_COUNT);
        return;
    }
    for (;; pair++) {
        if (!wt_type_and_op(pair, &c->type, &c->op)) {
            pair = 0;
            (void)wt_type_and_op(pair, &c->type, &c->op);
        }
        if (wt_coll_takes(c->kind, c->op.kind) && nth-- == 0) {
            return;
        }
    }
}

/* Everything that is not the operation, the size and the algorithm. */
static void variant(wt_coll *c, unsigned number, unsigned ranks)
{
    c->root = number % ranks;
    c->in_place = number % 3 == 1;
    c->lengths = (wt_lengths)(number % WT_LENGTHS);
    c->placing = (wt_placing)(number / 2 % WT_PLACINGS);
    c->shift = number % 5 == 2 ? 3 : 0;
    c->rounded_often = true;
    c->seed = number;
    choose_pair(c, number * 7 + (unsigned)c->kind);
}

static unsigned variants(size_t n)
{
    unsigned some = WT_TSAN ? 1 : n < 3000 ? 3 : 2;

    return wt_full() ? (n < 3000 ? 12 : 4) : some;
}

static void matrix_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned number = coll_the.set * 11 + ranks * 5;

    for (unsigned i = 0; i < WT_COLLS * SIZES; i++) {
        wt_coll c = {.kind = (wt_coll_kind)(i / SIZES)};
        size_t n = wt_scaled(sizes[i % SIZES]);

        for (unsigned k = 0; set_names(coll_the.set, c.kind) && k < variants(n);
             k++) {
            variant(&c, number++, ranks);
            c.n = n / weft_dtype_size(c.type) + (n > 0);
            run_case(comm, &c, number % 2 == 0);
        }
    }
}

void coll_run_matrix(const char *engine, unsigned ranks, const char *nodes,
                     const char *rest)
{
    wt_job job = {.ranks = ranks,
                  .settings_of = coll_settings_of,
                  .body = matrix_body,
                  .deadline = wt_full() ? 600 : 120};

    coll_the = (coll_matrix){.engine = engine, .nodes = nodes, .rest = rest};
    for (; coll_the.set < COLL_SETS; coll_the.set++) {
        if (wt_full() || WT_TSAN) {
            wt_run_job_both(&job);
        } else if ((ranks + coll_the.set) % 2 == 0) {
            wt_run_job(&job);
        } else {
            wt_run_job_threads(&job);
        }
    }
}

void coll_check_bits(weft_world *world, wt_coll c)
{
    uint64_t first = 0;

    for (unsigned i = 0; i < 4; i++) {
        wt_call call;
        uint64_t hash;

        c.in_place = i % 2 == 1;
        wt_call_init(&call, weft_world_comm(world), &c, NULL);
        WT_OK(i < 2 ? wt_call_run(&call) : wt_call_run_request(&call));
        hash = wt_call_hash(&call);
        wt_check_same(world, &hash, sizeof(hash));
        WT_CHECK(i == 0 || first == hash);
        first = hash;
        wt_call_fini(&call);
    }
}
