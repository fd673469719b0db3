/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite for the transport over MPI. MPI wants a launcher, so
 * the test starts itself under one, for each MPI that there is. */
#include <stdio.h>

#include "conform.h"
#include "wt_launched.h"

/* --- nonsense -------------------------------------------------------------
 */

static const wt_mpi_raw_calls *raw;

static void punish(void **state, conform_villainy *v)
{
    conform_punishes(*state, v);
}

static void send_head(wf_port *port, const mp_head *head, size_t body)
{
    raw->frame(port, head, sizeof(*head) + body);
}

static void send_no_kind(wf_port *port)
{
    mp_head head = raw->next(port, (mp_kind)99);

    send_head(port, &head, 0);
}

static void a_frame_of_no_kind_ends_its_sender(void **state)
{
    punish(state, send_no_kind);
}

static void send_wrong_length(wf_port *port)
{
    mp_head head = raw->next(port, MP_EAGER);

    head.n = 1 << 20;
    send_head(port, &head, 8);
}

static void a_message_shorter_than_it_says_ends_its_sender(void **state)
{
    punish(state, send_wrong_length);
}

static void send_short_active(wf_port *port)
{
    mp_head head = raw->next(port, MP_AM);

    head.word = 8 << 8;
    head.n = 1000;
    send_head(port, &head, mp_am_payload(8));
}

static void an_active_message_shorter_than_it_says_ends_its_sender(void **state)
{
    punish(state, send_short_active);
}

static void return_more_than_was_sent(wf_port *port)
{
    mp_head head = raw->next(port, MP_CREDIT);

    head.credits = MP_CREDITS + 1;
    send_head(port, &head, 0);
}

static void credits_for_what_was_never_sent_end_their_sender(void **state)
{
    punish(state, return_more_than_was_sent);
}

static void send_endless_offer(wf_port *port)
{
    mp_head head = raw->next(port, MP_OFFER);

    head.n = UINT64_MAX;
    send_head(port, &head, 0);
}

static void an_offer_of_more_than_memory_ends_its_sender(void **state)
{
    punish(state, send_endless_offer);
}

/* What rank 0 has offered is the first that it has sent. */
static void want_more_than_offered(wf_port *port)
{
    mp_head head = raw->next(port, MP_WANT);

    head.token = 0;
    head.n = PTRDIFF_MAX;
    send_head(port, &head, 0);
}

static void a_wish_for_more_than_was_offered_ends_its_sender(void **state)
{
    punish(state, want_more_than_offered);
}

static void want_nothing_offered(wf_port *port)
{
    mp_head head = raw->next(port, MP_WANT);

    head.token = UINT64_MAX;
    head.n = 1;
    send_head(port, &head, 0);
}

static void a_wish_for_what_was_never_offered_ends_its_sender(void **state)
{
    punish(state, want_nothing_offered);
}

static void answer_unasked(wf_port *port)
{
    mp_head head = raw->next(port, MP_CREDIT);

    head.token = 1;
    send_head(port, &head, 0);
}

static void an_answer_without_a_question_ends_its_sender(void **state)
{
    punish(state, answer_unasked);
}

static void send_old_number(wf_port *port)
{
    mp_head head = raw->next(port, MP_BYE);

    head.seq = 0;
    send_head(port, &head, 0);
}

static void a_number_that_was_used_ends_its_sender(void **state)
{
    punish(state, send_old_number);
}

/* Frames that wait for one that never comes, one for each receive of rank 0,
 * which has as many as we have. */
static void leave_one_out(wf_port *port)
{
    uint32_t receives = raw->receives(port);

    (void)raw->next(port, MP_CREDIT);
    for (uint32_t i = 0; i < receives; i++) {
        mp_head head = raw->next(port, MP_CREDIT);

        send_head(port, &head, 0);
    }
}

static void frames_that_would_take_all_receives_end_their_sender(void **state)
{
    punish(state, leave_one_out);
}

/* Longer than any receive. */
static void send_too_long(wf_port *port)
{
    mp_head head = raw->next(port, MP_EAGER);

    head.n = 1 << 20;
    send_head(port, &head, 1 << 20);
}

static void a_frame_longer_than_a_receive_ends_its_sender(void **state)
{
    punish(state, send_too_long);
}

/* Offer what rank 0 waits for, 8 bytes, and send a chunk of it. */
static void offer_and_send(wf_port *port, uint64_t token, size_t n)
{
    mp_head head = raw->next(port, MP_OFFER);
    mp_chunk_head chunk = {.job = head.job, .token = token};

    head.tag = 1;
    head.n = 8;
    head.token = 77;
    send_head(port, &head, 0);
    raw->chunk(port, &chunk, sizeof(chunk) + n);
}

