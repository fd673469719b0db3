/* SPDX-License-Identifier: Apache-2.0 */
/* Packets to and from a switch: what is sealed is opened, and nothing else. */
#include <string.h>

#include "agg/wire.h"
#include "comm/call.h"
#include "wt_cmocka.h"

static const wf_agg_key plain = {{{1, 2}}, false};
static const wf_agg_key whole = {{{1, 2}}, true};

typedef struct packet {
    wf_agg_head head;
    unsigned char payload[WF_AGG_PAYLOAD_MAX + 1];
} packet;

static wf_agg_head some_head(void)
{
    return (wf_agg_head){.kind = WF_AGG_DATA,
                         .version = 1,
                         .job = 7,
                         .epoch = 3,
                         .chunk = 0x123456789abcull,
                         .total = 1000,
                         .hash = 99,
                         .slot = 5,
                         .rank = 1,
                         .ranks = 4,
                         .count = 6,
                         .call = WF_CALL_ALLREDUCE,
                         .type = WEFT_F32,
                         .op = WEFT_OP_SUM,
                         .rtt = 80};
}

/* Seal it and open what came out, as long as it says it is. */
static wf_agg_refusal through(const wf_agg_key *key, wf_agg_head head)
{
    static packet p;
    wf_agg_head out;
    size_t n = wf_agg_payload(&head);

    p.head = head;
    if (n == SIZE_MAX) {
        return WF_AGG_BAD_LENGTH;
    }
    memset(p.payload, 0x5a, n);
    wf_agg_seal(key, &p.head, p.payload);
    return wf_agg_open(key, &p, sizeof(p.head) + n, &out);
}

static void what_is_sealed_is_opened(void **state)
{
    static const wf_agg_key *const keys[] = {&plain, &whole};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        packet p = {.head = some_head()};
        wf_agg_head out;
        uint32_t job;

        memset(p.payload, 3, 24);
        wf_agg_seal(keys[i], &p.head, p.payload);
        assert_int_equal(wf_agg_open(keys[i], &p, 64 + 24, &out), WF_AGG_GOOD);
        assert_memory_equal(&out, &p.head, sizeof(out));
        assert_true(wf_agg_job(&p, 64, &job));
        assert_int_equal(job, 7);
    }
}

/* The head is that of the table in wire.h. */
static void the_layout_is_fixed(void **state)
{
    static const unsigned char expected[56] = {
        'W', 'F', 'A',  'G',  1,    1,    0,    1,    7, 0, 0,    0, 3, 0,
        0,   0,   0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0, 0xe8, 3, 0, 0,
        0,   0,   0,    0,    99,   0,    0,    0,    0, 0, 0,    0, 5, 0,
        1,   0,   4,    0,    6,    0,    3,    8,    0, 0, 80,   0, 0, 0};
    wf_agg_head head = some_head();

    (void)state;
    wf_agg_seal(&plain, &head, NULL);
    assert_memory_equal(&head, expected, sizeof(expected));
}

/* Whatever bit of a head is changed, and of the payload where tags cover it. */
static void every_altered_bit_is_noticed(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        const wf_agg_key *key = k == 0 ? &plain : &whole;
        packet p = {.head = some_head()};
        wf_agg_head out;

        wf_agg_seal(key, &p.head, p.payload);
        for (unsigned bit = 0; bit < 8 * (64 + 24); bit++) {
            unsigned char *byte = (unsigned char *)&p + bit / 8;
            bool covered = bit < 8 * 64 || key->whole;

            *byte ^= (unsigned char)(1u << bit % 8);
            assert_int_equal(wf_agg_open(key, &p, 64 + 24, &out) == WF_AGG_GOOD,
                             !covered);
            *byte ^= (unsigned char)(1u << bit % 8);
        }
    }
}

static void another_key_or_kind_of_tag_is_refused(void **state)
{
    const wf_agg_key other = {{{1, 3}}, false};
    packet p = {.head = some_head()};
    wf_agg_head out;

    (void)state;
    wf_agg_seal(&plain, &p.head, p.payload);
    assert_int_equal(wf_agg_open(&other, &p, 88, &out), WF_AGG_BAD_TAG);
    assert_int_equal(wf_agg_open(&whole, &p, 88, &out), WF_AGG_BAD_TAG);
    wf_agg_seal(&whole, &p.head, p.payload);
    assert_int_equal(wf_agg_open(&plain, &p, 88, &out), WF_AGG_BAD_TAG);
}

static void any_other_length_is_refused(void **state)
{
    packet p = {.head = some_head()};
    wf_agg_head out;
    uint32_t job;

    (void)state;
    wf_agg_seal(&plain, &p.head, p.payload);
    for (size_t n = 0; n < 200; n++) {
        assert_int_equal(wf_agg_open(&plain, &p, n, &out),
                         n == 88 ? WF_AGG_GOOD : WF_AGG_BAD_LENGTH);
        assert_int_equal(wf_agg_job(&p, n, &job), n >= 64);
    }
}

