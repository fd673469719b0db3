/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that never makes a call, or that gives up while the others are in it:
 * every collective ends on all other ranks, with an error that says who. */
#include <stdio.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

enum { ABSENT = 1 };

/* Words of the board: how many ranks are about to call; whether one of them was
 * too late. */
enum { COMING, LATE };

/* A rank that names another than it should has not waited for long enough, up
 * to this. */
#define LONGEST_WAIT_S 16.0

static wt_coll call_of(unsigned i)
{
    return (wt_coll){.kind = (wt_coll_kind)(i / 2),
                     .type = WEFT_F32,
                     .op = WEFT_SUM,
                     .n = i % 2 == 0 ? 8 : wt_scaled(50000),
                     .root = i / 2 % 3,
                     .seed = i};
}

/* Whoever needs nothing of the absent rank may get through the call itself, but
 * not through a barrier. */
static weft_status call_without(weft_comm *comm, unsigned i)
{
    wt_coll what = call_of(i);
    wt_call call;
    weft_status st;

    wt_call_init(&call, comm, &what, NULL);
    wt_word_add(COMING, 1);
    st = i / 4 % 2 == 0 ? wt_call_run(&call) : wt_call_run_request(&call);
    if (st == WEFT_OK) {
        st = weft_barrier(comm);
    }
    wt_call_fini(&call);
    return st;
}

static void check_told(weft_comm *comm, weft_status st, weft_status want,
                       unsigned i)
{
    wt_coll what = call_of(i);
    char text[400];

    wt_coll_text(&what, text, sizeof(text));
    if (st != want || !wt_names_rank(weft_error_detail(), ABSENT)) {
        WT_FAIL("%s: %s (%s)", text, weft_status_name(st),
                st == WEFT_OK ? "no error" : weft_error_detail());
    }
    WT_STATUS(weft_comm_error(comm), want);
}

/* Does any rank say that one came too late? All ranks call it. */
static bool was_late(weft_world *world)
{
    bool late;

    WT_OK(weft_barrier(weft_world_comm(world)));
    late = atomic_load(wt_word(LATE)) != 0;
    WT_OK(weft_barrier(weft_world_comm(world)));
    wt_word_set(LATE, 0);
    return late;
}

/* --- it never calls ------------------------------------------------------ */

/* False if one of those who call came so late that the other took it for the
 * absent one. */
static bool never_calls(weft_world *world, unsigned i, double seconds)
{
    weft_comm *comm = NULL;
    bool late;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    weft_comm_set_timeout(comm, seconds);
    if (weft_comm_rank(comm) != ABSENT) {
        weft_status st = call_without(comm, i);

        if (st == WEFT_ERR_TIMEOUT && seconds < LONGEST_WAIT_S &&
            !wt_names_rank(weft_error_detail(), ABSENT)) {
            wt_word_set(LATE, 1);
        } else {
            check_told(comm, st, WEFT_ERR_TIMEOUT, i);
        }
    }
    late = was_late(world);
    weft_comm_destroy(comm);
    return !late;
}

static void never_calls_body(weft_world *world)
{
    for (unsigned i = 0; i < 2 * WT_COLLS; i++) {
        double seconds = 0.1;

        /* In the short run small and large ones take turns. */
        while ((wt_full() || i % 2 == i / 2 % 2) &&
               !never_calls(world, i, seconds)) {
            seconds *= 4;
        }
    }
}

static void a_rank_that_never_calls_is_named(void **state)
{
    (void)state;
    wt_run_both(3, NULL, never_calls_body);
    wt_run_threads(3, "ENGINE=message", never_calls_body);
}

/* --- who gives up first waits for one that waits ------------------------- */

/* Ranks 0 and 1 are on a node, and 2 and 3 on another; ranks 0 and 2 compare
 * calls for their nodes. `hasty` does not wait for `absent` but for one who
 * does. */
typedef struct chain {
    unsigned absent;
    unsigned hasty;
    double seconds; /* of the hasty one: heartbeats tell what far ranks do */
} chain;

/* False if the ranks between had not shown in time whom they wait for. */
static bool wait_in_chain(weft_world *world, const chain *who, double seconds,
                          bool asks)
{
    weft_comm *comm = NULL;
    weft_request *request = NULL;
    float x[8] = {0};
    weft_status st;
    bool late;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    weft_comm_set_timeout(comm, wt_rank() == who->hasty ? seconds : 60.0);
    if (wt_rank() != who->absent) {
        if (asks) {
            WT_OK(weft_iallreduce(comm, x, x, 8, WEFT_F32, WEFT_SUM, &request));
            st = weft_request_wait(request, 0);
            weft_request_release(request);
        } else {
            st = weft_allreduce(comm, x, x, 8, WEFT_F32, WEFT_SUM);
        }
        WT_STATUS(st, WEFT_ERR_TIMEOUT);
        if (!wt_names_rank(weft_error_detail(), who->absent)) {
            if (seconds >= LONGEST_WAIT_S) {
                WT_FAIL("rank %u is not named: %s", who->absent,
                        weft_error_detail());
            }
            wt_word_set(LATE, 1);
        }
    }
    late = was_late(world);
    weft_comm_destroy(comm);
    return !late;
}

