/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: who is in them, in what order, and how they end. */
#include <pthread.h>

#include "wt.h"
#include "wt_cmocka.h"

/* The sum of the members' world ranks tells whether the right ones took part.
 */
static void check_members(weft_comm *comm, const uint32_t *members, unsigned n)
{
    uint32_t me = weft_world_rank(weft_comm_world(comm));
    int64_t sum = me;
    int64_t want = 0;

    WT_CHECK(weft_comm_size(comm) == n);
    for (unsigned i = 0; i < n; i++) {
        WT_CHECK(weft_comm_world_rank(comm, i) == members[i]);
        WT_CHECK((members[i] == me) == (weft_comm_rank(comm) == i));
        want += members[i];
    }
    WT_CHECK(weft_comm_world_rank(comm, n) == UINT32_MAX);
    WT_OK(weft_allreduce(comm, &sum, &sum, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(sum == want);
    WT_OK(weft_barrier(comm));
}

/* --- split --------------------------------------------------------------- */

static void colour_body(weft_world *world)
{
    static const uint32_t even[] = {0, 2, 4};
    static const uint32_t odd[] = {1, 3};
    uint32_t me = weft_world_rank(world);
    weft_comm *comm = NULL;

    WT_OK(weft_comm_split(weft_world_comm(world), me % 2, 0, &comm));
    if (me % 2 == 0) {
        check_members(comm, even, 3);
    } else {
        check_members(comm, odd, 2);
    }
    weft_comm_destroy(comm);
}

static void split_parts_by_colour(void **state)
{
    (void)state;
    wt_run_both(5, NULL, colour_body);
}

static void key_body(weft_world *world)
{
    static const uint32_t backwards[] = {3, 2, 1, 0};
    static const uint32_t halves[] = {2, 3, 0, 1};
    int64_t me = weft_world_rank(world);
    weft_comm *comm = NULL;

    WT_OK(weft_comm_split(weft_world_comm(world), 7, -me, &comm));
    check_members(comm, backwards, 4);
    weft_comm_destroy(comm);
    WT_OK(weft_comm_split(weft_world_comm(world), INT64_MAX,
                          me < 2 ? INT64_MAX : INT64_MIN, &comm));
    check_members(comm, halves, 4);
    weft_comm_destroy(comm);
}

static void split_orders_by_key_and_then_by_rank(void **state)
{
    (void)state;
    wt_run_both(4, NULL, key_body);
}

static void negative_body(weft_world *world)
{
    static const uint32_t others[] = {0, 2};
    weft_comm *comm = weft_world_comm(world);

    if (weft_world_rank(world) == 1) {
        WT_OK(weft_comm_split(weft_world_comm(world), -1, 0, &comm));
        WT_CHECK(comm == NULL);
    } else {
        WT_OK(weft_comm_split(weft_world_comm(world), 0, 0, &comm));
        check_members(comm, others, 2);
    }
    weft_comm_destroy(comm);
    WT_OK(weft_comm_split(weft_world_comm(world), INT64_MIN, 0, &comm));
    WT_CHECK(comm == NULL);
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void a_negative_colour_takes_part_and_gets_no_communicator(void **state)
{
    (void)state;
    wt_run_both(3, NULL, negative_body);
}

/* 8 ranks, halved until everybody is alone, and used from the inside out. */
static void nested_body(weft_world *world)
{
    weft_comm *level[4] = {weft_world_comm(world)};

    for (unsigned i = 0; i < 3; i++) {
        uint32_t half = weft_comm_size(level[i]) / 2;
        int64_t upper = weft_comm_rank(level[i]) >= half;

        WT_OK(weft_comm_split(level[i], upper, 0, &level[i + 1]));
    }
    for (unsigned i = 4; i-- > 0;) {
        uint32_t size = 8u >> i;
        uint32_t first = weft_world_rank(world) / size * size;
        uint32_t members[8];

        for (unsigned k = 0; k < size; k++) {
            members[k] = first + k;
        }
        check_members(level[i], members, size);
    }
    /* The outer ones first: the inner ones do not live off them. */
    weft_comm_destroy(level[1]);
    WT_OK(weft_barrier(level[2]));
    weft_comm_destroy(level[2]);
    WT_OK(weft_barrier(level[3]));
    weft_comm_destroy(level[3]);
}

static void split_communicators_can_be_split_again(void **state)
{
    (void)state;
    wt_run_both(8, NULL, nested_body);
}

/* --- dup and subset ------------------------------------------------------ */

/* Half of the ranks go through a first, the others through b: only orders of
 * their own let all of them through. */
static void dup_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2, 3};
    weft_comm *a = NULL;
    weft_comm *b = NULL;
    weft_request *request[2];
    unsigned first = weft_world_rank(world) % 2;

    WT_OK(weft_comm_dup(weft_world_comm(world), &a));
    WT_OK(weft_comm_dup(a, &b));
    check_members(a, all, 4);
    check_members(b, all, 4);
    WT_OK(weft_ibarrier(first == 0 ? a : b, &request[0]));
    WT_OK(weft_ibarrier(first == 0 ? b : a, &request[1]));
    for (unsigned i = 0; i < 2; i++) {
        WT_OK(weft_request_wait(request[i], 0));
        weft_request_release(request[i]);
    }
    weft_comm_destroy(a);
    WT_OK(weft_barrier(b));
    weft_comm_destroy(b);
}

static void a_duplicate_has_an_order_of_its_own(void **state)
{
    (void)state;
    wt_run_both(4, NULL, dup_body);
}

/* Rank 1 stands aside and does not even know. */
static void subset_body(weft_world *world)
{
    static const uint32_t members[] = {3, 0, 2};
    weft_comm *comm = NULL;

    if (weft_world_rank(world) != 1) {
        WT_OK(weft_comm_subset(weft_world_comm(world), members, 3, &comm));
        check_members(comm, members, 3);
        weft_comm_destroy(comm);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void a_subset_is_made_by_its_members_alone(void **state)
{
    (void)state;
    wt_run_both(4, NULL, subset_body);
}

/* Pairs of neighbours, each made while others make theirs, again and again. */
static void pairs_body(weft_world *world)
{
    uint32_t me = weft_world_rank(world);
    uint32_t size = weft_world_size(world);

    for (unsigned round = 0; round < 10; round++) {
        for (uint32_t low = 0; low + 1 < size; low++) {
            uint32_t pair[2] = {low, low + 1};
            weft_comm *comm = NULL;

            if (me == low || me == low + 1) {
                WT_OK(weft_comm_subset(weft_world_comm(world), pair, 2, &comm));
                check_members(comm, pair, 2);
                weft_comm_destroy(comm);
            }
        }
    }
}

static void overlapping_subsets_do_not_disturb_each_other(void **state)
{
    (void)state;
    wt_run_both(4, NULL, pairs_body);
}

/* --- many, and their end ------------------------------------------------- */

enum { MANY = 60 };

static void many_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2};
    weft_comm *comm[MANY];
    uint32_t me = weft_world_rank(world);

    for (unsigned i = 0; i < MANY; i++) {
        WT_OK(weft_comm_dup(weft_world_comm(world), &comm[i]));
    }
    for (unsigned i = 0; i < MANY; i++) {
        check_members(comm[i], all, 3);
    }
    /* Each rank frees in another order. */
    for (unsigned i = 0; i < MANY; i++) {
        weft_comm_destroy(comm[(i * (1 + 6 * me) + me) % MANY]);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void sixty_communicators_live_at_once_and_end_in_any_order(void **state)
{
    (void)state;
    wt_run_both(3, NULL, many_body);
}

static void churn_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1};

    for (unsigned i = 0; i < 300; i++) {
        weft_comm *comm = NULL;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        if (i % 50 == 0) {
            check_members(comm, all, 2);
        }
        weft_comm_destroy(comm);
    }
}

static void communicators_can_be_made_and_freed_without_end(void **state)
{
    (void)state;
    wt_run_both(2, NULL, churn_body);
}

static void world_first_body(void)
{
    weft_world *world = NULL;
    weft_comm *dup = NULL;
    weft_comm *half = NULL;

    WT_OK(wt_join(NULL, 0, &world));
    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    WT_OK(weft_comm_split(dup, wt_rank() % 2, 0, &half));
    WT_OK(weft_barrier(dup));
    weft_world_destroy(world);
    if (wt_rank() == 0) {
        weft_comm_destroy(half);
        weft_comm_destroy(dup);
    } else {
        weft_comm_destroy(dup);
        weft_comm_destroy(half);
    }
}

static void the_world_can_be_destroyed_before_its_communicators(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 3, .bare = world_first_body});
}

