/* SPDX-License-Identifier: Apache-2.0 */
/* When intents are acted on, against quantiles of the Poisson distribution that
 * were summed up term by term. */
#include <math.h>

#include "store/window.h"
#include "wt_cmocka.h"

static void the_quantile_is_that_of_the_distribution(void **state)
{
    static const struct {
        double mean;
        int64_t quantile;
    } known[] = {
        {0.01, 1},     {0.1, 3},          {0.5, 5},     {1, 6},
        {2, 9},        {5, 15},           {10, 24},     {20, 39},
        {50, 78},      {100, 139},        {1000, 1120}, {12345.6, 12761},
        {1e5, 101178}, {999999, 1003720},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_int_equal(wf_window_quantile(known[i].mean), known[i].quantile);
    }
}

static void no_ticks_need_no_window(void **state)
{
    (void)state;
    assert_int_equal(wf_window_quantile(0), 0);
    assert_int_equal(wf_window_quantile(-1), 0);
    assert_int_equal(wf_window_quantile(NAN), 0);
}

static void large_means_are_taken_as_normal(void **state)
{
    (void)state;
    assert_int_equal(wf_window_quantile(4e6), 4000000 + 7439);
    assert_true(wf_window_quantile(1e300) == INT64_MAX);
    /* The two ways meet. */
    assert_true(wf_window_quantile(1e6 + 1) - wf_window_quantile(1e6 - 1) < 5);
}

static void the_quantile_grows_with_the_mean(void **state)
{
    int64_t last = 0;

    (void)state;
    for (double mean = 0.001; mean < 3e6; mean *= 1.1) {
        int64_t quantile = wf_window_quantile(mean);
        assert_true(quantile >= last && (double)quantile > mean);
        last = quantile;
    }
}

static void a_worker_begins_with_ten_ticks_in_a_round(void **state)
{
    wf_window window;

    (void)state;
    wf_window_init(&window, 7);
    assert_int_equal(wf_window_look(&window, 7, 1), wf_window_quantile(20));
}

static void rounds_without_ticks_do_not_change_the_estimate(void **state)
{
    wf_window window;

    (void)state;
    wf_window_init(&window, 0);
    assert_int_equal(wf_window_look(&window, 20, 1), wf_window_quantile(40));
    assert_true(fabs(window.estimate - 11) < 1e-9);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(wf_window_look(&window, 20, 1),
                         wf_window_quantile(22));
    }
}

static void the_estimate_follows_the_ticks(void **state)
{
    wf_window window;
    int64_t clock = 0;

    (void)state;
    wf_window_init(&window, clock);
    for (int i = 0; i < 200; i++) {
        wf_window_look(&window, clock += 2, 1);
    }
    assert_true(fabs(window.estimate - 2) < 1e-6);
    assert_int_equal(wf_window_look(&window, clock, 1), wf_window_quantile(4));
    /* A burst counts at once. */
    assert_int_equal(wf_window_look(&window, clock + 100, 1),
                     wf_window_quantile(200));
}

static void slow_answers_make_the_window_longer(void **state)
{
    double action = wf_window_learn(1, 9);
    wf_window window;

    (void)state;
    assert_true(action == 9);
    wf_window_init(&window, 0);
    assert_int_equal(wf_window_look(&window, 0, action),
                     wf_window_quantile(100));
    for (int i = 0; i < 200; i++) {
        action = wf_window_learn(action, 1);
    }
    assert_true(fabs(action - 1) < 1e-6);
    assert_true(wf_window_learn(action, 0) == 1);
}

static void a_clock_at_the_end_of_time_is_no_overflow(void **state)
{
    wf_window window;

    (void)state;
    wf_window_init(&window, 0);
    assert_true(wf_window_look(&window, INT64_MAX, 1) > 0);
    assert_true(wf_window_look(&window, INT64_MAX, 1) > 0);
    wf_window_init(&window, INT64_MIN);
    assert_true(wf_window_look(&window, INT64_MAX, 1) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_quantile_is_that_of_the_distribution),
        cmocka_unit_test(no_ticks_need_no_window),
        cmocka_unit_test(large_means_are_taken_as_normal),
        cmocka_unit_test(the_quantile_grows_with_the_mean),
        cmocka_unit_test(a_worker_begins_with_ten_ticks_in_a_round),
        cmocka_unit_test(rounds_without_ticks_do_not_change_the_estimate),
        cmocka_unit_test(the_estimate_follows_the_ticks),
        cmocka_unit_test(slow_answers_make_the_window_longer),
        cmocka_unit_test(a_clock_at_the_end_of_time_is_no_overflow),
    };

    return cmocka_run_group_tests_name("store window", tests, NULL, NULL);
}
