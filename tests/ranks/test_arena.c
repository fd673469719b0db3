/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: blocks that one rank takes alone, and collectives on them. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

#define POOL_BYTES (2u << 20)
#define MANY 30011 /* elements: several chunks of 4 KiB, with an odd end */

static weft_arena_info ask(const weft_world *world)
{
    weft_arena_info i = {.size = sizeof(i)};

    WT_OK(weft_arena_get(world, &i));
    return i;
}

/* --- collectives ---------------------------------------------------------- */

/* Sources and destinations of some ranks lie in their arenas, of others not,
 * and not on any boundary. */
static void carry_out_all(weft_comm *comm, const wt_pool *pool, unsigned seed)
{
    uint32_t ranks = weft_comm_size(comm);

    for (unsigned i = 0; i < 3 * WT_COLLS; i++) {
        unsigned kind = i % WT_COLLS;
        wt_coll c = {.kind = (wt_coll_kind)kind,
                     .type = i % 2 == 0 ? WEFT_F32 : WEFT_BF16,
                     .op = {.kind = WEFT_OP_SUM},
                     .root = (seed + i) % ranks,
                     .n = wt_scaled(i % 3 == 0 ? MANY : MANY / 7),
                     .lengths = WT_RAGGED,
                     .in_place = (seed + i) % 5 == 0,
                     .shift = i % 4,
                     .shared_src = seed * 2654435761u >> i % 13,
                     .shared_dst = seed * 2246822519u >> i % 11,
                     .seed = seed + i};

        wt_coll_carry_out(comm, &c, pool, i % 2 == 0);
    }
}

static void mixed_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *half = NULL;
    weft_comm *dup = NULL;
    wt_pool pool = {.bytes = POOL_BYTES};

    /* Each for itself: no other rank is asked. */
    WT_OK(weft_arena_alloc(world, POOL_BYTES, (void **)&pool.src));
    WT_OK(weft_arena_alloc(world, POOL_BYTES, (void **)&pool.dst));
    WT_OK(weft_comm_dup(comm, &dup));
    WT_OK(weft_comm_split(comm, weft_comm_rank(comm) % 2, 0, &half));
    for (unsigned seed = 1; seed < 4; seed++) {
        carry_out_all(comm, &pool, seed);
        carry_out_all(dup, &pool, seed + 10);
        carry_out_all(half, &pool, seed + 20);
    }
    weft_comm_destroy(half);
    weft_comm_destroy(dup);
    weft_arena_free(pool.src);
    weft_arena_free(pool.dst);
    /* Communicators that were closed in good order hold nothing. */
    WT_CHECK(ask(world).in_use == 0 && ask(world).held == 0);
}

static void each_source_is_read_where_it_lies_on_every_communicator(void **s)
{
    const char *settings = "TIMEOUT=60s FLAT_BYTES=64 CHUNK_BYTES=4K";

    (void)s;
    wt_run_both(1, settings, mixed_body);
    wt_run_both(2, settings, mixed_body);
    wt_run_both(2, "TIMEOUT=60s FLAT_BYTES=64", mixed_body); /* one chunk */
    wt_run_threads(3, settings, mixed_body);
    wt_run_both(5, settings, mixed_body);
    if (wt_full()) {
        wt_run_counts("TIMEOUT=60s", mixed_body);
        wt_run_counts("TIMEOUT=60s SHM_CMA=1", mixed_body);
    }
}

static void each_of_two_nodes_has_its_own(void **s)
{
    (void)s;
    wt_run_nodes(2, 2, mixed_body);
}

/* --- memory --------------------------------------------------------------- */

static void alone_body(weft_world *world)
{
    char *p = NULL;
    char *q = NULL;

    WT_CHECK(ask(world).room > 0);
    if (weft_world_rank(world) == 0) {
        WT_OK(weft_arena_zalloc(world, 100000, (void **)&p));
        WT_CHECK(p[0] == 0 && p[99999] == 0 && weft_arena_holds(p));
        memset(p, 1, 100000);
        weft_arena_free(p);
        WT_OK(weft_arena_zalloc(world, 100000, (void **)&q));
        WT_CHECK(q == p && q[0] == 0 && q[99999] == 0);
        WT_CHECK(ask(world).blocks == 1);
        weft_arena_free(q);
    }
    WT_STATUS(weft_arena_alloc(NULL, 1, (void **)&p), WEFT_ERR_INVALID);
    WT_STATUS(weft_arena_alloc(world, 1, NULL), WEFT_ERR_INVALID);
    WT_STATUS(weft_arena_alloc(world, (size_t)1 << 46, (void **)&p),
              WEFT_ERR_NOMEM);
    WT_STATUS(weft_arena_get(world, &(weft_arena_info){0}), WEFT_ERR_INVALID);
}

static void one_rank_takes_a_block_without_the_others(void **s)
{
    (void)s;
    wt_run_both(1, NULL, alone_body);
    wt_run_both(3, NULL, alone_body);
}

static void without_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    float *x = NULL;
    void *p = NULL;

    WT_CHECK(ask(world).room == 0);
    WT_STATUS(weft_arena_alloc(world, 1, &p), WEFT_ERR_NOMEM);
    WT_OK(weft_alloc(comm, 40000, (void **)&x));
    for (int i = 0; i < 10000; i++) {
        WT_CHECK(x[i] == 0);
        x[i] = 2;
    }
    WT_OK(weft_allreduce(comm, x, x, 10000, WEFT_F32, WEFT_SUM));
    WT_CHECK(x[9999] == 2 * (float)weft_comm_size(comm));
    weft_free(comm, x);
}

