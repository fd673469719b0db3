/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: how things end that do not end well. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "conform.h"

/* Set by a rank that needs no more from the other one. */
#define FINISHED_WORD 1

/* --- a rank that is gone ------------------------------------------------- */

static void on_last_word(void *ctx, uint32_t from, const void *header,
                         size_t header_bytes, const void *payload,
                         size_t payload_bytes)
{
    (void)from;
    (void)header;
    (void)header_bytes;
    (void)payload;
    (void)payload_bytes;
    ++*(unsigned *)ctx;
}

/* What the receiver has under way with the sender when that goes. */
typedef struct survivor {
    uint64_t in;
    size_t large;
    unsigned char *buf;
    wf_msg never;  /* a receive from the one that goes */
    wf_msg anyone; /* a receive from any */
    wf_msg send;   /* too large to be gone yet */
} survivor;

static void survivor_begin(conform *c, survivor *s)
{
    s->large = 10 * c->settings.eager_bytes;
    s->buf = conform_bytes(s->large);
    conform_fill(s->buf, s->large, 0);
    conform_recv(c, c->sender, 3, &s->in, 8, &s->never);
    WT_OK(c->t->recv(c->port, WF_FROM_ANY, 4, WF_TAG_EXACT, &s->in, 8,
                     &s->anyone));
    conform_send(c, c->sender, 40, s->buf, s->large, &s->send);
}

/* Nothing but what arrived whole can be had from it. */
static void survivor_end(conform *c, survivor *s)
{
    const wf_transport *t = c->t;
    uint64_t in = 0;
    wf_msg msg;

    WT_CHECK(c->losses == 0);
    t->gone(c->port, c->sender);
    conform_wait(c, &s->never, 1);
    conform_wait(c, &s->send, 1);
    while (c->losses == 0) {
        conform_step(c);
    }
    WT_CHECK(c->lost == WEFT_ERR_PEER && c->lost_rank == c->sender);
    WT_CHECK(s->never.status == WEFT_ERR_PEER);
    WT_CHECK(s->send.status == WEFT_ERR_PEER);
    conform_recv(c, c->sender, 1, &in, 8, &msg);
    conform_wait_ok(c, &msg, 1);
    WT_CHECK(in == 99);
    WT_STATUS(
        t->recv(c->port, c->sender, 2, WF_TAG_EXACT, s->buf, s->large, &msg),
        WEFT_ERR_PEER);
    WT_STATUS(t->send(c->port, c->sender, 1, &in, 8, &msg), WEFT_ERR_PEER);
    WT_STATUS(t->am(c->port, c->sender, 0, NULL, 0, NULL, 0), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), c->sender));
    for (unsigned i = 0; i < 20; i++) {
        conform_step(c);
    }
    WT_CHECK(!s->anyone.done && c->losses == 1);
    t->drop(c->port, &s->anyone);
    free(s->buf);
}

static void gone_body(conform *c)
{
    survivor s = {0};
    uint64_t small = 99;
    size_t large = 10 * c->settings.eager_bytes;
    unsigned char *buf = conform_bytes(large);
    unsigned words = 0;
    wf_msg sends[2];

    conform_fill(buf, large, 0);
    c->t->handle(c->port, 0, on_last_word, &words);
    if (conform_receives(c)) {
        survivor_begin(c, &s);
    }
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, &small, 8, &sends[0]);
        WT_OK(c->t->am(c->port, c->receiver, 0, NULL, 0, NULL, 0));
        conform_send(c, c->receiver, 2, buf, large, &sends[1]);
        conform_wait_ok(c, sends, 1);
        conform_flush(c);
    }
    conform_meet(c);
    if (conform_receives(c)) {
        survivor_end(c, &s);
        WT_CHECK(words == 1);
    }
    conform_meet(c);
    if (conform_sends(c)) {
        c->t->drop(c->port, &sends[1]);
    }
    free(buf);
}

static void a_rank_that_is_gone_fails_what_is_pending_with_it(void **state)
{
    conform_ranks(*state, 2, gone_body);
}

