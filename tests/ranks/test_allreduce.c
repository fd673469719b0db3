/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce: particular values, many in a row, and large ones. That every type,
 * operation and size is right is in test_collectives.c. */
#include <math.h>
#include <stdlib.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

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
    wt_job job = {.ranks = 3, .body = large_body, .deadline = 60};

    (void)state;
    job.settings = "SPIN=0s YIELD=0s CHUNK_BYTES=4K";
    wt_run_job_both(&job);
    job.settings = "SPIN=0s YIELD=0s ENGINE=message";
    wt_run_job_both(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_on_any_rank_makes_min_and_max_nan),
        cmocka_unit_test(sixteen_bit_sums_are_rounded_once),
        cmocka_unit_test(thousands_of_small_sums_in_a_row_are_right),
        cmocka_unit_test(sixteen_mebibytes_are_summed),
        cmocka_unit_test(ranks_that_never_poll_sum_large_data_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
