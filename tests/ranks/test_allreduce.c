/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce against the reference: every type and operation, every way to lay
 * out the buffers, for all rank counts that matter. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_buffer.h"
#include "wt_cmocka.h"
#include "wt_data.h"

/* The first ones are tried with all settings even in the short run. */
static const unsigned rank_counts[] = {2, 5, 1, 3, 4, 8};

enum { RANK_COUNTS = 6, SHORT_RANK_COUNTS = 2 };

/* How one case passes its buffers. */
enum { IN_PLACE, OUT_OF_PLACE, MISALIGNED, LAYOUTS };

enum { SIZES = 6 };

/* Set before the ranks are forked: which settings they have. */
static bool by_default;
static bool by_messages;

typedef struct allreduce_case {
    weft_dtype type;
    weft_op op;
    size_t n;
    unsigned layout;
    bool blocking;
    uint64_t seed;
} allreduce_case;

/* Nothing, one, odd ones, a page, and a mebibyte and three elements. */
static size_t element_count(unsigned size, weft_dtype type)
{
    size_t elem = weft_dtype_size(type);

    switch (size) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return 17;
    case 3:
        return 1023;
    case 4:
        return 4096 / elem;
    default:
        return wt_scaled(1u << 20) / elem + 3;
    }
}

static void reduce_once(weft_comm *comm, const allreduce_case *c,
                        const void *src, void *dst)
{
    weft_request *request = NULL;

    if (c->blocking) {
        WT_OK(weft_allreduce(comm, src, dst, c->n, c->type, c->op));
        return;
    }
    WT_OK(weft_iallreduce(comm, src, dst, c->n, c->type, c->op, &request));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
}

static void compare(const allreduce_case *c, unsigned ranks, const void *got)
{
    size_t elem = weft_dtype_size(c->type);
    void *want = malloc(c->n * elem + 1);
    char text[2][80];
    size_t at;

    WT_CHECK(want != NULL);
    wt_reference(want, c->n, c->type, c->op, c->seed, ranks);
    at = wt_first_difference(got, want, c->n, c->type);
    if (at != c->n) {
        wt_element_text(got, at, c->type, text[0], sizeof(text[0]));
        wt_element_text(want, at, c->type, text[1], sizeof(text[1]));
        WT_FAIL("%s of %zu %s, layout %u, %s: element %zu is %s instead of %s",
                weft_op_name(c->op.kind), c->n, weft_dtype_name(c->type),
                c->layout, c->blocking ? "blocking" : "non-blocking", at,
                text[0], text[1]);
    }
    free(want);
}

/* Messages carry 16-bit floats rounded, so that the result depends on the way
 * they take; all other types give the reference on any way. */
static bool reference_holds(const allreduce_case *c)
{
    return !by_messages || (c->type != WEFT_F16 && c->type != WEFT_BF16);
}

/* All ranks compare among themselves; all of a small case, but only one of a
 * large case, compute the reference, which is slow. */
static void run_case(weft_world *world, const allreduce_case *c)
{
    unsigned rank = weft_world_rank(world);
    unsigned ranks = weft_world_size(world);
    size_t elem = weft_dtype_size(c->type);
    size_t offset = c->layout == MISALIGNED ? elem : 0;
    wt_buffer src;
    wt_buffer dst;
    uint64_t before;

    wt_buffer_init(&src, c->n * elem, offset);
    wt_buffer_init(&dst, c->n * elem, 3 * offset);
    wt_fill(src.data, c->n, c->type, c->op.kind, c->seed, rank);
    memset(dst.data, 0x5a, dst.bytes);
    before = wt_hash(src.data, src.bytes);
    if (c->layout == IN_PLACE) {
        memcpy(dst.data, src.data, src.bytes);
    }
    reduce_once(weft_world_comm(world), c,
                c->layout == IN_PLACE ? dst.data : src.data, dst.data);
    WT_CHECK(wt_hash(src.data, src.bytes) == before);
    wt_buffer_check(&src);
    wt_buffer_check(&dst);
    if (reference_holds(c) && (c->n <= 4096 || rank == c->seed % ranks)) {
        compare(c, ranks, dst.data);
    }
    wt_check_same(world, dst.data, dst.bytes);
    wt_buffer_fini(&src);
    wt_buffer_fini(&dst);
}

