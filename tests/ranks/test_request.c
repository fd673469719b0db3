/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: testing, waiting with and without a limit, callbacks, order. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "wt.h"
#include "wt_cmocka.h"

/* Words of the board: GO lets the last rank come; CALLS + rank counts the
 * callbacks of a rank. */
enum { GO, CALLS };

static bool is_last(weft_world *world)
{
    return weft_world_rank(world) + 1 == weft_world_size(world);
}

static void wait_and_release(weft_request *request)
{
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
}

/* --- test and wait ------------------------------------------------------- */

static void test_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    int64_t x = 1;
    int done = 0;

    if (is_last(world)) {
        wt_word_await(GO, weft_world_size(world) - 1);
    }
    WT_OK(weft_iallreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM, &request));
    if (!is_last(world)) {
        WT_OK(weft_request_test(request, &done));
        WT_CHECK(!done);
        wt_word_add(GO, 1);
    }
    while (!done) {
        WT_OK(weft_request_test(request, &done));
    }
    WT_CHECK(x == weft_world_size(world));
    WT_OK(weft_request_test(request, &done));
    WT_CHECK(done);
    wait_and_release(request);
}

static void testing_drives_an_operation_to_its_end(void **state)
{
    (void)state;
    wt_run_both(1, NULL, test_body);
    wt_run_both(3, NULL, test_body);
}

static void timeout_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    int64_t x = 1;

    if (is_last(world)) {
        wt_word_await(GO, weft_world_size(world) - 1);
        WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
        return;
    }
    WT_OK(weft_iallreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM, &request));
    WT_STATUS(weft_request_wait(request, 0.02), WEFT_ERR_TIMEOUT);
    WT_STATUS(weft_request_wait(request, 1e-9), WEFT_ERR_TIMEOUT);
    WT_OK(weft_comm_error(comm));
    wt_word_add(GO, 1);
    wait_and_release(request);
    WT_CHECK(x == weft_world_size(world));
}

static void a_wait_that_times_out_leaves_the_operation_going(void **state)
{
    (void)state;
    wt_run_both(3, NULL, timeout_body);
}

static void broken_by_deadline_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (!is_last(world)) {
        WT_OK(weft_ibarrier(comm, &request));
        wt_word_add(GO, 1);
        wt_word_await(GO, weft_world_size(world) - 1);
        /* It holds for what is under way, too. */
        weft_comm_set_timeout(comm, 0.1);
        WT_CHECK(weft_comm_timeout(comm) == 0.1);
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_TIMEOUT);
        WT_CHECK(wt_names_rank(weft_error_detail(), 2));
        WT_STATUS(weft_comm_error(comm), WEFT_ERR_TIMEOUT);
        WT_STATUS(weft_barrier(comm), WEFT_ERR_TIMEOUT);
        weft_request_release(request);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static void the_communicators_own_deadline_breaks_it(void **state)
{
    (void)state;
    wt_run_both(3, NULL, broken_by_deadline_body);
}

static void default_timeout_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    WT_CHECK(weft_comm_timeout(comm) == 7);
    weft_comm_set_timeout(comm, 2.5);
    WT_CHECK(weft_comm_timeout(comm) == 2.5);
    weft_comm_set_timeout(comm, 0);
    WT_CHECK(weft_comm_timeout(comm) == 7);
}

static void a_timeout_of_zero_restores_the_setting(void **state)
{
    (void)state;
    wt_run_both(1, "TIMEOUT=7s", default_timeout_body);
}

/* --- callbacks ----------------------------------------------------------- */

typedef struct call {
    unsigned rank;
    weft_status status;
    bool releases;
} call;

static void note_call(weft_request *request, weft_status status, void *ctx)
{
    call *c = ctx;

    c->status = status;
    if (c->releases) {
        weft_request_release(request);
    }
    wt_word_add(CALLS + c->rank, 1);
}

