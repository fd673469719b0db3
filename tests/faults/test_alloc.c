/* SPDX-License-Identifier: Apache-2.0 */
/* Fail the 1st, 2nd, 3rd... allocation in turn: each is told of, none leaks,
 * none crashes, and the peers of the rank it hit are not left hanging. */
#include <stdlib.h>

#include "base/alloc.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_fault.h"
#include "wt_proc.h"

/* Far longer than a test may take: who is told only then fails it. */
#define PATIENT "TIMEOUT=1800s BOOT_TIMEOUT=1800s"

/* Words of the board. */
enum { OVER };

static void check_told(weft_status st, unsigned nth)
{
    if (st != WEFT_OK && st != WEFT_ERR_NOMEM) {
        WT_FAIL("allocation %u: %s: %s", nth, weft_status_name(st),
                weft_error_detail());
    }
}

/* --- alone --------------------------------------------------------------- */

static void alone_world_body(void)
{
    unsigned fds = wt_count_fds();
    bool left = false;

    for (unsigned nth = 1; !left; nth++) {
        weft_world *world = NULL;
        weft_status st;

        wf_alloc_fail_nth(nth);
        st = wt_join(NULL, nth, &world);
        left = wt_starved_left(nth);
        check_told(st, nth);
        WT_CHECK((st == WEFT_OK) == (world != NULL));
        WT_CHECK(!left || st == WEFT_OK);
        weft_world_destroy(world);
        WT_CHECK(wt_count_fds() == fds);
    }
}

static void making_a_world_survives_any_failed_allocation(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 1, .bare = alone_world_body});
}

enum { DUP, SPLIT, SUBSET, GROUP, COMM_CALLS };

static weft_status make_comm(weft_comm *comm, unsigned how, weft_comm **out)
{
    const uint32_t all[] = {0, 1, 2};

    switch (how) {
    case DUP:
        return weft_comm_dup(comm, out);
    case SPLIT:
        return weft_comm_split(comm, 0, 0, out);
    case SUBSET:
        return weft_comm_subset(comm, all, weft_comm_size(comm), out);
    default:
        return weft_comm_create_group(comm, all, weft_comm_size(comm), 0, 0,
                                      out);
    }
}

static void alone_comm_body(weft_world *world)
{
    for (unsigned how = 0; how < COMM_CALLS; how++) {
        bool left = false;

        for (unsigned nth = 1; !left; nth++) {
            weft_comm *comm = NULL;
            weft_status st;

            wf_alloc_fail_nth(nth);
            st = make_comm(weft_world_comm(world), how, &comm);
            left = wt_starved_left(nth);
            check_told(st, nth);
            WT_CHECK((st == WEFT_OK) == (comm != NULL));
            if (comm != NULL) {
                WT_OK(weft_barrier(comm));
            }
            weft_comm_destroy(comm);
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void making_a_communicator_survives_any_failed_allocation(void **state)
{
    (void)state;
    wt_run_both(1, NULL, alone_comm_body);
}

/* --- one rank of three --------------------------------------------------- */

/* Join, with a lack of memory on one rank. */
static weft_status join(unsigned nth, weft_world **out)
{
    weft_world_options options = {.size = sizeof(options), .settings = PATIENT};
    weft_boot *boot = wt_boot(nth);
    weft_status st;

    options.boot = boot;
    wf_alloc_fail_nth(wt_rank() == 1 ? nth : 0);
    st = weft_world_create(&options, out);
    if (wt_rank() == 1) {
        bool left = wt_starved_left(nth);

        check_told(st, nth);
        atomic_store(wt_word(OVER), left);
    }
    weft_boot_close(boot);
    return st;
}

/* The peers end at once, with the world or with an error. */
static void joining_body(void)
{
    unsigned step = wt_full() ? 1 : 5;

    for (unsigned nth = 1; atomic_load(wt_word(OVER)) == 0; nth += step) {
        weft_world *world = NULL;
        double began = wt_now();
        weft_status st = join(nth, &world);

        if (wt_now() - began > wt_death_bound()) {
            WT_FAIL("allocation %u: told only after %.2f s: %s", nth,
                    wt_now() - began, weft_error_detail());
        }
        WT_CHECK((st == WEFT_OK) == (world != NULL));
        weft_world_destroy(world);
        wt_meet();
    }
}

static void peers_of_a_rank_without_memory_end_at_once(void **state)
{
    (void)state;
    wt_run_job_both(
        &(wt_job){.ranks = 3, .bare = joining_body, .deadline = 120});
}

/* A fresh world for each try, since a communicator may be broken by it. */
static void splitting_body(void)
{
    for (unsigned nth = 1; atomic_load(wt_word(OVER)) == 0; nth++) {
        weft_world *world = NULL;
        weft_comm *comm = NULL;
        double began;
        weft_status st;

        WT_OK(wt_join(PATIENT, nth, &world));
        began = wt_now();
        if (wt_rank() == 1) {
            wf_alloc_fail_nth(nth);
        }
        st = weft_comm_split(weft_world_comm(world), 0, 0, &comm);
        if (wt_rank() == 1) {
            bool left = wt_starved_left(nth);

            check_told(st, nth);
            atomic_store(wt_word(OVER), left);
        }
        WT_CHECK((st == WEFT_OK) == (comm != NULL));
        WT_CHECK(wt_now() - began < wt_death_bound());
        weft_comm_destroy(comm);
        wt_meet();
        weft_world_destroy(world);
    }
}

static void peers_of_a_split_without_memory_end_at_once(void **state)
{
    (void)state;
    wt_run_job_both(
        &(wt_job){.ranks = 3, .bare = splitting_body, .deadline = 120});
}

/* --- requests ------------------------------------------------------------ */

/* What failed for lack of memory did not happen, and can be done again. */
static void requests_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    size_t sizes[] = {1, 1000, wt_scaled(300000)};
    float *x = calloc(sizes[2], sizeof(*x));
    bool left = false;

    WT_CHECK(x != NULL);
    for (unsigned i = 0; i < 3 * 12; i++) {
        size_t n = sizes[i % 3];
        weft_request *request = NULL;
        weft_status st;

        x[0] = 1;
        if (weft_world_rank(world) == 1) {
            wf_alloc_fail_nth(1 + i / 3);
        }
        st = weft_iallreduce(comm, x, x, n, WEFT_F32, WEFT_SUM, &request);
        left = wt_starved_left(1 + i / 3);
        check_told(st, 1 + i / 3);
        if (st != WEFT_OK) {
            WT_CHECK(request == NULL);
            WT_OK(weft_iallreduce(comm, x, x, n, WEFT_F32, WEFT_SUM, &request));
        }
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        WT_CHECK(x[0] == (float)weft_world_size(world));
    }
    WT_CHECK(left || weft_world_rank(world) != 1);
    free(x);
}

static void a_request_without_memory_can_be_made_again(void **state)
{
    (void)state;
    wt_run_both(1, NULL, requests_body);
    wt_run_both(3, NULL, requests_body);
}

/* --- every collective ---------------------------------------------------- */

static wt_coll call_of(wt_coll_kind kind, unsigned i)
{
    return (wt_coll){.kind = kind,
                     .type = WEFT_F32,
                     .op = WEFT_SUM,
                     .n = i % 2 == 0 ? 5 : wt_scaled(50000),
                     .root = i % 3,
                     .seed = i};
}

/* As requests_body, with any collective: the request is all the memory that
 * shared memory needs. */
static void any_request_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < WT_COLLS * 6; i++) {
        wt_coll what = call_of((wt_coll_kind)(i / 6), i);
        weft_request *request = NULL;
        wt_call call;
        weft_status st;

        what.root %= weft_comm_size(comm);
        wt_call_init(&call, comm, &what, NULL);
        if (weft_world_rank(world) == weft_world_size(world) - 1) {
            wf_alloc_fail_nth(1 + i % 6 / 2);
        }
        st = wt_call_start(&call, &request);
        wf_alloc_fail_nth(0);
        check_told(st, 1 + i % 6 / 2);
        if (st != WEFT_OK) {
            WT_CHECK(request == NULL);
            WT_OK(wt_call_start(&call, &request));
        }
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        wt_call_check(&call);
        wt_call_fini(&call);
    }
}

