/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes that were built into slots and windows are found, each by a short
 * history. */
#include <stdio.h>

#include "walk.h"
#include "wt_cmocka.h"

typedef struct seeded {
    int mistake;
    const char *what;
    plan plan;
} seeded;

static const seeded mistakes[] = {
    {WF_AGG_LATE_COUNTS,
     "counts a late duplicate",
     {2, 1, {3}, 0, 1, 0, false, false}},
    {WF_AGG_COUNTS_TWICE,
     "counts a part twice",
     {2, 1, {1}, 0, 1, 0, false, false}},
    {WF_AGG_COMPLETE_EARLY,
     "is complete without the last part",
     {2, 1, {1}, 0, 0, 0, false, false}},
    {WF_AGG_SEEN_STAYS,
     "does not clear the ranks seen",
     {2, 1, {3}, 0, 0, 0, false, false}},
    {WF_AGG_CLEARS_EARLY,
     "clears a result too early",
     {2, 1, {2}, 1, 0, 1, false, false}},
    {WF_AGG_NO_ANSWER,
     "does not send a result again",
     {2, 1, {1}, 1, 0, 0, false, false}},
    {WF_AGG_OTHER_ANSWER,
     "answers with the other version",
     {2, 1, {2}, 1, 0, 1, false, false}},
    {WF_AGG_ANY_EPOCH,
     "takes packets of another epoch",
     {2, 1, {1}, 0, 0, 0, false, true}},
    {WF_AGG_ANY_CALL, "compares no calls", {2, 1, {1}, 0, 0, 0, true, false}},
    {WF_AGG_FORGETS_MISMATCH,
     "forgets a mismatch",
     {3, 1, {1}, 1, 0, 0, true, false}},
    {WF_AGG_SENDS_AHEAD,
     "sends a chunk before its turn",
     {2, 2, {3}, 0, 0, 0, false, false}},
    {WF_AGG_RESULT_BY_SLOT,
     "tells results apart by their slots",
     {2, 1, {3}, 0, 1, 0, false, false}},
    {WF_AGG_HELD_IS_OVER,
     "takes WAIT for a result",
     {2, 1, {1}, 0, 1, 0, false, false}},
    {WF_AGG_HELD_NOT_RESENT,
     "never sends again what is held",
     {2, 1, {1}, 1, 1, 0, false, false}},
    {WF_AGG_NEVER_EXPIRES,
     "has no timeout",
     {2, 1, {1}, 1, 0, 0, false, false}},
};
enum { SEEDED = sizeof(mistakes) / sizeof(mistakes[0]) };

static void every_mistake_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SEEDED; i++) {
        walk_stats stats = {0};
        bool good;

        wf_agg_mistake_made = WF_AGG_NO_MISTAKE;
        assert_true(walk(&mistakes[i].plan, 1000000, false, &stats));
        wf_agg_mistake_made = mistakes[i].mistake;
        stats = (walk_stats){0};
        good = walk(&mistakes[i].plan, 1000000, true, &stats);
        printf("%s: %s after %llu states: %s\n", mistakes[i].what,
               good ? "not found" : "found", (unsigned long long)stats.states,
               good ? "" : world_fault);
        assert_false(good);
    }
    wf_agg_mistake_made = WF_AGG_NO_MISTAKE;
}

static void every_mistake_is_in_the_list(void **state)
{
    (void)state;
    for (int mistake = 1; mistake < WF_AGG_SETTLE_MISTAKES; mistake++) {
        unsigned times = 0;
        for (unsigned i = 0; i < SEEDED; i++) {
            times += mistakes[i].mistake == mistake;
        }
        assert_int_equal(times, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_found),
        cmocka_unit_test(every_mistake_is_in_the_list),
    };

    return cmocka_run_group_tests_name("agg_mistakes", tests, NULL, NULL);
}
