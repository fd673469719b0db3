/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a switch, by their rules (slot.h). */
#include <stdlib.h>
#include <string.h>

#include "agg/quantise.h"
#include "agg/slot.h"
#include "comm/call.h"
#include "wt_cmocka.h"

enum { RANKS = 3, SLOTS = 2 };

static const wf_agg_shape shape = {
    .job = 7, .epoch = 3, .ranks = RANKS, .slots = SLOTS, .payload = 64};

typedef struct fixture {
    wf_agg_pool pool;
    wf_agg_reply reply;
    void *memory;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    size_t bytes = wf_agg_pool_bytes(&shape);

    f.memory = aligned_alloc(64, bytes);
    if (f.memory == NULL) {
        return -1;
    }
    memset(f.memory, 0xee, bytes);
    wf_agg_pool_init(&f.pool, &shape, f.memory);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    free(((fixture *)*state)->memory);
    return 0;
}

static wf_agg_head head_of(uint32_t rank, uint64_t chunk)
{
    return (wf_agg_head){.kind = WF_AGG_DATA,
                         .version = (uint8_t)wf_agg_version_of(chunk, SLOTS),
                         .job = 7,
                         .epoch = 3,
                         .chunk = chunk,
                         .total = 2,
                         .hash = 99,
                         .slot = (uint16_t)wf_agg_slot_of(chunk, SLOTS),
                         .rank = (uint16_t)rank,
                         .ranks = RANKS,
                         .count = 2,
                         .call = WF_CALL_ALLREDUCE,
                         .type = WEFT_I32,
                         .op = WEFT_OP_SUM};
}

/* Rank r sends (chunk + 1) * (10^r, 2 * 10^r). */
static wf_agg_verdict send(fixture *f, uint32_t rank, uint64_t chunk)
{
    static const int32_t power[RANKS] = {1, 10, 100};
    wf_agg_head head = head_of(rank, chunk);
    int32_t x = power[rank] * (int32_t)(chunk + 1);
    const int32_t payload[2] = {x, 2 * x};

    return wf_agg_take(&f->pool, &head, payload, &f->reply);
}

static void send_all(fixture *f, uint64_t chunk)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        wf_agg_verdict v = send(f, r, chunk);
        assert_int_equal(v, r + 1 < RANKS ? WF_AGG_KEPT : WF_AGG_BROADCAST);
    }
}

static void assert_result(const fixture *f, uint64_t chunk)
{
    int32_t sum[2];

    assert_int_equal(f->reply.head.kind, WF_AGG_RESULT);
    assert_int_equal(f->reply.head.chunk, chunk);
    assert_int_equal(f->reply.head.rank, WF_AGG_ALL);
    memcpy(sum, f->reply.payload, sizeof(sum));
    assert_int_equal(sum[0], 111 * (chunk + 1));
    assert_int_equal(sum[1], 222 * (chunk + 1));
}

static void the_last_part_gives_the_result_to_all(void **state)
{
    fixture *f = *state;

    assert_int_equal(send(f, 2, 0), WF_AGG_KEPT);
    assert_int_equal(send(f, 0, 0), WF_AGG_KEPT);
    assert_int_equal(send(f, 1, 0), WF_AGG_BROADCAST);
    assert_result(f, 0);
}

static void a_repeated_part_is_told_who_is_missing(void **state)
{
    fixture *f = *state;

    send(f, 0, 0);
    send(f, 2, 0);
    assert_int_equal(send(f, 2, 0), WF_AGG_ANSWER);
    assert_int_equal(f->reply.head.kind, WF_AGG_WAIT);
    assert_int_equal(f->reply.head.rank, 1);
    assert_int_equal(f->reply.head.count, 1);
    assert_int_equal(send(f, 1, 0), WF_AGG_BROADCAST);
    assert_result(f, 0);
}

static void a_lost_result_is_sent_again_to_who_asks(void **state)
{
    fixture *f = *state;

    send_all(f, 0);
    send_all(f, SLOTS);
    assert_int_equal(send(f, 1, 0), WF_AGG_ANSWER);
    assert_result(f, 0);
    assert_int_equal(send(f, 1, SLOTS), WF_AGG_ANSWER);
    assert_result(f, SLOTS);
}

static void late_duplicates_never_count(void **state)
{
    fixture *f = *state;

    send_all(f, 0);
    send_all(f, 2);
    assert_int_equal(send(f, 0, 4), WF_AGG_KEPT);
    assert_int_equal(send(f, 1, 0), WF_AGG_DROPPED_LATE);
    assert_int_equal(send(f, 1, 2), WF_AGG_ANSWER);
    assert_result(f, 2);
    assert_int_equal(send(f, 1, 4), WF_AGG_KEPT);
    assert_int_equal(send(f, 2, 0), WF_AGG_DROPPED_LATE);
    assert_int_equal(send(f, 2, 4), WF_AGG_BROADCAST);
    assert_result(f, 4);
}

