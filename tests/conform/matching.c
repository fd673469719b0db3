/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: which receive gets which message. */
#include <stdlib.h>
#include <string.h>

#include "conform.h"

/* Tags are received in the reverse of the order in which they were sent. */
static void tags_body(conform *c)
{
    enum { TAGS = 12 };
    uint64_t out[TAGS];
    uint64_t in[TAGS];
    wf_msg sends[TAGS];
    wf_msg recvs[TAGS];

    for (uint64_t i = 0; i < TAGS && conform_sends(c); i++) {
        out[i] = 1000 + i;
        conform_send(c, c->receiver, i << 40, &out[i], 8, &sends[i]);
    }
    for (unsigned i = TAGS; i-- > 0 && conform_receives(c);) {
        conform_recv(c, c->sender, (uint64_t)i << 40, &in[i], 8, &recvs[i]);
        conform_wait_ok(c, &recvs[i], 1);
        WT_CHECK(in[i] == 1000 + i);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, TAGS);
    }
}

static void a_receive_takes_only_its_own_tag(void **state)
{
    conform_ranks(*state, 2, tags_body);
}

/* Tags are (group << 8 | number); a mask asks for a group only. */
static void mask_body(conform *c)
{
    uint64_t out[6];
    uint64_t in = 0;
    wf_msg sends[6];
    wf_msg recv;

    for (unsigned i = 0; i < 6 && conform_sends(c); i++) {
        out[i] = i;
        conform_send(c, c->receiver, (uint64_t)(i % 2 + 1) << 8 | i, &out[i], 8,
                     &sends[i]);
    }
    for (unsigned i = 1; i < 6 && conform_receives(c); i += 2) {
        WT_OK(c->t->recv(c->port, c->sender, 2 << 8, ~(uint64_t)0xff, &in, 8,
                         &recv));
        conform_wait_ok(c, &recv, 1);
        WT_CHECK(in == i && recv.tag == (2 << 8 | i));
    }
    for (unsigned i = 0; i < 6 && conform_receives(c); i += 2) {
        WT_OK(c->t->recv(c->port, WF_FROM_ANY, 0, 0, &in, 8, &recv));
        conform_wait_ok(c, &recv, 1);
        WT_CHECK(in == i && recv.tag == (1 << 8 | i));
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, 6);
    }
}

static void bits_outside_the_mask_match_any_tag(void **state)
{
    conform_ranks(*state, 2, mask_body);
}

/* All ranks but the receiver send; it takes whatever comes. */
static void any_body(conform *c)
{
    enum { EACH = 20 };
    uint64_t out[EACH];
    wf_msg sends[EACH];
    uint32_t next[8] = {0};
    uint32_t senders = c->kind->to_itself ? 1 : c->ranks - 1;

    bool sends_too = c->kind->to_itself || !conform_receives(c);

    for (unsigned i = 0; i < EACH && sends_too; i++) {
        out[i] = i;
        conform_send(c, c->receiver, c->rank, &out[i], 8, &sends[i]);
    }
    for (unsigned i = 0; i < EACH * senders && conform_receives(c); i++) {
        uint64_t in;
        wf_msg recv;

        WT_OK(c->t->recv(c->port, WF_FROM_ANY, 0, 0, &in, 8, &recv));
        conform_wait_ok(c, &recv, 1);
        WT_CHECK(recv.from < c->ranks && recv.tag == recv.from);
        WT_CHECK(in == next[recv.from]++);
    }
    if (sends_too) {
        conform_wait_ok(c, sends, EACH);
    }
}

static void a_receive_from_any_rank_keeps_the_order_of_each(void **state)
{
    conform_ranks(*state, 4, any_body);
}

/* A receive from any rank and one from the sender, in either order. */
static void posted_body(conform *c)
{
    uint64_t out[4] = {10, 11, 12, 13};
    uint64_t in[4] = {0};
    wf_msg sends[4];
    wf_msg recvs[4];

    for (unsigned i = 0; i < 4 && conform_receives(c); i++) {
        bool any = i == 0 || i == 3;

        WT_OK(c->t->recv(c->port, any ? WF_FROM_ANY : c->sender, 3,
                         any ? 0xff : WF_TAG_EXACT, &in[i], 8, &recvs[i]));
    }
    conform_meet(c);
    for (unsigned i = 0; i < 4 && conform_sends(c); i++) {
        conform_send(c, c->receiver, 3, &out[i], 8, &sends[i]);
    }
    if (conform_receives(c)) {
        conform_wait_ok(c, recvs, 4);
        WT_CHECK(memcmp(in, out, sizeof(in)) == 0);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, 4);
    }
}

static void receives_are_served_in_the_order_posted(void **state)
{
    conform_ranks(*state, 2, posted_body);
}

/* --- too long ------------------------------------------------------------ */

