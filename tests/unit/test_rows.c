/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations on memory of this process, against naive loops. */
#include <stdlib.h>
#include <string.h>
#include <weft/rows.h>
#include <weft/status.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

#define POISON 0x5a
#define GUARD 64

static const size_t row_sizes[] = {0,   1,    2,    3,    7,    8,   16,  20,
                                   36,  63,   64,   65,   100,  128, 256, 500,
                                   512, 1000, 1024, 1030, 2048, 4096};
#define ROW_SIZES (sizeof(row_sizes) / sizeof(row_sizes[0]))

/* Memory with guards around it; `at` is `shift` bytes off a line. */
typedef struct area {
    char *base;
    char *at;
    size_t bytes;
} area;

static area area_make(size_t bytes, size_t shift)
{
    size_t room = (bytes + shift + 2 * GUARD + 63) / 64 * 64;
    area a = {.base = aligned_alloc(64, room), .bytes = room};

    assert_non_null(a.base);
    memset(a.base, POISON, room);
    a.at = a.base + GUARD + shift;
    return a;
}

static void area_free(area *a)
{
    free(a->base);
}

static area area_copy(const area *a)
{
    area b = {.base = aligned_alloc(64, a->bytes), .bytes = a->bytes};

    assert_non_null(b.base);
    memcpy(b.base, a->base, a->bytes);
    b.at = b.base + (a->at - a->base);
    return b;
}

static uint64_t random_state = 1;

static uint64_t random_next(void)
{
    return wt_mix(7, 3, random_state++);
}

typedef struct plan {
    size_t bytes; /* of a row */
    size_t rows;
    size_t gap;  /* behind each row of the table */
    size_t near; /* behind each row of the array */
    size_t shift;
    size_t n;
    weft_dtype ids;
    uint32_t threads;
    weft_bounds bounds;
    int negative; /* one id in so many; 0: none */
    int past;
    size_t distinct; /* ids are below this; 0: rows */
} plan;

static void *ids_make(const plan *p)
{
    size_t size = weft_dtype_size(p->ids);
    char *ids = malloc(p->n * size + 1);
    uint64_t most = p->distinct != 0 ? p->distinct : p->rows;

    assert_non_null(ids);
    for (size_t i = 0; i < p->n; i++) {
        int64_t id = most > 0 ? (int64_t)(random_next() % most) : -1;
        int32_t narrow;

        if (p->negative != 0 && random_next() % (uint64_t)p->negative == 0) {
            id = -1 - (int64_t)(random_next() % 5);
        } else if (p->past != 0 && random_next() % (uint64_t)p->past == 0) {
            id = (int64_t)(p->rows + random_next() % 1000);
        }
        narrow = (int32_t)id;
        memcpy(ids + i * size, p->ids == WEFT_I64 ? (void *)&id : &narrow,
               size);
    }
    return ids;
}

static int64_t id_of(const plan *p, const void *ids, size_t i)
{
    return p->ids == WEFT_I64 ? ((const int64_t *)ids)[i]
                              : ((const int32_t *)ids)[i];
}

typedef struct scene {
    area table;
    area near;
    void *ids;
    weft_table t;
    weft_ids i;
    weft_rows r;
    weft_rows_options o;
} scene;

static void scene_make(scene *s, const plan *p)
{
    size_t pitch = p->bytes + p->gap;
    size_t near = p->bytes + p->near;

    s->table = area_make(p->rows * pitch + 1, p->shift);
    s->near = area_make(p->n * near + 1, p->shift * 3 % 64);
    wt_fill_bytes(s->table.base, s->table.bytes, 5, 1);
    wt_fill_bytes(s->near.base, s->near.bytes, 6, 2);
    s->ids = ids_make(p);
    s->t = (weft_table){.at = s->table.at,
                        .rows = p->rows,
                        .pitch = pitch,
                        .width = p->bytes,
                        .type = WEFT_U8};
    s->i = (weft_ids){.at = s->ids, .type = p->ids, .n = p->n};
    s->r = (weft_rows){.at = s->near.at, .pitch = near, .type = WEFT_U8};
    s->o = (weft_rows_options){
        .size = sizeof(s->o), .threads = p->threads, .bounds = p->bounds};
}

static void scene_free(scene *s)
{
    area_free(&s->table);
    area_free(&s->near);
    free(s->ids);
}

