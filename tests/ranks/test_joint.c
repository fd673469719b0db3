/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasts between two ranks, both of which copy where both buffers lie in
 * arenas (src/coll/shm/joint.c). */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

#define MOST_BYTES ((9u << 20) + 64)

/* A buffer in ordinary memory, and one in the arena. */
typedef struct buffers {
    unsigned char *at[2];
} buffers;

static void buffers_make(weft_world *world, buffers *b)
{
    void *shared = NULL;

    b->at[0] = malloc(MOST_BYTES);
    WT_CHECK(b->at[0] != NULL);
    WT_OK(weft_arena_alloc(world, MOST_BYTES, &shared));
    b->at[1] = shared;
}

static void buffers_free(buffers *b)
{
    free(b->at[0]);
    weft_arena_free(b->at[1]);
}

static unsigned char value_of(size_t i, unsigned round)
{
    return (unsigned char)(i * 7 + i / 4096 + round);
}

/* Rank `root` of `comm` sends `n` bytes; nothing around them is touched. */
static void carry_out(weft_comm *comm, unsigned char *at, size_t n,
                      uint32_t root, unsigned round)
{
    bool sends = weft_comm_rank(comm) == root;
    weft_request *request = NULL;

    memset(at, 0xee, n + 64);
    for (size_t i = 0; i < n && sends; i++) {
        at[i] = value_of(i, round);
    }
    if (round % 3 == 0) {
        WT_OK(weft_ibroadcast(comm, at, n, WEFT_U8, root, &request));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    } else {
        WT_OK(weft_broadcast(comm, at, n, WEFT_U8, root));
    }
    for (size_t i = 0; i < n; i++) {
        if (at[i] != value_of(i, round)) {
            WT_FAIL("byte %zu of %zu, round %u", i, n, round);
        }
    }
    for (size_t i = n; i < n + 64; i++) {
        WT_CHECK(at[i] == 0xee);
    }
}

static void all_places(weft_comm *comm, buffers *b)
{
    static const size_t sizes[] = {(512u << 10) - 1, 512u << 10, 700001,
                                   (1u << 20) + 64, 9u << 20};
    uint32_t rank = weft_comm_rank(comm);
    unsigned round = 0;

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (unsigned shared = 0; shared < 4; shared++) {
            unsigned char *at = b->at[shared >> rank & 1];
            unsigned off = shared == 3 ? i : 0;

            for (uint32_t root = 0; root < 2; root++) {
                carry_out(comm, at + off, wt_scaled(sizes[i]), root, round++);
            }
        }
    }
}

static void places_body(weft_world *world)
{
    static const uint32_t pair[] = {2, 0};
    weft_comm *comm = NULL;
    buffers b;

    buffers_make(world, &b);
    if (weft_world_rank(world) != 1) {
        WT_OK(weft_comm_subset(weft_world_comm(world), pair, 2, &comm));
        all_places(comm, &b);
        weft_comm_destroy(comm);
    }
    buffers_free(&b);
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void the_bytes_are_right_wherever_the_buffers_lie(void **state)
{
    (void)state;
    wt_run_both(3, NULL, places_body);
    wt_run(3, "CHUNK_BYTES=16M", places_body); /* one chunk is all of it */
}

/* The root starts its call and comes back to it when the other has ended. */
static void absent_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    size_t n = 1u << 20;
    weft_request *request = NULL;
    buffers b;

    buffers_make(world, &b);
    for (unsigned i = 0; i < 5; i++) {
        if (weft_comm_rank(comm) == 0) {
            memset(b.at[1], (int)i, n);
            WT_OK(weft_ibroadcast(comm, b.at[1], n, WEFT_U8, 0, &request));
            wt_meet();
            WT_OK(weft_request_wait(request, 0));
            weft_request_release(request);
        } else {
            WT_OK(weft_broadcast(comm, b.at[1], n, WEFT_U8, 0));
            WT_CHECK(b.at[1][0] == i && b.at[1][n - 1] == i);
            wt_meet();
        }
    }
    buffers_free(&b);
}

static void a_root_that_is_elsewhere_holds_nobody_up(void **state)
{
    (void)state;
    wt_run_both(2, NULL, absent_body);
}

/* --- death -----------------------------------------------------------------
 */

static _Atomic unsigned rounds;
static unsigned victim;

static void *killer_main(void *unused)
{
    (void)unused;
    while (atomic_load(&rounds) < 10) {
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Somewhere in the middle of a broadcast. */
static void death_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_status st = WEFT_OK;
    pthread_t killer;
    buffers b;

    buffers_make(world, &b);
    memset(b.at[1], 1, MOST_BYTES);
    if (weft_comm_rank(comm) == victim) {
        WT_CHECK(pthread_create(&killer, NULL, killer_main, NULL) == 0);
    }
    while (st == WEFT_OK) {
        st = weft_broadcast(comm, b.at[1], 4u << 20, WEFT_U8, 0);
        atomic_fetch_add(&rounds, 1);
    }
    WT_CHECK(weft_comm_rank(comm) != victim);
    WT_STATUS(st, WEFT_ERR_PEER);
    buffers_free(&b);
}

static void the_death_of_either_is_an_error_of_the_other(void **state)
{
    (void)state;
    for (victim = 0; victim < 2; victim++) {
        wt_run_job(&(const wt_job){.ranks = 2,
                                   .settings = "TIMEOUT=60s",
                                   .body = death_body,
                                   .doomed = 1u << victim});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_right_wherever_the_buffers_lie),
        cmocka_unit_test(a_root_that_is_elsewhere_holds_nobody_up),
        cmocka_unit_test(the_death_of_either_is_an_error_of_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