static void harmless_body(weft_world *world)
{
    weft_comm_destroy(NULL);
    weft_comm_destroy(weft_world_comm(world));
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void destroying_nothing_or_the_worlds_own_does_nothing(void **state)
{
    (void)state;
    wt_run_both(2, NULL, harmless_body);
}

/* A rank that ended its use fails the others' next operation; it does not
 * hang it. */
static void left_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_status st = WEFT_OK;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_barrier(comm));
    /* One that is still in it when another finds the communicator broken would
     * fail, too. */
    WT_OK(weft_barrier(weft_world_comm(world)));
    if (weft_world_rank(world) == 1) {
        weft_comm_destroy(comm);
    } else {
        st = weft_barrier(comm);
        WT_CHECK(st != WEFT_OK);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        weft_comm_destroy(comm);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void an_operation_with_a_rank_that_left_is_an_error(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", left_body);
}

/* --- threads ------------------------------------------------------------- */

typedef struct worker {
    weft_comm *comm;
    unsigned rank;
    unsigned rounds;
} worker;

static void *worker_main(void *arg)
{
    worker *w = arg;
    int64_t size = weft_comm_size(w->comm);

    wt_speak_for(w->rank);
    for (unsigned i = 0; i < w->rounds; i++) {
        int64_t x[200] = {0};

        for (unsigned k = 0; k < 200; k++) {
            x[k] = k + i;
        }
        WT_OK(weft_allreduce(w->comm, x, x, 1 + i % 200, WEFT_I64, WEFT_SUM));
        WT_CHECK(x[i % 200] == size * (int64_t)(i % 200 + i));
    }
    return NULL;
}

/* Run `main` on two threads, each with a communicator of its own. */
static void run_two(weft_world *world, void *(*main)(void *), unsigned rounds)
{
    pthread_t thread[2];
    worker w[2];

    for (unsigned i = 0; i < 2; i++) {
        w[i] = (worker){NULL, weft_world_rank(world), rounds};
        WT_OK(weft_comm_dup(weft_world_comm(world), &w[i].comm));
    }
    for (unsigned i = 0; i < 2; i++) {
        WT_CHECK(pthread_create(&thread[i], NULL, main, &w[i]) == 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        weft_comm_destroy(w[i].comm);
    }
}

static void two_threads_body(weft_world *world)
{
    run_two(world, worker_main, WT_TSAN ? 50 : 300);
}

static void two_threads_use_two_communicators_at_once(void **state)
{
    (void)state;
    wt_run_both(3, NULL, two_threads_body);
    wt_run_both(3, "ENGINE=message", two_threads_body);
}

static void *maker_main(void *arg)
{
    worker *w = arg;

    wt_speak_for(w->rank);
    for (unsigned i = 0; i < w->rounds; i++) {
        weft_comm *comm = NULL;

        WT_OK(weft_comm_split(w->comm, 0, -(int64_t)w->rank, &comm));
        WT_CHECK(weft_comm_world_rank(comm, 0) + 1 == weft_comm_size(w->comm));
        WT_OK(weft_barrier(comm));
        weft_comm_destroy(comm);
    }
    return NULL;
}

static void two_makers_body(weft_world *world)
{
    run_two(world, maker_main, 20);
}

static void two_threads_make_communicators_at_once(void **state)
{
    (void)state;
    wt_run_both(3, NULL, two_makers_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_parts_by_colour),
        cmocka_unit_test(split_orders_by_key_and_then_by_rank),
        cmocka_unit_test(a_negative_colour_takes_part_and_gets_no_communicator),
        cmocka_unit_test(split_communicators_can_be_split_again),
        cmocka_unit_test(a_duplicate_has_an_order_of_its_own),
        cmocka_unit_test(a_subset_is_made_by_its_members_alone),
        cmocka_unit_test(overlapping_subsets_do_not_disturb_each_other),
        cmocka_unit_test(sixty_communicators_live_at_once_and_end_in_any_order),
        cmocka_unit_test(communicators_can_be_made_and_freed_without_end),
        cmocka_unit_test(the_world_can_be_destroyed_before_its_communicators),
        cmocka_unit_test(destroying_nothing_or_the_worlds_own_does_nothing),
        cmocka_unit_test(an_operation_with_a_rank_that_left_is_an_error),
        cmocka_unit_test(two_threads_use_two_communicators_at_once),
        cmocka_unit_test(two_threads_make_communicators_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