static void any_request_without_memory_can_be_made_again(void **state)
{
    (void)state;
    wt_run_both(1, NULL, any_request_body);
    wt_run_both(3, NULL, any_request_body);
}

/* The message engine needs memory for data of others: without it the call
 * fails, or the request and with it the communicator on all ranks. */
static void starve(weft_world *world, const wt_coll *what, unsigned nth,
                   bool by_request)
{
    bool starved = weft_world_rank(world) == 1;
    weft_comm *comm = NULL;
    wt_call call;
    weft_status st;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    weft_comm_set_timeout(comm, 10 * WT_SLOWDOWN);
    wt_call_init(&call, comm, what, NULL);
    wf_alloc_fail_nth(starved ? nth : 0);
    st = by_request ? wt_call_run_request(&call) : wt_call_run(&call);
    if (starved) {
        atomic_store(wt_word(OVER), wt_starved_left(nth));
    }
    if (starved || st != WEFT_ERR_ABORTED) {
        check_told(st, nth);
    }
    if (st == WEFT_OK) {
        wt_call_check(&call);
    } else if (starved) {
        /* A call that was refused did not happen: nobody else knows of it. */
        weft_comm_abort(comm, "there was no memory");
    }
    wt_call_fini(&call);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static void starving_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * 4; i++) {
        wt_coll what = call_of((wt_coll_kind)(i / 4), i);
        bool over = false;

        what.rounded_often = true;
        for (unsigned nth = 1; !over; nth++) {
            starve(world, &what, nth, i / 2 % 2 != 0);
            over = atomic_load(wt_word(OVER)) != 0;
            WT_OK(weft_barrier(weft_world_comm(world)));
        }
    }
}

static void messages_without_memory_for_data_of_others_fail(void **state)
{
    (void)state;
    wt_run_both(3, "ENGINE=message", starving_body);
}

/* Blocking calls allocate nothing, so that memory cannot run out in them. */
static void blocking_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * 2; i++) {
        wt_coll what = call_of((wt_coll_kind)(i / 2), i);
        wt_call call;

        what.root %= weft_world_size(world);
        wt_call_init(&call, weft_world_comm(world), &what, NULL);
        wf_alloc_fail_nth(1);
        WT_OK(wt_call_run(&call));
        if (!wt_starved_left(1)) {
            WT_FAIL("%s allocates memory", wt_coll_name(what.kind));
        }
        wt_call_check(&call);
        wt_call_fini(&call);
    }
}

static void blocking_collectives_allocate_nothing(void **state)
{
    (void)state;
    wt_run_both(1, NULL, blocking_body);
    wt_run_both(3, NULL, blocking_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_a_world_survives_any_failed_allocation),
        cmocka_unit_test(making_a_communicator_survives_any_failed_allocation),
        cmocka_unit_test(peers_of_a_rank_without_memory_end_at_once),
        cmocka_unit_test(peers_of_a_split_without_memory_end_at_once),
        cmocka_unit_test(a_request_without_memory_can_be_made_again),
        cmocka_unit_test(any_request_without_memory_can_be_made_again),
        cmocka_unit_test(messages_without_memory_for_data_of_others_fail),
        cmocka_unit_test(blocking_collectives_allocate_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
