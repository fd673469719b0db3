/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: active messages. */
#include <string.h>

#include "conform.h"

static const size_t header_sizes[] = {0, 1, 8, 63, 64};
static const size_t payload_sizes[] = {
    0, 1, 8, 100, 1000, 4096, WF_AM_PAYLOAD_MAX - 1, WF_AM_PAYLOAD_MAX};
/* And the longest that the transport has. */
enum { HEADERS = 5, PAYLOADS = 9, ALL_SIZES = HEADERS * PAYLOADS };

static size_t longest(const conform *c)
{
    return c->t->am_payload > 0 ? c->t->am_payload : WF_AM_PAYLOAD_MAX;
}

static size_t payload_size(const conform *c, unsigned k)
{
    return k + 1 < PAYLOADS ? payload_sizes[k] : longest(c);
}

/* Send one, as often as memory is short. */
static void am_send(conform *c, uint32_t to, uint32_t id, const void *header,
                    size_t header_bytes, const void *payload,
                    size_t payload_bytes)
{
    WT_OK(c->t->am(c->port, to, id, header, header_bytes, payload,
                   payload_bytes));
}

typedef struct am_bytes {
    const void *from;
    size_t n;
    unsigned calls;
} am_bytes;

static void am_fill(void *ctx, void *payload)
{
    am_bytes *b = ctx;

    WT_CHECK((uintptr_t)payload % 64 == 0);
    memcpy(payload, b->from, b->n);
    b->calls++;
}

/* Send one whose payload is written in place, where the transport has that. */
static void am_send_filled(conform *c, uint32_t to, uint32_t id,
                           const void *header, size_t header_bytes,
                           const void *payload, size_t payload_bytes)
{
    am_bytes b = {payload, payload_bytes, 0};

    if (c->t->am_fill == NULL) {
        am_send(c, to, id, header, header_bytes, payload, payload_bytes);
        return;
    }
    WT_OK(c->t->am_fill(c->port, to, id, header, header_bytes, payload_bytes,
                        am_fill, &b));
    WT_CHECK(b.calls == 1);
}

/* --- sizes and order ----------------------------------------------------- */

typedef struct am_count {
    const conform *c;
    uint32_t from;
    unsigned seen;
    unsigned early;
} am_count;

static void on_sized(void *ctx, uint32_t from, const void *header,
                     size_t header_bytes, const void *payload,
                     size_t payload_bytes)
{
    am_count *count = ctx;
    unsigned i = count->seen++ % ALL_SIZES;

    WT_CHECK(from == count->from);
    WT_CHECK(header_bytes == header_sizes[i / PAYLOADS]);
    WT_CHECK(payload_bytes == payload_size(count->c, i % PAYLOADS));
    conform_check(header, header_bytes, 2 * i);
    conform_check(payload, payload_bytes, 2 * i + 1);
}

/* Takes every third one that it is offered. */
static bool on_sized_early(void *ctx, uint32_t from, const void *header,
                           size_t header_bytes, const void *payload,
                           size_t payload_bytes)
{
    am_count *count = ctx;

    if (count->seen % 3 != 0) {
        return false;
    }
    count->early++;
    on_sized(ctx, from, header, header_bytes, payload, payload_bytes);
    return true;
}

static void sizes_body(conform *c)
{
    am_count count = {.c = c, .from = c->sender};
    unsigned rounds = conform_times(c, 24) / 8;
    unsigned char header[64];
    unsigned char payload[WF_AM_PAYLOAD_MOST];

    c->t->handle(c->port, 7, on_sized, &count);
    if (c->t->handle_early != NULL) {
        c->t->handle_early(c->port, 7, on_sized_early);
    }
    conform_meet(c);
    for (unsigned i = 0; i < rounds * ALL_SIZES && conform_sends(c); i++) {
        unsigned k = i % ALL_SIZES;

        conform_fill(header, header_sizes[k / PAYLOADS], 2 * k);
        conform_fill(payload, payload_size(c, k % PAYLOADS), 2 * k + 1);
        (i % 2 == 0 ? am_send : am_send_filled)(
            c, c->receiver, 7, header, header_sizes[k / PAYLOADS], payload,
            payload_size(c, k % PAYLOADS));
        /* Both parts were copied. */
        memset(header, 0xee, sizeof(header));
        memset(payload, 0xee, sizeof(payload));
    }
    while (conform_receives(c) && count.seen < rounds * ALL_SIZES) {
        conform_step(c);
    }
    WT_CHECK(!conform_receives(c) || c->t->handle_early == NULL ||
             count.early > 0);
}

static void active_messages_of_all_sizes_are_handled_in_order(void **state)
{
    conform_ranks(*state, 2, sizes_body);
}

/* --- handlers that send -------------------------------------------------- */

typedef struct am_echo {
    conform *c;
    unsigned calls;
    unsigned answers;
    uint64_t value[64];
    wf_msg msg[64];
} am_echo;

/* Answers with an active message and with a tagged one. */
static void on_call(void *ctx, uint32_t from, const void *header,
                    size_t header_bytes, const void *payload,
                    size_t payload_bytes)
{
    am_echo *e = ctx;
    unsigned i = e->calls++;

    WT_CHECK(header_bytes == sizeof(e->value[i]));
    memcpy(&e->value[i], header, header_bytes);
    am_send(e->c, from, 2, header, header_bytes, payload, payload_bytes);
    conform_send(e->c, from, 50, &e->value[i], sizeof(e->value[i]), &e->msg[i]);
}

