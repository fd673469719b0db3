/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective against the reference: all kinds, types and operations,
 * sizes around every limit of the engines, blocking or not, in place or not,
 * aligned or not, parts of any length in any order, private and shared memory,
 * for all numbers of ranks that matter.
 *
 * The short run takes every (kind, type, operation) and every (kind, size), and
 * draws the rest of each case from its number; the full run takes the whole
 * product of kind, type, operation, small size and form (in place, blocking,
 * shared). */
#include <stdio.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_data.h"

/* Set before the ranks are forked. */
typedef struct matrix {
    const char *settings;
    /* Where the engine takes another way, in bytes. */
    size_t flat;
    size_t chunk;
    bool thinned; /* run fewer cases, save in the full run */
    bool by_messages;
} matrix;

static matrix the;

/* Small ones come first. Forms: in place, blocking, shared. */
enum { SMALL_SIZES = 3 + 2 * 3, SIZES = 3 + 5 * 3, FORMS = 2 * 2 * 3 };

/* Limits for this many ranks: of one block, of all blocks together, of a chunk,
 * of a chunk cut into one piece for each other rank; and several chunks. */
static size_t limit_bytes(unsigned which, unsigned ranks)
{
    size_t flat = the.flat / ranks;

    switch (which) {
    case 0:
        return (flat + 63) / 64 * 64;
    case 1:
        return flat / ranks;
    case 2:
        return the.chunk;
    case 3:
        return the.chunk / (ranks > 1 ? ranks - 1 : 1);
    default:
        return the.chunk * 7 / 2;
    }
}

/* Nothing, one, an odd number, and just below, at and just above each limit. */
static size_t element_count(unsigned size, weft_dtype type, unsigned ranks)
{
    static const size_t few[] = {0, 1, 17};
    size_t at;

    if (size < 3) {
        return few[size];
    }
    at = wt_scaled(limit_bytes((size - 3) / 3, ranks)) / weft_dtype_size(type);
    return at + (size - 3) % 3 - (at > 0);
}

/* What of a case its number decides. */
typedef struct drawing {
    uint64_t seed;
    uint64_t next;
} drawing;

static uint32_t draw(drawing *d, uint32_t below)
{
    return (uint32_t)(wt_mix(d->seed, 0, d->next++) % below);
}

static uint32_t draw_ranks(drawing *d, unsigned how)
{
    return how == 0 ? 0 : how == 1 ? UINT32_MAX : draw(d, UINT32_MAX);
}

/* `form`: one of FORMS. */
static void fill_in(wt_coll *c, unsigned form, unsigned ranks, uint64_t seed)
{
    drawing d = {.seed = seed};

    c->seed = seed;
    c->in_place = form % 2 != 0;
    c->root = draw(&d, ranks);
    c->lengths = (wt_lengths)draw(&d, WT_LENGTHS);
    c->placing = (wt_placing)draw(&d, WT_PLACINGS);
    c->shift = draw(&d, 2) * draw(&d, 8);
    switch (form / 4) {
    case 1: /* everything is shared */
        c->shared_src = UINT32_MAX;
        c->shared_dst = UINT32_MAX;
        break;
    case 2: /* one side of all, or both of some */
        c->shared_src = draw_ranks(&d, draw(&d, 3));
        c->shared_dst = draw_ranks(&d, draw(&d, 3));
        break;
    default: /* nothing is */
        c->shared_src = 0;
        c->shared_dst = 0;
        break;
    }
    c->rounded_often = the.by_messages;
}

/* In the short run every pair of type and operation has one small size, or two,
 * and each large size, which is slow, a few pairs; they move on from one kind
 * and number of ranks to the next. What is only moved has few pairs, so that
 * each has more sizes. */
static bool pair_is_due(const wt_coll *c, unsigned pair, unsigned size,
                        unsigned ranks)
{
    bool reduces = wt_coll_reduces(c->kind);
    unsigned turn = pair * 5 + (unsigned)c->kind * 3 + ranks;
    unsigned every = (reduces ? 24 : 6) * (the.thinned ? 2 : 1);
    unsigned sanitized = WT_TSAN ? 4 : WT_ASAN ? 2 : 1;

    if ((pair + size) % sanitized != ranks % sanitized) {
        return false;
    }
    if (size >= SMALL_SIZES) {
        return (turn + size * 7) % every == 0;
    }
    if (!reduces) {
        return (turn + size) % 2 == 0;
    }
    return turn % SMALL_SIZES == size ||
           (!the.thinned && (turn + 4) % SMALL_SIZES == size);
}

/* Each of them in one form, which is drawn. In the full run all forms, half of
 * them with an even and half with an odd number of ranks. */
