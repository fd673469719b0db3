/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers and distributions of keys: that they are what they are called,
 * by chi-square tests with fixed seeds. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "store_rig.h"

enum { CELLS = 256, DRAWS = 100000 };

/* --- random numbers ------------------------------------------------------- */

static void the_generator_gives_the_published_numbers(void **state)
{
    wf_generator r = {{1, 2, 3, 4}};

    (void)state;
    assert_true(wf_random_next(&r) == 11520);
    assert_true(wf_random_next(&r) == 0);
    assert_true(wf_random_next(&r) == 1509978240);
    assert_true(wf_random_next(&r) == 1215971899390074240);
    /* The first two of splitmix64 from 1234567. */
    assert_true(wf_random_mix(1234567 + 0x9e3779b97f4a7c15u) ==
                6457827717110365317u);
    assert_true(wf_random_mix(1234567 + 2 * 0x9e3779b97f4a7c15u) ==
                3203168211198807973u);
}

static void seed_rank_and_stream_each_give_other_numbers(void **state)
{
    static const uint64_t of[][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0},
                                     {0, 0, 1}, {1, 1, 0}, {0, 1, 1},
                                     {2, 0, 0}, {0, 2, 0}, {0, 0, UINT64_MAX}};
    enum { N = sizeof(of) / sizeof(of[0]) };
    uint64_t first[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        wf_generator a;
        wf_generator b;

        wf_random_seed(&a, of[i][0], of[i][1], of[i][2]);
        wf_random_seed(&b, of[i][0], of[i][1], of[i][2]);
        first[i] = wf_random_next(&a);
        assert_true(first[i] == wf_random_next(&b));
        assert_true(wf_random_next(&a) == wf_random_next(&b));
        for (int j = 0; j < i; j++) {
            assert_true(first[i] != first[j]);
        }
    }
}

/* The remainder of a division would give the first third as often as the other
 * two, the high half of a product every third number. */
static void large_bounds_favour_no_number(void **state)
{
    static const double share[3] = {1, 1, 1};
    uint64_t third = UINT64_C(1) << 62;
    uint64_t ranges[3] = {0};
    uint64_t residues[3] = {0};
    wf_generator r = rig_random(1);

    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        uint64_t x = wf_random_below(&r, 3 * third);

        assert_true(x < 3 * third);
        ranges[x / third]++;
        residues[x % 3]++;
    }
    assert_true(rig_fits(ranges, share, 3, DRAWS));
    assert_true(rig_fits(residues, share, 3, DRAWS));
    assert_true(wf_random_below(&r, 1) == 0);
}

/* --- distributions -------------------------------------------------------- */

static void count_draws(const wf_draw *draw, uint64_t seed, uint64_t *counts)
{
    wf_generator r = rig_random(seed);
    int64_t *keys = wf_alloc(DRAWS * sizeof(*keys));

    assert_non_null(keys);
    assert_int_equal(wf_draw_keys(draw, &r, DRAWS, keys), WEFT_OK);
    memset(counts, 0, CELLS * sizeof(*counts));
    for (int i = 0; i < DRAWS; i++) {
        int64_t at = keys[i] - draw->min;

        assert_true(at >= 0 && (uint64_t)at < draw->span);
        counts[at]++;
    }
    wf_free(keys);
}

static void each_distribution_is_what_it_is_called(void **state)
{
    static const unsigned spans[] = {1, 2, 3, 5, 64, 255};
    double share[CELLS];
    uint64_t counts[CELLS];

    (void)state;
    for (int kind = WEFT_DRAW_UNIFORM; kind <= WEFT_DRAW_WEIGHTED; kind++) {
        for (unsigned i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
            unsigned n = spans[i];
            weft_sample_options o = {.distribution = (weft_distribution)kind,
                                     .min = 17,
                                     .max = 17 + (int64_t)n};
            wf_draw draw;

            rig_shares(o.distribution, n, share);
            o.weights = kind == WEFT_DRAW_WEIGHTED ? share : NULL;
            draw = rig_draw(&o, 1000);
            count_draws(&draw, i, counts);
            assert_true(rig_fits(counts, share, n, DRAWS));
            wf_draw_fini(&draw);
        }
    }
}

/* What the test above proves: it tells distributions apart. */
static void the_test_of_distributions_finds_wrong_ones(void **state)
{
    double share[CELLS];
    uint64_t counts[CELLS];
    weft_sample_options o = {.max = 64};
    wf_draw draw = rig_draw(&o, 64);

    (void)state;
    count_draws(&draw, 1, counts);
    rig_shares(WEFT_DRAW_UNIFORM, 64, share);
    assert_true(rig_fits(counts, share, 64, DRAWS));
    share[5] = 1.3;
    assert_false(rig_fits(counts, share, 64, DRAWS));
    share[5] = 0;
    assert_false(rig_fits(counts, share, 64, DRAWS));
    rig_shares(WEFT_DRAW_LOG_UNIFORM, 64, share);
    assert_false(rig_fits(counts, share, 64, DRAWS));
}

