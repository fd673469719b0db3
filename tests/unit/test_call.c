/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as they are compared, packed and printed. */
#include "comm/call.h"

#include <math.h>
#include <stdio.h>

#include "base/types.h"
#include "wt_cmocka.h"

static void expect_text(wf_call call, const char *want)
{
    char text[128];

    wf_call_text(&call, text, sizeof(text));
    assert_string_equal(text, want);
}

static void each_kind_has_its_text(void **state)
{
    (void)state;
    expect_text((wf_call){.kind = WF_CALL_NONE}, "nothing yet");
    expect_text((wf_call){.kind = WF_CALL_BARRIER}, "barrier");
    expect_text((wf_call){.kind = WF_CALL_BROADCAST,
                          .type = WEFT_BF16,
                          .root = 3,
                          .count = 17},
                "broadcast of 17 bf16 from rank 3");
    expect_text((wf_call){.kind = WF_CALL_ALLREDUCE,
                          .type = WEFT_F32,
                          .op = WEFT_OP_MAX,
                          .count = UINT64_MAX},
                "allreduce of 18446744073709551615 f32, max");
    expect_text((wf_call){.kind = WF_CALL_SEND, .root = 5, .count = 0},
                "send of 0 bytes to rank 5");
    expect_text((wf_call){.kind = WF_CALL_RECV, .root = 6, .count = 9},
                "receive of 9 bytes from rank 6");
    expect_text(
        (wf_call){.kind = WF_CALL_RECV, .root = WF_CALL_ANY, .count = 9},
        "receive of 9 bytes from any rank");
    expect_text((wf_call){.kind = WF_CALL_SENDRECV, .root = 1, .count = 7},
                "send of 7 bytes and receive from rank 1");
    expect_text((wf_call){.kind = WF_CALL_PROBE, .root = WF_CALL_ANY},
                "probe for a message from any rank");
    expect_text((wf_call){.kind = WF_CALL_CREATE},
                "creation of a communicator");
}

/* Two factors that differ at all must differ in the text of the error. */
static void the_text_shows_a_factor_in_full(void **state)
{
    wf_call call = {.kind = WF_CALL_ALLREDUCE,
                    .type = WEFT_F64,
                    .op = WEFT_OP_PREMUL_SUM,
                    .count = 2,
                    .factor = 0.5};
    char a[128];
    char b[128];

    (void)state;
    expect_text(call, "allreduce of 2 f64, premul_sum by 0.5");
    wf_call_text(&call, a, sizeof(a));
    call.factor = nextafter(call.factor, 1.0);
    wf_call_text(&call, b, sizeof(b));
    assert_string_not_equal(a, b);
}

static void each_type_and_operation_is_named(void **state)
{
    char want[128];

    (void)state;
    for (unsigned type = 0; type < WF_DTYPE_COUNT; type++) {
        for (unsigned op = 0; op < WF_OP_COUNT; op++) {
            if (op == WEFT_OP_PREMUL_SUM) {
                continue; /* has its factor, too */
            }
            snprintf(want, sizeof(want), "allreduce of 1 %s, %s",
                     weft_dtype_name((weft_dtype)type),
                     weft_op_name((weft_op_kind)op));
            expect_text((wf_call){.kind = WF_CALL_ALLREDUCE,
                                  .type = (uint8_t)type,
                                  .op = (uint8_t)op,
                                  .count = 1},
                        want);
        }
    }
}

/* The board and messages are written by others. */
static void a_call_of_numbers_nobody_knows_has_a_text(void **state)
{
    (void)state;
    expect_text((wf_call){.kind = 200}, "nothing yet");
    expect_text(
        (wf_call){
            .kind = WF_CALL_ALLREDUCE, .type = 200, .op = 201, .count = 4},
        "allreduce of 4 ?, ?");
    expect_text((wf_call){.kind = WF_CALL_BROADCAST, .type = 255},
                "broadcast of 0 ? from rank 0");
}

static void a_mark_stands_behind_the_call(void **state)
{
    (void)state;
    expect_text((wf_call){.kind = WF_CALL_ALLREDUCE,
                          .type = WEFT_F32,
                          .count = 17,
                          .mark = 0x2a},
                "allreduce of 17 f32, sum, mark 0x2a");
    expect_text((wf_call){.kind = WF_CALL_BARRIER, .mark = 1},
                "barrier, mark 0x1");
}

static void a_text_too_long_is_cut_and_terminated(void **state)
{
    static const char whole[] = "creation of a communicator";
    wf_call call = {.kind = WF_CALL_CREATE};
    char text[sizeof(whole) + 1];

    (void)state;
    for (size_t room = 1; room <= sizeof(whole); room++) {
        memset(text, 'x', sizeof(text));
        wf_call_text(&call, text, room);
        assert_int_equal(strlen(text), room - 1);
        assert_memory_equal(text, whole, room - 1);
        assert_int_equal(text[room], 'x');
    }
}