/* A message of `n` bytes for a buffer of `room`, then one that fits. */
static void truncate_once(conform *c, size_t n, size_t room, bool early)
{
    static const char after[] = "after";
    unsigned char *out = conform_bytes(n);
    unsigned char *in = conform_bytes(room + 8);
    char tail[8] = {0};
    wf_msg sends[2];
    wf_msg recvs[2];

    conform_fill(out, n, n);
    memset(in, 0xee, room + 8);
    conform_meet(c);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 9, out, n, &sends[0]);
        conform_send(c, c->receiver, 9, after, sizeof(after), &sends[1]);
    }
    if (conform_receives(c)) {
        if (early) {
            conform_await(c, c->sender, 9);
        }
        conform_recv(c, c->sender, 9, in, room, &recvs[0]);
        conform_recv(c, c->sender, 9, tail, sizeof(tail), &recvs[1]);
        conform_wait(c, recvs, 2);
        WT_CHECK(recvs[0].status == WEFT_ERR_TRUNCATED && recvs[0].n == n);
        WT_CHECK(recvs[1].status == WEFT_OK && strcmp(tail, after) == 0);
        conform_check(in, room / 8 * 8, n);
        for (unsigned i = 0; i < 8; i++) {
            WT_CHECK(in[room + i] == 0xee);
        }
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, 2);
    }
    free(in);
    free(out);
}

static void truncate_body(conform *c)
{
    size_t large = 20 * c->settings.eager_bytes;

    for (unsigned early = 0; early < 2; early++) {
        truncate_once(c, 1, 0, early);
        truncate_once(c, 100, 64, early);
        truncate_once(c, large, 0, early);
        truncate_once(c, large, 24, early);
        truncate_once(c, large, large / 2, early);
    }
}

static void a_message_that_is_too_long_is_cut_and_consumed(void **state)
{
    conform_ranks(*state, 2, truncate_body);
}

/* --- peek, keep and forget ---------------------------------------------- */

static void peek_once(conform *c, size_t n)
{
    unsigned char *buf = conform_bytes(n);
    wf_msg msg;
    wf_msg found;

    conform_fill(buf, n, 3);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 6, buf, n, &msg);
    }
    if (conform_receives(c)) {
        unsigned char *in = conform_bytes(n);
        wf_msg recv;

        conform_await(c, c->sender, 6);
        WT_CHECK(!c->t->peek(c->port, c->sender, 7, WF_TAG_EXACT, &found));
        for (unsigned i = 0; i < 2; i++) {
            WT_CHECK(c->t->peek(c->port, WF_FROM_ANY, 0, 0, &found));
            WT_CHECK(found.from == c->sender && found.tag == 6 && found.n == n);
        }
        conform_recv(c, c->sender, 6, in, n, &recv);
        conform_wait_ok(c, &recv, 1);
        conform_check(in, n, 3);
        WT_CHECK(!c->t->peek(c->port, WF_FROM_ANY, 0, 0, &found));
        free(in);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, &msg, 1);
    }
    conform_meet(c);
    free(buf);
}

static void peek_body(conform *c)
{
    peek_once(c, 12);
    peek_once(c, 5 * c->settings.eager_bytes);
}

static void a_peek_tells_of_a_message_and_leaves_it(void **state)
{
    conform_ranks(*state, 2, peek_body);
}

/* Messages of tags 5 to 7: the first is not wanted, the second forgotten. */
static void forget_body(conform *c)
{
    uint64_t out[3] = {5, 6, 7};
    uint64_t in = 0;
    wf_msg sends[3];
    wf_msg msg;

    c->unwanted = 5;
    conform_meet(c);
    for (unsigned i = 0; i < 3 && conform_sends(c); i++) {
        conform_send(c, c->receiver, out[i], &out[i], 8, &sends[i]);
    }
    if (conform_receives(c)) {
        conform_await(c, c->sender, 7);
        WT_CHECK(!c->t->peek(c->port, c->sender, 5, WF_TAG_EXACT, &msg));
        WT_CHECK(c->t->peek(c->port, c->sender, 6, WF_TAG_EXACT, &msg));
        c->t->forget(c->port, 6, WF_TAG_EXACT);
        WT_CHECK(!c->t->peek(c->port, c->sender, 6, WF_TAG_EXACT, &msg));
        conform_recv(c, c->sender, 7, &in, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        WT_CHECK(in == 7);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, 3);
    }
    conform_meet(c);
}

static void messages_that_nobody_wants_are_let_go(void **state)
{
    conform_ranks(*state, 2, forget_body);
}

int conform_matching(const conform_kind *kind)
{
    void *k = (void *)kind;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_receive_takes_only_its_own_tag, k),
        cmocka_unit_test_prestate(bits_outside_the_mask_match_any_tag, k),
        cmocka_unit_test_prestate(
            a_receive_from_any_rank_keeps_the_order_of_each, k),
        cmocka_unit_test_prestate(receives_are_served_in_the_order_posted, k),
        cmocka_unit_test_prestate(
            a_message_that_is_too_long_is_cut_and_consumed, k),
        cmocka_unit_test_prestate(a_peek_tells_of_a_message_and_leaves_it, k),
        cmocka_unit_test_prestate(messages_that_nobody_wants_are_let_go, k),
    };

    return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