/* Nobody waits or tests: the library must get there by itself. */
static void callback_body(weft_world *world)
{
    call c = {weft_world_rank(world), WEFT_ERR_CLOSED, true};
    weft_request *request = NULL;
    int64_t x[100] = {0};

    x[99] = 1;
    WT_OK(weft_iallreduce(weft_world_comm(world), x, x, 100, WEFT_I64, WEFT_SUM,
                          &request));
    WT_OK(weft_request_on_done(request, note_call, &c));
    wt_word_await(CALLS + c.rank, 1);
    WT_CHECK(c.status == WEFT_OK);
    WT_CHECK(x[99] == weft_world_size(world));
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(atomic_load(wt_word(CALLS + c.rank)) == 1);
}

static void a_callback_comes_once_although_nobody_waits(void **state)
{
    (void)state;
    wt_run_both(1, NULL, callback_body);
    wt_run_both(3, NULL, callback_body);
}

static void late_callback_body(weft_world *world)
{
    call c = {weft_world_rank(world), WEFT_ERR_CLOSED, false};
    weft_request *request = NULL;

    WT_OK(weft_ibarrier(weft_world_comm(world), &request));
    WT_OK(weft_request_wait(request, 0));
    WT_OK(weft_request_on_done(request, note_call, &c));
    WT_CHECK(atomic_load(wt_word(CALLS + c.rank)) == 1);
    WT_CHECK(c.status == WEFT_OK);
    WT_STATUS(weft_request_on_done(request, note_call, &c), WEFT_ERR_INVALID);
    weft_request_release(request);
}

static void a_callback_set_afterwards_comes_at_once_and_only_one(void **state)
{
    (void)state;
    wt_run_both(2, NULL, late_callback_body);
}

/* Runs while its rank is in a broadcast, which the root has not begun. */
static void call_within(weft_request *request, weft_status status, void *ctx)
{
    weft_comm *comm = ctx;
    weft_request *barrier = NULL;

    WT_CHECK(status == WEFT_OK);
    while (!atomic_load(&comm->running)) {
        sched_yield();
    }
    WT_STATUS(weft_barrier(comm), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "barrier within a blocking") != NULL);
    WT_OK(weft_ibarrier(comm, &barrier));
    weft_request_release(barrier);
    weft_request_release(request);
    wt_word_set(CALLS, 1);
}

static void within_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *other = NULL;
    weft_request *request = NULL;
    char token = 1;
    uint8_t x[40000] = {0};

    WT_OK(weft_comm_dup(comm, &other));
    if (wt_rank() == 0) {
        wt_word_await(GO, 1);
        WT_OK(weft_send(other, &token, 1, 1, 0));
        wt_word_await(CALLS, 1);
        memset(x, 7, sizeof(x));
    } else {
        WT_OK(weft_irecv(other, &token, 1, 0, 0, NULL, &request));
        WT_OK(weft_request_on_done(request, call_within, comm));
        wt_word_set(GO, 1);
    }
    WT_OK(weft_broadcast(comm, x, sizeof(x), WEFT_U8, 0));
    WT_CHECK(x[0] == 7 && x[sizeof(x) - 1] == 7);
    if (wt_rank() == 0) {
        WT_OK(weft_barrier(comm)); /* with the one of the callback */
    }
    WT_OK(weft_barrier(comm));
    weft_comm_destroy(other);
}

static void no_blocking_collective_runs_within_another(void **state)
{
    (void)state;
    wt_run_both(2, "TIMEOUT=60s", within_body);
}

