/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels of every level this CPU can do, against plain loops and
 * against each other. */
#include <stdlib.h>
#include <string.h>

#include "region/rows/kernel/rows.h"
#include "wt_cmocka.h"
#include "wt_data.h"

#define ROWS 11
#define GUARD 32
#define MOST 1100
#define ROOM (ROWS * (MOST + 2 * GUARD) + 64)

static const wf_row_kernels *level(int number)
{
    return wf_row_kernels_of((wf_cpu_level)number);
}

static int levels(void)
{
    return (int)wf_cpu_detect() + 1;
}

static char *lines(size_t bytes)
{
    char *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(p);
    return p;
}

static _Alignas(64) char source[ROOM];
static _Alignas(64) char result[ROOM];
static _Alignas(64) char expected[ROOM];

/* Rows of `bytes` go to rows that begin `shift` bytes off a line, with guards
 * between them. */
static void check_copy(wf_copy_fn *copy, size_t bytes, size_t shift,
                       size_t ahead)
{
    size_t pitch = bytes + GUARD;
    size_t room = ROWS * pitch + 64;
    wf_move moves[ROWS];

    memset(result, 0x5a, room);
    memset(expected, 0x5a, room);
    for (size_t i = 0; i < ROWS; i++) {
        moves[i].to = result + shift + i * pitch;
        moves[i].from = source + 7 * shift % 64 + (i * 17 % ROWS) * pitch;
    }
    for (size_t i = 0; i < ROWS - ahead; i++) {
        memcpy(expected + (moves[i].to - result), moves[i].from, bytes);
    }
    copy(moves, ROWS - ahead, ahead, bytes);
    assert_memory_equal(result, expected, room);
}

/* The same by numbers, some of which leave their rows as they are. */
static void check_pick(wf_pick_fn *pick, const void *ids, const int64_t *wide,
                       size_t bytes, size_t shift)
{
    size_t pitch = bytes + GUARD;
    size_t room = ROWS * pitch + 64;
    const char *table = source + 7 * shift % 64;
    wf_pick call = {
        .table = table,
        .pitch = pitch,
        .rows = ROWS,
        .ids = ids,
        .to = result + shift,
        .to_pitch = pitch,
        .bytes = bytes,
        .ahead = 3,
        .asked = wf_rows_asked(bytes),
    };

    memset(result, 0x5a, room);
    memset(expected, 0x5a, room);
    for (size_t i = 1; i < ROWS; i++) {
        if (wide[i] >= 0 && wide[i] < ROWS) {
            memcpy(expected + shift + i * pitch,
                   table + (size_t)wide[i] * pitch, bytes);
        }
    }
    pick(&call, 1, ROWS);
    assert_memory_equal(result, expected, room);
}

static void check_picks(const wf_row_kernels *kernels, size_t bytes,
                        size_t shift)
{
    static const int64_t wide[ROWS] = {2, 5,    0, ROWS - 1,  -1, 3,
                                       3, ROWS, 1, INT32_MIN, 4};
    int32_t narrow[ROWS];
    unsigned class = wf_row_class(bytes);

    for (size_t i = 0; i < ROWS; i++) {
        narrow[i] = (int32_t)wide[i];
    }
    check_pick(kernels->pick_i64[class], wide, wide, bytes, shift);
    check_pick(kernels->stream_i64[class], wide, wide, bytes, shift);
    check_pick(kernels->pick_i32[class], narrow, wide, bytes, shift);
    check_pick(kernels->stream_i32[class], narrow, wide, bytes, shift);
}

/* Rows behind words; the one that number `stuck` names is being written. */
static void check_read(wf_read_fn *read, const void *ids, const int64_t *wide,
                       size_t bytes, size_t shift, int64_t stuck)
{
    size_t pitch = (bytes + 15) / 8 * 8;
    size_t room = ROWS * bytes + 64;
    wf_pick call = {.table = source,
                    .pitch = pitch,
                    .rows = ROWS,
                    .bytes = bytes,
                    .ahead = 3,
                    .asked = wf_rows_asked(bytes)};
    uint64_t want = ROWS;

    memset(result, 0x5a, room);
    memset(expected, 0x5a, room);
    for (size_t i = 0; i < ROWS; i++) {
        memset(source + i * pitch, (int64_t)i == stuck ? 0xff : 0xf0, 8);
    }
    for (size_t i = 1; i < want; i++) {
        if (wide[i] == stuck) {
            want = i;
        } else if (wide[i] >= 0 && wide[i] < ROWS) {
            memcpy(expected + shift + i * bytes,
                   source + (size_t)wide[i] * pitch + 8, bytes);
        }
    }
    assert_int_equal(read(&call, ids, result + shift, 0x0f00, 1, ROWS), want);
    assert_memory_equal(result, expected, room);
}

