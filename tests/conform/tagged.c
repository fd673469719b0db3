/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: messages of all sizes between two ranks, in order. */
#include <poll.h>
#include <stdlib.h>

#include "conform.h"

/* Around everything that may make a difference: nothing, words, cache lines,
 * the eager limit, a ring, many slices of a large message. */
static size_t sizes_of(const conform *c, size_t *sizes)
{
    size_t eager = c->settings.eager_bytes;
    size_t ring = c->settings.ring_bytes;
    const size_t all[] = {
        0,     1,         7,        8,    47,       48,
        49,    63,        64,       65,   1000,     eager - 1,
        eager, eager + 1, ring - 1, ring, ring + 1, ((size_t)1 << 20) + 3};
    size_t n = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < n; i++) {
        sizes[i] = all[i];
    }
    return n;
}

/* One message; `early` sends it before there is a receive. */
static void one_message(conform *c, size_t n, bool early)
{
    wf_msg send;
    wf_msg recv;
    void *from = conform_bytes(n);
    void *to = conform_bytes(n);

    conform_fill(from, n, n);
    if (!early && conform_receives(c)) {
        conform_recv(c, c->sender, 5, to, n, &recv);
    }
    conform_meet(c);
    if (conform_sends(c)) {
        conform_send(c, c->receiver, 5, from, n, &send);
    }
    if (early && conform_receives(c)) {
        conform_await(c, c->sender, 5);
        conform_recv(c, c->sender, 5, to, n, &recv);
    }
    if (conform_receives(c)) {
        conform_wait_ok(c, &recv, 1);
        WT_CHECK(recv.n == n && recv.from == c->sender && recv.tag == 5);
        conform_check(to, n, n);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, &send, 1);
    }
    free(from);
    free(to);
}

static void sizes_body(conform *c)
{
    size_t sizes[32];
    size_t n = sizes_of(c, sizes);

    for (size_t i = 0; i < n; i++) {
        one_message(c, sizes[i], false);
        one_message(c, sizes[i], true);
    }
}

static void messages_of_all_sizes_arrive_whole(void **state)
{
    conform_ranks(*state, 2, sizes_body);
}

static void huge_body(conform *c)
{
    one_message(c,
                c->kind->slow ? (size_t)3 << 20 : wt_scaled((size_t)64 << 20),
                false);
}

static void a_message_of_64_mib_arrives_whole(void **state)
{
    conform_ranks(*state, 2, huge_body);
}

static void pieces_body(conform *c)
{
    size_t n = (size_t)(c->kind->slow ? 3 : 16) << 20;
    void *buf = conform_bytes(n);
    unsigned pieces = 0;
    size_t moved = 0;
    wf_msg msg;

    conform_fill(buf, n, n);
    if (conform_receives(c)) {
        conform_recv(c, c->sender, 5, buf, n, &msg);
    } else {
        conform_send(c, c->receiver, 5, buf, n, &msg);
    }
    while (!msg.done) {
        pieces += msg.moved != moved;
        moved = msg.moved;
        conform_step(c);
    }
    WT_OK(msg.status);
    WT_CHECK(!conform_receives(c) || pieces > 0);
    conform_meet(c);
    free(buf);
}

/* Without it a deadline could not tell a long message from a lost one. */
static void a_receiver_sees_that_a_long_message_moves(void **state)
{
    const conform_kind *kind = *state;

    if (!kind->to_itself) {
        conform_ranks(kind, 2, pieces_body);
    }
}

/* --- order --------------------------------------------------------------- */

/* Small, large and empty ones in turn. */
static size_t mixed_size(const conform *c, unsigned i)
{
    size_t eager = c->settings.eager_bytes;
    const size_t sizes[] = {8, 0, eager + 1, 100, eager, 3 * eager + 5, 1};

    return sizes[i % 7];
}

/* Post `count` sends and receives with one tag, check them all. */
static void mixed_messages(conform *c, unsigned count, bool early)
{
    size_t room = 4 * c->settings.eager_bytes;
    unsigned char *out = conform_bytes(count * room);
    unsigned char *in = conform_bytes(count * room);
    wf_msg *sends = conform_bytes(count * sizeof(*sends));
    wf_msg *recvs = conform_bytes(count * sizeof(*recvs));

    for (unsigned i = 0; i < count && !early && conform_receives(c); i++) {
        conform_recv(c, c->sender, 1, in + i * room, room, &recvs[i]);
    }
    conform_meet(c);
    for (unsigned i = 0; i < count && conform_sends(c); i++) {
        conform_fill(out + i * room, mixed_size(c, i), i);
        conform_send(c, c->receiver, 1, out + i * room, mixed_size(c, i),
                     &sends[i]);
    }
    for (unsigned i = 0; i < count && early && conform_receives(c); i++) {
        conform_recv(c, c->sender, 1, in + i * room, room, &recvs[i]);
    }
    if (conform_receives(c)) {
        conform_wait_ok(c, recvs, count);
    }
    if (conform_sends(c)) {
        conform_wait_ok(c, sends, count);
    }
    for (unsigned i = 0; i < count && conform_receives(c); i++) {
        WT_CHECK(recvs[i].n == mixed_size(c, i));
        conform_check(in + i * room, recvs[i].n, i);
    }
    free(recvs);
    free(sends);
    free(in);
    free(out);
}