static void check_gather(const plan *p)
{
    scene s;
    area want;

    scene_make(&s, p);
    want = area_copy(&s.near);
    for (size_t i = 0; i < p->n; i++) {
        int64_t id = id_of(p, s.ids, i);

        if (id >= 0 && id < (int64_t)p->rows) {
            memcpy(want.at + i * s.r.pitch, s.table.at + (size_t)id * s.t.pitch,
                   p->bytes);
        }
    }
    assert_int_equal(weft_rows_gather(&s.t, &s.i, &s.r, &s.o), WEFT_OK);
    assert_memory_equal(s.near.base, want.base, want.bytes);
    area_free(&want);
    scene_free(&s);
}

static void check_scatter(const plan *p)
{
    scene s;
    area want;

    scene_make(&s, p);
    want = area_copy(&s.table);
    for (size_t i = 0; i < p->n; i++) {
        int64_t id = id_of(p, s.ids, i);

        if (id >= 0 && id < (int64_t)p->rows) {
            memcpy(want.at + (size_t)id * s.t.pitch, s.near.at + i * s.r.pitch,
                   p->bytes);
        }
    }
    assert_int_equal(weft_rows_scatter(&s.t, &s.i, &s.r, &s.o), WEFT_OK);
    assert_memory_equal(s.table.base, want.base, want.bytes);
    area_free(&want);
    scene_free(&s);
}

static void rows_of_any_size_are_gathered_and_scattered(void **state)
{
    static const size_t gaps[] = {0, 1, 24, 64};

    (void)state;
    for (size_t b = 0; b < ROW_SIZES; b++) {
        for (size_t g = 0; g < 4; g++) {
            plan p = {.bytes = row_sizes[b],
                      .rows = 97,
                      .gap = gaps[g],
                      .near = gaps[3 - g],
                      .shift = g * 5,
                      .n = wt_scaled(400),
                      .ids = g % 2 == 0 ? WEFT_I64 : WEFT_I32,
                      .negative = g == 2 ? 3 : 0};

            check_gather(&p);
            check_scatter(&p);
            p.bounds = WEFT_BOUNDS_SKIP;
            p.past = 4;
            check_gather(&p);
            check_scatter(&p);
        }
    }
}

static void numbers_of_ids_around_a_block_are_no_matter(void **state)
{
    static const size_t counts[] = {0,   1,   2,   31,  32,  33,  255, 256,
                                    257, 287, 288, 289, 511, 545, 600};

    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (uint32_t threads = 1; threads <= 3; threads++) {
            plan p = {.bytes = 64,
                      .rows = 1000,
                      .n = counts[c],
                      .ids = WEFT_I64,
                      .threads = threads,
                      .negative = threads == 2 ? 2 : 0};

            check_gather(&p);
            check_scatter(&p);
        }
    }
}

static void several_threads_do_what_one_does(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads++) {
        plan p = {.bytes = 100,
                  .rows = 5000,
                  .gap = 4,
                  .n = wt_scaled(20000),
                  .ids = WEFT_I64,
                  .threads = threads,
                  .negative = 10};

        check_gather(&p);
        check_scatter(&p);
        p.distinct = 7;
        p.bytes = 8;
        check_scatter(&p);
    }
}

/* Larger than the caches, so that the output is streamed. */
static void outputs_larger_than_the_caches_are_right(void **state)
{
    static const size_t sizes[] = {64, 256, 512, 1024, 1100, 4096};

    (void)state;
    for (size_t b = 0; b < sizeof(sizes) / sizeof(sizes[0]); b++) {
        plan p = {.bytes = sizes[b],
                  .rows = 3000,
                  .n = (36u << 20) / sizes[b] + 3,
                  .ids = WEFT_I64,
                  .shift = sizes[b] == 4096 ? 8 : 0,
                  .threads = 2};

        if (WT_TSAN && b > 1) {
            break;
        }
        check_gather(&p);
    }
}