static void wait_in_chain_body(weft_world *world)
{
    static const chain who[] = {{2, 1, 1.0}, {3, 0, 4.0}};

    for (unsigned i = 0; i < 4; i++) {
        double seconds = who[i / 2].seconds;

        while (!wait_in_chain(world, &who[i / 2], seconds, i % 2 != 0)) {
            seconds *= 4;
        }
    }
}

static void who_waits_for_one_that_waits_names_both(void **state)
{
    wt_job job = wt_job_on_nodes(2, 2, wait_in_chain_body);

    (void)state;
    wt_run_job_both(&job);
}

/* --- two that wait for each other ---------------------------------------- */

/* Rank 0 calls on one communicator, and rank 1 on another. */
static bool wait_for_each_other(weft_world *world, double seconds)
{
    weft_comm *comm[2] = {NULL, NULL};
    weft_status st;
    bool late;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm[0]));
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm[1]));
    weft_comm_set_timeout(comm[0], seconds);
    st = weft_barrier(comm[wt_rank()]);
    if (wt_rank() == 1) {
        WT_OK(st);
    } else {
        WT_STATUS(st, WEFT_ERR_TIMEOUT);
        if (strstr(weft_error_detail(), ", waiting for rank 0 in turn") ==
            NULL) {
            if (seconds >= LONGEST_WAIT_S) {
                WT_FAIL("%s", weft_error_detail());
            }
            wt_word_set(LATE, 1);
        }
        WT_CHECK(strstr(weft_error_detail(), "waiting for rank 0 (") == NULL);
        WT_OK(weft_barrier(comm[1]));
    }
    late = was_late(world);
    weft_comm_destroy(comm[1]);
    weft_comm_destroy(comm[0]);
    return !late;
}

static void wait_for_each_other_body(weft_world *world)
{
    double seconds = 0.5;

    while (!wait_for_each_other(world, seconds)) {
        seconds *= 4;
    }
}

static void two_that_wait_for_each_other_are_told_so(void **state)
{
    wt_job job = wt_job_on_nodes(1, 2, wait_for_each_other_body);

    (void)state;
    wt_run_job_both(&job);
}

/* --- it gives up --------------------------------------------------------- */

static void aborts_body(weft_world *world)
{
    uint32_t ranks = weft_world_size(world);

    for (unsigned i = 0; i < 2 * WT_COLLS; i++) {
        weft_comm *comm = NULL;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        if (weft_comm_rank(comm) == ABSENT) {
            wt_word_await(COMING, (i + 1) * (ranks - 1));
            weft_comm_abort(comm, "for a reason");
        } else {
            check_told(comm, call_without(comm, i), WEFT_ERR_ABORTED, i);
            WT_CHECK(strstr(weft_error_detail(), "for a reason") != NULL);
        }
        WT_OK(weft_barrier(weft_world_comm(world)));
        weft_comm_destroy(comm);
    }
}

static void a_rank_that_gives_up_ends_every_call(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", aborts_body);
    wt_run_both(4, "TIMEOUT=1800s", aborts_body);
    wt_run_both(3, "TIMEOUT=1800s ENGINE=message", aborts_body);
}

/* In the middle: some rounds go well, then one rank gives up where the others
 * do not expect it. */
static void aborts_in_the_middle_body(weft_world *world)
{
    for (unsigned i = 0; i < 2 * WT_COLLS; i++) {
        wt_coll what = call_of(i);
        weft_comm *comm = NULL;
        wt_call call;
        weft_status st = WEFT_OK;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        wt_call_init(&call, comm, &what, NULL);
        for (unsigned round = 0; st == WEFT_OK; round++) {
            weft_request *request = NULL;

            st = wt_call_start(&call, &request);
            if (round == i % 4 && weft_comm_rank(comm) == ABSENT) {
                weft_comm_abort(comm, "for a reason");
            }
            st = request != NULL ? weft_request_wait(request, 0) : st;
            weft_request_release(request);
        }
        check_told(comm, st, WEFT_ERR_ABORTED, i);
        wt_call_fini(&call);
        WT_OK(weft_barrier(weft_world_comm(world)));
        weft_comm_destroy(comm);
    }
}

static void giving_up_in_the_middle_ends_every_request(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", aborts_in_the_middle_body);
    wt_run_both(3, "TIMEOUT=1800s ENGINE=message", aborts_in_the_middle_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_never_calls_is_named),
        cmocka_unit_test(who_waits_for_one_that_waits_names_both),
        cmocka_unit_test(two_that_wait_for_each_other_are_told_so),
        cmocka_unit_test(a_rank_that_gives_up_ends_every_call),
        cmocka_unit_test(giving_up_in_the_middle_ends_every_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