static const char *rank_1_has_none(unsigned rank)
{
    return rank == 1 ? "ARENA=0" : "";
}

static void where_one_rank_has_none_the_node_has_none(void **s)
{
    (void)s;
    wt_run_both(2, "ARENA=0", without_body);
    wt_run_job_both(&(const wt_job){
        .ranks = 3, .settings_of = rank_1_has_none, .body = without_body});
}

static void small_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    void *p = NULL;
    void *q = NULL;

    WT_CHECK(ask(world).room == 4 << 20);
    WT_OK(weft_arena_alloc(world, 3 << 20, &p));
    WT_STATUS(weft_arena_alloc(world, 3 << 20, &q), WEFT_ERR_NOMEM);
    WT_STATUS(weft_alloc(comm, 3 << 20, &q), WEFT_ERR_NOMEM);
    WT_OK(weft_barrier(comm));
    if (weft_comm_rank(comm) != 0) {
        weft_arena_free(p);
    }
    /* All or none: rank 0 has no room. */
    WT_STATUS(weft_alloc(comm, 3 << 20, &q), WEFT_ERR_NOMEM);
    if (weft_comm_rank(comm) == 0) {
        weft_arena_free(p);
    }
    WT_CHECK(ask(world).in_use == 0);
    WT_OK(weft_alloc(comm, 3 << 20, &q));
    weft_free(comm, q);
    WT_CHECK(ask(world).in_use == 0);
}

static void the_setting_bounds_it(void **s)
{
    (void)s;
    wt_run_both(2, "ARENA=4M TIMEOUT=60s", small_body);
}

/* --- the end -------------------------------------------------------------- */

static void outlive(void)
{
    weft_world *world = NULL;
    weft_comm *dup = NULL;
    char *p = NULL;
    char *q = NULL;

    WT_OK(wt_join("TIMEOUT=60s", 0, &world));
    WT_OK(weft_arena_alloc(world, 100000, (void **)&p));
    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    WT_OK(weft_alloc(dup, 100000, (void **)&q));
    memset(p, 3, 100000);
    WT_OK(weft_barrier(dup));
    weft_comm_destroy(dup);
    weft_world_destroy(world);
    WT_CHECK(p[99999] == 3 && q[99999] == 0);
    memset(q, 4, 100000);
    weft_arena_free(p);
    WT_CHECK(weft_arena_holds(q));
    weft_arena_free(q);
    WT_CHECK(!weft_arena_holds(q));
}

static void blocks_outlive_the_world(void **s)
{
    (void)s;
    wt_run_job_both(&(const wt_job){.ranks = 3, .bare = outlive});
}

/* Rank 1 dies with its data in the arena; the others are told, and what they
 * free is not used again, since the dead may have been about to write there. */
static void death_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    float *x = NULL;

    WT_OK(weft_arena_alloc(world, MANY * sizeof(float), (void **)&x));
    for (int i = 0; i < MANY; i++) {
        x[i] = 1;
    }
    WT_OK(weft_allreduce(comm, x, x, MANY, WEFT_F32, WEFT_SUM));
    WT_CHECK(x[MANY - 1] == (float)weft_comm_size(comm));
    if (weft_comm_rank(comm) == 1) {
        raise(SIGKILL);
    }
    WT_STATUS(weft_allreduce(comm, x, x, MANY, WEFT_F32, WEFT_SUM),
              WEFT_ERR_PEER);
    weft_arena_free(x);
    WT_CHECK(ask(world).held > 0 && ask(world).in_use == 0);
    WT_OK(weft_arena_alloc(world, 1, (void **)&x));
    weft_arena_free(x);
}

static void a_death_is_an_error_and_leaves_memory_alone(void **s)
{
    (void)s;
    wt_run_job(&(const wt_job){.ranks = 3,
                               .settings = "TIMEOUT=60s",
                               .body = death_body,
                               .doomed = 1u << 1});
}

static void free_it(weft_request *request, weft_status status, void *block)
{
    (void)request;
    (void)status;
    weft_arena_free(block);
}

/* The others may not know yet that it gave up when it frees its buffer. */
static void given_up_body(weft_world *world)
{
    weft_request *request = NULL;
    weft_comm *dup = NULL;
    float *x = NULL;

    WT_OK(weft_arena_alloc(world, MANY * sizeof(float), (void **)&x));
    memset(x, 0, MANY * sizeof(float));
    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    if (weft_world_rank(world) == 0) {
        WT_OK(weft_iallreduce(dup, x, x, MANY, WEFT_F32, WEFT_SUM, &request));
        WT_OK(weft_request_on_done(request, free_it, x));
        weft_request_release(request);
        weft_comm_destroy(dup);
        WT_CHECK(ask(world).in_use == 0 && ask(world).held > 0);
        wt_meet();
    } else {
        wt_meet();
        weft_comm_destroy(dup);
        weft_arena_free(x);
    }
}

static void what_is_freed_with_a_request_that_fails_is_not_used_again(void **s)
{
    (void)s;
    wt_run_both(2, "TIMEOUT=60s", given_up_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            each_source_is_read_where_it_lies_on_every_communicator),
        cmocka_unit_test(each_of_two_nodes_has_its_own),
        cmocka_unit_test(one_rank_takes_a_block_without_the_others),
        cmocka_unit_test(where_one_rank_has_none_the_node_has_none),
        cmocka_unit_test(the_setting_bounds_it),
        cmocka_unit_test(blocks_outlive_the_world),
        cmocka_unit_test(a_death_is_an_error_and_leaves_memory_alone),
        cmocka_unit_test(
            what_is_freed_with_a_request_that_fails_is_not_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