/* A connection ends while both ranks live. */
static void cut_body(conform *c)
{
    uint64_t value = 99;
    uint64_t in[2] = {0};
    wf_msg msg[2];

    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, &value, 8, &msg[0]);
        conform_wait_ok(c, msg, 1);
        conform_flush(c);
    }
    if (conform_receives(c)) {
        conform_recv(c, c->sender, 2, &in[1], 8, &msg[1]);
    }
    conform_meet(c);
    if (conform_sends(c)) {
        c->kind->cut(c->port, c->receiver);
    }
    if (conform_receives(c)) {
        conform_wait(c, &msg[1], 1);
        WT_CHECK(msg[1].status == WEFT_ERR_PEER && c->losses == 1);
        WT_CHECK(c->lost == WEFT_ERR_PEER && c->lost_rank == c->sender);
        conform_recv(c, c->sender, 1, &in[0], 8, &msg[0]);
        conform_wait_ok(c, msg, 1);
        WT_CHECK(in[0] == 99);
        WT_STATUS(c->t->send(c->port, c->sender, 3, in, 8, &msg[0]),
                  WEFT_ERR_PEER);
        c->t->gone(c->port, c->sender); /* the core may hear of it, too */
    }
    conform_meet(c);
    conform_step(c);
    WT_CHECK(c->losses == 1);
}

static void a_connection_that_ends_is_a_loss_once_all_is_delivered(void **state)
{
    const conform_kind *kind = *state;

    if (kind->cut != NULL) {
        conform_ranks(kind, 2, cut_body);
    }
}

/* --- let go of ----------------------------------------------------------- */

/* Receive a large message, and drop it after `steps` calls of progress(). */
static void drop_receive(conform *c, unsigned steps, uint32_t round)
{
    size_t n = (size_t)600 << 10;
    unsigned char *buf = conform_bytes(n);
    wf_msg msg;

    conform_recv(c, c->sender, 8, buf, n, &msg);
    for (unsigned i = 0; i < steps; i++) {
        conform_step(c);
    }
    c->t->drop(c->port, &msg);
    free(buf);
    wt_word_set(FINISHED_WORD, round);
}

/* Send one, and drop it if the receiver will never take it. */
static void drop_send(conform *c, uint32_t round, wf_msg *msg,
                      unsigned char *buf, size_t n)
{
    conform_send(c, c->receiver, 8, buf, n, msg);
    while (!msg->done && !c->kind->to_itself &&
           atomic_load(wt_word(FINISHED_WORD)) < round) {
        conform_step(c);
    }
}

/* Whatever one side drops, what is sent afterwards arrives. */
static void drop_body(conform *c)
{
    size_t n = (size_t)600 << 10;
    unsigned char *buf = conform_bytes(n);

    conform_fill(buf, n, 1);
    for (uint32_t round = 1; round <= conform_times(c, 24); round++) {
        uint64_t value = round;
        uint64_t in = 0;
        wf_msg large = {.done = true};
        wf_msg msg[2];

        if (conform_sends(c)) {
            drop_send(c, round, &large, buf, n);
        }
        if (conform_receives(c)) {
            drop_receive(c, round % 12, round);
        }
        if (conform_sends(c)) {
            c->t->drop(c->port, &large);
            conform_send(c, c->receiver, 9, &value, 8, &msg[0]);
            conform_wait_ok(c, &msg[0], 1);
        }
        if (conform_receives(c)) {
            conform_recv(c, c->sender, 9, &in, 8, &msg[1]);
            conform_wait_ok(c, &msg[1], 1);
            WT_CHECK(in == round);
        }
        conform_meet(c);
    }
    free(buf);
}

static void what_is_dropped_does_not_disturb_what_follows(void **state)
{
    conform_ranks(*state, 2, drop_body);
}

static void drop_posted_body(conform *c)
{
    uint64_t out = 7;
    uint64_t in[2] = {0};
    wf_msg msg[3];

    if (conform_receives(c)) {
        conform_recv(c, c->sender, 1, &in[0], 8, &msg[0]);
        conform_recv(c, WF_FROM_ANY, 1, &in[0], 8, &msg[1]);
        c->t->drop(c->port, &msg[0]);
        c->t->drop(c->port, &msg[1]);
        conform_recv(c, c->sender, 1, &in[1], 8, &msg[0]);
    }
    conform_meet(c);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, &out, 8, &msg[2]);
        conform_wait_ok(c, &msg[2], 1);
    }
    if (conform_receives(c)) {
        conform_wait_ok(c, &msg[0], 1);
        WT_CHECK(in[0] == 0 && in[1] == 7);
    }
}