static void a_view_counts_from_its_first_row(void **state)
{
    int32_t table[10][4];
    int32_t out[3][2];
    int64_t ids[] = {0, 2, 1};
    weft_table t = {.at = table,
                    .rows = 10,
                    .pitch = sizeof(table[0]),
                    .first = 4,
                    .limit = 3,
                    .skip = 4,
                    .width = 2,
                    .type = WEFT_I32};
    weft_ids i = {ids, WEFT_I64, 3, WEFT_HOST};
    weft_rows r = {out, 0, WEFT_I32, WEFT_HOST};

    (void)state;
    for (int row = 0; row < 10; row++) {
        for (int column = 0; column < 4; column++) {
            table[row][column] = 10 * row + column;
        }
    }
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_OK);
    assert_int_equal(out[0][0], 41);
    assert_int_equal(out[1][1], 62);
    assert_int_equal(out[2][0], 51);
    ids[1] = 3;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    t.limit = 0;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_OK);
    assert_int_equal(out[1][0], 71);
    t.first = 11;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    t.first = 4;
    t.limit = 7;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
}

/* Nothing is written, and the text names the id, its place and the rows. */
static void an_id_past_the_end_is_told_before_anything_is_written(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        plan p = {.bytes = 16,
                  .rows = 500,
                  .n = 200000,
                  .ids = WEFT_I64,
                  .threads = threads};
        scene s;
        area before;

        scene_make(&s, &p);
        ((int64_t *)s.ids)[199999] = 777;
        before = area_copy(&s.near);
        assert_int_equal(weft_rows_gather(&s.t, &s.i, &s.r, &s.o),
                         WEFT_ERR_INVALID);
        assert_memory_equal(s.near.base, before.base, before.bytes);
        assert_non_null(strstr(weft_error_detail(), "777"));
        assert_non_null(strstr(weft_error_detail(), "199999"));
        assert_non_null(strstr(weft_error_detail(), "500"));
        area_free(&before);
        before = area_copy(&s.table);
        assert_int_equal(weft_rows_scatter(&s.t, &s.i, &s.r, &s.o),
                         WEFT_ERR_INVALID);
        assert_memory_equal(s.table.base, before.base, before.bytes);
        area_free(&before);
        scene_free(&s);
    }
}

static void ids_at_the_limits_of_their_types_are_compared_right(void **state)
{
    static const int64_t wide[] = {INT64_MAX, INT64_MIN, 3, 4};
    static const int32_t narrow[] = {INT32_MAX, INT32_MIN, 3, 4};
    char table[4] = {1, 2, 3, 4};

    (void)state;
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        char out[4] = {9, 9, 9, 9};
        weft_table t = {
            .at = table, .rows = 4, .pitch = 1, .width = 1, .type = WEFT_I8};
        weft_ids i = {is_wide ? (const void *)wide : narrow,
                      is_wide ? WEFT_I64 : WEFT_I32, 4, WEFT_HOST};
        weft_rows r = {out, 0, WEFT_I8, WEFT_HOST};
        weft_rows_options o = {.size = sizeof(o), .bounds = WEFT_BOUNDS_SKIP};

        assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
        assert_int_equal(weft_rows_gather(&t, &i, &r, &o), WEFT_OK);
        assert_memory_equal(out, ((char[4]){9, 9, 4, 9}), 4);
    }
}

static void rows_that_are_left_out_become_zeros_when_asked(void **state)
{
    static const weft_bounds all[] = {WEFT_BOUNDS_ERROR, WEFT_BOUNDS_SKIP,
                                      WEFT_BOUNDS_UNCHECKED};
    int32_t ids[4] = {2, -1, 0, 1};
    uint16_t table[3] = {10, 11, 12};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        uint16_t out[4] = {9, 9, 9, 9};
        weft_table t = {
            .at = table, .rows = 3, .width = 1, .pitch = 2, .type = WEFT_I16};
        weft_ids i = {.at = ids, .type = WEFT_I32, .n = 4};
        weft_rows r = {.at = out, .type = WEFT_I16};
        weft_rows_options o = {.size = sizeof(o), .bounds = all[k], .clear = 1};

        ids[3] = all[k] == WEFT_BOUNDS_SKIP ? 3 : 1;
        assert_int_equal(weft_rows_gather(&t, &i, &r, &o), WEFT_OK);
        assert_int_equal(out[0], 12);
        assert_int_equal(out[1], 0);
        assert_int_equal(out[2], 10);
        assert_int_equal(out[3], all[k] == WEFT_BOUNDS_SKIP ? 0 : 11);
    }
}