static void on_answer(void *ctx, uint32_t from, const void *header,
                      size_t header_bytes, const void *payload,
                      size_t payload_bytes)
{
    am_echo *e = ctx;
    uint64_t value;

    (void)from;
    WT_CHECK(header_bytes == sizeof(value));
    memcpy(&value, header, sizeof(value));
    WT_CHECK(value == e->answers);
    conform_check(payload, payload_bytes, value);
    e->answers++;
}

static void echo_body(conform *c)
{
    enum { CALLS = 64 };
    static _Thread_local am_echo e;
    unsigned char payload[2000];
    uint64_t in[CALLS];
    wf_msg recvs[CALLS];

    e = (am_echo){.c = c};
    c->t->handle(c->port, 1, on_call, &e);
    c->t->handle(c->port, 2, on_answer, &e);
    conform_meet(c);
    for (uint64_t i = 0; i < CALLS && conform_sends(c); i++) {
        conform_recv(c, c->receiver, 50, &in[i], 8, &recvs[i]);
        conform_fill(payload, sizeof(payload), i);
        am_send(c, c->receiver, 1, &i, sizeof(i), payload, sizeof(payload));
    }
    while (conform_receives(c) && e.calls < CALLS) {
        conform_step(c);
    }
    if (conform_receives(c)) {
        conform_wait_ok(c, e.msg, CALLS);
    }
    while (conform_sends(c) && e.answers < CALLS) {
        conform_step(c);
    }
    for (unsigned i = 0; i < CALLS && conform_sends(c); i++) {
        conform_wait_ok(c, &recvs[i], 1);
        WT_CHECK(in[i] == i);
    }
}

static void handlers_may_send(void **state)
{
    conform_ranks(*state, 2, echo_body);
}

/* --- many at once -------------------------------------------------------- */

static void on_number(void *ctx, uint32_t from, const void *header,
                      size_t header_bytes, const void *payload,
                      size_t payload_bytes)
{
    unsigned *next = ctx;
    unsigned number;

    WT_CHECK(header_bytes == sizeof(number));
    memcpy(&number, header, sizeof(number));
    WT_CHECK(number == next[from]);
    conform_check(payload, payload_bytes, number);
    next[from]++;
}

static bool heard_all(const conform *c, const unsigned *next, unsigned count)
{
    for (uint32_t r = 0; r < c->ranks; r++) {
        if (c->t->reaches(c->host, r) && next[r] < count) {
            return false;
        }
    }
    return true;
}

/* More than the rings hold, from all to all, before anybody listens. */
static void storm_body(conform *c)
{
    unsigned count = conform_times(c, 100);
    unsigned next[8] = {0};
    unsigned char payload[3000];

    c->t->handle(c->port, 0, on_number, next);
    conform_meet(c);
    for (unsigned i = 0; i < count; i++) {
        conform_fill(payload, sizeof(payload), i);
        for (uint32_t r = 0; r < c->ranks; r++) {
            if (c->t->reaches(c->host, r)) {
                am_send(c, r, 0, &i, sizeof(i), payload, sizeof(payload));
            }
        }
    }
    while (!heard_all(c, next, count)) {
        conform_step(c);
    }
}

static void active_messages_from_all_to_all_do_not_deadlock(void **state)
{
    conform_ranks(*state, 4, storm_body);
}

/* --- what cannot be ------------------------------------------------------ */

static void limits_body(conform *c)
{
    static const unsigned char bytes[WF_AM_PAYLOAD_MOST + 1];
    const wf_transport *t = c->t;
    am_bytes none = {bytes, 0, 0};

    WT_CHECK(t->am_fill != NULL || t->am_payload == 0);
    if (t->am_fill != NULL) {
        WT_STATUS(t->am_fill(c->port, c->receiver, 0, NULL, 0, longest(c) + 1,
                             am_fill, &none),
                  WEFT_ERR_INVALID);
        WT_CHECK(none.calls == 0);
    }
    WT_STATUS(t->am(c->port, c->receiver, WF_AM_IDS, NULL, 0, NULL, 0),
              WEFT_ERR_INVALID);
    WT_STATUS(
        t->am(c->port, c->receiver, 0, bytes, WF_AM_HEADER_MAX + 1, NULL, 0),
        WEFT_ERR_INVALID);
    WT_STATUS(t->am(c->port, c->receiver, 0, NULL, 0, bytes, longest(c) + 1),
              WEFT_ERR_INVALID);
    WT_STATUS(t->am(c->port, c->ranks, 0, NULL, 0, NULL, 0), WEFT_ERR_INVALID);
}

static void active_messages_beyond_the_limits_are_refused(void **state)
{
    conform_ranks(*state, 2, limits_body);
}

int conform_am(const conform_kind *kind)
{
    void *k = (void *)kind;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(
            active_messages_of_all_sizes_are_handled_in_order, k),
        cmocka_unit_test_prestate(handlers_may_send, k),
        cmocka_unit_test_prestate(
            active_messages_from_all_to_all_do_not_deadlock, k),
        cmocka_unit_test_prestate(active_messages_beyond_the_limits_are_refused,
                                  k),
    };

    return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
