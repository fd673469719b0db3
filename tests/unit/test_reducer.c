/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a reduction, what the types and operations mean, and the level of
 * the CPU. */
#include <weft/log.h>

#include "base/cpu.h"
#include "coll/kernel/reducer.h"
#include "coll/kernel/table.h"
#include "wt_cmocka.h"
#include "wt_data.h"

/* Fold three elements of up to 8 bytes with the best kernel of this CPU. */
static uint64_t fold3(weft_dtype type, weft_op op, uint32_t ranks, uint64_t a,
                      uint64_t b, uint64_t c)
{
    const void *src[3] = {&a, &b, &c};
    uint64_t out = 0;
    void *dst[1] = {&out};
    wf_reducer r;

    assert_int_equal(wf_reducer_init(&r, type, op, ranks), WEFT_OK);
    r.fold(&r, dst, 1, src, 3, 1);
    return out;
}

static void f16_and_bf16_are_rounded_once(void **state)
{
    (void)state;
    /* 256 + 1 + 1 in bf16, where 257 would be rounded to 256. */
    assert_int_equal(fold3(WEFT_BF16, WEFT_SUM, 3, 0x4380, 0x3f80, 0x3f80),
                     0x4381);
    /* 2048 + 1 + 1 in f16. */
    assert_int_equal(fold3(WEFT_F16, WEFT_SUM, 3, 0x6800, 0x3c00, 0x3c00),
                     0x6801);
}

static void integers_wrap_around(void **state)
{
    (void)state;
    assert_int_equal(fold3(WEFT_I8, WEFT_SUM, 3, 127, 1, 0), 0x80);
    assert_int_equal(fold3(WEFT_U8, WEFT_PROD, 3, 16, 16, 1), 0);
    assert_int_equal(fold3(WEFT_I32, WEFT_SUM, 3, INT32_MAX, 1, 0), 0x80000000);
    assert_int_equal(fold3(WEFT_I64, WEFT_SUM, 3, INT64_MAX, 1, 0),
                     0x8000000000000000);
}

static void integer_averages_go_towards_zero(void **state)
{
    (void)state;
    assert_int_equal(fold3(WEFT_I32, WEFT_AVG, 3, (uint32_t)-5, 0, 0),
                     (uint32_t)-1);
    assert_int_equal(fold3(WEFT_I8, WEFT_AVG, 200, 100, 0, 0), 0);
    assert_int_equal(
        fold3(WEFT_I64, WEFT_AVG, UINT32_MAX, (uint64_t)INT64_MIN, 0, 0),
        (uint64_t)(INT64_MIN / (int64_t)UINT32_MAX));
    assert_int_equal(fold3(WEFT_U8, WEFT_AVG, 3, 200, 40, 10), 83);
}

static void a_nan_of_any_source_wins_min_and_max(void **state)
{
    const uint64_t one = 0x3f800000;
    const uint64_t nan = 0xff800001;

    (void)state;
    assert_int_equal(fold3(WEFT_F32, WEFT_MIN, 3, nan, one, 0), 0x7fc00000);
    assert_int_equal(fold3(WEFT_F32, WEFT_MAX, 3, one, nan, 0), 0x7fc00000);
    assert_int_equal(fold3(WEFT_F32, WEFT_MAX, 3, one, 0, nan), 0x7fc00000);
}

static uint64_t pair(uint32_t value, int32_t index)
{
    return value | (uint64_t)(uint32_t)index << 32;
}

static void of_equal_values_the_smallest_index_wins(void **state)
{
    const uint32_t one = 0x3f800000;
    const uint32_t minus_zero = 0x80000000;

    (void)state;
    assert_int_equal(fold3(WEFT_PAIR_F32, WEFT_MINLOC, 3, pair(one, 7),
                           pair(one, -2), pair(one, 3)),
                     pair(one, -2));
    assert_int_equal(fold3(WEFT_PAIR_F32, WEFT_MAXLOC, 3, pair(0, 7),
                           pair(minus_zero, 5), pair(0, 6)),
                     pair(minus_zero, 5));
    assert_int_equal(fold3(WEFT_PAIR_I32, WEFT_MAXLOC, 3, pair(1, 9),
                           pair((uint32_t)-1, 1), pair(1, 8)),
                     pair(1, 8));
    assert_int_equal(fold3(WEFT_PAIR_I32, WEFT_MINLOC, 3, pair(1, 9),
                           pair((uint32_t)-1, INT32_MAX), pair(1, 8)),
                     pair((uint32_t)-1, INT32_MAX));
}

