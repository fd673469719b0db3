/* SPDX-License-Identifier: Apache-2.0 */
/* Results through a real switch are right and equal on all ranks, whatever is
 * lost, repeated and reordered, and the switch's counters show that they came
 * from it. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { COUNT = 20000, SLOW = WT_TSAN || WT_ASAN };

static const char *const no_options[] = {NULL};

/* What ranks send can be known by all: a hash of rank, call and element. */
static int32_t number(unsigned rank, unsigned call, unsigned i)
{
    uint32_t x = (rank * 31 + call) * 2654435761u + i * 40503u;

    x = (x ^ x >> 15) * 2246822519u;
    return (int32_t)((x ^ x >> 13) % 2000001) - 1000000;
}

typedef struct plan {
    unsigned calls;
    uint64_t results; /* chunks that all calls have */
    float *floats[RIG_WORKERS];
} plan;

static weft_status integers(worker *w)
{
    plan *p = w->ctx;
    int32_t *x = malloc(COUNT * sizeof(*x));
    weft_status st = worker_join(w);

    for (unsigned call = 0; call < p->calls && st == WEFT_OK; call++) {
        for (unsigned i = 0; i < COUNT; i++) {
            x[i] = number(w->options.rank, call, i);
        }
        st = worker_allreduce(w, x, x, COUNT, WEFT_I32, WEFT_OP_SUM, false);
        for (unsigned i = 0; i < COUNT && st == WEFT_OK; i++) {
            int32_t sum = 0;

            for (unsigned r = 0; r < w->options.ranks; r++) {
                sum += number(r, call, i);
            }
            if (x[i] != sum) {
                fprintf(stderr, "element %u of call %u is wrong\n", i, call);
                st = WEFT_ERR_PROTOCOL;
            }
        }
    }
    free(x);
    return st;
}

static void assert_all_good(const worker *w, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        if (w[r].status != WEFT_OK) {
            fail_msg("rank %u: %s", r, w[r].text);
        }
    }
}

static void sum_integers(const char *const *options, uint32_t ranks,
                         uint32_t window, unsigned calls)
{
    static worker w[RIG_WORKERS];
    wf_agg_options like = worker_options(0, ranks, 5);
    plan p = {.calls = calls};
    rig r;

    rig_init(&r);
    rig_start(&r, options);
    like.window = window;
    run_workers(&r, &like, integers, &p, w);
    assert_all_good(w, ranks);
    assert_int_equal(rig_stop(&r, SIGTERM), 0);
    rig_fini(&r);
}

static void integers_are_equal_with_any_number_of_workers(void **state)
{
    (void)state;
    sum_integers(no_options, 1, 0, 2);
    sum_integers(no_options, 2, 0, 5);
    sum_integers(no_options, 5, 0, 3);
    sum_integers(no_options, 16, 0, SLOW ? 1 : 2);
}

static void integers_are_equal_with_any_window(void **state)
{
    (void)state;
    sum_integers(no_options, 2, 1, 1);
    sum_integers(no_options, 3, 2, 1);
    sum_integers(no_options, 2, 7, 2);
}

static void integers_are_equal_with_loss_repetition_and_reordering(void **state)
{
    static const char *const some[] = {
        "--inject", "loss=0.01,repeat=0.01,reorder=0.02,seed=1", NULL};
    static const char *const much[] = {
        "--inject", "loss=0.1,repeat=0.05,reorder=0.1,seed=2", NULL};

    (void)state;
    sum_integers(some, 2, 0, 4);
    sum_integers(some, 4, 0, 2);
    sum_integers(much, 2, 0, 2);
    sum_integers(much, 3, 1, 1);
    sum_integers(much, 8, 0, 1);
    sum_integers(some, 16, 0, 1);
}

static void several_shards_share_the_chunks(void **state)
{
    static const char *const three[] = {"--shards", "3", "--inject",
                                        "loss=0.02,seed=3", NULL};

    (void)state;
    sum_integers(three, 2, 0, 3);
    sum_integers(three, 4, 0, 1);
}

/* --- floats --------------------------------------------------------------- */

static float real(unsigned rank, unsigned i)
{
    return (float)number(rank, 1, i) * 1e-4f;
}

static weft_status floats(worker *w)
{
    plan *p = w->ctx;
    float *x = malloc(COUNT * sizeof(*x));
    weft_status st = worker_join(w);

    for (unsigned i = 0; i < COUNT; i++) {
        x[i] = real(w->options.rank, i);
    }
    if (w->options.rank == 1) {
        x[7] = NAN;
        x[300] = INFINITY;
        x[4000] = -INFINITY;
    }
    if (st == WEFT_OK) {
        st = worker_allreduce(w, x, x, COUNT, WEFT_F32, WEFT_OP_SUM, true);
    }
    p->floats[w->options.rank] = x;
    return st;
}