static void strange_packets_are_told_apart(void **state)
{
    packet p = {.head = some_head()};
    wf_agg_head out;
    uint32_t job;

    (void)state;
    wf_agg_seal(&plain, &p.head, p.payload);
    p.head.format++;
    assert_int_equal(wf_agg_open(&plain, &p, 88, &out), WF_AGG_BAD_FORMAT);
    assert_false(wf_agg_job(&p, 88, &job));
    p.head.magic++;
    assert_int_equal(wf_agg_open(&plain, &p, 88, &out), WF_AGG_BAD_MAGIC);
    assert_false(wf_agg_job(&p, 88, &job));
}

/* Whoever has the key may still send nonsense. */
static void sealed_fields_out_of_range_are_refused(void **state)
{
    wf_agg_head h[14];
    unsigned n = 0;

    (void)state;
    for (unsigned i = 0; i < 14; i++) {
        h[i] = some_head();
    }
    h[n++].version = 2;
    h[n++].flags = 8;
    h[n++].lane = WF_AGG_LANES;
    h[n++].slot = WF_AGG_SLOTS;
    h[n++].rank = 4;
    h[n++].rank = WF_AGG_ALL;
    h[n++].ranks = 0;
    h[n++].ranks = WF_AGG_RANKS + 1;
    h[n++].count = 0;
    h[n++].total = 5;
    h[n++].call = WF_CALL_BARRIER;
    h[n++].call = WF_CALL_KINDS;
    h[n++].type = 77;
    h[n++].op = WEFT_OP_BAND;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(through(&plain, h[i]), WF_AGG_BAD_FIELD);
    }
    h[0] = some_head();
    h[0].flags = WF_AGG_QUANTISED;
    assert_int_equal(through(&plain, h[0]), WF_AGG_GOOD);
    h[0].op = WEFT_OP_MAX;
    assert_int_equal(through(&plain, h[0]), WF_AGG_BAD_FIELD);
    h[0] = some_head();
    h[0].op = WEFT_OP_PREMUL_SUM;
    assert_int_equal(through(&plain, h[0]), WF_AGG_BAD_FIELD);
    h[0].op = 200;
    assert_int_equal(through(&plain, h[0]), WF_AGG_BAD_FIELD);
}

static void no_packet_is_longer_than_its_room(void **state)
{
    wf_agg_head head = some_head();

    (void)state;
    head.total = 100000;
    head.count = WF_AGG_PAYLOAD_MAX / 4;
    assert_int_equal(through(&whole, head), WF_AGG_GOOD);
    head.count++;
    assert_int_equal(through(&whole, head), WF_AGG_BAD_LENGTH);
    head.kind = 0;
    assert_true(wf_agg_payload(&head) == SIZE_MAX);
    head.kind = WF_AGG_MISMATCH + 1;
    assert_true(wf_agg_payload(&head) == SIZE_MAX);
}

static void quantised_packets_have_exponents(void **state)
{
    wf_agg_head head = some_head();

    (void)state;
    head.flags = WF_AGG_QUANTISED;
    assert_int_equal(wf_agg_payload(&head), 6 * 4 + 2);
    head.type = WEFT_C64;
    assert_int_equal(wf_agg_payload(&head), 12 * 4 + 2);
    head.count = 33;
    assert_int_equal(wf_agg_payload(&head), 66 * 4 + 2 * 2);
}

static void what_a_switch_says_is_checked_too(void **state)
{
    wf_agg_head head = some_head();

    (void)state;
    head.rtt = 0;
    head.kind = WF_AGG_RESULT;
    assert_int_equal(through(&plain, head), WF_AGG_BAD_FIELD);
    head.rank = WF_AGG_ALL;
    assert_int_equal(through(&plain, head), WF_AGG_GOOD);
    head.rtt = 1;
    assert_int_equal(through(&plain, head), WF_AGG_BAD_FIELD);
    head.rtt = 0;
    head.kind = WF_AGG_MISMATCH;
    assert_int_equal(through(&plain, head), WF_AGG_GOOD);
    head.kind = WF_AGG_WAIT;
    assert_int_equal(through(&plain, head), WF_AGG_BAD_FIELD);
    head.rank = 3;
    head.count = 3;
    assert_int_equal(through(&plain, head), WF_AGG_GOOD);
    head.count = 4;
    assert_int_equal(through(&plain, head), WF_AGG_BAD_FIELD);
}

static void refusals_have_names(void **state)
{
    (void)state;
    assert_string_equal(wf_agg_refusal_name(WF_AGG_GOOD), "good");
    assert_string_equal(wf_agg_refusal_name(WF_AGG_BAD_TAG), "tag");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sealed_is_opened),
        cmocka_unit_test(the_layout_is_fixed),
        cmocka_unit_test(every_altered_bit_is_noticed),
        cmocka_unit_test(another_key_or_kind_of_tag_is_refused),
        cmocka_unit_test(any_other_length_is_refused),
        cmocka_unit_test(strange_packets_are_told_apart),
        cmocka_unit_test(sealed_fields_out_of_range_are_refused),
        cmocka_unit_test(no_packet_is_longer_than_its_room),
        cmocka_unit_test(quantised_packets_have_exponents),
        cmocka_unit_test(what_a_switch_says_is_checked_too),
        cmocka_unit_test(refusals_have_names),
    };

    return cmocka_run_group_tests_name("agg_wire", tests, NULL, NULL);
}