/* In the short run each (type, op, size) has one layout and one form, which
 * rotate. Large data is slow: it is always so there, and only with every eighth
 * (type, op), save in the full run with the default settings. */
static bool case_is_due(unsigned pair, unsigned size, unsigned variant,
                        unsigned ranks)
{
    bool turn = (pair * 7 + size + ranks) % (2 * LAYOUTS) == variant;
    bool large = size == SIZES - 1;

    if (large && pair % 8 != ranks % 8 && !(wt_full() && by_default)) {
        return false;
    }
    if (WT_TSAN && pair % 4 != ranks % 4) {
        return false;
    }
    return turn || (wt_full() && !large);
}

static void all_cases(weft_world *world)
{
    unsigned ranks = weft_world_size(world);
    allreduce_case c;

    for (unsigned pair = 0; wt_type_and_op(pair, &c.type, &c.op); pair++) {
        for (unsigned i = 0; i < SIZES * 2 * LAYOUTS; i++) {
            unsigned variant = i % (2 * LAYOUTS);
            unsigned size = i / (2 * LAYOUTS);

            if (case_is_due(pair, size, variant, ranks)) {
                c.n = element_count(size, c.type);
                c.layout = variant % LAYOUTS;
                c.blocking = variant / LAYOUTS == 0;
                c.seed = 1000 * pair + i;
                run_case(world, &c);
            }
        }
    }
}

static void run_all_cases(const char *settings, unsigned counts)
{
    by_default = settings == NULL;
    by_messages = settings != NULL && strstr(settings, "message") != NULL;
    for (unsigned i = 0; i < (wt_full() ? RANK_COUNTS : counts); i++) {
        wt_run_job_both(&(wt_job){.ranks = rank_counts[i],
                                  .settings = settings,
                                  .body = all_cases,
                                  .deadline = wt_full() ? 600 : 60});
    }
}

static void
every_type_and_operation_gives_the_reference_on_all_ranks(void **state)
{
    (void)state;
    run_all_cases(NULL, RANK_COUNTS);
}

static void small_chunks_give_the_reference(void **state)
{
    (void)state;
    run_all_cases("FLAT_BYTES=64 CHUNK_BYTES=4K", SHORT_RANK_COUNTS);
}

static void the_message_engine_gives_the_reference(void **state)
{
    (void)state;
    run_all_cases("ENGINE=message", SHORT_RANK_COUNTS);
}

/* --- particular values --------------------------------------------------- */

static void nan_body(weft_world *world)
{
    static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    unsigned rank = weft_world_rank(world);
    double buf[64];
    double re;
    double im;

    for (unsigned t = 0; t < 4; t++) {
        for (unsigned k = 0; k < 2; k++) {
            for (unsigned i = 0; i < 64; i++) {
                wt_put(buf, i, types[t], i % 5 == rank ? NAN : 1.0 + rank, 0);
            }
            WT_OK(weft_allreduce(weft_world_comm(world), buf, buf, 64, types[t],
                                 k == 0 ? WEFT_MIN : WEFT_MAX));
            for (unsigned i = 0; i < 64; i++) {
                wt_get(buf, i, types[t], &re, &im);
                WT_CHECK(isnan(re) == (i % 5 < weft_world_size(world)));
            }
        }
    }
}

static void a_nan_on_any_rank_makes_min_and_max_nan(void **state)
{
    (void)state;
    wt_run_both(3, NULL, nan_body);
}

/* 2048 and one from each other rank: added one by one in f16, the ones are
 * lost; in f32 they count. For bf16 the same with 256. */