/* An index may look like a NaN. */
static void the_first_nan_wins_minloc_and_maxloc(void **state)
{
    const int32_t odd_index = 0x7f800001;
    const uint32_t one = 0x3f800000;
    const uint32_t nan = 0xff800001;

    (void)state;
    assert_int_equal(fold3(WEFT_PAIR_F32, WEFT_MINLOC, 3, pair(nan, 9),
                           pair(one, 0), pair(nan, 4)),
                     pair(0x7fc00000, 4));
    assert_int_equal(fold3(WEFT_PAIR_F32, WEFT_MAXLOC, 3, pair(one, 0),
                           pair(nan, odd_index), pair(one, 1)),
                     pair(0x7fc00000, odd_index));
    assert_int_equal(fold3(WEFT_PAIR_F32, WEFT_MAXLOC, 3, pair(one, odd_index),
                           pair(0, 0), pair(0, 1)),
                     pair(one, odd_index));
}

static void pairs_are_laid_out_as_their_structs(void **state)
{
    (void)state;
    assert_int_equal(weft_dtype_size(WEFT_PAIR_F32), sizeof(weft_pair_f32));
    assert_int_equal(weft_dtype_size(WEFT_PAIR_F64), sizeof(weft_pair_f64));
    assert_int_equal(weft_dtype_size(WEFT_PAIR_I32), sizeof(weft_pair_i32));
    assert_int_equal(weft_dtype_size(WEFT_PAIR_I64), sizeof(weft_pair_i64));
    assert_int_equal(offsetof(weft_pair_f64, index), 8);
    assert_int_equal(offsetof(weft_pair_i32, index), 4);
    for (int op = 0; op < WF_OP_COUNT; op++) {
        int locates = op == WEFT_OP_MINLOC || op == WEFT_OP_MAXLOC;

        for (int type = 0; type < WF_DTYPE_COUNT; type++) {
            if (locates || wt_is_pair((weft_dtype)type)) {
                assert_int_equal(
                    weft_op_applies((weft_op_kind)op, (weft_dtype)type),
                    locates && wt_is_pair((weft_dtype)type));
            }
        }
    }
}

static void bool_results_are_0_or_1_whatever_the_bytes(void **state)
{
    (void)state;
    assert_int_equal(fold3(WEFT_BOOL, WEFT_SUM, 3, 2, 4, 0), 1);
    assert_int_equal(fold3(WEFT_BOOL, WEFT_BAND, 3, 2, 4, 8), 1);
    assert_int_equal(fold3(WEFT_BOOL, WEFT_BXOR, 3, 2, 4, 0), 0);
    assert_int_equal(fold3(WEFT_BOOL, WEFT_PROD, 3, 2, 0, 8), 0);
}

static void logic_gives_1_in_the_type(void **state)
{
    (void)state;
    assert_int_equal(fold3(WEFT_F16, WEFT_LAND, 3, 1, 0x7e00, 2), 0x3c00);
    assert_int_equal(fold3(WEFT_BF16, WEFT_LOR, 3, 0x8000, 1, 0), 0x3f80);
    assert_int_equal(fold3(WEFT_F32, WEFT_LOR, 3, 0x80000000, 0, 0), 0);
    assert_int_equal(fold3(WEFT_I16, WEFT_LXOR, 3, 0x100, 0, 0), 1);
}

static void there_is_a_kernel_where_the_operation_applies(void **state)
{
    (void)state;
    for (int level = 0; level <= (int)wf_cpu_detect(); level++) {
        const wf_kernels *k = wf_kernels_of((wf_cpu_level)level);

        for (int type = 0; type < WF_DTYPE_COUNT; type++) {
            for (int op = 0; op < WF_OP_COUNT; op++) {
                assert_int_equal(
                    k->fold[type][op] != NULL,
                    weft_op_applies((weft_op_kind)op, (weft_dtype)type));
            }
        }
    }
}

static void init_gives_the_kernel_of_the_level_in_use(void **state)
{
    const wf_kernels *best = wf_kernels_of(wf_cpu_level_used());
    wf_reducer r;

    (void)state;
    assert_int_equal(wf_reducer_init(&r, WEFT_C64, weft_premul_sum(0.25), 6),
                     WEFT_OK);
    assert_true(r.fold == best->fold[WEFT_C64][WEFT_OP_PREMUL_SUM]);
    assert_true(r.factor == 0.25);
    assert_int_equal(r.ranks, 6);
    assert_int_equal(r.elem, 8);
    assert_string_equal(wf_reducer_isa(),
                        wf_cpu_level_name(wf_cpu_level_used()));
}

static void refused(weft_dtype type, weft_op op, uint32_t ranks,
                    const char *why)
{
    wf_reducer r;

    assert_int_equal(wf_reducer_init(&r, type, op, ranks), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_detail(), why);
}