static void bad_arguments_are_errors(void **state)
{
    int64_t ids[2] = {0, 1};
    float table[4] = {0};
    float out[4] = {0};
    const weft_table t0 = {
        .at = table, .rows = 4, .pitch = 4, .width = 1, .type = WEFT_F32};
    const weft_ids i0 = {ids, WEFT_I64, 2, WEFT_HOST};
    const weft_rows r0 = {out, 4, WEFT_F32, WEFT_HOST};
    weft_table t;
    weft_ids i;
    weft_rows r;
    weft_rows_options o = {.size = sizeof(o)};

    (void)state;
#define REFUSED(call)                                                          \
    do {                                                                       \
        assert_int_equal((call), WEFT_ERR_INVALID);                            \
        t = t0;                                                                \
        i = i0;                                                                \
        r = r0;                                                                \
        o = (weft_rows_options){.size = sizeof(o)};                            \
    } while (0)

    REFUSED(weft_rows_gather(NULL, &i0, &r0, NULL));
    REFUSED(weft_rows_gather(&t, NULL, &r, NULL));
    REFUSED(weft_rows_gather(&t, &i, NULL, NULL));
    t.at = NULL;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    t.type = (weft_dtype)99;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    r.type = WEFT_I32;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    i.type = WEFT_F32;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    i.at = NULL;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    i.at = (const char *)ids + 1;
    i.n = 1;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    r.at = NULL;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    r.pitch = 3;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    t.width = UINT64_MAX / 4 + 2;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    t.pitch = 2;
    REFUSED(weft_rows_scatter(&t, &i, &r, NULL));
    t.at = (char *)table + 2;
    REFUSED(weft_rows_scatter_add(&t, &i, &r, NULL));
    r.type = WEFT_F64;
    REFUSED(weft_rows_scatter_add(&t, &i, &r, NULL));
    o.bounds = (weft_bounds)7;
    REFUSED(weft_rows_gather(&t, &i, &r, &o));
    o.size = 0;
    REFUSED(weft_rows_gather(&t, &i, &r, &o));
    r.place = WEFT_CUDA;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
    t.place = WEFT_CUDA;
    REFUSED(weft_rows_gather(&t, &i, &r, NULL));
#undef REFUSED
    assert_int_equal(weft_rows_gather(&t, &i, &r, &o), WEFT_OK);
}

/* 8 rows of 8 elements, and arrays of rows somewhere among them. */
static weft_status
move_inside(weft_status (*move)(const weft_table *, const weft_ids *,
                                const weft_rows *, const weft_rows_options *),
            int32_t *table, size_t at, size_t pitch)
{
    int64_t ids[2] = {0, 1};
    weft_table t = {.at = table,
                    .rows = 4,
                    .pitch = 8 * sizeof(*table),
                    .width = 4,
                    .type = WEFT_I32};
    weft_ids i = {ids, WEFT_I64, 2, WEFT_HOST};
    weft_rows r = {table + at, pitch * sizeof(*table), WEFT_I32, WEFT_HOST};

    return move(&t, &i, &r, NULL);
}

static void rows_that_lie_in_the_table_are_refused(void **state)
{
    static const struct {
        size_t at;
        size_t pitch;
        weft_status expected;
    } cases[] = {
        {0, 8, WEFT_ERR_INVALID},  {16, 8, WEFT_ERR_INVALID},
        {3, 8, WEFT_ERR_INVALID},  {5, 8, WEFT_ERR_INVALID},
        {4, 16, WEFT_ERR_INVALID}, {4, 8, WEFT_OK},
        {12, 8, WEFT_OK},          {28, 4, WEFT_OK},
        {32, 8, WEFT_OK},          {27, 8, WEFT_ERR_INVALID},
    };
    int32_t table[64] = {0};

    (void)state;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        assert_int_equal(
            move_inside(weft_rows_gather, table, cases[k].at, cases[k].pitch),
            cases[k].expected);
        assert_int_equal(
            move_inside(weft_rows_scatter, table, cases[k].at, cases[k].pitch),
            cases[k].expected);
        assert_int_equal(move_inside(weft_rows_scatter_add, table, cases[k].at,
                                     cases[k].pitch),
                         cases[k].expected);
    }
}

