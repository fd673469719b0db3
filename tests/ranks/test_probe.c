/* SPDX-License-Identifier: Apache-2.0 */
/* Probes: they tell what a receive would take, and take nothing. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"
#include "wt_fault.h"

/* Receive the message that a probe told of, into as much memory as it needs. */
static void take(weft_comm *comm, const weft_message_info *info)
{
    char *in = malloc(info->n + 1);
    char *want = malloc(info->n + 1);
    weft_message_info got;

    WT_CHECK(in != NULL && want != NULL);
    wt_fill_bytes(want, info->n, info->tag, info->from);
    WT_OK(weft_recv(comm, in, info->n, info->from, info->tag, &got));
    WT_CHECK(memcmp(&got, info, sizeof(got)) == 0);
    WT_CHECK(memcmp(in, want, info->n) == 0);
    free(in);
    free(want);
}

static void sizes_body(weft_world *world)
{
    const size_t sizes[] = {0, 1, 300, 9000, wt_scaled(1u << 20) + 1};
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    unsigned left = (me + ranks - 1) % ranks;

    for (unsigned i = 0; i < 5; i++) {
        char *out = malloc(sizes[i] + 1);
        weft_request *request = NULL;
        weft_message_info info[2];

        WT_CHECK(out != NULL);
        wt_fill_bytes(out, sizes[i], i, me);
        WT_OK(weft_isend(comm, out, sizes[i], (me + 1) % ranks, i, &request));
        WT_OK(weft_probe(comm, i % 2 ? left : WEFT_ANY_SOURCE,
                         i % 3 ? i : WEFT_ANY_TAG, &info[0]));
        WT_OK(weft_probe(comm, left, i, &info[1]));
        for (unsigned k = 0; k < 2; k++) {
            WT_CHECK(info[k].from == left && info[k].tag == i);
            WT_CHECK(info[k].n == sizes[i]);
        }
        take(comm, &info[0]);
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        free(out);
    }
}

static void a_probe_tells_what_a_receive_then_takes(void **state)
{
    (void)state;
    wt_run_counts(NULL, sizes_body);
    wt_run_counts("SHM_RING_BYTES=4K SHM_EAGER=256", sizes_body);
}

static bool finds(weft_comm *comm, uint32_t from, uint32_t tag)
{
    int found = -1;

    WT_OK(weft_iprobe(comm, from, tag, &found, NULL));
    WT_CHECK(found == 0 || found == 1);
    return found == 1;
}

static void at_once_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    weft_message_info info = {77, 77, 77};
    int found = -1;

    WT_OK(weft_iprobe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &found, &info));
    WT_CHECK(found == 0 && info.from == 77 && info.n == 77);
    wt_meet();
    for (unsigned i = 0; i < ranks; i++) {
        WT_OK(weft_send(comm, NULL, 0, i, 10 + me));
    }
    wt_meet();
    /* What was sent is there at the first look. */
    for (unsigned i = 0; i < ranks; i++) {
        WT_CHECK(finds(comm, i, 10 + i));
        WT_CHECK(finds(comm, i, WEFT_ANY_TAG));
        WT_CHECK(finds(comm, WEFT_ANY_SOURCE, 10 + i));
        WT_CHECK(!finds(comm, i, 11 + i));
        WT_OK(weft_recv(comm, NULL, 0, i, 10 + i, NULL));
        WT_CHECK(!finds(comm, i, WEFT_ANY_TAG));
    }
    WT_CHECK(!finds(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG));
    wt_meet();
}

static void a_probe_that_does_not_wait_sees_what_has_been_sent(void **state)
{
    (void)state;
    wt_run_counts(NULL, at_once_body);
}

/* Messages that a pending receive takes are not seen, those behind are. */
static void taken_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    weft_request *request = NULL;
    unsigned x[2] = {1, 2};
    unsigned in = 0;
    weft_message_info info;

    WT_OK(
        weft_irecv(comm, &in, sizeof(in), WEFT_ANY_SOURCE, 4, NULL, &request));
    wt_meet();
    WT_OK(weft_send(comm, &x[0], sizeof(x[0]), (me + 1) % ranks, 4));
    wt_meet();
    WT_CHECK(!finds(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    WT_CHECK(in == 1);
    wt_meet();
    WT_OK(weft_send(comm, &x[1], sizeof(x[1]), (me + 1) % ranks, 4));
    WT_OK(weft_probe(comm, WEFT_ANY_SOURCE, 4, &info));
    WT_OK(weft_recv(comm, &in, sizeof(in), info.from, info.tag, NULL));
    WT_CHECK(in == 2);
    wt_meet();
}

static void a_probe_does_not_see_what_an_earlier_receive_takes(void **state)
{
    (void)state;
    wt_run_counts(NULL, taken_body);
}

/* --- how they end -------------------------------------------------------- */

static void late_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    if (weft_comm_rank(comm) == 1) {
        weft_comm_set_timeout(comm, 0.2);
        WT_STATUS(
            weft_probe(comm, wt_ranks() == 3 ? WEFT_ANY_SOURCE : 0, 1, NULL),
            WEFT_ERR_TIMEOUT);
        WT_CHECK(strstr(weft_error_detail(), "probe for a message") != NULL);
        WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    }
    wt_meet();
}

static void a_probe_times_out(void **state)
{
    (void)state;
    wt_run_both(2, NULL, late_body);
    wt_run_both(3, NULL, late_body);
}

static uint32_t probed;
static bool polls;

/* Rank 1 leaves a message and dies; that is found first. */
static void dying_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_status st = WEFT_OK;
    char in;

    if (weft_comm_rank(comm) == 1) {
        WT_OK(weft_send(comm, "x", 1, 0, 1));
        wt_strike(WT_BLOW_KILL);
    }
    wt_await_gone(1);
    WT_OK(weft_probe(comm, probed, 1, NULL));
    WT_OK(weft_recv(comm, &in, 1, 1, 1, NULL));
    if (polls) {
        while (st == WEFT_OK) {
            int found = -1;

            st = weft_iprobe(comm, probed, 1, &found, NULL);
            WT_CHECK(found == (st == WEFT_OK ? 0 : -1));
        }
    } else {
        st = weft_probe(comm, probed, 1, NULL);
    }
    WT_STATUS(st, WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
}

static void a_probe_fails_when_its_sender_is_dead(void **state)
{
    const uint32_t from[] = {1, WEFT_ANY_SOURCE};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        probed = from[i % 2];
        polls = i >= 2;
        wt_run_job(&(wt_job){.ranks = 2, .body = dying_body, .doomed = 2});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_tells_what_a_receive_then_takes),
        cmocka_unit_test(a_probe_that_does_not_wait_sees_what_has_been_sent),
        cmocka_unit_test(a_probe_does_not_see_what_an_earlier_receive_takes),
        cmocka_unit_test(a_probe_times_out),
        cmocka_unit_test(a_probe_fails_when_its_sender_is_dead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