static void no_chunk_begins_before_its_turn(void **state)
{
    fixture *f = *state;

    assert_int_equal(send(f, 0, 2), WF_AGG_DROPPED_AHEAD);
    assert_int_equal(send(f, 0, 4), WF_AGG_DROPPED_AHEAD);
    send_all(f, 0);
    assert_int_equal(send(f, 0, 4), WF_AGG_DROPPED_AHEAD);
    send(f, 0, 2);
    assert_int_equal(send(f, 1, 4), WF_AGG_DROPPED_AHEAD);
    send(f, 1, 2);
    send(f, 2, 2);
    assert_int_equal(send(f, 1, 8), WF_AGG_DROPPED_AHEAD);
    send_all(f, 4);
    assert_result(f, 4);
}

static void what_is_of_another_job_is_dropped(void **state)
{
    fixture *f = *state;
    wf_agg_head h[8];
    const int32_t payload[32] = {0};

    for (unsigned i = 0; i < 8; i++) {
        h[i] = head_of(0, 0);
    }
    h[0].epoch++;
    h[1].job++;
    h[2].ranks++;
    h[3].slot = 1;
    h[4].version = 1;
    h[5].kind = WF_AGG_RESULT;
    h[7].lane = 1;
    h[6].count = 17; /* more than the job's packets hold */
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(wf_agg_take(&f->pool, &h[i], payload, &f->reply),
                         WF_AGG_DROPPED_STRANGE);
    }
}

static void different_calls_are_named_to_all(void **state)
{
    fixture *f = *state;
    const int32_t payload[2] = {1, 2};
    wf_agg_called record[2];
    wf_agg_head other = head_of(2, 0);

    other.total = 77;
    other.op = WEFT_OP_MAX;
    send(f, 1, 0);
    assert_int_equal(wf_agg_take(&f->pool, &other, payload, &f->reply),
                     WF_AGG_BROADCAST);
    assert_int_equal(f->reply.head.kind, WF_AGG_MISMATCH);
    memcpy(record, f->reply.payload, sizeof(record));
    assert_int_equal(record[0].rank, 1);
    assert_int_equal(record[0].total, 2);
    assert_int_equal(record[1].rank, 2);
    assert_int_equal(record[1].total, 77);
    assert_int_equal(record[1].op, WEFT_OP_MAX);
    /* It stays so, whoever asks, and goes no further. */
    assert_int_equal(send(f, 0, 0), WF_AGG_ANSWER);
    assert_int_equal(f->reply.head.kind, WF_AGG_MISMATCH);
    assert_int_equal(wf_agg_take(&f->pool, &other, payload, &f->reply),
                     WF_AGG_ANSWER);
    assert_int_equal(f->reply.head.kind, WF_AGG_MISMATCH);
    assert_int_equal(send(f, 0, 2), WF_AGG_DROPPED_AHEAD);
}

/* Any one of these makes calls different. */
static void all_of_a_call_is_compared(void **state)
{
    fixture *f = *state;
    const int32_t payload[3] = {1, 2};

    for (unsigned i = 0; i < 7; i++) {
        wf_agg_head h = head_of(1, 0);

        wf_agg_pool_init(&f->pool, &shape, f->memory);
        send(f, 0, 0);
        h.hash += i == 0;
        h.total += i == 1;
        h.count = i == 2 ? 1 : h.count;
        h.type = i == 3 ? WEFT_F32 : h.type;
        h.op = i == 4 ? WEFT_OP_MIN : h.op;
        h.call = i == 5 ? WF_CALL_REDUCE : h.call;
        h.flags = i == 6 ? WF_AGG_QUANTISED : 0;
        wf_agg_take(&f->pool, &h, payload, &f->reply);
        assert_int_equal(f->reply.head.kind, WF_AGG_MISMATCH);
    }
}