static void a_dropped_receive_takes_no_message(void **state)
{
    conform_ranks(*state, 2, drop_posted_body);
}

/* --- leftovers and mistakes ---------------------------------------------- */

/* Ends with messages, receives and active messages that nobody takes; the
 * sanitizers look for what is left. */
static void leftovers_body(conform *c)
{
    size_t n = 30 * c->settings.eager_bytes;
    static unsigned char buf[64];
    static _Thread_local wf_msg msgs[3];
    unsigned char *large = conform_bytes(n);

    conform_fill(large, n, 0);
    c->t->handle(c->port, 0, on_last_word, &c->meetings);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, buf, sizeof(buf), &msgs[0]);
        conform_send(c, c->receiver, 2, large, n, &msgs[1]);
    }
    if (conform_receives(c)) {
        conform_await(c, c->sender, 1);
        conform_await(c, c->sender, 2);
        conform_recv(c, c->sender, 3, buf, sizeof(buf), &msgs[2]);
    }
    conform_meet(c);
    if (conform_sends(c)) {
        c->t->drop(c->port, &msgs[1]);
    }
    free(large);
}

static void a_port_closes_with_messages_that_nobody_took(void **state)
{
    conform_ranks(*state, 2, leftovers_body);
}

static void mistakes_body(conform *c)
{
    char buf[8] = {0};
    wf_msg msg;

    WT_STATUS(c->t->send(c->port, c->ranks, 0, buf, 8, &msg), WEFT_ERR_INVALID);
    WT_STATUS(c->t->recv(c->port, c->ranks, 0, 0, buf, 8, &msg),
              WEFT_ERR_INVALID);
    WT_CHECK(!c->t->peek(c->port, c->ranks, 0, 0, &msg));
    c->t->gone(c->port, c->ranks);
    conform_step(c);
    WT_CHECK(c->losses == 0);
    c->t->close(NULL);
}

static void ranks_that_are_not_there_are_refused(void **state)
{
    conform_ranks(*state, 2, mistakes_body);
}

/* --- no memory ----------------------------------------------------------- */

/* The nth allocation fails on both sides; a call may say so and is repeated,
 * but what was accepted arrives. */
static void scarce_once(conform *c, unsigned nth, size_t n)
{
    unsigned char *out = conform_bytes(n);
    unsigned char *in = conform_bytes(n);
    weft_status st = WEFT_ERR_NOMEM;
    wf_msg send;
    wf_msg recv;

    conform_fill(out, n, nth);
    conform_meet(c);
    wf_alloc_fail_nth(nth);
    while (conform_sends(c) && st == WEFT_ERR_NOMEM) {
        st = c->t->send(c->port, c->receiver, 1, out, n, &send);
    }
    if (conform_receives(c)) {
        conform_await(c, c->sender, 1);
        conform_recv(c, c->sender, 1, in, n, &recv);
        conform_wait_ok(c, &recv, 1);
        conform_check(in, n, nth);
    }
    if (conform_sends(c)) {
        WT_CHECK(st == WEFT_OK);
        conform_wait_ok(c, &send, 1);
    }
    wf_alloc_fail_nth(0);
    free(in);
    free(out);
}

static void scarce_body(conform *c)
{
    for (unsigned nth = 1; nth <= 4; nth++) {
        scarce_once(c, nth, 16);
        scarce_once(c, nth, 5 * c->settings.eager_bytes);
    }
}

static void a_failed_allocation_loses_no_message(void **state)
{
    conform_ranks(*state, 2, scarce_body);
}

int conform_end(const conform_kind *kind)
{
    void *k = (void *)kind;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(
            a_rank_that_is_gone_fails_what_is_pending_with_it, k),
        cmocka_unit_test_prestate(
            a_connection_that_ends_is_a_loss_once_all_is_delivered, k),
        cmocka_unit_test_prestate(what_is_dropped_does_not_disturb_what_follows,
                                  k),
        cmocka_unit_test_prestate(a_dropped_receive_takes_no_message, k),
        cmocka_unit_test_prestate(a_port_closes_with_messages_that_nobody_took,
                                  k),
        cmocka_unit_test_prestate(ranks_that_are_not_there_are_refused, k),
        cmocka_unit_test_prestate(a_failed_allocation_loses_no_message, k),
    };

    return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