static void reads_of_all_levels_stop_where_somebody_writes(void **state)
{
    static const int64_t wide[ROWS] = {2, 5,    0, ROWS - 1,  -1, 3,
                                       3, ROWS, 1, INT32_MIN, 4};
    int32_t narrow[ROWS];

    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        narrow[i] = (int32_t)wide[i];
    }
    wt_fill_bytes(source, ROOM, 1, 1);
    for (int l = 0; l < levels(); l++) {
        for (size_t bytes = 0; bytes <= MOST; bytes += bytes < 160 ? 1 : 51) {
            unsigned class = wf_row_class(bytes);

            for (int64_t stuck = -2; stuck < ROWS; stuck += 3) {
                check_read(level(l)->read_i64[class], wide, wide, bytes,
                           bytes % 7, stuck);
                check_read(level(l)->read_i32[class], narrow, wide, bytes,
                           bytes % 7, stuck);
            }
        }
    }
}

static void copies_of_all_levels_write_the_row_and_nothing_else(void **state)
{
    (void)state;
    wt_fill_bytes(source, ROOM, 1, 1);
    for (int l = 0; l < levels(); l++) {
        for (size_t bytes = 1; bytes <= MOST; bytes += bytes < 160   ? 1
                                                       : bytes < 500 ? 23
                                                                     : 97) {
            unsigned class = wf_row_class(bytes);

            for (size_t shift = 0; shift < 64; shift += bytes < 80 ? 3 : 16) {
                check_copy(level(l)->fetch[class], bytes, shift, 5);
                check_copy(level(l)->put[class], bytes, shift, 0);
                check_picks(level(l), bytes, shift);
            }
        }
    }
}

static void sizes_have_their_classes(void **state)
{
    (void)state;
    assert_int_equal(wf_row_class(1), 0);
    assert_int_equal(wf_row_class(64), 6);
    assert_int_equal(wf_row_class(512), 9);
    assert_int_equal(wf_row_class(0), WF_ROW_ANY);
    assert_int_equal(wf_row_class(3), WF_ROW_ANY);
    assert_int_equal(wf_row_class(1024), WF_ROW_ANY);
    assert_int_equal(wf_row_class((size_t)1 << 40), WF_ROW_ANY);
    for (size_t bytes = 0; bytes < 100000; bytes += 37) {
        assert_in_range(wf_rows_ahead(bytes), 1, WF_ROWS_AHEAD_MAX);
        assert_true(wf_rows_asked(bytes) <= bytes);
    }
}

static bool is_half_nan(weft_dtype type, uint16_t bits)
{
    return type == WEFT_F16 ? (bits & 0x7fff) > 0x7c00
                            : (bits & 0x7fff) > 0x7f80;
}

/* Every half there is becomes the f32 of the same value, and back again. */
static void every_half_survives_f32(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++) {
        for (int t = WEFT_F16; t <= WEFT_BF16; t++) {
            for (uint32_t h = 0; h <= UINT16_MAX; h++) {
                uint16_t bits = (uint16_t)h;
                uint16_t back;
                float f;
                float want =
                    t == WEFT_F16 ? wt_from_f16(bits) : wt_from_bf16(bits);

                level(l)->widen[t](&f, &bits, 1);
                level(l)->narrow[t](&back, &f, 1);
                if (is_half_nan((weft_dtype)t, bits)) {
                    assert_true(f != f);
                    assert_true(is_half_nan((weft_dtype)t, back));
                } else {
                    assert_memory_equal(&f, &want, sizeof(f));
                    assert_int_equal(back, bits);
                }
            }
        }
    }
}

/* f32 of all magnitudes, many of them half way between two halves. */
static uint32_t f32_bits(uint32_t i)
{
    uint32_t mixed = (uint32_t)wt_mix(1, 2, i);

    return i % 3 == 0   ? mixed
           : i % 3 == 1 ? (mixed & 0xffff0000u) | 0x8000u
                        : (mixed & 0xffffe000u) | 0x1000u;
}