static void assert_sums(const float *x, uint32_t ranks)
{
    for (unsigned i = 0; i < COUNT; i++) {
        double sum = 0;

        for (unsigned r = 0; r < ranks; r++) {
            sum += real(r, i);
        }
        if (i == 7) {
            assert_true(isnan(x[i]));
        } else if (i == 300 || i == 4000) {
            assert_true(x[i] == (i == 300 ? INFINITY : -INFINITY));
        } else {
            assert_true(fabs(x[i] - sum) < 2e-5);
        }
    }
}

static void
floats_are_within_the_bound_and_the_same_bits_everywhere(void **state)
{
    static const char *const some[] = {
        "--inject", "loss=0.05,repeat=0.02,reorder=0.05,seed=4", NULL};
    static worker w[RIG_WORKERS];
    float first[COUNT];

    (void)state;
    for (unsigned turn = 0; turn < 3; turn++) {
        wf_agg_options like = worker_options(0, 4, 6);
        plan p = {.calls = 1};
        rig r;

        rig_init(&r);
        rig_start(&r, turn == 0 ? no_options : some);
        like.whole = turn == 2;
        run_workers(&r, &like, floats, &p, w);
        assert_all_good(w, 4);
        assert_sums(p.floats[0], 4);
        if (turn == 0) {
            memcpy(first, p.floats[0], sizeof(first));
        }
        for (unsigned k = 0; k < 4; k++) {
            assert_memory_equal(p.floats[k], first, sizeof(first));
            free(p.floats[k]);
        }
        (void)rig_stop(&r, SIGTERM);
        rig_fini(&r);
    }
}

/* --- all types ------------------------------------------------------------ */

/* All ranks send the same small numbers, so that sums are known: element i of
 * rank r is i % 5 + 1, as bytes of the type. */
static weft_status types(worker *w)
{
    static const weft_op_kind ops[] = {WEFT_OP_SUM, WEFT_OP_MAX, WEFT_OP_MIN,
                                       WEFT_OP_PROD, WEFT_OP_AVG};
    double src[500];
    double dst[500];
    weft_status st = worker_join(w);

    for (unsigned t = 0; t <= WEFT_PAIR_I64 && st == WEFT_OK; t++) {
        for (unsigned k = 0; k < 5 && st == WEFT_OK; k++) {
            if (!wf_agg_reduces((weft_dtype)t, ops[k])) {
                continue;
            }
            memset(src, 0, sizeof(src));
            memset(dst, 0xff, sizeof(dst));
            st = worker_allreduce(w, src, dst, 250, (weft_dtype)t, ops[k],
                                  false);
            if (st == WEFT_OK &&
                memcmp(src, dst, 250 * weft_dtype_size((weft_dtype)t)) != 0) {
                st = WEFT_ERR_PROTOCOL;
            }
        }
    }
    return st;
}

static void every_type_goes_through(void **state)
{
    static worker w[RIG_WORKERS];
    wf_agg_options like = worker_options(0, 3, 8);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    run_workers(&r, &like, types, NULL, w);
    assert_all_good(w, 3);
    (void)rig_stop(&r, SIGTERM);
    rig_fini(&r);
}

/* --- counters ------------------------------------------------------------- */

static weft_status counted(worker *w)
{
    plan *p = w->ctx;
    weft_status st = integers(w);

    /* The job lives until the first rank leaves. */
    if (w->options.rank == 0 && st == WEFT_OK) {
        p->results = (uint64_t)rig_metric(w->rig, "weft_switch_job_results");
    }
    if (st == WEFT_OK) {
        int32_t zero = 0;
        st = worker_allreduce(w, &zero, &zero, 1, WEFT_I32, WEFT_OP_SUM, false);
    }
    return st;
}

static void the_counters_equal_the_chunks(void **state)
{
    static const char *const some[] = {"--inject", "loss=0.03,seed=5", NULL};
    static worker w[RIG_WORKERS];
    wf_agg_options like = worker_options(0, 2, 9);
    plan p = {.calls = 3};
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, some);
    run_workers(&r, &like, counted, &p, w);
    assert_all_good(w, 2);
    /* 272 numbers of 4 bytes in 1088. */
    assert_int_equal(p.results, 3 * ((COUNT + 271) / 272));
    (void)rig_stop(&r, SIGTERM);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_equal_with_any_number_of_workers),
        cmocka_unit_test(integers_are_equal_with_any_window),
        cmocka_unit_test(
            integers_are_equal_with_loss_repetition_and_reordering),
        cmocka_unit_test(several_shards_share_the_chunks),
        cmocka_unit_test(
            floats_are_within_the_bound_and_the_same_bits_everywhere),
        cmocka_unit_test(every_type_goes_through),
        cmocka_unit_test(the_counters_equal_the_chunks),
    };

    return cmocka_run_group_tests_name("switch_exact", tests, NULL, NULL);
}