/* The deadline is changed here while the library looks at it elsewhere. */
static void called_in_time_body(weft_world *world)
{
    call c = {weft_world_rank(world), WEFT_OK, true};
    weft_comm *comm = NULL;
    weft_request *request = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (!is_last(world)) {
        WT_OK(weft_ibarrier(comm, &request));
        WT_OK(weft_request_on_done(request, note_call, &c));
        wt_word_add(GO, 1);
        wt_word_await(GO, weft_world_size(world) - 1);
        weft_comm_set_timeout(comm, 0.05);
        wt_word_await(CALLS + c.rank, 1);
        WT_STATUS(c.status, WEFT_ERR_TIMEOUT);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static void a_callback_comes_when_the_time_is_over(void **state)
{
    (void)state;
    wt_run_both(3, NULL, called_in_time_body);
}

/* --- several at once ----------------------------------------------------- */

enum { OUTSTANDING = 32 };

/* From a few bytes to a mebibyte, all under way at once. */
static size_t outstanding_count(unsigned i)
{
    return i % 4 == 3 ? wt_scaled(131072) : 1 + 40u * i;
}

static void outstanding_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_world_size(world);
    weft_request *request[OUTSTANDING];
    int64_t *x[OUTSTANDING];

    for (unsigned i = 0; i < OUTSTANDING; i++) {
        size_t n = outstanding_count(i);

        x[i] = malloc(n * sizeof(*x[i]));
        WT_CHECK(x[i] != NULL);
        for (size_t k = 0; k < n; k++) {
            x[i][k] = (int64_t)(i + k);
        }
        WT_OK(weft_iallreduce(comm, x[i], x[i], n, WEFT_I64, WEFT_SUM,
                              &request[i]));
    }
    /* Waited for from the last to the first on odd ranks. */
    for (unsigned k = 0; k < OUTSTANDING; k++) {
        unsigned i = weft_world_rank(world) % 2 ? OUTSTANDING - 1 - k : k;
        size_t last = outstanding_count(i) - 1;

        wait_and_release(request[i]);
        WT_CHECK(x[i][0] == (int64_t)ranks * i);
        WT_CHECK(x[i][last] == (int64_t)(ranks * (i + last)));
        free(x[i]);
    }
}

static void many_operations_can_be_under_way_at_once(void **state)
{
    (void)state;
    wt_run_both(2, NULL, outstanding_body);
    wt_run_both(4, NULL, outstanding_body);
    wt_run_both(3, "ENGINE=message", outstanding_body);
}

/* The sum must be of what the broadcast left, on every rank. */
static void behind_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    size_t n = wt_scaled(100000);
    int32_t *x = calloc(n, sizeof(*x));

    WT_CHECK(x != NULL);
    for (int32_t round = 1; round <= 20; round++) {
        weft_request *request = NULL;
        weft_request *barrier = NULL;

        x[0] = x[n - 1] = is_last(world) ? round : 0;
        WT_OK(weft_ibroadcast(comm, x, n, WEFT_I32, weft_world_size(world) - 1,
                              &request));
        WT_OK(weft_ibarrier(comm, &barrier));
        WT_OK(weft_allreduce(comm, x, x, n, WEFT_I32, WEFT_SUM));
        WT_CHECK(x[0] == round * (int32_t)weft_world_size(world));
        WT_CHECK(x[n - 1] == x[0]);
        wait_and_release(barrier);
        wait_and_release(request);
    }
    free(x);
}

static void a_blocking_call_queues_behind_pending_requests(void **state)
{
    (void)state;
    wt_run_both(2, NULL, behind_body);
    wt_run_both(4, NULL, behind_body);
    wt_run_both(3, "ENGINE=message", behind_body);
}

static void abandoned_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    size_t n = wt_scaled(100000);
    float *x = calloc(n, sizeof(*x));
    weft_request *request = NULL;

    WT_CHECK(x != NULL);
    x[n - 1] = 1;
    WT_OK(weft_iallreduce(comm, x, x, n, WEFT_F32, WEFT_SUM, &request));
    weft_request_release(request);
    weft_request_release(NULL);
    /* Later in the same order, so that one is over when this one is. */
    WT_OK(weft_barrier(comm));
    WT_CHECK(x[n - 1] == (float)weft_world_size(world));
    free(x);
}

