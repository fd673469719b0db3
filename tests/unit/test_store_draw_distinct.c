/* SPDX-License-Identifier: Apache-2.0 */
/* Keys without replacement, and those that a function of the user draws. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "store/keymap.h"
#include "store_rig.h"

enum { CELLS = 256, DRAWS = 100000 };

/* Count in which order the keys of [0, span) come, `n` of them: a number of
 * `n` digits to the base `span`. */
static void count_orders(const wf_draw *draw, uint64_t n, uint64_t *counts)
{
    wf_generator r = rig_random(n);
    int64_t keys[8];

    memset(counts, 0, CELLS * sizeof(*counts));
    for (int i = 0; i < DRAWS; i++) {
        uint64_t order = 0;

        assert_int_equal(wf_draw_distinct(draw, &r, n, keys), WEFT_OK);
        for (uint64_t j = 0; j < n; j++) {
            order = order * draw->span + (uint64_t)keys[j];
        }
        counts[order]++;
    }
}

/* The probability of each order: of the keys that are left, by their share. */
static void order_shares(const double *share, uint64_t span, uint64_t n,
                         double *out)
{
    uint64_t cells = 1;

    memset(out, 0, CELLS * sizeof(*out));
    for (uint64_t i = 0; i < n; i++) {
        cells *= span;
    }
    for (uint64_t cell = 0; cell < cells; cell++) {
        bool used[8] = {false};
        double p = 1;
        uint64_t unit = cells;

        for (uint64_t i = 0; i < n; i++) {
            uint64_t key = cell / (unit /= span) % span;
            double left = 0;

            for (uint64_t k = 0; k < span; k++) {
                left += used[k] ? 0 : share[k];
            }
            p *= used[key] ? 0 : share[key] / left;
            used[key] = true;
        }
        out[cell] = p;
    }
}

/* Small ranges, so that all ways to draw are taken: again and again, and by a
 * pass over all keys, also in the middle. */
static void each_order_of_distinct_keys_has_its_probability(void **state)
{
    static const struct {
        weft_distribution kind;
        uint64_t span;
        uint64_t n;
    } cases[] = {
        {WEFT_DRAW_UNIFORM, 6, 2},     {WEFT_DRAW_UNIFORM, 6, 3},
        {WEFT_DRAW_UNIFORM, 4, 3},     {WEFT_DRAW_UNIFORM, 4, 4},
        {WEFT_DRAW_LOG_UNIFORM, 6, 3}, {WEFT_DRAW_LOG_UNIFORM, 4, 4},
        {WEFT_DRAW_WEIGHTED, 6, 2},    {WEFT_DRAW_WEIGHTED, 4, 3},
        {WEFT_DRAW_WEIGHTED, 5, 3},
    };
    double orders[CELLS];
    double share[8];
    uint64_t counts[CELLS];

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_sample_options o = {.distribution = cases[i].kind};
        wf_draw draw;

        rig_shares(o.distribution, (unsigned)cases[i].span, share);
        share[0] *= o.distribution == WEFT_DRAW_WEIGHTED ? 20 : 1;
        o.weights = o.distribution == WEFT_DRAW_WEIGHTED ? share : NULL;
        draw = rig_draw(&o, cases[i].span);
        count_orders(&draw, cases[i].n, counts);
        order_shares(share, cases[i].span, cases[i].n, orders);
        assert_true(rig_fits(counts, orders, CELLS, DRAWS));
        wf_draw_fini(&draw);
    }
}

static void check_distinct(const wf_draw *draw, uint64_t n, uint64_t seed)
{
    wf_generator r = rig_random(seed);
    wf_keymap seen;
    int64_t *keys = wf_alloc(n * sizeof(*keys));

    assert_non_null(keys);
    assert_int_equal(wf_keymap_init(&seen, n), WEFT_OK);
    assert_int_equal(wf_draw_distinct(draw, &r, n, keys), WEFT_OK);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(wf_draw_possible(draw, keys[i]));
        assert_true(wf_keymap_add(&seen, keys[i], 0));
    }
    wf_keymap_fini(&seen);
    wf_free(keys);
}

static void all_keys_can_be_drawn_without_replacement(void **state)
{
    enum { N = 20011 };
    static double weights[N];

    (void)state;
    for (unsigned i = 0; i < N; i++) { /* 200 orders of magnitude */
        weights[i] = i % 7 == 0 ? 0 : pow(10, -(double)(i % 200));
    }
    for (int kind = 0; kind <= WEFT_DRAW_WEIGHTED; kind++) {
        weft_sample_options o = {.distribution = (weft_distribution)kind,
                                 .min = kind == WEFT_DRAW_WEIGHTED ? 0 : 3,
                                 .weights = kind == WEFT_DRAW_WEIGHTED ? weights
                                                                       : NULL};
        wf_draw draw = rig_draw(&o, N);
        uint64_t all = draw.possible;
        const uint64_t ns[] = {0, 1, all / 2, all / 2 + 1, all - 1, all};

        for (unsigned i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
            check_distinct(&draw, ns[i], i);
        }
        assert_int_equal(wf_draw_distinct(&draw, NULL, all + 1, NULL),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), "distinct samples"));
        wf_draw_fini(&draw);
    }
}