static void order_body(conform *c)
{
    mixed_messages(c, conform_times(c, 200), false);
    mixed_messages(c, conform_times(c, 200), true);
}

static void messages_with_one_tag_are_received_in_the_order_sent(void **state)
{
    conform_ranks(*state, 2, order_body);
}

/* --- both ways ----------------------------------------------------------- */

/* Both ranks send far more than the rings hold before either receives. */
static void flood_body(conform *c)
{
    unsigned count = conform_times(c, 400);
    uint32_t peer = c->ranks - 1 - c->rank;
    size_t n = c->settings.eager_bytes;
    unsigned char *out = conform_bytes(n);
    unsigned char *in = conform_bytes(count * n);
    wf_msg *sends = conform_bytes(count * sizeof(*sends));
    wf_msg *recvs = conform_bytes(count * sizeof(*recvs));

    conform_fill(out, n, 77);
    for (unsigned i = 0; i < count; i++) {
        conform_send(c, peer, i, out, n, &sends[i]);
    }
    conform_meet(c);
    for (unsigned i = 0; i < count; i++) {
        conform_recv(c, peer, i, in + i * n, n, &recvs[i]);
    }
    conform_wait_ok(c, recvs, count);
    conform_wait_ok(c, sends, count);
    for (unsigned i = 0; i < count; i++) {
        conform_check(in + i * n, n, 77);
    }
    free(recvs);
    free(sends);
    free(in);
    free(out);
}

static void rings_that_are_full_both_ways_do_not_deadlock(void **state)
{
    conform_ranks(*state, 2, flood_body);
}

/* A ping and its answer, so that each rank waits for the other every time. */
static void ping_body(conform *c)
{
    unsigned count = conform_times(c, 500);
    uint32_t peer = c->ranks - 1 - c->rank;
    uint64_t value = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t got = 0;
        wf_msg msg[2];

        conform_recv(c, peer, i, &got, sizeof(got), &msg[0]);
        if (c->rank == 0) {
            conform_send(c, peer, i, &value, sizeof(value), &msg[1]);
            conform_wait_ok(c, msg, 2);
        } else {
            conform_wait_ok(c, msg, 1);
            conform_send(c, peer, i, &value, sizeof(value), &msg[1]);
            conform_wait_ok(c, msg, 2);
        }
        WT_CHECK(got == value);
        value = value * 3 + 1;
    }
}

static void ranks_that_answer_each_other_stay_in_step(void **state)
{
    conform_ranks(*state, 2, ping_body);
}

/* --- sleeping ------------------------------------------------------------ */

/* The descriptor tells of a message, and the port does not let anybody sleep
 * before it was read. */
static void arm_body(conform *c)
{
    uint64_t value = 77;
    uint64_t in = 0;
    wf_msg msg;

    if (conform_sends(c)) {
        conform_send(c, c->receiver, 1, &value, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        conform_flush(c);
    }
    if (conform_receives(c)) {
        struct pollfd p = {.fd = c->t->descriptor(c->port), .events = POLLIN};

        WT_CHECK(poll(&p, 1, -1) == 1);
        WT_CHECK(!c->t->arm(c->port));
        conform_recv(c, c->sender, 1, &in, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        WT_CHECK(in == 77);
        while (!c->t->arm(c->port)) {
            conform_step(c);
        }
        WT_CHECK(c->kind->timed || poll(&p, 1, 0) == 0);
    }
    conform_meet(c);
}

static void a_port_with_something_to_do_is_not_armed(void **state)
{
    const conform_kind *kind = *state;

    if (kind->transport->descriptor != NULL) {
        conform_ranks(kind, 2, arm_body);
    }
}

int conform_tagged(const conform_kind *kind)
{
    void *k = (void *)kind;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(messages_of_all_sizes_arrive_whole, k),
        cmocka_unit_test_prestate(a_message_of_64_mib_arrives_whole, k),
        cmocka_unit_test_prestate(a_receiver_sees_that_a_long_message_moves, k),
        cmocka_unit_test_prestate(
            messages_with_one_tag_are_received_in_the_order_sent, k),
        cmocka_unit_test_prestate(rings_that_are_full_both_ways_do_not_deadlock,
                                  k),
        cmocka_unit_test_prestate(ranks_that_answer_each_other_stay_in_step, k),
        cmocka_unit_test_prestate(a_port_with_something_to_do_is_not_armed, k),
    };

    return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