static void an_operation_goes_on_after_its_request_is_released(void **state)
{
    (void)state;
    wt_run_both(2, NULL, abandoned_body);
    wt_run_both(3, NULL, abandoned_body);
}

/* --- threads ------------------------------------------------------------- */

typedef struct waiter {
    weft_request *request;
    unsigned rank;
} waiter;

static void *waiter_main(void *arg)
{
    waiter *w = arg;

    wt_speak_for(w->rank);
    WT_OK(weft_request_wait(w->request, 0));
    return NULL;
}

static void several_waiters_body(weft_world *world)
{
    waiter w = {NULL, weft_world_rank(world)};
    pthread_t thread[3];

    if (is_last(world)) {
        wt_word_await(GO, 3 * (weft_world_size(world) - 1));
        WT_OK(weft_barrier(weft_world_comm(world)));
        return;
    }
    WT_OK(weft_ibarrier(weft_world_comm(world), &w.request));
    for (unsigned i = 0; i < 3; i++) {
        WT_CHECK(pthread_create(&thread[i], NULL, waiter_main, &w) == 0);
        wt_word_add(GO, 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
    weft_request_release(w.request);
}

static void several_threads_can_wait_for_one_request(void **state)
{
    (void)state;
    wt_run_both(2, NULL, several_waiters_body);
}

/* A wait on one communicator must carry the other one's large operation too:
 * the last rank waits for b only once a is done everywhere. */
static void two_comms_body(weft_world *world)
{
    weft_comm *b = NULL;
    size_t n = wt_scaled(1u << 20);
    float *x = calloc(n, sizeof(*x));
    weft_request *large = NULL;
    weft_request *barrier = NULL;

    WT_CHECK(x != NULL);
    WT_OK(weft_comm_dup(weft_world_comm(world), &b));
    WT_OK(weft_iallreduce(b, x, x, n, WEFT_F32, WEFT_SUM, &large));
    WT_OK(weft_ibarrier(weft_world_comm(world), &barrier));
    if (is_last(world)) {
        wait_and_release(large);
        wait_and_release(barrier);
    } else {
        wait_and_release(barrier);
        wait_and_release(large);
    }
    weft_comm_destroy(b);
    free(x);
}

static void a_wait_drives_other_communicators_too(void **state)
{
    (void)state;
    wt_run_both(3, NULL, two_comms_body);
}

/* --- the end of a communicator ------------------------------------------- */

static void closed_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (!is_last(world)) {
        WT_OK(weft_ibarrier(comm, &request));
        weft_comm_destroy(comm);
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_CLOSED);
        weft_request_release(request);
        comm = NULL;
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static void requests_of_a_destroyed_communicator_end_as_closed(void **state)
{
    (void)state;
    wt_run_both(2, NULL, closed_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(testing_drives_an_operation_to_its_end),
        cmocka_unit_test(a_wait_that_times_out_leaves_the_operation_going),
        cmocka_unit_test(the_communicators_own_deadline_breaks_it),
        cmocka_unit_test(a_timeout_of_zero_restores_the_setting),
        cmocka_unit_test(a_callback_comes_once_although_nobody_waits),
        cmocka_unit_test(a_callback_set_afterwards_comes_at_once_and_only_one),
        cmocka_unit_test(a_callback_comes_when_the_time_is_over),
        cmocka_unit_test(no_blocking_collective_runs_within_another),
        cmocka_unit_test(many_operations_can_be_under_way_at_once),
        cmocka_unit_test(a_blocking_call_queues_behind_pending_requests),
        cmocka_unit_test(an_operation_goes_on_after_its_request_is_released),
        cmocka_unit_test(several_threads_can_wait_for_one_request),
        cmocka_unit_test(a_wait_drives_other_communicators_too),
        cmocka_unit_test(requests_of_a_destroyed_communicator_end_as_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
