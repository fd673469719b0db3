/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks: whole, in order, matched by sender and tag. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_buffer.h"
#include "wt_cmocka.h"
#include "wt_data.h"

static const char *const settings_list[] = {
    NULL,
    "SHM_CMA=0",
    "SHM_RING_BYTES=4K SHM_EAGER=256",
};

enum { SETTINGS = sizeof(settings_list) / sizeof(settings_list[0]) };

static void run_all_settings(unsigned ranks, wt_body *body)
{
    for (unsigned i = 0; i < SETTINGS; i++) {
        wt_run_both(ranks, settings_list[i], body);
    }
}

static void send_filled(weft_comm *comm, size_t n, unsigned to, uint32_t tag)
{
    wt_buffer b;

    wt_buffer_init(&b, n, tag % 8);
    wt_fill_bytes(b.data, n, tag, weft_comm_rank(comm));
    WT_OK(weft_send(comm, b.data, n, to, tag));
    wt_buffer_fini(&b);
}

static void recv_filled(weft_comm *comm, size_t n, unsigned from, uint32_t tag)
{
    weft_message_info got = {0};
    wt_buffer b;
    wt_buffer want;

    wt_buffer_init(&b, n, (tag + 1) % 8);
    wt_buffer_init(&want, n, 0);
    wt_fill_bytes(want.data, n, tag, from);
    WT_OK(weft_recv(comm, b.data, n, from, tag, &got));
    WT_CHECK(got.n == n && got.from == from && got.tag == tag);
    WT_CHECK(memcmp(b.data, want.data, n) == 0);
    wt_buffer_check(&b);
    wt_buffer_fini(&b);
    wt_buffer_fini(&want);
}

/* --- sizes --------------------------------------------------------------- */

static void sizes_body(weft_world *world)
{
    const size_t sizes[] = {0,
                            1,
                            17,
                            255,
                            256,
                            257,
                            1023,
                            4095,
                            8192,
                            8193,
                            65535,
                            65536,
                            65537,
                            wt_scaled(1u << 20) + 3,
                            wt_scaled(5u << 20)};
    weft_comm *comm = weft_world_comm(world);
    unsigned rank = weft_comm_rank(comm);

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned from = 0; from < 2; from++) {
            if (rank == from) {
                send_filled(comm, sizes[i], 1 - from, i);
            } else {
                recv_filled(comm, sizes[i], from, i);
            }
        }
    }
}

static void messages_of_any_size_arrive_whole(void **state)
{
    (void)state;
    run_all_settings(2, sizes_body);
}

static void to_itself_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned me = weft_comm_rank(comm);
    uint64_t out[2] = {me, 7};
    uint64_t in[2] = {0, 0};
    weft_request *request = NULL;
    weft_message_info info = {0};

    WT_OK(weft_irecv(comm, in, sizeof(in), me, 5, &info, &request));
    WT_OK(weft_send(comm, out, sizeof(out), me, 5));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    WT_CHECK(info.n == sizeof(in) && info.from == me && info.tag == 5);
    WT_CHECK(in[0] == me && in[1] == 7);
    WT_OK(weft_send(comm, NULL, 0, me, 6));
    WT_OK(weft_recv(comm, NULL, 0, me, 6, NULL));
}

static void a_rank_can_send_to_itself(void **state)
{
    (void)state;
    wt_run_both(1, NULL, to_itself_body);
    wt_run_both(3, NULL, to_itself_body);
}

/* --- order and matching -------------------------------------------------- */

/* Rank 0 sends 300 numbered messages; the others forward them in a ring. */
static void order_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned rank = weft_comm_rank(comm);
    unsigned size = weft_comm_size(comm);
    uint32_t x[600];

    for (uint32_t i = 0; i < 300; i++) {
        size_t n = (1 + i % 100) * 4;
        weft_message_info info;

        if (rank != 0) {
            WT_OK(weft_recv(comm, x, sizeof(x), rank - 1, 9, &info));
            WT_CHECK(info.n == n && x[0] == i && x[n / 4 - 1] == i);
        }
        for (size_t k = 0; k < n / 4; k++) {
            x[k] = i;
        }
        if (rank + 1 < size) {
            WT_OK(weft_send(comm, x, n, rank + 1, 9));
        }
    }
}