static void weights_of_any_size_have_their_share(void **state)
{
    static const double sets[][4] = {{1e308, 1e308, 1e308, 1e308},
                                     {5e-324, 0, 5e-324, 5e-324},
                                     {1e308, 5e-324, 0, 1e308},
                                     {0, 0, 0, 1e-300},
                                     {1, 1e-3, 1e-3, 1}};
    double share[4];

    (void)state;
    for (unsigned i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        weft_sample_options o = {.distribution = WEFT_DRAW_WEIGHTED,
                                 .weights = sets[i]};
        wf_draw draw = rig_draw(&o, 4);
        uint64_t counts[CELLS];

        count_draws(&draw, 3, counts);
        for (int j = 0; j < 4; j++) {
            share[j] = sets[i][j] / sets[i][i == 3 ? 3 : 0];
        }
        assert_true(rig_fits(counts, share, 4, DRAWS));
        wf_draw_fini(&draw);
    }
}

/* Rounding leaves columns over; none of them may be a key of weight 0. */
static void keys_of_weight_0_are_never_drawn(void **state)
{
    enum { N = 1001 };
    static double weights[N];

    (void)state;
    for (int set = 0; set < 20; set++) {
        weft_sample_options o = {.distribution = WEFT_DRAW_WEIGHTED,
                                 .weights = weights};
        wf_generator r = rig_random((uint64_t)set);
        wf_draw draw;

        for (int i = 0; i < N; i++) {
            weights[i] = i % 3 != 0 ? 0.1 * wf_random_unit(&r) : 0;
        }
        draw = rig_draw(&o, N);
        for (int i = 0; i < N; i++) {
            uint64_t other = draw.columns[i].other;

            if (weights[i] == 0) {
                assert_true(draw.columns[i].own == 0 && weights[other] > 0);
            }
            assert_true(draw.columns[i].own >= 1 || weights[other] > 0);
        }
        wf_draw_fini(&draw);
    }
}

static void ranges_of_hashed_stores_may_be_any_numbers(void **state)
{
    static const int64_t ranges[][2] = {{INT64_MIN, INT64_MAX},
                                        {-5, 0},
                                        {INT64_MAX - 1, INT64_MAX},
                                        {INT64_MIN, INT64_MIN + 1},
                                        {7, 9}};

    (void)state;
    for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        for (int kind = 0; kind <= WEFT_DRAW_LOG_UNIFORM; kind++) {
            weft_sample_options o = {.distribution = (weft_distribution)kind,
                                     .min = ranges[i][0],
                                     .max = ranges[i][1]};
            wf_generator r = rig_random(1);
            wf_draw draw;

            assert_int_equal(wf_draw_init(&draw, &o, 1, true), WEFT_OK);
            for (int j = 0; j < 1000; j++) {
                int64_t key;

                assert_int_equal(wf_draw_key(&draw, &r, &key), WEFT_OK);
                assert_true(key >= o.min && key < o.max);
                assert_true(wf_draw_possible(&draw, key));
            }
            assert_false(wf_draw_possible(&draw, o.max));
        }
    }
}

/* The generator's largest number must not round up to the end of the range. */
static void the_largest_number_is_drawn_as_the_last_key(void **state)
{
    static const wf_generator largest = {{0, 0x4fc71c71c71c71c7u, 0, 0}};

    wf_generator r = largest;

    (void)state;
    assert_true(wf_random_next(&r) == UINT64_MAX);
    for (int bits = 0; bits < 63; bits++) {
        weft_sample_options o = {.distribution = WEFT_DRAW_LOG_UNIFORM,
                                 .max = INT64_C(1) << bits};
        wf_draw draw;
        int64_t key;

        r = largest;
        assert_int_equal(wf_draw_init(&draw, &o, 1, true), WEFT_OK);
        assert_int_equal(wf_draw_key(&draw, &r, &key), WEFT_OK);
        assert_true(key < o.max && key >= o.max - o.max / 1024 - 1);
    }
}

static void the_same_seed_gives_the_same_keys(void **state)
{
    static const int64_t pinned[4] = {221, 237, 10, 916};
    weft_sample_options o = {.max = 1000};
    wf_draw draw = rig_draw(&o, 1000);
    wf_generator a;
    int64_t keys[4];

    (void)state;
    wf_random_seed(&a, 42, 3, 1);
    assert_int_equal(wf_draw_keys(&draw, &a, 4, keys), WEFT_OK);
    assert_memory_equal(keys, pinned, sizeof(keys));
}