static void init_says_what_is_wrong(void **state)
{
    (void)state;
    refused(WEFT_C64, WEFT_MAX, 2, "operation max is not defined on c64");
    refused(WEFT_BOOL, WEFT_AVG, 2, "operation avg is not defined on bool");
    refused(WEFT_PAIR_F32, WEFT_MIN, 2,
            "operation min is not defined on pair_f32");
    refused(WEFT_F64, WEFT_MINLOC, 2, "operation minloc is not defined on f64");
    refused((weft_dtype)16, WEFT_SUM, 2, "unknown dtype 16");
    refused((weft_dtype)-1, WEFT_SUM, 2, "unknown dtype -1");
    refused(WEFT_F32, weft_op_of((weft_op_kind)99), 2, "unknown operation 99");
    refused(WEFT_F32, WEFT_SUM, 0, "a reduction over 0 ranks");
}

static void types_and_operations_have_names(void **state)
{
    (void)state;
    assert_string_equal(weft_dtype_name(WEFT_BF16), "bf16");
    assert_string_equal(weft_dtype_name((weft_dtype)77), "?");
    assert_int_equal(weft_dtype_size(WEFT_C128), 16);
    assert_int_equal(weft_dtype_size((weft_dtype)-1), 0);
    assert_string_equal(weft_op_name(WEFT_OP_PREMUL_SUM), "premul_sum");
    assert_string_equal(weft_op_name((weft_op_kind)WF_OP_COUNT), "?");
    assert_int_equal(weft_op_applies(WEFT_OP_SUM, (weft_dtype)WF_DTYPE_COUNT),
                     0);
    assert_int_equal(weft_op_applies((weft_op_kind)-1, WEFT_F32), 0);
}

static void a_type_has_one_class_and_parts_that_fill_it(void **state)
{
    static const unsigned classes[] = {WF_BOOL, WF_INTEGER, WF_FLOAT,
                                       WF_COMPLEX, WF_PAIR};

    (void)state;
    for (int t = 0; t <= WF_DTYPE_COUNT; t++) {
        weft_dtype type = (weft_dtype)t;
        weft_dtype part = wf_dtype_part(type);
        size_t parts = wf_dtype_is(type, WF_COMPLEX) ? 2 : 1;
        int count = 0;

        for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
            count += wf_dtype_is(type, classes[i]);
        }
        assert_int_equal(count, t < WF_DTYPE_COUNT);
        assert_int_equal(wf_dtype_bytes(type), parts * wf_dtype_bytes(part));
        assert_true(wf_dtype_part(part) == part);
        assert_false(wf_dtype_trains(type) && !wf_dtype_is(type, WF_FLOAT));
    }
}

static void count_warnings(weft_log_level level, const char *text, void *ctx)
{
    (void)text;
    *(int *)ctx += level == WEFT_LOG_WARN;
}

static void the_environment_can_only_lower_the_level(void **state)
{
    int warnings = 0;

    (void)state;
    weft_log_to(count_warnings, &warnings);
    assert_int_equal(wf_cpu_level_wished(NULL, WF_CPU_AVX2), WF_CPU_AVX2);
    assert_int_equal(wf_cpu_level_wished("", WF_CPU_AVX2), WF_CPU_AVX2);
    assert_int_equal(wf_cpu_level_wished("auto", WF_CPU_AVX2), WF_CPU_AVX2);
    assert_int_equal(wf_cpu_level_wished("plain", WF_CPU_AVX2), WF_CPU_PLAIN);
    assert_int_equal(wf_cpu_level_wished("avx2", WF_CPU_AVX512), WF_CPU_AVX2);
    assert_int_equal(warnings, 0);
    assert_int_equal(wf_cpu_level_wished("avx512", WF_CPU_AVX2), WF_CPU_AVX2);
    assert_int_equal(wf_cpu_level_wished("sse9", WF_CPU_AVX2), WF_CPU_AVX2);
    assert_int_equal(warnings, 2);
    weft_log_to(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_and_bf16_are_rounded_once),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(integer_averages_go_towards_zero),
        cmocka_unit_test(a_nan_of_any_source_wins_min_and_max),
        cmocka_unit_test(of_equal_values_the_smallest_index_wins),
        cmocka_unit_test(the_first_nan_wins_minloc_and_maxloc),
        cmocka_unit_test(pairs_are_laid_out_as_their_structs),
        cmocka_unit_test(bool_results_are_0_or_1_whatever_the_bytes),
        cmocka_unit_test(logic_gives_1_in_the_type),
        cmocka_unit_test(there_is_a_kernel_where_the_operation_applies),
        cmocka_unit_test(init_gives_the_kernel_of_the_level_in_use),
        cmocka_unit_test(init_says_what_is_wrong),
        cmocka_unit_test(types_and_operations_have_names),
        cmocka_unit_test(a_type_has_one_class_and_parts_that_fill_it),
        cmocka_unit_test(the_environment_can_only_lower_the_level),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
