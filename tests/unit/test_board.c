/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking over the board, in each of its three ways: with a
 * barrier by the sleeper, with a fence by the poster, and with neither.
 *
 * A wake-up that is lost leaves its sleeper where it is until its time is up,
 * which no wake-up that comes needs nearly as long for. */
#include "mem/board.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/time.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { RANKS_MAX = 4, ROUNDS = WT_TSAN ? 2000 : 20000 };

#define PATIENCE_NS (20 * WF_SEC)

/* A word on a cache line of its own. */
typedef struct word {
    alignas(64) _Atomic uint32_t value;
} word;

/* Both lie in memory that forked ranks share. */
static wf_board *board;
static word *posted; /* by rank: the last round it posted */

enum {
    BOARD_BYTES = sizeof(wf_board) + RANKS_MAX * sizeof(wf_board_rank),
    STAGE_BYTES = BOARD_BYTES + RANKS_MAX * sizeof(word)
};

static void stage_open(uint32_t fence, uint32_t unfenced)
{
    char *memory = mmap(NULL, STAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    board = (wf_board *)(void *)memory;
    posted = (word *)(void *)(memory + BOARD_BYTES);
    atomic_store(&board->unfenced, unfenced);
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        board->rank[i].fence = fence;
    }
}

static void stage_close(void)
{
    munmap(board, STAGE_BYTES);
}

static bool has_posted(uint32_t rank, uint32_t value)
{
    /* Pairs with the release in post. */
    return atomic_load_explicit(&posted[rank].value, memory_order_acquire) >=
           value;
}

static void post(uint32_t value)
{
    atomic_store_explicit(&posted[wt_rank()].value, value,
                          memory_order_release);
    for (uint32_t to = 0; to < wt_ranks(); to++) {
        if (to != wt_rank()) {
            wf_board_ring(&board->rank[to]);
        }
    }
}

/* Look for a while that differs from round to round and go to sleep then: many
 * a time the post comes at the very moment at which the sleeper lies down. */
static bool look(uint32_t rank, uint32_t round)
{
    for (uint32_t i = 0; i < round * 7 % 61; i++) {
        if (has_posted(rank, round)) {
            return true;
        }
    }
    return has_posted(rank, round);
}

static void await(uint32_t rank, uint32_t round)
{
    wf_board_rank *self = &board->rank[wt_rank()];
    uint64_t until = wf_now_ns() + PATIENCE_NS;

    while (!look(rank, round)) {
        uint32_t bell = wf_board_drowse(board, self);

        if (!has_posted(rank, round)) {
            wf_board_sleep(board, self, bell, until);
        }
        wf_board_awake(self);
        if (wf_now_ns() >= until) {
            WT_FAIL("the wake-up for round %u of rank %u was lost", round,
                    rank);
        }
    }
}

/* Rank 0 goes on when all others have, and they when it has: nobody posts twice
 * while another sleeps, which would make up for a wake-up that was lost. */
static void take_turns(void)
{
    uint32_t self = wt_rank();

    if (!wf_board_register_barrier() && atomic_load(&board->unfenced) == 0 &&
        board->rank[self].fence == 0) {
        WT_SKIP("no membarrier here");
    }
    wt_meet();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (self == 0) {
            for (uint32_t i = 1; i < wt_ranks(); i++) {
                await(i, round);
            }
            post(round);
        } else {
            post(round);
            await(0, round);
        }
    }
    WT_CHECK(atomic_load(&board->rank[self].asleep) == 0);
}

static void run_turns(unsigned ranks, uint32_t fence, uint32_t unfenced)
{
    wt_job job = {.ranks = ranks, .bare = take_turns};

    if (!WT_TSAN) {
        stage_open(fence, unfenced);
        wt_run_job(&job);
        stage_close();
    }
    stage_open(fence, unfenced);
    wt_run_job_threads(&job);
    stage_close();
}

static void no_wake_up_is_lost_when_the_sleeper_has_a_barrier(void **state)
{
    (void)state;
    run_turns(2, 0, 0);
}

static void no_wake_up_is_lost_when_the_poster_fences(void **state)
{
    (void)state;
    run_turns(2, 1, 0);
}

static void a_lost_wake_up_is_made_up_for_without_barriers(void **state)
{
    (void)state;
    run_turns(2, 0, 1);
}

static void a_fence_is_enough_where_there_is_no_barrier(void **state)
{
    (void)state;
    run_turns(2, 1, 1);
}

static void no_wake_up_of_several_posters_is_lost(void **state)
{
    (void)state;
    run_turns(4, 0, 0);
    run_turns(4, 1, 0);
}

/* --- one thread, step by step --------------------------------------------- */