static void ids_that_would_be_written_to_are_refused(void **state)
{
    int64_t memory[16] = {0};
    int64_t other[16] = {0};
    weft_table t = {
        .at = other, .rows = 8, .pitch = 8, .width = 1, .type = WEFT_I64};
    weft_ids i = {memory + 1, WEFT_I64, 4, WEFT_HOST};
    weft_rows r = {memory, 8, WEFT_I64, WEFT_HOST};

    (void)state;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    r.at = memory + 5;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_OK);
    i.at = other + 7;
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_OK);
    assert_int_equal(weft_rows_scatter(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    i.at = other + 8;
    assert_int_equal(weft_rows_scatter(&t, &i, &r, NULL), WEFT_OK);
}

/* --- conversions ---------------------------------------------------------- */

static int64_t whole_of(weft_dtype type, const void *at)
{
    switch (type) {
    case WEFT_BOOL:
        return *(const uint8_t *)at != 0;
    case WEFT_U8:
        return *(const uint8_t *)at;
    case WEFT_I8:
        return *(const int8_t *)at;
    case WEFT_I16:
        return *(const int16_t *)at;
    case WEFT_I32:
        return *(const int32_t *)at;
    default:
        return *(const int64_t *)at;
    }
}

static void whole_put(weft_dtype type, int64_t value, void *at)
{
    uint8_t flag = value != 0;

    memcpy(at, type == WEFT_BOOL ? (void *)&flag : &value,
           weft_dtype_size(type));
}

/* Through f32, as documented. */
static void real_convert(weft_dtype to, weft_dtype from, const void *src,
                         void *dst)
{
    double re;
    double im;
    float narrow;

    wt_get(src, 0, from, &re, &im);
    if (wt_is_complex(from)) {
        wt_put(dst, 0, to, re, im);
        return;
    }
    narrow = (float)re;
    switch (to) {
    case WEFT_F16: {
        uint16_t h = wt_to_f16(narrow);
        memcpy(dst, &h, 2);
        break;
    }
    case WEFT_BF16: {
        uint16_t h = wt_to_bf16(narrow);
        memcpy(dst, &h, 2);
        break;
    }
    default:
        wt_put(dst, 0, to, (double)narrow, 0);
    }
}

static void convert_reference(weft_dtype to, weft_dtype from, const char *src,
                              char *dst, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const char *at = src + k * weft_dtype_size(from);
        char *put = dst + k * weft_dtype_size(to);

        if (wt_is_floating(from)) {
            real_convert(to, from, at, put);
        } else {
            whole_put(to, whole_of(from, at), put);
        }
    }
}

#define WIDE 600

static void check_conversion(weft_dtype far, weft_dtype near)
{
    static union {
        char bytes[5 * WIDE * 16];
        double aligned;
    } table, got, want, written;
    size_t far_row = WIDE * weft_dtype_size(far);
    size_t near_row = WIDE * weft_dtype_size(near);
    int32_t ids[4] = {3, 0, -1, 4};
    weft_table t = {.at = table.bytes,
                    .rows = 5,
                    .pitch = far_row,
                    .width = WIDE,
                    .type = far};
    weft_ids i = {ids, WEFT_I32, 4, WEFT_HOST};
    weft_rows r = {got.bytes, near_row, near, WEFT_HOST};

    memset(&got, POISON, sizeof(got));
    memset(&want, POISON, sizeof(want));
    if (wt_is_floating(far)) {
        wt_fill_rough(table.bytes, 5 * WIDE, far, 11, 0);
    } else {
        wt_fill_bytes(table.bytes, 5 * far_row, 11, 0);
    }
    for (int k = 0; k < 4; k++) {
        if (ids[k] >= 0) {
            convert_reference(near, far, table.bytes + (size_t)ids[k] * far_row,
                              want.bytes + (size_t)k * near_row, WIDE);
        }
    }
    assert_int_equal(weft_rows_gather(&t, &i, &r, NULL), WEFT_OK);
    assert_memory_equal(got.bytes, want.bytes, sizeof(want));
    /* And back, into rows that were something else. */
    memset(&written, POISON, sizeof(written));
    memset(&want, POISON, sizeof(want));
    t.at = written.bytes;
    for (int k = 0; k < 4; k++) {
        if (ids[k] >= 0) {
            convert_reference(far, near, got.bytes + (size_t)k * near_row,
                              want.bytes + (size_t)ids[k] * far_row, WIDE);
        }
    }
    assert_int_equal(weft_rows_scatter(&t, &i, &r, NULL), WEFT_OK);
    assert_memory_equal(written.bytes, want.bytes, sizeof(want));
}

static int class_of(weft_dtype type)
{
    if (wt_is_pair(type)) {
        return 10 + (int)type;
    }
    if (wt_is_complex(type)) {
        return 3;
    }
    return wt_is_floating(type) ? 2 : 1;
}

