/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that stand on their own: made out of a communicator whatever state it
 * is in, and without a mark on it. */
#include <pthread.h>

#include "wt.h"
#include "wt_cmocka.h"

static void expect_works(weft_comm *comm, int64_t size)
{
    int64_t x = 1;

    WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == size);
    WT_OK(weft_barrier(comm));
}

/* Rank 1 stands aside. */
static void members_body(weft_world *world)
{
    static const uint32_t members[] = {3, 0, 2};
    weft_comm *all = weft_world_comm(world);
    weft_comm *comm = NULL;

    if (weft_world_rank(world) != 1) {
        WT_OK(weft_comm_create_group(all, members, 3, 7, 12.5, &comm));
        WT_CHECK(weft_comm_world_rank(comm, 0) == 3);
        WT_CHECK(weft_comm_timeout(comm) == 12.5);
        expect_works(comm, 3);
        weft_comm_destroy(comm);
        WT_OK(weft_comm_create_group(all, members, 3, 7, 0, &comm));
        WT_CHECK(weft_comm_timeout(comm) == weft_comm_timeout(all));
        weft_comm_destroy(comm);
    }
    expect_works(all, 4);
}

static void its_members_alone_make_a_group_with_its_own_timeout(void **state)
{
    (void)state;
    wt_run_both(4, NULL, members_body);
    wt_run_nodes(2, 2, members_body);
}

/* --- states of the other communicator --------------------------------------
 */

static void broken_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2};
    weft_comm *group = NULL;
    weft_comm *other = NULL;
    weft_comm *dup = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    if (weft_world_rank(world) == 0) { /* the others may not know yet */
        weft_comm_abort(dup, "the test");
    }
    WT_OK(weft_comm_create_group(dup, all, 3, 0, 0, &group));
    expect_works(group, 3);
    WT_STATUS(weft_comm_error(dup), WEFT_ERR_ABORTED);
    WT_OK(weft_comm_create_group(group, all, 3, 0, 0, &other));
    weft_comm_abort(group, "the test");
    expect_works(other, 3);
    expect_works(weft_world_comm(world), 3);
    weft_comm_destroy(group);
    weft_comm_destroy(other);
    weft_comm_destroy(dup);
}

static void a_broken_one_makes_groups_and_a_broken_group_breaks_none(void **s)
{
    (void)s;
    wt_run_both(3, NULL, broken_body);
}

/* Rank 2 does not come. */
static void missing_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2};
    weft_comm *comm = weft_world_comm(world);
    weft_comm *group = NULL;

    if (weft_world_rank(world) != 2) {
        WT_STATUS(weft_comm_create_group(comm, all, 3, 1, 0.05, &group),
                  WEFT_ERR_TIMEOUT);
        WT_CHECK(group == NULL);
    }
    expect_works(comm, 3);
    /* Late mail of tag 1 is not taken for that of tag 2. */
    WT_OK(weft_comm_create_group(comm, all, 3, 2, 0, &group));
    expect_works(group, 3);
    weft_comm_destroy(group);
}

static void a_member_that_does_not_come_leaves_the_other_one_whole(void **state)
{
    (void)state;
    wt_run_both(3, NULL, missing_body);
}

/* --- threads ---------------------------------------------------------------
 */

enum { THREADS = 3, ROUNDS = 10 };

typedef struct maker {
    weft_comm *comm;
    unsigned rank;
    unsigned number;
} maker;

/* Thread 0 computes on the communicator out of which the others make groups. */
static void *maker_main(void *arg)
{
    static const uint32_t all[] = {0, 1, 2};
    const maker *m = arg;

    wt_speak_for(m->rank);
    for (unsigned i = 0; i < ROUNDS; i++) {
        weft_comm *group = NULL;

        if (m->number == 0) {
            expect_works(m->comm, 3);
            continue;
        }
        WT_OK(weft_comm_create_group(m->comm, all, 3, m->number, 0, &group));
        expect_works(group, 3);
        weft_comm_destroy(group);
    }
    return NULL;
}

static void threads_body(weft_world *world)
{
    pthread_t thread[THREADS];
    maker m[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        m[i] = (maker){weft_world_comm(world), weft_world_rank(world), i};
        WT_CHECK(pthread_create(&thread[i], NULL, maker_main, &m[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void threads_make_groups_of_different_tags_while_one_computes(void **s)
{
    (void)s;
    wt_run_both(3, NULL, threads_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_members_alone_make_a_group_with_its_own_timeout),
        cmocka_unit_test(
            a_broken_one_makes_groups_and_a_broken_group_breaks_none),
        cmocka_unit_test(
            a_member_that_does_not_come_leaves_the_other_one_whole),
        cmocka_unit_test(
            threads_make_groups_of_different_tags_while_one_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
