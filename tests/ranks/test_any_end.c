/* SPDX-License-Identifier: Apache-2.0 */
/* How receives from any rank end that get no message, or one that is too
 * long. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

/* --- how they end -------------------------------------------------------- */

static void truncated_body(weft_world *world)
{
    const size_t sizes[] = {100, 20000};
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned to = (weft_comm_rank(comm) + 1) % ranks;
    char small[64];
    char *large = calloc(1, 20000);
    weft_message_info info;

    WT_CHECK(large != NULL);
    for (unsigned i = 0; i < 4; i++) {
        weft_request *request = NULL;

        WT_OK(weft_isend(comm, large, sizes[i % 2], to, i, &request));
        memset(small, 1, sizeof(small));
        WT_STATUS(
            weft_recv(comm, small, i < 2 ? 32 : 0, WEFT_ANY_SOURCE, i, &info),
            WEFT_ERR_TRUNCATED);
        WT_CHECK(info.from == (weft_comm_rank(comm) + ranks - 1) % ranks);
        WT_CHECK(info.n == sizes[i % 2] && info.tag == i && small[32] == 1);
        WT_CHECK(wt_names_rank(weft_error_detail(), info.from));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    }
    WT_OK(weft_comm_error(comm));
    WT_OK(weft_barrier(comm));
    free(large);
}

static void a_message_from_any_rank_may_be_too_long(void **state)
{
    (void)state;
    wt_run_counts(NULL, truncated_body);
}

static void aborted_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request[3];
    char in[3];

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_irecv(comm, &in[0], 1, WEFT_ANY_SOURCE, 1, NULL, &request[0]));
    WT_OK(weft_irecv(comm, &in[1], 1, 0, WEFT_ANY_TAG, NULL, &request[1]));
    WT_OK(weft_isendrecv(comm, NULL, 0, weft_comm_rank(comm), 2, &in[2], 1,
                         WEFT_ANY_SOURCE, 3, NULL, &request[2]));
    wt_meet();
    if (weft_comm_rank(comm) == 0) {
        /* It has sent itself what this one takes. */
        WT_OK(weft_request_wait(request[1], 0));
        weft_comm_abort(comm, "for a test");
    }
    for (unsigned i = 0; i < 3; i++) {
        bool filled = i == 1 && weft_comm_rank(comm) == 0;

        WT_STATUS(weft_request_wait(request[i], 0),
                  filled ? WEFT_OK : WEFT_ERR_ABORTED);
        weft_request_release(request[i]);
    }
    WT_STATUS(weft_recv(comm, in, 1, WEFT_ANY_SOURCE, 1, NULL),
              WEFT_ERR_ABORTED);
    weft_comm_destroy(comm);
}

static void an_abort_ends_receives_from_any_rank(void **state)
{
    (void)state;
    wt_run_counts(NULL, aborted_body);
}

static void late_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    char in;

    if (weft_comm_rank(comm) == 1) {
        weft_comm_set_timeout(comm, 0.2);
        if (wt_ranks() == 3) {
            WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL),
                      WEFT_ERR_TIMEOUT);
        } else {
            WT_OK(weft_irecv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL, &request));
            WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_TIMEOUT);
            weft_request_release(request);
        }
        WT_CHECK(strstr(weft_error_detail(), "from any rank") != NULL);
        for (unsigned r = 0; r < wt_ranks(); r++) {
            WT_CHECK(wt_names_rank(weft_error_detail(), r));
        }
    }
    wt_meet();
}

static void a_timeout_names_all_who_could_have_sent(void **state)
{
    (void)state;
    wt_run_both(3, NULL, late_body);
    wt_run_both(4, NULL, late_body);
}

/* --- death --------------------------------------------------------------- */

static bool by_request;

/* Of three, rank 1 dies at once, rank 2 after it has sent something. */
static void dying_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) != 0) {
        if (weft_comm_rank(comm) == 2) {
            wt_await_gone(1);
            WT_OK(weft_send(comm, "x", 1, 0, 6));
            WT_OK(weft_send(comm, "y", 1, 0, 7));
        }
        wt_strike(WT_BLOW_KILL);
    }
    for (unsigned i = 0; i < 2; i++) {
        WT_OK(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &info));
        WT_CHECK(info.from == 2 && info.tag == 6 + i);
    }
    if (by_request) {
        WT_OK(weft_irecv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL, &request));
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_PEER);
        weft_request_release(request);
    } else {
        WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL),
                  WEFT_ERR_PEER);
    }
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
}

static void a_receive_from_any_rank_fails_when_nobody_is_left(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        by_request = i == 1;
        wt_run_job(&(wt_job){.ranks = 3, .body = dying_body, .doomed = 6});
    }
}

/* One that leaves as it should is gone as well. */
static void leaving_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) > 0) {
        WT_OK(weft_send(comm, "x", 1, 0, 1));
        return;
    }
    for (unsigned i = 1; i < weft_comm_size(comm); i++) {
        WT_OK(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, &info));
    }
    WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, &info),
              WEFT_ERR_PEER);
}

static void ranks_that_left_are_not_waited_for(void **state)
{
    (void)state;
    wt_run_both(2, NULL, leaving_body);
    wt_run_both(5, NULL, leaving_body);
}

/* Rank 2 leaves; what waits for it fails, and nothing else does. */
static void alone_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) == 0) {
        WT_STATUS(weft_recv(comm, &in, 1, 2, 1, &info), WEFT_ERR_PEER);
        WT_STATUS(weft_probe(comm, 2, 1, &info), WEFT_ERR_PEER);
        WT_OK(weft_send(comm, "x", 1, 1, 1));
    } else if (weft_comm_rank(comm) == 1) {
        WT_OK(weft_recv(comm, &in, 1, 0, 1, &info));
    }
}

static void a_receive_from_a_rank_that_left_fails_alone(void **state)
{
    (void)state;
    wt_run_both(3, NULL, alone_body);
}

/* A receive that stands behind one from any rank learns of a death, too. */
static void behind_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *any = NULL;
    weft_request *named = NULL;
    char in[2];

    if (weft_comm_rank(comm) == 1) {
        wt_strike(WT_BLOW_KILL);
    }
    if (weft_comm_rank(comm) == 0) {
        WT_OK(weft_irecv(comm, &in[0], 1, WEFT_ANY_SOURCE, 1, NULL, &any));
        WT_OK(weft_irecv(comm, &in[1], 1, 1, 1, NULL, &named));
        WT_STATUS(weft_request_wait(named, 0), WEFT_ERR_PEER);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        WT_STATUS(weft_request_wait(any, 0), WEFT_ERR_PEER);
        weft_request_release(any);
        weft_request_release(named);
        wt_word_set(0, 1);
    } else {
        wt_word_await(0, 1);
    }
}

static void a_queued_receive_is_told_of_the_death_of_its_sender(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 3, .body = behind_body, .doomed = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_from_any_rank_may_be_too_long),
        cmocka_unit_test(an_abort_ends_receives_from_any_rank),
        cmocka_unit_test(a_timeout_names_all_who_could_have_sent),
        cmocka_unit_test(a_receive_from_any_rank_fails_when_nobody_is_left),
        cmocka_unit_test(ranks_that_left_are_not_waited_for),
        cmocka_unit_test(a_receive_from_a_rank_that_left_fails_alone),
        cmocka_unit_test(a_queued_receive_is_told_of_the_death_of_its_sender),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