static void types_convert_inside_their_class_only(void **state)
{
    (void)state;
    for (int far = 0; far < WF_DTYPE_COUNT; far++) {
        for (int near = 0; near < WF_DTYPE_COUNT; near++) {
            if (class_of((weft_dtype)far) != class_of((weft_dtype)near)) {
                char memory[16] = {0};
                int64_t id = 0;
                weft_table t = {.at = memory,
                                .rows = 1,
                                .pitch = 16,
                                .width = 1,
                                .type = (weft_dtype)far};
                weft_ids i = {&id, WEFT_I64, 1, WEFT_HOST};
                weft_rows r = {memory, 16, (weft_dtype)near, WEFT_HOST};

                assert_int_equal(weft_rows_gather(&t, &i, &r, NULL),
                                 WEFT_ERR_INVALID);
            } else if (far != near) {
                check_conversion((weft_dtype)far, (weft_dtype)near);
            }
        }
    }
}

/* --- adding --------------------------------------------------------------- */

/* One element of the naive loop. */
static void add_reference(weft_dtype type, char *to, const char *by)
{
    size_t size = weft_dtype_size(type);
    double a;
    double b;
    double a_im;
    double b_im;

    if (type == WEFT_BOOL) {
        *to = *to != 0 || *by != 0;
        return;
    }
    if (!wt_is_floating(type)) {
        int64_t sum = (int64_t)((uint64_t)whole_of(type, to) +
                                (uint64_t)whole_of(type, by));

        memcpy(to, &sum, size);
        return;
    }
    wt_get(to, 0, type, &a, &a_im);
    wt_get(by, 0, type, &b, &b_im);
    if (type == WEFT_F64 || type == WEFT_C128) {
        wt_put(to, 0, type, a + b, a_im + b_im);
    } else {
        wt_put(to, 0, type, (float)a + (float)b, (float)a_im + (float)b_im);
    }
}

/* Whole numbers from -2 to 2: even bf16 adds hundreds of them exactly. */
static void fill_small(char *at, size_t n, weft_dtype type)
{
    size_t size = weft_dtype_size(type);

    for (size_t e = 0; e < n; e++) {
        int64_t whole = (int64_t)(wt_mix(8, 1, e) % 5) - 2;

        if (wt_is_floating(type)) {
            wt_put(at, e, type, (double)whole, (double)-whole);
        } else {
            whole_put(type, whole, at + e * size);
        }
    }
}

static void check_add(weft_dtype type, size_t width, size_t gap,
                      uint32_t threads, int deterministic)
{
    enum { ROWS = 23, N = 300 };
    size_t size = weft_dtype_size(type);
    size_t pitch = (width + gap) * size;
    char *table = calloc(ROWS + 1, pitch + 1);
    char *want = calloc(ROWS + 1, pitch + 1);
    char *from = calloc(N, width * size + 1);
    int64_t ids[N];
    weft_table t = {.at = table,
                    .rows = ROWS,
                    .pitch = pitch,
                    .width = width,
                    .type = type};
    weft_ids i = {ids, WEFT_I64, N, WEFT_HOST};
    weft_rows r = {from, 0, type, WEFT_HOST};
    weft_rows_options o = {
        .size = sizeof(o), .threads = threads, .deterministic = deterministic};

    assert_true(table != NULL && want != NULL && from != NULL);
    /* Without an order only sums that are exact can be foretold. */
    if (deterministic || threads == 1) {
        if (wt_is_floating(type)) {
            wt_fill_rough(from, N * width, type, 3, 0);
            wt_fill_rough(table, ROWS * (width + gap), type, 4, 0);
        } else {
            wt_fill_bytes(from, N * width * size, 3, 0);
            wt_fill_bytes(table, ROWS * pitch, 4, 0);
        }
    } else {
        fill_small(from, N * width, type);
    }
    memcpy(want, table, ROWS * pitch);
    for (int k = 0; k < N; k++) {
        ids[k] = (int64_t)(random_next() % (ROWS + 3)) - 3;
        for (size_t e = 0; ids[k] >= 0 && e < width; e++) {
            add_reference(type, want + (size_t)ids[k] * pitch + e * size,
                          from + ((size_t)k * width + e) * size);
        }
    }
    assert_int_equal(weft_rows_scatter_add(&t, &i, &r, &o), WEFT_OK);
    for (int row = 0; row < ROWS; row++) {
        assert_int_equal(wt_first_difference(table + (size_t)row * pitch,
                                             want + (size_t)row * pitch, width,
                                             type),
                         width);
        assert_memory_equal(table + (size_t)row * pitch + width * size,
                            want + (size_t)row * pitch + width * size,
                            gap * size);
    }
    free(table);
    free(want);
    free(from);
}