static void few_distinct_keys_of_a_huge_range_are_drawn_quickly(void **state)
{
    (void)state;
    for (int kind = 0; kind <= WEFT_DRAW_LOG_UNIFORM; kind++) {
        weft_sample_options o = {.distribution = (weft_distribution)kind,
                                 .min = INT64_MIN,
                                 .max = INT64_MAX};
        wf_draw draw;

        assert_int_equal(wf_draw_init(&draw, &o, 1, true), WEFT_OK);
        check_distinct(&draw, 10000, 1);
    }
}

/* --- the user's function -------------------------------------------------- */

typedef struct dealer {
    int64_t next;
    int64_t step;
    int64_t modulo;
    int calls;
} dealer;

static int64_t deal(void *ctx)
{
    dealer *d = ctx;
    int64_t key = d->next;

    d->next = (d->next + d->step) % d->modulo;
    d->calls++;
    return key;
}

static void the_users_function_says_which_keys(void **state)
{
    dealer d = {3, 2, 11, 0};
    weft_sample_options o = {
        .distribution = WEFT_DRAW_GIVEN, .draw = deal, .ctx = &d};
    wf_draw draw = rig_draw(&o, 11);
    int64_t keys[6];
    static const int64_t want[6] = {3, 5, 7, 9, 0, 2};

    (void)state;
    assert_int_equal(wf_draw_keys(&draw, NULL, 6, keys), WEFT_OK);
    assert_memory_equal(keys, want, sizeof(keys));
    check_distinct(&draw, 11, 0);
}

static void a_key_of_the_user_that_is_out_of_range_is_an_error(void **state)
{
    dealer d = {4, 1, 100, 0};
    weft_sample_options o = {.distribution = WEFT_DRAW_GIVEN,
                             .min = 2,
                             .max = 5,
                             .draw = deal,
                             .ctx = &d};
    wf_draw draw = rig_draw(&o, 11);
    int64_t keys[3];

    (void)state;
    assert_int_equal(wf_draw_keys(&draw, NULL, 3, keys), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "key 5"));
    assert_non_null(strstr(weft_error_detail(), "[2, 5)"));
    d.next = -1;
    assert_int_equal(wf_draw_keys(&draw, NULL, 1, keys), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "key -1"));
}

static void the_user_may_draw_any_key_of_a_hashed_store(void **state)
{
    dealer d = {INT64_MIN, 0, INT64_MAX, 0};
    weft_sample_options o = {
        .distribution = WEFT_DRAW_GIVEN, .draw = deal, .ctx = &d};
    wf_draw draw;
    int64_t key;

    (void)state;
    assert_int_equal(wf_draw_init(&draw, &o, 1, true), WEFT_OK);
    assert_int_equal(wf_draw_key(&draw, NULL, &key), WEFT_OK);
    assert_true(key == INT64_MIN);
}

static void a_function_that_repeats_itself_ends_in_an_error(void **state)
{
    dealer d = {0, 1, 3, 0};
    weft_sample_options o = {
        .distribution = WEFT_DRAW_GIVEN, .draw = deal, .ctx = &d};
    wf_draw draw = rig_draw(&o, 11);
    int64_t keys[5];

    (void)state;
    assert_int_equal(wf_draw_distinct(&draw, NULL, 5, keys), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "3 of 5 distinct"));
    assert_int_equal(d.calls, 3 + 10000);
    d.modulo = 100;
    d.next = 10;
    assert_int_equal(wf_draw_distinct(&draw, NULL, 2, keys), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "key 11"));
}

static void any_failed_allocation_is_told_of(void **state)
{
    static const double weights[4] = {1000, 1, 1, 1e-9};
    weft_sample_options o = {.distribution = WEFT_DRAW_WEIGHTED,
                             .weights = weights};
    unsigned nth = 0;
    weft_status st;

    (void)state;
    do {
        wf_draw draw;
        wf_generator r = rig_random(1);
        int64_t keys[4];

        wf_alloc_fail_nth(++nth);
        st = wf_draw_init(&draw, &o, 4, false);
        if (st == WEFT_OK) {
            st = wf_draw_distinct(&draw, &r, 4, keys);
            wf_draw_fini(&draw);
        }
        wf_alloc_fail_nth(0);
        assert_true(st == WEFT_OK || st == WEFT_ERR_NOMEM);
    } while (st != WEFT_OK);
    assert_true(nth > 6); /* 3 for tables, 2 for a set, 1 for the rest */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_order_of_distinct_keys_has_its_probability),
        cmocka_unit_test(all_keys_can_be_drawn_without_replacement),
        cmocka_unit_test(few_distinct_keys_of_a_huge_range_are_drawn_quickly),
        cmocka_unit_test(the_users_function_says_which_keys),
        cmocka_unit_test(a_key_of_the_user_that_is_out_of_range_is_an_error),
        cmocka_unit_test(the_user_may_draw_any_key_of_a_hashed_store),
        cmocka_unit_test(a_function_that_repeats_itself_ends_in_an_error),
        cmocka_unit_test(any_failed_allocation_is_told_of),
    };

    return cmocka_run_group_tests_name("store_draw_distinct", tests, NULL,
                                       NULL);
}