/* 2^24 + 1 + 1 is 2^24 from the left, and 2^24 + 2 from the right. */
static void floats_are_added_in_the_order_of_ranks(void **state)
{
    static const uint32_t order[6][RANKS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                             {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const float value[RANKS] = {16777216, 1, 1};
    fixture *f = *state;

    for (unsigned i = 0; i < 6; i++) {
        float sum;

        wf_agg_pool_init(&f->pool, &shape, f->memory);
        for (unsigned k = 0; k < RANKS; k++) {
            wf_agg_head h = head_of(order[i][k], 0);

            h.type = WEFT_F32;
            h.count = 1;
            wf_agg_take(&f->pool, &h, &value[order[i][k]], &f->reply);
        }
        memcpy(&sum, f->reply.payload, sizeof(sum));
        assert_true(sum == 16777216);
    }
}

static void quantised_parts_are_added_in_fixed_point(void **state)
{
    static const float value[RANKS][2] = {{1, 1000}, {2, 1e-3f}, {0.5f, -1000}};
    fixture *f = *state;
    float sum[2];

    for (uint32_t r = 0; r < RANKS; r++) {
        wf_agg_head h = head_of(r, 0);
        int32_t payload[3];

        h.type = WEFT_C64;
        h.count = 1;
        h.flags = WF_AGG_QUANTISED;
        wf_quantise(value[r], 2, RANKS, payload);
        wf_agg_take(&f->pool, &h, payload, &f->reply);
    }
    assert_int_equal(f->reply.head.kind, WF_AGG_RESULT);
    assert_int_equal(f->reply.head.flags, WF_AGG_QUANTISED);
    wf_dequantise(f->reply.payload, 2, RANKS, 1, sum);
    assert_true(sum[0] == 3.5f);
    assert_true(sum[1] > 0.999e-3f && sum[1] < 1.001e-3f);
}

static void payloads_may_lie_at_any_address(void **state)
{
    fixture *f = *state;
    unsigned char bytes[sizeof(int64_t) + 1];

    for (uint32_t r = 0; r < RANKS; r++) {
        wf_agg_head h = head_of(r, 0);
        int64_t x = (int64_t)1 << (20 * r);

        h.type = WEFT_I64;
        h.count = 1;
        memcpy(bytes + 1, &x, sizeof(x));
        wf_agg_take(&f->pool, &h, bytes + 1, &f->reply);
    }
    assert_int_equal(f->reply.head.kind, WF_AGG_RESULT);
    assert_true(*(const int64_t *)f->reply.payload == 0x10000100001);
}

static void shapes_out_of_range_have_no_pool(void **state)
{
    wf_agg_shape s[8];

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        s[i] = shape;
    }
    s[0].ranks = 0;
    s[1].ranks = WF_AGG_RANKS + 1;
    s[2].slots = 0;
    s[3].slots = WF_AGG_SLOTS + 1;
    s[4].payload = 0;
    s[5].payload = 65;
    s[6].payload = WF_AGG_PAYLOAD_MAX + 64;
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(wf_agg_pool_bytes(&s[i]), 0);
    }
    s[7].payload = WF_AGG_PAYLOAD_MAX;
    assert_true(wf_agg_pool_bytes(&s[7]) >=
                (2 + RANKS) * SLOTS * WF_AGG_PAYLOAD_MAX);
}

static void a_job_of_one_rank_gets_its_own_data(void **state)
{
    fixture *f = *state;
    wf_agg_shape one = shape;
    const int32_t payload[2] = {5, 6};
    wf_agg_head h = head_of(0, 0);

    one.ranks = 1;
    h.ranks = 1;
    wf_agg_pool_init(&f->pool, &one, f->memory);
    assert_int_equal(wf_agg_take(&f->pool, &h, payload, &f->reply),
                     WF_AGG_BROADCAST);
    assert_memory_equal(f->reply.payload, payload, sizeof(payload));
    assert_int_equal(wf_agg_take(&f->pool, &h, payload, &f->reply),
                     WF_AGG_ANSWER);
}

static void verdicts_have_names(void **state)
{
    (void)state;
    for (unsigned v = 0; v < WF_AGG_VERDICTS; v++) {
        assert_non_null(wf_agg_verdict_name((wf_agg_verdict)v));
    }
    assert_string_equal(wf_agg_verdict_name(WF_AGG_VERDICTS), "?");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_last_part_gives_the_result_to_all),
        TEST(a_repeated_part_is_told_who_is_missing),
        TEST(a_lost_result_is_sent_again_to_who_asks),
        TEST(late_duplicates_never_count),
        TEST(no_chunk_begins_before_its_turn),
        TEST(what_is_of_another_job_is_dropped),
        TEST(different_calls_are_named_to_all),
        TEST(all_of_a_call_is_compared),
        TEST(floats_are_added_in_the_order_of_ranks),
        TEST(quantised_parts_are_added_in_fixed_point),
        TEST(payloads_may_lie_at_any_address),
        TEST(shapes_out_of_range_have_no_pool),
        TEST(a_job_of_one_rank_gets_its_own_data),
        TEST(verdicts_have_names),
    };

    return cmocka_run_group_tests_name("agg_slot", tests, NULL, NULL);
}