static void messages_with_one_tag_arrive_in_the_order_sent(void **state)
{
    (void)state;
    run_all_settings(2, order_body);
    wt_run_both(4, NULL, order_body);
}

/* Sent with tags 0..19, received from 19 down: nothing may block for it, as
 * long as the receives are there. */
static void tags_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request[20];
    uint64_t x[20];

    for (unsigned i = 0; i < 20; i++) {
        unsigned tag = weft_comm_rank(comm) == 0 ? i : 19 - i;

        if (weft_comm_rank(comm) == 0) {
            x[tag] = 100 + tag;
            WT_OK(weft_isend(comm, &x[tag], sizeof(x[tag]), 1,
                             WEFT_ANY_TAG - 1 - tag, &request[i]));
        } else {
            WT_OK(weft_irecv(comm, &x[tag], sizeof(x[tag]), 0,
                             WEFT_ANY_TAG - 1 - tag, NULL, &request[i]));
        }
    }
    for (unsigned i = 0; i < 20; i++) {
        WT_OK(weft_request_wait(request[i], 0));
        weft_request_release(request[i]);
        WT_CHECK(weft_comm_rank(comm) == 0 || x[19 - i] == 119 - i);
    }
}

static void a_receive_takes_only_its_own_tag(void **state)
{
    (void)state;
    run_all_settings(2, tags_body);
}

/* Messages sent before the receiver asks for any are kept for it. */
static void unexpected_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t x;
    weft_request *late = NULL;

    if (weft_comm_rank(comm) == 0) {
        for (x = 0; x < 50; x++) {
            WT_OK(weft_send(comm, &x, sizeof(x), 1, x % 2));
        }
        x = 1000;
        WT_OK(weft_send(comm, &x, sizeof(x), 1, 2));
        return;
    }
    WT_OK(weft_irecv(comm, &x, sizeof(x), 0, 2, NULL, &late));
    WT_OK(weft_request_wait(late, 0));
    weft_request_release(late);
    WT_CHECK(x == 1000);
    for (unsigned tag = 2; tag-- > 0;) {
        for (uint32_t i = tag; i < 50; i += 2) {
            WT_OK(weft_recv(comm, &x, sizeof(x), 0, tag, NULL));
            WT_CHECK(x == i);
        }
    }
}

static void messages_nobody_asked_for_yet_are_kept(void **state)
{
    (void)state;
    run_all_settings(2, unexpected_body);
}

/* The same tag on two communicators is two tags. */
static void two_comms_body(weft_world *world)
{
    weft_comm *a = weft_world_comm(world);
    weft_comm *b = NULL;
    unsigned me = weft_comm_rank(a);
    uint32_t x = 1;
    uint32_t y = 2;

    WT_OK(weft_comm_dup(a, &b));
    if (me == 0) {
        WT_OK(weft_send(a, &x, sizeof(x), 1, 0));
        WT_OK(weft_send(b, &y, sizeof(y), 1, 0));
    } else {
        WT_OK(weft_recv(b, &y, sizeof(y), 0, 0, NULL));
        WT_OK(weft_recv(a, &x, sizeof(x), 0, 0, NULL));
        WT_CHECK(x == 1 && y == 2);
    }
    weft_comm_destroy(b);
}

static void communicators_do_not_mix_messages(void **state)
{
    (void)state;
    wt_run_both(2, NULL, two_comms_body);
}

/* --- trouble and traffic ------------------------------------------------- */

static void truncated_body(weft_world *world)
{
    const size_t sizes[] = {100, 20000, wt_scaled(1u << 20)};
    weft_comm *comm = weft_world_comm(world);
    char small[64];
    weft_message_info info = {0};

    for (unsigned i = 0; i < 3; i++) {
        if (weft_comm_rank(comm) == 0) {
            send_filled(comm, sizes[i], 1, 1);
            send_filled(comm, 10, 1, 1);
        } else {
            memset(small, 0, sizeof(small));
            WT_STATUS(weft_recv(comm, small, 32, 0, 1, &info),
                      WEFT_ERR_TRUNCATED);
            WT_CHECK(info.n == sizes[i] && info.from == 0 && info.tag == 1);
            WT_CHECK(small[32] == 0 && small[63] == 0);
            recv_filled(comm, 10, 0, 1);
        }
    }
    WT_OK(weft_comm_error(comm));
    WT_OK(weft_barrier(comm));
}