static void halves_are_rounded_alike_on_all_levels(void **state)
{
    enum { N = 300000 };
    uint32_t *f = malloc(N * sizeof(*f));
    uint16_t *got = malloc(N * sizeof(*got));

    (void)state;
    assert_true(f != NULL && got != NULL);
    for (uint32_t i = 0; i < N; i++) {
        f[i] = f32_bits(i);
    }
    for (int l = 0; l < levels(); l++) {
        for (int t = WEFT_F16; t <= WEFT_BF16; t++) {
            level(l)->narrow[t](got, f, N);
            for (uint32_t i = 0; i < N; i++) {
                float value;
                uint16_t want;

                memcpy(&value, &f[i], sizeof(value));
                want = t == WEFT_F16 ? wt_to_f16(value) : wt_to_bf16(value);
                if (value != value) {
                    assert_true(is_half_nan((weft_dtype)t, got[i]));
                } else {
                    assert_int_equal(got[i], want);
                }
            }
        }
    }
    free(f);
    free(got);
}

/* Any bits for integers; for others numbers, since which of two NaN a sum is
 * may differ. */
static void fill_numbers(char *at, weft_dtype type, size_t bytes, size_t seed)
{
    double aligned[80];

    assert_true(bytes <= sizeof(aligned));
    if (wt_is_floating(type)) {
        wt_fill_rough(aligned, bytes / weft_dtype_size(type), type, seed, 1);
    } else {
        wt_fill_bytes(aligned, bytes, seed, 1);
    }
    memcpy(at, aligned, bytes);
}

static void all_levels_add_to_the_same_bits(void **state)
{
    enum { BYTES = 16 * 37 };
    char *from = lines(BYTES + 64);
    char *want = lines(BYTES + 64);
    char *got = lines(BYTES + 64);
    char *alone = lines(BYTES + 64) + 1;

    (void)state;
    for (int t = 0; t < WF_DTYPE_COUNT; t++) {
        size_t size = weft_dtype_size((weft_dtype)t);

        for (int l = 0; level(0)->add[t] != NULL && l < levels(); l++) {
            for (size_t n = 0; n <= BYTES / size; n += n < 20 ? 1 : 7) {
                fill_numbers(from + 1, (weft_dtype)t, BYTES, n);
                fill_numbers(got, (weft_dtype)t, BYTES + 48, n + 1);
                memcpy(want, got, BYTES + 48);
                memcpy(alone, got, BYTES + 48);
                level(0)->add[t](want + size, from + 1, n);
                level(l)->add[t](got + size, from + 1, n);
                level(l)->sum[t](alone + size, from + 1, n);
                assert_memory_equal(got, want, BYTES + 48);
                assert_memory_equal(alone, want, BYTES + 48);
            }
        }
    }
    free(from);
    free(want);
    free(got);
    free(alone - 1);
}

static void ids_are_counted_by_what_they_are(void **state)
{
    int64_t wide[1000];
    int32_t narrow[1000];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        narrow[i] = (int32_t)(wt_mix(4, 5, (uint64_t)i) % 300) - 50;
        wide[i] = narrow[i];
    }
    for (int l = 0; l < levels(); l++) {
        for (size_t n = 0; n <= 1000; n += n < 40 ? 1 : 60) {
            wf_survey want = {0};
            wf_survey a = {0};
            wf_survey b = {0};

            for (size_t i = 0; i < n; i++) {
                want.negative += wide[i] < 0;
                want.past += wide[i] >= 200;
                want.own += wide[i] >= 30 && wide[i] < 90;
            }
            level(l)->survey_i64(wide, n, 200, 30, 90, &a);
            level(l)->survey_i32(narrow, n, 200, 30, 90, &b);
            assert_memory_equal(&a, &want, sizeof(want));
            assert_memory_equal(&b, &want, sizeof(want));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_all_levels_write_the_row_and_nothing_else),
        cmocka_unit_test(reads_of_all_levels_stop_where_somebody_writes),
        cmocka_unit_test(sizes_have_their_classes),
        cmocka_unit_test(every_half_survives_f32),
        cmocka_unit_test(halves_are_rounded_alike_on_all_levels),
        cmocka_unit_test(all_levels_add_to_the_same_bits),
        cmocka_unit_test(ids_are_counted_by_what_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
