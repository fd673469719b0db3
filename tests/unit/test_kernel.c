/* SPDX-License-Identifier: Apache-2.0 */
/* The reduce kernels of every level this CPU can do, against a reference. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "coll/kernel/reducer.h"
#include "coll/kernel/table.h"
#include "kernel_reference.h"
#include "wt_cmocka.h"

#define MAX_SRC 17
#define MAX_N 1100
#define MAX_ELEM 16
#define GUARD 64
#define GUARD_BYTE 0x5a
#define ROOM (MAX_N * MAX_ELEM + 3 * GUARD)

static char source[MAX_SRC][ROOM];
static char result[WF_REDUCE_MAX_DST][ROOM];
static char expected[ROOM];

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 29 ^ random_state;
}

/* Numbers of all kinds: any bits, small integers, and the values around which
 * things change, as they are in each of the floating types. */
static void random_element(weft_dtype type, char *out)
{
    static const double edges[] = {
        0.0,      -0.0,      1.0,       -1.0,    INFINITY, NAN,      0x1p-14,
        0x1p-24,  0x1p-25,   65504.0,   65520.0, 0x1p-126, 0x1p-149, 0x1p-133,
        3.38e+38, -INFINITY, 0x1p-1074, 1.7e308, 0x1.01p0, 0x1.03p0};
    size_t count = sizeof(edges) / sizeof(edges[0]);
    uint64_t bits[2] = {random_next(), random_next()};
    uint64_t kind = random_next() % 4;
    ref_number x;

    if (kind == 0) {
        memcpy(out, bits, weft_dtype_size(type));
        return;
    }
    x.whole = (int64_t)(bits[0] % 9) - 4;
    x.re = kind == 1 ? edges[bits[0] % count] : (double)x.whole;
    x.im = kind == 1 ? edges[bits[1] % count] : (double)(bits[1] % 7) - 3;
    x.index = (int64_t)(bits[1] % 5) - 2;
    if (kind == 3) {
        x.re += (double)(bits[0] % 4096) / 4096;
    }
    ref_put(type, x, out);
}

static void fill_sources(weft_dtype type)
{
    for (size_t s = 0; s < MAX_SRC; s++) {
        for (size_t i = 0; i < MAX_N; i++) {
            random_element(type, source[s] + i * weft_dtype_size(type));
        }
    }
}

static wf_reducer reducer_of(int level, weft_dtype type, weft_op op,
                             uint32_t ranks)
{
    wf_reducer r;

    assert_int_equal(wf_reducer_init(&r, type, op, ranks), WEFT_OK);
    r.fold = wf_kernels_of((wf_cpu_level)level)->fold[type][op.kind];
    return r;
}

static void expect(weft_dtype type, weft_op op, uint32_t ranks,
                   const void *const src[], size_t nsrc)
{
    for (size_t i = 0; i < MAX_N; i++) {
        ref_reduce(type, op, ranks, src, nsrc, i,
                   expected + i * weft_dtype_size(type));
    }
}

static void fail_element(int level, weft_dtype type, weft_op op, size_t nsrc,
                         const char *got, size_t i)
{
    size_t elem = weft_dtype_size(type);
    uint64_t is[2] = {0, 0};
    uint64_t should[2] = {0, 0};

    memcpy(is, got + i * elem, elem);
    memcpy(should, expected + i * elem, elem);
    fail_msg("%s %s %s of %zu, element %zu: %016llx%016llx, not %016llx%016llx",
             wf_cpu_level_name((wf_cpu_level)level), weft_dtype_name(type),
             weft_op_name(op.kind), nsrc, i, (unsigned long long)is[1],
             (unsigned long long)is[0], (unsigned long long)should[1],
             (unsigned long long)should[0]);
}

/* The first n elements at `got` are as expected, and nothing around them was
 * touched. */