static void
a_message_longer_than_the_buffer_fails_its_receive_alone(void **state)
{
    (void)state;
    run_all_settings(2, truncated_body);
}

/* Everybody sends to everybody at once, large enough that no buffer takes it
 * all: only posted receives can make room. */
static void everybody_body(weft_world *world)
{
    const size_t n = wt_scaled(200000);
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    weft_request *request[2 * 8];
    char *out = malloc(n);
    char *in = malloc(n * ranks);
    char *want = malloc(n);

    WT_CHECK(out != NULL && in != NULL && want != NULL);
    wt_fill_bytes(out, n, 3, me);
    for (unsigned i = 0; i < ranks; i++) {
        WT_OK(weft_irecv(comm, in + i * n, n, i, me, NULL, &request[2 * i]));
        WT_OK(weft_isend(comm, out, n, i, i, &request[2 * i + 1]));
    }
    for (unsigned i = 0; i < 2 * ranks; i++) {
        WT_OK(weft_request_wait(request[i], 0));
        weft_request_release(request[i]);
    }
    for (unsigned i = 0; i < ranks; i++) {
        wt_fill_bytes(want, n, 3, i);
        WT_CHECK(memcmp(in + i * n, want, n) == 0);
    }
    free(out);
    free(in);
    free(want);
}

static void everybody_can_send_to_everybody_at_once(void **state)
{
    (void)state;
    run_all_settings(4, everybody_body);
    wt_run_both(8, NULL, everybody_body);
}

/* Messages and collectives share a communicator without disturbing it. */
static void mixed_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);

    for (uint32_t i = 0; i < 100; i++) {
        weft_request *request = NULL;
        int64_t sum = me;
        uint32_t x = 0;

        WT_OK(weft_irecv(comm, &x, sizeof(x), (me + ranks - 1) % ranks, i, NULL,
                         &request));
        WT_OK(weft_allreduce(comm, &sum, &sum, 1, WEFT_I64, WEFT_SUM));
        WT_OK(weft_send(comm, &i, sizeof(i), (me + 1) % ranks, i));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        WT_CHECK(x == i && sum == (int64_t)ranks * (ranks - 1) / 2);
    }
}

static void messages_and_collectives_mix(void **state)
{
    (void)state;
    run_all_settings(3, mixed_body);
}

/* --- send and receive ---------------------------------------------------- */

/* One turn of a ring, of a rank with itself if it is alone. Lengths differ
 * from rank to rank. */
static void turn_ring(weft_comm *comm, size_t n, uint32_t tag, bool by_request)
{
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    unsigned left = (me + ranks - 1) % ranks;
    unsigned right = (me + 1) % ranks;
    uint32_t from = tag % 2 ? left : WEFT_ANY_SOURCE;
    weft_message_info info = {0};
    weft_request *request = NULL;
    wt_buffer out;
    wt_buffer in;
    wt_buffer want;

    wt_buffer_init(&out, n + me, 1);
    wt_buffer_init(&in, n + left, 2);
    wt_buffer_init(&want, n + left, 3);
    wt_fill_bytes(out.data, n + me, tag, me);
    wt_fill_bytes(want.data, n + left, tag, left);
    if (by_request) {
        WT_OK(weft_isendrecv(comm, out.data, n + me, right, tag + me, in.data,
                             n + left, from, tag + left, &info, &request));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    } else {
        WT_OK(weft_sendrecv(comm, out.data, n + me, right, tag + me, in.data,
                            n + left, from, tag + left, &info));
    }
    WT_CHECK(info.from == left && info.tag == tag + left);
    WT_CHECK(info.n == n + left && memcmp(in.data, want.data, info.n) == 0);
    wt_buffer_check(&in);
    wt_buffer_fini(&out);
    wt_buffer_fini(&in);
    wt_buffer_fini(&want);
}

static void ring_body(weft_world *world)
{
    const size_t sizes[] = {0, 1, 250, 8190, 30000, wt_scaled(1u << 20)};

    for (unsigned i = 0; i < 24; i++) {
        turn_ring(weft_world_comm(world), sizes[i / 4], 100 * i + i % 2, i & 2);
    }
}

static void a_ring_of_sends_and_receives_does_not_deadlock(void **state)
{
    (void)state;
    wt_run_counts(NULL, ring_body);
    wt_run_both(3, "SHM_CMA=0", ring_body);
    wt_run_both(1, "SHM_EAGER=256", ring_body);
    wt_run_both(3, "SHM_RING_BYTES=4K SHM_EAGER=256", ring_body);
}