static void sums_are_those_of_a_naive_loop(void **state)
{
    static const size_t widths[] = {0, 1, 2, 3, 4, 5, 8, 17, 64};

    (void)state;
    for (int type = 0; type < WF_DTYPE_COUNT; type++) {
        for (size_t w = 0; wt_adds((weft_dtype)type) &&
                           w < sizeof(widths) / sizeof(widths[0]);
             w++) {
            for (size_t gap = 0; gap < 3; gap++) {
                check_add((weft_dtype)type, widths[w], gap, 1, 0);
                check_add((weft_dtype)type, widths[w], gap, 3, 0);
                check_add((weft_dtype)type, widths[w], gap, 4, 1);
            }
        }
    }
}

static void pairs_cannot_be_added(void **state)
{
    weft_pair_f32 table = {0};
    int64_t id = 0;
    weft_table t = {
        .at = &table, .rows = 1, .pitch = 8, .width = 1, .type = WEFT_PAIR_F32};
    weft_ids i = {&id, WEFT_I64, 1, WEFT_HOST};
    weft_rows r = {&table, 8, WEFT_PAIR_F32, WEFT_HOST};

    (void)state;
    assert_int_equal(weft_rows_scatter_add(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "pair_f32"));
}

/* All threads add to the same few words at once. */
static void no_sum_is_lost_between_threads(void **state)
{
    enum { N = 20000, WIDTH = 5 };
    int64_t *ids = calloc(N, sizeof(*ids));
    int16_t *from = malloc(N * WIDTH * sizeof(*from));
    float *ones = malloc(N * WIDTH * sizeof(*ones));
    int16_t sums[WIDTH + 1] = {0};
    float floats[WIDTH + 1] = {0};
    weft_table t = {
        .at = sums, .rows = 1, .pitch = 2, .width = WIDTH, .type = WEFT_I16};
    weft_ids i = {ids, WEFT_I64, N, WEFT_HOST};
    weft_rows r = {from, 0, WEFT_I16, WEFT_HOST};
    weft_rows_options o = {.size = sizeof(o), .threads = 8};

    (void)state;
    assert_true(ids != NULL && from != NULL && ones != NULL);
    for (int k = 0; k < N * WIDTH; k++) {
        from[k] = 1;
        ones[k] = 1;
    }
    assert_int_equal(weft_rows_scatter_add(&t, &i, &r, &o), WEFT_OK);
    t.at = floats;
    t.type = WEFT_F32;
    t.pitch = 4;
    r.at = ones;
    r.type = WEFT_F32;
    assert_int_equal(weft_rows_scatter_add(&t, &i, &r, &o), WEFT_OK);
    for (int e = 0; e < WIDTH; e++) {
        assert_int_equal(sums[e], N);
        assert_int_equal((int)floats[e], N);
    }
    assert_int_equal(sums[WIDTH], 0);
    free(ids);
    free(from);
    free(ones);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_any_size_are_gathered_and_scattered),
        cmocka_unit_test(numbers_of_ids_around_a_block_are_no_matter),
        cmocka_unit_test(several_threads_do_what_one_does),
        cmocka_unit_test(outputs_larger_than_the_caches_are_right),
        cmocka_unit_test(a_view_counts_from_its_first_row),
        cmocka_unit_test(an_id_past_the_end_is_told_before_anything_is_written),
        cmocka_unit_test(ids_at_the_limits_of_their_types_are_compared_right),
        cmocka_unit_test(rows_that_are_left_out_become_zeros_when_asked),
        cmocka_unit_test(bad_arguments_are_errors),
        cmocka_unit_test(rows_that_lie_in_the_table_are_refused),
        cmocka_unit_test(ids_that_would_be_written_to_are_refused),
        cmocka_unit_test(types_convert_inside_their_class_only),
        cmocka_unit_test(sums_are_those_of_a_naive_loop),
        cmocka_unit_test(pairs_cannot_be_added),
        cmocka_unit_test(no_sum_is_lost_between_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