static void check(int level, weft_dtype type, weft_op op, size_t nsrc,
                  const char *got, size_t n)
{
    size_t elem = weft_dtype_size(type);

    if (memcmp(got, expected, n * elem) != 0) {
        for (size_t i = 0; i < n; i++) {
            if (memcmp(got + i * elem, expected + i * elem, elem) != 0) {
                fail_element(level, type, op, nsrc, got, i);
            }
        }
    }
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(got[n * elem + i], GUARD_BYTE);
        assert_int_equal(got[-1 - (ptrdiff_t)i], GUARD_BYTE);
    }
}

/* Call `body` for each level, type and operation that is defined on it. */
static void for_each_kernel(void (*body)(int level, weft_dtype type,
                                         weft_op op))
{
    for (int type = 0; type < WF_DTYPE_COUNT; type++) {
        random_state = (uint64_t)type;
        fill_sources((weft_dtype)type);
        for (int op = 0; op < WF_OP_COUNT; op++) {
            if (!weft_op_applies((weft_op_kind)op, (weft_dtype)type)) {
                continue;
            }
            for (int level = 0; level <= (int)wf_cpu_detect(); level++) {
                weft_op full = {(weft_op_kind)op, -0.3};
                body(level, (weft_dtype)type, full);
            }
        }
    }
}

static void fold_and_check(const wf_reducer *r, int level, weft_dtype type,
                           weft_op op, size_t ndst, size_t nsrc, size_t n)
{
    const void *src[MAX_SRC];
    void *dst[WF_REDUCE_MAX_DST] = {NULL};

    for (size_t s = 0; s < nsrc; s++) {
        src[s] = source[s];
    }
    for (size_t d = 0; d < ndst; d++) {
        memset(result[d], GUARD_BYTE, n * r->elem + 2 * GUARD);
        dst[d] = result[d] + GUARD;
    }
    r->fold(r, dst, ndst, src, nsrc, n);
    for (size_t d = 0; d < ndst; d++) {
        check(level, type, op, nsrc, dst[d], n);
    }
}

static void check_against_reference(int level, weft_dtype type, weft_op op)
{
    static const size_t sources[] = {1, 2, 3, 5, 8, 16, 17};
    static const size_t counts[] = {0,  1,  2,   3,   4,   5,   7,    8,
                                    9,  15, 16,  17,  31,  33,  47,   63,
                                    64, 65, 127, 129, 255, 257, 1000, MAX_N};
    const void *src[MAX_SRC];

    for (size_t s = 0; s < MAX_SRC; s++) {
        src[s] = source[s];
    }
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        uint32_t ranks = (uint32_t)sources[i] + (uint32_t)(i % 2);
        wf_reducer r = reducer_of(level, type, op, ranks);

        expect(type, op, ranks, src, sources[i]);
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            size_t ndst = 1 + c % 3;
            fold_and_check(&r, level, type, op, ndst, sources[i], counts[c]);
        }
    }
}

static void every_kernel_gives_the_bits_of_the_reference(void **state)
{
    (void)state;
    for_each_kernel(check_against_reference);
}

static void check_cuts(int level, weft_dtype type, weft_op op)
{
    const void *whole[3] = {source[0], source[1], source[2]};
    wf_reducer r = reducer_of(level, type, op, 3);

    expect(type, op, 3, whole, 3);
    for (size_t shift = 0; shift * r.elem <= GUARD; shift++) {
        memset(result[0], GUARD_BYTE, MAX_N * r.elem + 3 * GUARD);
        for (size_t at = 0, n = 0; at < MAX_N; at += n) {
            const void *src[3];
            void *dst[1] = {result[0] + GUARD + (shift + at) * r.elem};

            n = random_next() % 130;
            n = n < MAX_N - at ? n : MAX_N - at;
            for (size_t s = 0; s < 3; s++) {
                src[s] = source[s] + at * r.elem;
            }
            r.fold(&r, dst, 1, src, 3, n);
        }
        check(level, type, op, 3, result[0] + GUARD + shift * r.elem, MAX_N);
    }
}

static void bits_depend_neither_on_cuts_nor_on_alignment(void **state)
{
    (void)state;
    for_each_kernel(check_cuts);
}