static bool case_is_due(const wt_coll *c, unsigned pair, unsigned size,
                        unsigned form, unsigned ranks)
{
    uint64_t drawn = wt_mix(pair, (uint64_t)c->kind * 16 + ranks, size) % FORMS;

    if (wt_full()) {
        return size < SMALL_SIZES
                   ? (pair + size + form + ranks) % 2 == 0
                   : drawn == form && (pair + size + ranks) % 8 == 0;
    }
    return drawn == form && pair_is_due(c, pair, size, ranks);
}

/* The types of what is only moved, and the types and operations of what is
 * reduced; false past the last. */
static bool pair_of(wt_coll *c, unsigned pair)
{
    if (wt_coll_reduces(c->kind)) {
        return wt_type_and_op(pair, &c->type, &c->op);
    }
    c->type = (weft_dtype)pair;
    return pair < (c->kind == WT_BARRIER ? 1 : WF_DTYPE_COUNT);
}

static void cases_of(weft_comm *comm, wt_coll *c, unsigned pair,
                     const wt_pool *pool)
{
    unsigned ranks = weft_comm_size(comm);

    for (unsigned i = 0; i < SIZES * FORMS; i++) {
        unsigned form = i % FORMS;
        unsigned size = i / FORMS;

        if (case_is_due(c, pair, size, form, ranks)) {
            c->n = element_count(size, c->type, ranks);
            fill_in(c, form, ranks, 10000u * pair + i);
            wt_coll_carry_out(comm, c, pool, form / 2 % 2 == 0);
        }
    }
}

/* Twice as much as the average may be in each of the parts. */
static size_t pool_bytes(unsigned ranks)
{
    return 2 * (size_t)ranks * (the.chunk * 7 / 2 + 64) + 4096;
}

static void all_cases(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    wt_pool pool;

    wt_pool_init(&pool, comm, pool_bytes(weft_comm_size(comm)));
    for (unsigned kind = 0; kind < WT_COLLS; kind++) {
        wt_coll c = {.kind = (wt_coll_kind)kind};

        for (unsigned pair = 0; pair_of(&c, pair); pair++) {
            if (!wt_coll_reduces(c.kind) || wt_coll_takes(c.kind, c.op.kind)) {
                cases_of(comm, &c, pair, &pool);
            }
        }
    }
    wt_pool_fini(&pool, comm);
}

/* Each number of ranks as processes or as threads, in turn; 2 as both. */
static void run_matrix(matrix m, const unsigned *ranks, unsigned count)
{
    the = m;
    for (unsigned i = 0; i < count; i++) {
        wt_job job = {.ranks = ranks[i],
                      .settings = m.settings,
                      .body = all_cases,
                      .deadline = wt_full() ? 900 : 120};

        if (wt_full() || WT_TSAN || ranks[i] == 2) {
            wt_run_job_both(&job);
        } else if (i % 2 == 0) {
            wt_run_job_threads(&job);
        } else {
            wt_run_job(&job);
        }
    }
}

static const unsigned all_counts[] = {2, 3, 5, 8, 1};

static void every_collective_gives_the_reference(void **state)
{
    (void)state;
    run_matrix((matrix){.flat = 4096, .chunk = 65536, .thinned = true},
               all_counts, 5);
}

static void small_chunks_give_the_reference(void **state)
{
    static const unsigned counts[] = {2, 5, 8, 3};

    (void)state;
    run_matrix((matrix){.settings = "FLAT_BYTES=256 CHUNK_BYTES=4K",
                        .flat = 256,
                        .chunk = 4096},
               counts, 4);
}

static void messages_give_the_reference(void **state)
{
    static const unsigned counts[] = {2, 5, 3, 8};

    (void)state;
    run_matrix((matrix){.settings = "ENGINE=message SHM_EAGER=512",
                        .flat = 1024,
                        .chunk = 16384,
                        .thinned = true,
                        .by_messages = true},
               counts, 4);
}

static const char *two_nodes(unsigned rank)
{
    return rank % 2 == 0 ? "NODE=a" : "NODE=b";
}

/* Memory of weft_alloc is ordinary memory there. */
static void two_nodes_give_the_reference(void **state)
{
    wt_job job = {.ranks = 3,
                  .settings_of = two_nodes,
                  .body = all_cases,
                  .deadline = wt_full() ? 900 : 120};

    (void)state;
    the = (matrix){
        .flat = 1024, .chunk = 32768, .thinned = true, .by_messages = true};
    wt_run_job_both(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_the_reference),
        cmocka_unit_test(small_chunks_give_the_reference),
        cmocka_unit_test(messages_give_the_reference),
        cmocka_unit_test(two_nodes_give_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