/* What is received is too long; what is sent arrives all the same. */
static void half_truncated_body(weft_world *world)
{
    const size_t n = 50000;
    weft_comm *comm = weft_world_comm(world);
    unsigned other = 1 - weft_comm_rank(comm);
    char *buf = calloc(2, n);
    size_t room = other == 0 ? 10 : n;
    weft_message_info info = {0};

    WT_CHECK(buf != NULL);
    WT_STATUS(
        weft_sendrecv(comm, buf, n, other, 1, buf + n, room, other, 1, &info),
        other == 0 ? WEFT_ERR_TRUNCATED : WEFT_OK);
    WT_CHECK(info.n == n && info.from == other);
    WT_OK(weft_sendrecv(comm, buf, n, other, 1, buf + n, n, other, 1, &info));
    WT_OK(weft_comm_error(comm));
    free(buf);
}

static void
what_is_sent_arrives_though_what_is_received_is_too_long(void **state)
{
    (void)state;
    run_all_settings(2, half_truncated_body);
}

/* It matches plain sends and receives. */
static void mixed_halves_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned me = weft_comm_rank(comm);
    unsigned x[2] = {me, 99};

    if (me == 0) {
        WT_OK(weft_sendrecv(comm, &x[0], 4, 1, 5, &x[1], 4, 2, 6, NULL));
        WT_CHECK(x[1] == 2);
    } else if (me == 1) {
        WT_OK(weft_recv(comm, &x[1], 4, 0, 5, NULL));
        WT_CHECK(x[1] == 0);
    } else {
        WT_OK(weft_send(comm, &x[0], 4, 0, 6));
    }
}

static void a_sendrecv_matches_sends_and_receives(void **state)
{
    (void)state;
    wt_run_both(3, NULL, mixed_halves_body);
}

/* --- longer than 32 bits can count --------------------------------------- */

#define HUGE_BYTES (((size_t)2200 << 20) + 12345)

static void huge_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned other = 1 - weft_comm_rank(comm);
    char *buf = calloc(HUGE_BYTES, 1);
    weft_message_info info = {0};

    WT_CHECK(buf != NULL);
    if (weft_comm_rank(comm) == 0) {
        buf[0] = 1;
        buf[HUGE_BYTES - 1] = 2;
        buf[(size_t)1 << 31] = 3;
        WT_OK(weft_send(comm, buf, HUGE_BYTES, other, 1));
    } else {
        WT_OK(weft_probe(comm, WEFT_ANY_SOURCE, 1, &info));
        WT_CHECK(info.n == HUGE_BYTES);
        WT_OK(weft_recv(comm, buf, HUGE_BYTES, other, 1, &info));
        WT_CHECK(info.n == HUGE_BYTES && buf[0] == 1 && buf[1] == 0);
        WT_CHECK(buf[HUGE_BYTES - 1] == 2 && buf[(size_t)1 << 31] == 3);
    }
    free(buf);
}

static void a_message_may_be_longer_than_2_gigabytes(void **state)
{
    (void)state;
    if (!wt_full() || WT_TSAN || WT_ASAN) {
        skip();
    }
    wt_run(2, "SHM_CMA=0", huge_body);
    wt_run(2, "SHM_CMA=1", huge_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_any_size_arrive_whole),
        cmocka_unit_test(a_rank_can_send_to_itself),
        cmocka_unit_test(messages_with_one_tag_arrive_in_the_order_sent),
        cmocka_unit_test(a_receive_takes_only_its_own_tag),
        cmocka_unit_test(messages_nobody_asked_for_yet_are_kept),
        cmocka_unit_test(communicators_do_not_mix_messages),
        cmocka_unit_test(
            a_message_longer_than_the_buffer_fails_its_receive_alone),
        cmocka_unit_test(everybody_can_send_to_everybody_at_once),
        cmocka_unit_test(messages_and_collectives_mix),
        cmocka_unit_test(a_ring_of_sends_and_receives_does_not_deadlock),
        cmocka_unit_test(
            what_is_sent_arrives_though_what_is_received_is_too_long),
        cmocka_unit_test(a_sendrecv_matches_sends_and_receives),
        cmocka_unit_test(a_message_may_be_longer_than_2_gigabytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