static void check_unaligned(int level, weft_dtype type, weft_op op)
{
    size_t elem = weft_dtype_size(type);
    wf_reducer r = reducer_of(level, type, op, 2);
    size_t n = MAX_N - GUARD;

    for (size_t shift = 1; shift * elem < GUARD; shift = 2 * shift + 1) {
        const void *src[2] = {source[0] + shift * elem, source[1]};
        void *dst[2] = {result[0] + GUARD, result[1] + GUARD + elem};

        for (size_t i = 0; i < n; i++) {
            ref_reduce(type, op, 2, src, 2, i, expected + i * elem);
        }
        memset(result, GUARD_BYTE, 2 * sizeof(result[0]));
        r.fold(&r, dst, 2, src, 2, n);
        check(level, type, op, 2, dst[0], n);
        check(level, type, op, 2, dst[1], n);
    }
}

static void sources_may_be_aligned_differently(void **state)
{
    (void)state;
    for_each_kernel(check_unaligned);
}

static void check_in_place(int level, weft_dtype type, weft_op op)
{
    wf_reducer r = reducer_of(level, type, op, 4);
    const void *apart[4] = {source[0], source[1], source[2], source[3]};

    for (size_t nsrc = 1; nsrc <= 4; nsrc++) {
        expect(type, op, 4, apart, nsrc);
        for (size_t same = 0; same < nsrc; same++) {
            const void *src[4] = {source[0], source[1], source[2], source[3]};
            void *dst[2] = {result[0] + GUARD, result[1] + GUARD};

            memset(result, GUARD_BYTE, 2 * sizeof(result[0]));
            memcpy(dst[0], source[same], MAX_N * r.elem);
            src[same] = dst[0];
            r.fold(&r, dst, 1 + same % 2, src, nsrc, MAX_N);
            check(level, type, op, nsrc, dst[0], MAX_N);
        }
    }
}

static void a_destination_may_be_any_of_the_sources(void **state)
{
    (void)state;
    for_each_kernel(check_in_place);
}

/* Streamed from any place on, on a line's boundary or not, and in place. */
static void check_streamed(int level, weft_dtype type, weft_op op)
{
    wf_reducer r = reducer_of(level, type, op, 3);
    const void *apart[3] = {source[0], source[1], source[2]};

    r.stream = true;
    expect(type, op, 3, apart, 3);
    for (size_t shift = 0; shift * r.elem <= GUARD; shift++) {
        for (size_t n = 1; n <= MAX_N; n = 3 * n + shift % 5) {
            const void *src[3] = {source[0], source[1], source[2]};
            void *dst[1] = {result[0] + GUARD + shift * r.elem};

            memset(result[0], GUARD_BYTE, sizeof(result[0]));
            if (n % 2 == 0) {
                memcpy(dst[0], source[1], n * r.elem);
                src[1] = dst[0];
            }
            r.fold(&r, dst, 1, src, 3, n);
            check(level, type, op, 3, dst[0], n);
        }
    }
}

static void streaming_stores_make_no_difference_to_the_result(void **state)
{
    (void)state;
    for_each_kernel(check_streamed);
}

static void check_many_destinations(int level, weft_dtype type, weft_op op)
{
    const void *src[2] = {source[0], source[1]};
    wf_reducer r = reducer_of(level, type, op, 2);

    expect(type, op, 2, src, 2);
    fold_and_check(&r, level, type, op, WF_REDUCE_MAX_DST, 2, 77);
}

static void all_destinations_get_the_result(void **state)
{
    (void)state;
    for_each_kernel(check_many_destinations);
}

/* A page of data between two that must not be touched, for each of two sources
 * and a destination. */
static char *fenced[3];
static size_t page;

static int make_fences(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 3; i++) {
        char *pages =
            mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) {
            return -1;
        }
        fenced[i] = pages + page;
        if (mprotect(fenced[i], page, PROT_READ | PROT_WRITE) != 0) {
            return -1;
        }
    }
    return 0;
}

static int remove_fences(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        munmap(fenced[i] - page, 3 * page);
    }
    return 0;
}