/* --- checks --------------------------------------------------------------- */

static int64_t never_called(void *ctx)
{
    (void)ctx;
    return 0;
}

static void options_that_do_not_fit_are_named(void **state)
{
    static const double bad[][2] = {
        {1, -1}, {NAN, 1}, {1, INFINITY}, {0, 0}, {-0.0, 0}};
    const struct {
        weft_sample_options o;
        bool hashed;
        const char *says;
    } cases[] = {
        {{.distribution = (weft_distribution)4}, false, "distribution 4"},
        {{.distribution = (weft_distribution)-1}, false, "distribution -1"},
        {{.min = 10}, false, "min is 10 and max is 10"},
        {{.min = 5, .max = 5}, false, "min is 5 and max is 5"},
        {{.min = 5, .max = 4}, true, "min is 5 and max is 4"},
        {{.min = -1, .max = 4}, false, "min is -1"},
        {{.min = 1, .max = -4}, false, "max is -4"},
        {{.max = 11}, false, "0 to 10, but the store has 10 keys"},
        {{.max = 0}, true, "max is missing"},
        {{.distribution = WEFT_DRAW_WEIGHTED}, false, "weights are missing"},
        {{.weights = bad[0]}, false, "not WEIGHTED"},
        {{.distribution = WEFT_DRAW_GIVEN}, false, "function is missing"},
        {{.draw = never_called}, false, "not GIVEN"},
        {{.distribution = WEFT_DRAW_WEIGHTED, .min = 8, .weights = bad[0]},
         false,
         "key 9 is -1"},
        {{.distribution = WEFT_DRAW_WEIGHTED, .min = 8, .weights = bad[1]},
         false,
         "key 8 is "},
        {{.distribution = WEFT_DRAW_WEIGHTED, .min = 8, .weights = bad[2]},
         false,
         "9 is inf"},
        {{.distribution = WEFT_DRAW_WEIGHTED, .min = 8, .weights = bad[3]},
         false,
         "all 2 we"},
        {{.distribution = WEFT_DRAW_WEIGHTED, .min = 8, .weights = bad[4]},
         false,
         "all 2 we"},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wf_draw draw;

        assert_int_equal(wf_draw_init(&draw, &cases[i].o, 10, cases[i].hashed),
                         WEFT_ERR_INVALID);
        if (strstr(weft_error_detail(), cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", weft_error_detail(), cases[i].says);
        }
    }
}

static void all_keys_are_those_that_the_store_has_now(void **state)
{
    static const double weights[3] = {1, 2, 3};
    weft_sample_options all = {.min = 2};
    weft_sample_options some = {.min = 2, .max = 5};
    weft_sample_options weighted = {.distribution = WEFT_DRAW_WEIGHTED,
                                    .weights = weights};
    wf_draw draw = rig_draw(&all, 10);

    (void)state;
    assert_int_equal(wf_draw_fit(&draw, 20), WEFT_OK);
    assert_true(draw.span == 18 && draw.possible == 18);
    assert_int_equal(wf_draw_fit(&draw, 3), WEFT_OK);
    assert_true(draw.span == 1);
    assert_int_equal(wf_draw_fit(&draw, 2), WEFT_ERR_INVALID);
    draw = rig_draw(&some, 10);
    assert_int_equal(wf_draw_fit(&draw, 5), WEFT_OK);
    assert_true(draw.span == 3);
    assert_int_equal(wf_draw_fit(&draw, 4), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "2 to 4, but the store has 4"));
    draw = rig_draw(&weighted, 3);
    assert_int_equal(wf_draw_fit(&draw, 4), WEFT_ERR_INVALID);
    assert_int_equal(wf_draw_fit(&draw, 3), WEFT_OK);
    wf_draw_fini(&draw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_gives_the_published_numbers),
        cmocka_unit_test(seed_rank_and_stream_each_give_other_numbers),
        cmocka_unit_test(large_bounds_favour_no_number),
        cmocka_unit_test(each_distribution_is_what_it_is_called),
        cmocka_unit_test(the_test_of_distributions_finds_wrong_ones),
        cmocka_unit_test(weights_of_any_size_have_their_share),
        cmocka_unit_test(keys_of_weight_0_are_never_drawn),
        cmocka_unit_test(ranges_of_hashed_stores_may_be_any_numbers),
        cmocka_unit_test(the_largest_number_is_drawn_as_the_last_key),
        cmocka_unit_test(the_same_seed_gives_the_same_keys),
        cmocka_unit_test(options_that_do_not_fit_are_named),
        cmocka_unit_test(all_keys_are_those_that_the_store_has_now),
    };

    return cmocka_run_group_tests_name("store_draw", tests, NULL, NULL);
}