static void rounding_body(weft_world *world)
{
    unsigned rank = weft_world_rank(world);
    unsigned ranks = weft_world_size(world);
    uint16_t x[2];
    double f16;
    double bf16;
    double im;

    wt_put(x, 0, WEFT_F16, rank == 0 ? 2048 : 1, 0);
    WT_OK(weft_allreduce(weft_world_comm(world), x, x, 1, WEFT_F16, WEFT_SUM));
    wt_get(x, 0, WEFT_F16, &f16, &im);
    wt_put(x, 1, WEFT_BF16, rank == 0 ? 256 : 1, 0);
    WT_OK(weft_allreduce(weft_world_comm(world), x + 1, x + 1, 1, WEFT_BF16,
                         WEFT_SUM));
    wt_get(x, 1, WEFT_BF16, &bf16, &im);
    WT_CHECK(f16 == 2047.0 + ranks);
    WT_CHECK(bf16 == 255.0 + ranks);
}

static void sixteen_bit_sums_are_rounded_once(void **state)
{
    (void)state;
    wt_run_both(5, NULL, rounding_body);
}

/* --- many and large ------------------------------------------------------ */

static void many_small_body(weft_world *world)
{
    unsigned rank = weft_world_rank(world);
    unsigned ranks = weft_world_size(world);
    unsigned rounds = wt_full() ? 200000 : 2000;

    for (unsigned i = 0; i < rounds; i++) {
        int64_t x[3] = {i, rank, (int64_t)i * rank};

        WT_OK(weft_allreduce(weft_world_comm(world), x, x, 1 + i % 3, WEFT_I64,
                             WEFT_SUM));
        WT_CHECK(x[0] == (int64_t)i * ranks);
        WT_CHECK(i % 3 < 1 || x[1] == (int64_t)ranks * (ranks - 1) / 2);
        WT_CHECK(i % 3 < 2 || x[2] == (int64_t)i * ranks * (ranks - 1) / 2);
    }
}

static void thousands_of_small_sums_in_a_row_are_right(void **state)
{
    (void)state;
    wt_run_both(2, NULL, many_small_body);
    wt_run_both(4, NULL, many_small_body);
}

static void large_body(weft_world *world)
{
    size_t n = wt_scaled(4u << 20);
    unsigned ranks = weft_world_size(world);
    float *x = malloc(n * sizeof(*x));

    WT_CHECK(x != NULL);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(i % 1000 + weft_world_rank(world));
    }
    WT_OK(weft_allreduce(weft_world_comm(world), x, x, n, WEFT_F32, WEFT_SUM));
    for (size_t i = 0; i < n; i++) {
        WT_CHECK(x[i] == (float)(i % 1000 * ranks + ranks * (ranks - 1) / 2));
    }
    free(x);
}

static void sixteen_mebibytes_are_summed(void **state)
{
    (void)state;
    wt_run_both(3, NULL, large_body);
    wt_run_both(4, "ENGINE=message", large_body);
}

/* A wait that goes to sleep although there is something left that it could do
 * by itself would take minutes here. */
static void ranks_that_never_poll_sum_large_data_too(void **state)
{
    wt_job job = {.ranks = 3, .body = large_body, .deadline = 10};

    (void)state;
    job.settings = "SPIN=0s YIELD=0s CHUNK_BYTES=4K";
    wt_run_job_both(&job);
    job.settings = "SPIN=0s YIELD=0s ENGINE=message";
    wt_run_job_both(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            every_type_and_operation_gives_the_reference_on_all_ranks),
        cmocka_unit_test(small_chunks_give_the_reference),
        cmocka_unit_test(the_message_engine_gives_the_reference),
        cmocka_unit_test(a_nan_on_any_rank_makes_min_and_max_nan),
        cmocka_unit_test(sixteen_bit_sums_are_rounded_once),
        cmocka_unit_test(thousands_of_small_sums_in_a_row_are_right),
        cmocka_unit_test(sixteen_mebibytes_are_summed),
        cmocka_unit_test(ranks_that_never_poll_sum_large_data_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