static void fold_at_fences(int level, weft_dtype type, weft_op op)
{
    wf_reducer r = reducer_of(level, type, op, 2);

    for (size_t n = 1; n <= 300 && n * r.elem <= page; n++) {
        size_t at_end = page - n * r.elem;

        for (size_t i = 0; i < 2; i++) {
            const void *src[2] = {fenced[0] + i * at_end,
                                  fenced[1] + i * at_end};
            void *dst[1] = {fenced[2] + i * at_end};
            r.stream = n % 2 == 0;
            r.fold(&r, dst, 1, src, 2, n);
        }
    }
}

static void nothing_outside_of_the_buffers_is_touched(void **state)
{
    (void)state;
    for_each_kernel(fold_at_fences);
}

/* All numbers of a type of 16 bits, in one array. */
static uint16_t every_half[65536];
static uint16_t half_result[65536];

static void fold_every_half(int level, weft_dtype type, weft_op op)
{
    const void *src[1] = {every_half};
    void *dst[1] = {half_result};
    wf_reducer r = reducer_of(level, type, op, 7);

    r.fold(&r, dst, 1, src, 1, 65536);
    for (size_t i = 0; i < 65536; i++) {
        uint16_t should;
        ref_reduce(type, op, 7, src, 1, i, &should);
        if (half_result[i] != should) {
            fail_msg("%s %s of %s %04zx: %04x, not %04x",
                     wf_cpu_level_name((wf_cpu_level)level),
                     weft_op_name(op.kind), weft_dtype_name(type), i,
                     half_result[i], should);
        }
    }
}

static void every_f16_and_bf16_is_widened_and_rounded_right(void **state)
{
    static const double factors[] = {1.0,    1.0 / 3,  0x1p-9, 0x1p-15,
                                     -0x1p9, 0x1.ffp0, 1e-30,  1.00390625};

    (void)state;
    for (size_t i = 0; i < 65536; i++) {
        every_half[i] = (uint16_t)i;
    }
    for (int level = 0; level <= (int)wf_cpu_detect(); level++) {
        for (int type = WEFT_F16; type <= WEFT_BF16; type++) {
            fold_every_half(level, (weft_dtype)type, WEFT_SUM);
            fold_every_half(level, (weft_dtype)type, WEFT_AVG);
            for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++) {
                fold_every_half(level, (weft_dtype)type,
                                weft_premul_sum(factors[i]));
            }
        }
    }
}

/* Into any place; what is around the copy stays as well. */
static void what_is_taken_is_copied_and_stays(void **state)
{
    char *from = source[0] + (0 - (uintptr_t)source[0]) % 64;

    (void)state;
    for (size_t i = 0; i < sizeof(source[0]); i++) {
        source[0][i] = (char)random_next();
    }
    memcpy(source[1], source[0], sizeof(source[0]));
    for (int level = 0; level <= (int)wf_cpu_detect(); level++) {
        wf_take_fn *take = wf_kernels_of((wf_cpu_level)level)->take;

        for (size_t n = 0; take != NULL && n < 300; n++) {
            char *to = result[0] + GUARD + random_next() % 64;

            memset(result[0], GUARD_BYTE, sizeof(result[0]));
            memset(expected, GUARD_BYTE, sizeof(expected));
            memcpy(expected + (to - result[0]), from, n);
            take(to, from, n);
            assert_memory_equal(result[0], expected, ROOM);
            assert_memory_equal(source[0], source[1], ROOM);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_gives_the_bits_of_the_reference),
        cmocka_unit_test(bits_depend_neither_on_cuts_nor_on_alignment),
        cmocka_unit_test(sources_may_be_aligned_differently),
        cmocka_unit_test(a_destination_may_be_any_of_the_sources),
        cmocka_unit_test(streaming_stores_make_no_difference_to_the_result),
        cmocka_unit_test(all_destinations_get_the_result),
        cmocka_unit_test(what_is_taken_is_copied_and_stays),
        cmocka_unit_test_setup_teardown(
            nothing_outside_of_the_buffers_is_touched, make_fences,
            remove_fences),
        cmocka_unit_test(every_f16_and_bf16_is_widened_and_rounded_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
