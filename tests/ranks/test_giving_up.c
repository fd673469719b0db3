/* SPDX-License-Identifier: Apache-2.0 */
/* When waiting ends: because the caller says so, and not before it must. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

/* --- weft_world_options.interrupted -------------------------------------- */

enum { CALLED };

/* Long enough that nothing below ends because of it. */
#define PATIENT "TIMEOUT=3600s"
#define SOON 30.0

typedef struct caller {
    bool waits; /* in a call that it wants to give up */
    unsigned asked;
} caller;

/* Says no twice, then yes. */
static int third_time(void *ctx)
{
    caller *c = ctx;

    return c->waits && ++c->asked >= 3;
}

static weft_status join(caller *c, weft_world **out)
{
    char name[128];
    weft_boot *boot = NULL;
    weft_world_options options = {.size = sizeof(options),
                                  .settings = PATIENT,
                                  .interrupted = third_time,
                                  .ctx = c};
    weft_status st;

    wt_job_name(0, name, sizeof(name));
    WT_OK(weft_boot_open_local(name, wt_rank(), wt_ranks(), &boot));
    options.boot = boot;
    st = weft_world_create(&options, out);
    weft_boot_close(boot);
    return st;
}

/* Rank 0 waits for the other one, which does not come, in each of these. */
static weft_status wait_in_vain(weft_comm *comm, unsigned which)
{
    weft_request *request = NULL;
    weft_status st;
    float x[2] = {0, 0};

    switch (which) {
    case 0:
        return weft_barrier(comm);
    case 1:
        return weft_allreduce(comm, x, x, 2, WEFT_F32, WEFT_SUM);
    case 2:
        return weft_recv(comm, x, sizeof(x), 1, 7, NULL);
    case 3:
        return weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, NULL);
    default:
        WT_OK(weft_ibarrier(comm, &request));
        st = weft_request_wait(request, 0);
        weft_request_release(request);
        return st;
    }
}

/* The others are told who gave up and why. */
static void expect_interrupted(weft_comm *comm, weft_status st)
{
    const char *text = weft_error_detail();

    WT_CHECK(st == WEFT_ERR_ABORTED);
    WT_CHECK(wt_names_rank(text, 0) && strstr(text, "interrupted") != NULL);
    WT_STATUS(weft_comm_error(comm), WEFT_ERR_ABORTED);
}

static void interrupted_body(void)
{
    caller me = {.waits = false};
    weft_world *world = NULL;
    char x;

    WT_OK(join(&me, &world));
    for (unsigned i = 0; i < 5; i++) {
        weft_comm *comm = NULL;
        double began;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        wt_meet();
        me = (caller){.waits = wt_rank() == 0};
        began = wt_now();
        if (wt_rank() == 0) {
            expect_interrupted(comm, wait_in_vain(comm, i));
            WT_CHECK(me.asked == 3);
            me.waits = false;
            wt_word_set(CALLED, i + 1);
        } else {
            wt_word_await(CALLED, i + 1);
            expect_interrupted(comm, weft_recv(comm, &x, 1, 0, 9, NULL));
        }
        WT_CHECK(wt_now() - began < SOON * WT_SLOWDOWN);
        wt_meet();
        weft_comm_destroy(comm);
    }
    weft_world_destroy(world);
}

static void a_caller_that_is_interrupted_gives_up_and_all_are_told(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 2, .bare = interrupted_body});
}

/* --- receives that stand ready ------------------------------------------- */

/* Far longer than the timeout, in which a receive that was only asked would
 * have failed. */
static void ask_for(weft_request *request, double seconds)
{
    double end = wt_now() + seconds;
    int done = 0;

    while (wt_now() < end) {
        WT_OK(weft_request_test(request, &done));
        WT_CHECK(!done);
    }
}

static void standing_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    char x = 0;

    if (weft_world_rank(world) != 0) {
        wt_word_await(CALLED, 1);
        WT_OK(weft_send(comm, "x", 1, 0, 3));
        return;
    }
    WT_OK(weft_irecv(comm, &x, 1, 1, 3, NULL, &request));
    weft_comm_set_timeout(comm, 0.05);
    ask_for(request, 0.4);
    weft_comm_set_timeout(comm, 0);
    WT_OK(weft_comm_error(comm));
    wt_word_set(CALLED, 1);
    WT_OK(weft_request_wait(request, 0));
    WT_CHECK(x == 'x');
    weft_request_release(request);
}

static void a_receive_that_is_only_asked_for_has_no_deadline(void **state)
{
    (void)state;
    wt_run_both(2, NULL, standing_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_caller_that_is_interrupted_gives_up_and_all_are_told),
        cmocka_unit_test(a_receive_that_is_only_asked_for_has_no_deadline),
    };

    return cmocka_run_group_tests_name("giving up", tests, NULL, NULL);
}