static void send_chunk_beyond(wf_port *port)
{
    offer_and_send(port, 77, 16);
}

static void a_chunk_beyond_the_end_of_its_message_ends_its_sender(void **state)
{
    punish(state, send_chunk_beyond);
}

static void send_short_chunk(wf_port *port)
{
    offer_and_send(port, 77, 4);
}

static void a_chunk_that_leaves_a_gap_ends_its_sender(void **state)
{
    punish(state, send_short_chunk);
}

static void send_chunk_of_another(wf_port *port)
{
    offer_and_send(port, 78, 8);
}

static void a_chunk_of_no_message_ends_its_sender(void **state)
{
    punish(state, send_chunk_of_another);
}

static void send_chunk_too_long(wf_port *port)
{
    offer_and_send(port, 77, MP_CHUNK_BYTES + 1);
}

static void a_chunk_longer_than_a_receive_ends_its_sender(void **state)
{
    punish(state, send_chunk_too_long);
}

/* What may be left of another job is no fault of its sender. */
static void stray_body(conform *c)
{
    if (c->rank == 1) {
        mp_head head = raw->next(c->port, MP_EAGER);
        mp_head stray = head;

        send_head(c->port, &head, 0);
        stray.job = ~head.job;
        stray.n = UINT64_MAX;
        send_head(c->port, &stray, 8);
        raw->frame(c->port, &head, sizeof(head) - 1);
    }
    conform_still_hears(c);
    conform_meet(c);
}

static void what_is_of_another_job_is_not_heard(void **state)
{
    conform_ranks(*state, 2, stray_body);
}

static int faults(conform_kind *k)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_frame_of_no_kind_ends_its_sender, k),
        cmocka_unit_test_prestate(
            a_message_shorter_than_it_says_ends_its_sender, k),
        cmocka_unit_test_prestate(
            an_active_message_shorter_than_it_says_ends_its_sender, k),
        cmocka_unit_test_prestate(
            credits_for_what_was_never_sent_end_their_sender, k),
        cmocka_unit_test_prestate(an_offer_of_more_than_memory_ends_its_sender,
                                  k),
        cmocka_unit_test_prestate(
            a_wish_for_more_than_was_offered_ends_its_sender, k),
        cmocka_unit_test_prestate(
            a_wish_for_what_was_never_offered_ends_its_sender, k),
        cmocka_unit_test_prestate(an_answer_without_a_question_ends_its_sender,
                                  k),
        cmocka_unit_test_prestate(a_number_that_was_used_ends_its_sender, k),
        cmocka_unit_test_prestate(
            frames_that_would_take_all_receives_end_their_sender, k),
        cmocka_unit_test_prestate(
            a_chunk_beyond_the_end_of_its_message_ends_its_sender, k),
        cmocka_unit_test_prestate(a_chunk_that_leaves_a_gap_ends_its_sender, k),
        cmocka_unit_test_prestate(a_chunk_of_no_message_ends_its_sender, k),
        cmocka_unit_test_prestate(what_is_of_another_job_is_not_heard, k),
    };

    return cmocka_run_group_tests_name("mpi, faults", tests, NULL, NULL);
}

static int lengths(conform_kind *k)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_frame_longer_than_a_receive_ends_its_sender,
                                  k),
        cmocka_unit_test_prestate(a_chunk_longer_than_a_receive_ends_its_sender,
                                  k),
    };

    if (!raw->keeps_lengths()) {
        printf("skipped: this MPI writes past the end of a receive itself\n");
        return 0;
    }
    return cmocka_run_group_tests_name("mpi, lengths", tests, NULL, NULL);
}

/* --- the suite ------------------------------------------------------------
 */

static int run(const wf_transport *mpi)
{
    conform_kind kinds[] = {
        {.name = "mpi",
         .transport = mpi,
         .settings = "TRANSPORTS=mpi",
         .timed = true},
        {.name = "mpi with waits that sleep",
         .transport = mpi,
         .settings = "TRANSPORTS=mpi SHM_EAGER=512",
         .sleeps = true,
         .timed = true,
         .slow = true},
    };
    int failed = 0;

    raw = wt_launched_raw();
    failed += faults(&kinds[0]) + lengths(&kinds[0]);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        failed += conform_run(&kinds[i]);
    }
    return failed;
}

int main(void)
{
    return wt_launched() ? run(wt_launched_load()) : wt_launch_self(8);
}
