/* SPDX-License-Identifier: Apache-2.0 */
/* Ending things that others still use or wait for. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

typedef struct waiter {
    weft_request *request;
    weft_status status;
} waiter;

static void *wait_main(void *arg)
{
    waiter *w = arg;

    w->status = weft_request_wait(w->request, 0);
    return NULL;
}

static void close_under_waiter_body(weft_world *world)
{
    weft_comm *dup = NULL;
    waiter w = {NULL, WEFT_OK};
    pthread_t thread;
    char byte;

    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    /* From itself, so that it is up to nobody else when it ends. */
    WT_OK(weft_irecv(dup, &byte, 1, weft_comm_rank(dup), 5, NULL, &w.request));
    WT_CHECK(pthread_create(&thread, NULL, wait_main, &w) == 0);
    weft_comm_destroy(dup);
    WT_CHECK(pthread_join(thread, NULL) == 0);
    WT_STATUS(w.status, WEFT_ERR_CLOSED);
    weft_request_release(w.request);
}

static void
a_thread_that_waits_is_told_that_its_communicator_closed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        wt_run_both(1 + i % 2, "", close_under_waiter_body);
    }
}

enum { LARGE = 1000000 };

/* A word of the board: rank 1 has gone. */
enum { GONE };

/* Rank 1 begins a large operation and goes. Rank 2 joins in only then, or the
 * operation might be over before. */
static void abandon_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request = NULL;
    float *x = calloc(LARGE, sizeof(*x));
    weft_status st;

    WT_CHECK(x != NULL);
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (weft_comm_rank(comm) == 2) {
        wt_word_await(GONE, 1);
    }
    st = weft_iallreduce(comm, x, x, LARGE, WEFT_F32, WEFT_SUM, &request);
    if (weft_comm_rank(comm) == 1) {
        WT_OK(st);
        weft_comm_destroy(comm);
        wt_word_set(GONE, 1);
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_CLOSED);
        weft_request_release(request);
        WT_OK(weft_barrier(weft_world_comm(world)));
        free(x);
        return;
    }
    /* Rank 1 may have gone before we came. */
    WT_STATUS(st == WEFT_OK ? weft_request_wait(request, 0) : st,
              WEFT_ERR_PEER);
    WT_CHECK(strstr(weft_error_detail(), "rank 1") != NULL);
    weft_request_release(request);
    weft_comm_destroy(comm);
    WT_OK(weft_barrier(weft_world_comm(world)));
    free(x);
}

static void an_operation_that_a_rank_abandons_fails_on_the_others(void **state)
{
    (void)state;
    wt_run(3, "TIMEOUT=60s", abandon_body);
}

/* Rank 1 goes with nothing under way; the others call it later, or do so
 * already. */
static void gone_body(weft_world *world)
{
    weft_comm *comm = NULL;
    float x = 1;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_barrier(comm));
    /* One that is still in it when another finds the communicator broken would
     * fail, too. */
    WT_OK(weft_barrier(weft_world_comm(world)));
    if (weft_comm_rank(comm) == 1) {
        weft_comm_destroy(comm);
    } else {
        WT_STATUS(weft_allreduce(comm, &x, &x, 1, WEFT_F32, WEFT_SUM),
                  WEFT_ERR_PEER);
        WT_CHECK(strstr(weft_error_detail(), "rank 1") != NULL);
        WT_CHECK(strstr(weft_error_detail(), "has closed") != NULL);
        weft_comm_destroy(comm);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void a_communicator_that_a_rank_has_closed_fails_on_the_others(void **s)
{
    (void)s;
    wt_run_both(3, "TIMEOUT=60s", gone_body);
    wt_run_both(2, "TIMEOUT=60s ENGINE=message", gone_body);
}

/* A fast rank closes while slower ones still finish the last operation. */
static void close_at_once_body(weft_world *world)
{
    float x[3000] = {1};

    for (int i = 0; i < 50; i++) {
        weft_comm *comm = NULL;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        WT_OK(weft_allreduce(comm, x, x, i % 2 ? 3000 : 3, WEFT_F32, WEFT_MAX));
        WT_OK(weft_broadcast(comm, x, 3000, WEFT_F32, 0));
        weft_comm_destroy(comm);
    }
}

static void closing_right_after_an_operation_disturbs_nobody(void **s)
{
    (void)s;
    wt_run_both(4, "TIMEOUT=60s", close_at_once_body);
    wt_run_both(4, "TIMEOUT=60s ENGINE=message", close_at_once_body);
}

static void child_abort_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    pid_t child;
    int status = 0;

    WT_OK(weft_barrier(comm));
    child = fork();
    WT_CHECK(child >= 0);
    if (child == 0) {
        weft_comm_abort(comm, "from a child");
        _exit(weft_barrier(comm) == WEFT_ERR_CLOSED ? 0 : 1);
    }
    WT_CHECK(waitpid(child, &status, 0) == child);
    WT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    WT_OK(weft_barrier(comm));
}

static void a_forked_child_cannot_break_the_job(void **state)
{
    (void)state;
    wt_run(2, "", child_abort_body);
}

static void timeout_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    weft_comm_set_timeout(comm, 1e300);
    WT_CHECK(weft_comm_timeout(comm) > 1e8);
    weft_comm_set_timeout(comm, 0);
    WT_CHECK(weft_comm_timeout(comm) == 7);
}

static void a_very_long_timeout_is_long(void **state)
{
    (void)state;
    wt_run(1, "TIMEOUT=7s", timeout_body);
}

static void an_engine_that_does_not_exist_is_an_error(void **state)
{
    weft_world_options options = {.size = sizeof(options),
                                  .settings = "ENGINE=diesel"};
    weft_world *world = NULL;

    (void)state;
    assert_int_equal(weft_world_create(&options, &world), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "diesel"));
    options.settings = "TIMEOUT=0";
    assert_int_equal(weft_world_create(&options, &world), WEFT_ERR_INVALID);
    assert_null(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_thread_that_waits_is_told_that_its_communicator_closed),
        cmocka_unit_test(an_operation_that_a_rank_abandons_fails_on_the_others),
        cmocka_unit_test(
            a_communicator_that_a_rank_has_closed_fails_on_the_others),
        cmocka_unit_test(closing_right_after_an_operation_disturbs_nobody),
        cmocka_unit_test(a_forked_child_cannot_break_the_job),
        cmocka_unit_test(a_very_long_timeout_is_long),
        cmocka_unit_test(an_engine_that_does_not_exist_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