static void calls_that_differ_in_any_bit_are_not_equal(void **state)
{
    const wf_call call = {.kind = WF_CALL_ALLREDUCE,
                          .type = WEFT_F32,
                          .op = WEFT_OP_PREMUL_SUM,
                          .root = 1,
                          .count = 1000,
                          .factor = 2.5};

    (void)state;
    assert_true(wf_call_equal(&call, &call));
    for (size_t bit = 0; bit < 8 * sizeof(call); bit++) {
        unsigned char bytes[sizeof(call)];
        wf_call other;

        memcpy(bytes, &call, sizeof(bytes));
        bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        memcpy(&other, bytes, sizeof(other));
        assert_false(wf_call_equal(&call, &other));
        assert_false(wf_call_equal(&other, &call));
        bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        memcpy(&other, bytes, sizeof(other));
        assert_true(wf_call_equal(&call, &other));
    }
}

/* By bits and not by value: a NaN would never equal itself. */
static void factors_are_compared_by_their_bits(void **state)
{
    wf_call a = {.kind = WF_CALL_ALLREDUCE, .factor = NAN};
    wf_call b = a;

    (void)state;
    assert_true(wf_call_equal(&a, &b));
    a.factor = 0.0;
    b.factor = -0.0;
    assert_false(wf_call_equal(&a, &b));
}

static void packing_keeps_kind_type_and_operation(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 256; i++) {
        const wf_call call = {.kind = (uint8_t)i,
                              .type = (uint8_t)(i + 1),
                              .op = (uint8_t)(255 - i),
                              .root = 7,
                              .count = 8,
                              .factor = 9};
        uint64_t packed = wf_call_packed(&call);
        /* Whatever the upper half of the word is used for. */
        wf_call back =
            wf_call_unpacked(packed | (uint64_t)UINT32_MAX << 32, 1234);

        assert_true(packed <= UINT32_MAX);
        assert_int_equal(back.kind, call.kind);
        assert_int_equal(back.type, call.type);
        assert_int_equal(back.op, call.op);
        assert_int_equal(back.zero, 0);
        assert_int_equal(back.root, 0);
        assert_int_equal(back.count, 1234);
        assert_true(back.factor == 0.0);
    }
}

/* A fresh board is all zero, and shows a rank that did nothing yet. */
static void zero_unpacks_to_nothing_yet(void **state)
{
    (void)state;
    expect_text(wf_call_unpacked(0, 0), "nothing yet");
}

/* The table of kinds: no gaps, and a v-form is its plain form, with lengths. */
static void every_kind_has_a_row(void **state)
{
    (void)state;
    for (unsigned k = WF_CALL_NONE + 1; k < WF_CALL_KINDS; k++) {
        assert_non_null(wf_call_table[k].name);
        assert_false(wf_call_is((uint8_t)k, WF_MESSAGE) &&
                     wf_call_is((uint8_t)k, WF_HAS_DATA));
        assert_false(wf_call_is((uint8_t)k, WF_ROOT_SENDS) &&
                     wf_call_is((uint8_t)k, WF_ROOT_RECEIVES));
    }
}

static void a_v_form_differs_from_its_plain_form_by_lengths(void **state)
{
    static const struct {
        uint8_t plain;
        uint8_t v;
    } pair[] = {{WF_CALL_REDUCE_SCATTER, WF_CALL_REDUCE_SCATTERV},
                {WF_CALL_ALLGATHER, WF_CALL_ALLGATHERV},
                {WF_CALL_GATHER, WF_CALL_GATHERV},
                {WF_CALL_SCATTER, WF_CALL_SCATTERV},
                {WF_CALL_ALLTOALL, WF_CALL_ALLTOALLV}};
    const unsigned lengths = WF_ALL_LENGTHS | WF_OWN_LENGTHS;

    (void)state;
    for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++) {
        assert_false(wf_call_is(pair[i].plain, lengths));
        assert_true(wf_call_is(pair[i].v, lengths));
        assert_int_equal(wf_call_table[pair[i].plain].traits,
                         wf_call_table[pair[i].v].traits & ~lengths);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_row),
        cmocka_unit_test(a_v_form_differs_from_its_plain_form_by_lengths),
        cmocka_unit_test(each_kind_has_its_text),
        cmocka_unit_test(the_text_shows_a_factor_in_full),
        cmocka_unit_test(each_type_and_operation_is_named),
        cmocka_unit_test(a_call_of_numbers_nobody_knows_has_a_text),
        cmocka_unit_test(a_mark_stands_behind_the_call),
        cmocka_unit_test(a_text_too_long_is_cut_and_terminated),
        cmocka_unit_test(calls_that_differ_in_any_bit_are_not_equal),
        cmocka_unit_test(factors_are_compared_by_their_bits),
        cmocka_unit_test(packing_keeps_kind_type_and_operation),
        cmocka_unit_test(zero_unpacks_to_nothing_yet),
    };

    return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