static void ringing_for_a_rank_that_is_awake_does_nothing(void **state)
{
    wf_board_rank *r;

    (void)state;
    stage_open(1, 0);
    r = &board->rank[0];
    wf_board_ring(r);
    assert_int_equal(atomic_load(&r->bell), 0);
    wf_board_drowse(board, r);
    wf_board_awake(r);
    wf_board_ring(r);
    assert_int_equal(atomic_load(&r->bell), 0);
    assert_int_equal(atomic_load(&r->asleep), 0);
    stage_close();
}

/* These sleeps have no end of their own: the test hangs if they do not end. */
static void a_bell_that_rang_before_the_sleep_ends_it_at_once(void **state)
{
    wf_board_rank *r;

    (void)state;
    stage_open(1, 0);
    r = &board->rank[0];
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t bell = wf_board_drowse(board, r);

        assert_int_equal(bell, i);
        wf_board_ring(r);
        assert_int_equal(atomic_load(&r->bell), i + 1);
        wf_board_sleep(board, r, bell, UINT64_MAX);
        wf_board_awake(r);
    }
    stage_close();
}

static void a_bell_may_go_round(void **state)
{
    wf_board_rank *r;
    uint32_t bell;

    (void)state;
    stage_open(1, 0);
    r = &board->rank[0];
    atomic_store(&r->bell, UINT32_MAX);
    bell = wf_board_drowse(board, r);
    assert_int_equal(bell, UINT32_MAX);
    wf_board_ring(r);
    assert_int_equal(atomic_load(&r->bell), 0);
    wf_board_sleep(board, r, bell, UINT64_MAX);
    wf_board_awake(r);
    stage_close();
}

static void a_sleep_ends_when_its_time_is_up(void **state)
{
    wf_board_rank *r;
    uint64_t until;
    uint32_t bell;

    (void)state;
    stage_open(1, 0);
    r = &board->rank[0];
    bell = wf_board_drowse(board, r);
    wf_board_sleep(board, r, bell, 0);
    until = wf_now_ns() + WF_MS;
    while (wf_now_ns() < until) {
        wf_board_sleep(board, r, bell, until);
    }
    wf_board_awake(r);
    assert_int_equal(atomic_load(&r->bell), bell);
    stage_close();
}

static void without_any_barrier_a_sleeper_wakes_by_itself(void **state)
{
    wf_board_rank *r;
    uint32_t bell;

    (void)state;
    stage_open(0, 1);
    r = &board->rank[0];
    bell = wf_board_drowse(board, r);
    wf_board_sleep(board, r, bell, UINT64_MAX);
    wf_board_awake(r);
    assert_int_equal(atomic_load(&r->bell), bell);
    stage_close();
}

/* --- several threads of one rank ------------------------------------------ */

static _Atomic uint32_t finished;

static void *sleep_for_value(void *unused)
{
    wf_board_rank *self = &board->rank[0];

    (void)unused;
    while (!has_posted(1, 1)) {
        uint32_t bell = wf_board_drowse(board, self);

        if (!has_posted(1, 1)) {
            wf_board_sleep(board, self, bell, UINT64_MAX);
        }
        wf_board_awake(self);
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

static void one_ring_wakes_all_threads_of_a_rank(void **state)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    wf_board_rank *r;

    (void)state;
    stage_open(1, 0);
    r = &board->rank[0];
    atomic_store(&finished, 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&thread[i], NULL, sleep_for_value, NULL), 0);
    }
    while (atomic_load(&r->asleep) < THREADS) {
        wf_cpu_relax();
    }
    atomic_store(&posted[1].value, 1);
    wf_board_ring(r);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_int_equal(atomic_load(&finished), THREADS);
    assert_int_equal(atomic_load(&r->asleep), 0);
    stage_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_lost_when_the_sleeper_has_a_barrier),
        cmocka_unit_test(no_wake_up_is_lost_when_the_poster_fences),
        cmocka_unit_test(a_lost_wake_up_is_made_up_for_without_barriers),
        cmocka_unit_test(a_fence_is_enough_where_there_is_no_barrier),
        cmocka_unit_test(no_wake_up_of_several_posters_is_lost),
        cmocka_unit_test(ringing_for_a_rank_that_is_awake_does_nothing),
        cmocka_unit_test(a_bell_that_rang_before_the_sleep_ends_it_at_once),
        cmocka_unit_test(a_bell_may_go_round),
        cmocka_unit_test(a_sleep_ends_when_its_time_is_up),
        cmocka_unit_test(without_any_barrier_a_sleeper_wakes_by_itself),
        cmocka_unit_test(one_ring_wakes_all_threads_of_a_rank),
    };

    return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
