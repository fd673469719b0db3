/* SPDX-License-Identifier: Apache-2.0 */
/* All histories of small plans: whatever the network loses, repeats, delays and
 * reorders, every result is right, is written once, and comes. */
#include "walk.h"
#include "wt.h"
#include "wt_cmocka.h"

/* Sanitizers make it ten times slower. */
enum { SMALL = WT_TSAN || WT_ASAN, LIMIT = 20000000 };

#define N(list) (sizeof(list) / sizeof((list)[0]))

static void walk_all(const char *what, const plan *list, size_t n)
{
    walk_stats stats = {0};

    for (size_t i = 0; i < n; i++) {
        assert_true(walk(&list[i], LIMIT, false, &stats));
    }
    walk_print(what, &stats);
    assert_int_equal(stats.cut, 0);
    assert_true(stats.done > 0);
}

static void two_ranks_finish_with_the_right_results(void **state)
{
    static const plan list[] = {
        {2, 1, {4}, 1, 1, 1, false, false}, {2, 1, {3}, 2, 0, 1, false, false},
        {2, 1, {2}, 1, 1, 2, false, false}, {2, 2, {6}, 1, 1, 0, false, false},
        {2, 2, {3}, 1, 0, 1, false, false}, {2, 2, {4}, 0, 0, 1, false, false},
        {2, 3, {5}, 1, 1, 0, false, false}, {2, 3, {3}, 0, 0, 1, false, false},
    };

    (void)state;
    walk_all("two ranks", list, SMALL ? 1 : N(list));
    assert_true(world_verdicts[WF_AGG_DROPPED_LATE] > 0);
    assert_true(world_verdicts[WF_AGG_ANSWER] > 0);
}

static void three_ranks_finish_with_the_right_results(void **state)
{
    static const plan list[] = {
        {3, 1, {4}, 1, 1, 0, false, false},
        {3, 1, {2}, 1, 0, 1, false, false},
        {3, 2, {3}, 1, 0, 0, false, false},
        {3, 3, {3}, 1, 0, 0, false, false},
    };

    (void)state;
    walk_all("three ranks", list, SMALL ? 1 : N(list));
}

static void calls_that_follow_each_other_do_not_mix(void **state)
{
    static const plan list[] = {
        {2, 1, {1, 1, 2}, 1, 1, 1, false, false},
        {2, 2, {1, 2, 1}, 1, 1, 0, false, false},
        {2, 2, {1, 2, 1}, 1, 0, 1, false, false},
        {3, 1, {1, 1}, 1, 0, 1, false, false},
    };

    (void)state;
    walk_all("several calls", list, SMALL ? 1 : N(list));
}

static void different_calls_never_give_a_result(void **state)
{
    static const plan list[] = {
        {2, 1, {2}, 1, 1, 1, true, false},
        {2, 2, {3}, 1, 1, 1, true, false},
        {3, 1, {2}, 1, 0, 1, true, false},
        {3, 2, {2}, 1, 1, 0, true, false},
    };

    (void)state;
    walk_all("different calls", list, SMALL ? 1 : N(list));
}

static void replays_of_an_earlier_epoch_change_nothing(void **state)
{
    static const plan list[] = {
        {2, 1, {3}, 1, 1, 0, false, true},
        {2, 2, {3}, 1, 0, 0, false, true},
        {2, 1, {2}, 1, 0, 1, false, true},
        {3, 1, {2}, 0, 1, 0, false, true},
    };

    (void)state;
    walk_all("replays", list, SMALL ? 1 : N(list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_finish_with_the_right_results),
        cmocka_unit_test(three_ranks_finish_with_the_right_results),
        cmocka_unit_test(calls_that_follow_each_other_do_not_mix),
        cmocka_unit_test(different_calls_never_give_a_result),
        cmocka_unit_test(replays_of_an_earlier_epoch_change_nothing),
    };

    return cmocka_run_group_tests_name("agg_explore", tests, NULL, NULL);
}
