/* SPDX-License-Identifier: Apache-2.0 */
/* A switch dies and comes back in the middle of calls; ranks call different
 * things, or die. */
#include "calls.h"
#include "wt_cmocka.h"

static void a_switch_is_killed_and_comes_back(void **state)
{
    (void)state;
    job_run(3, calls_no_options, "LOG=error", calls_killed);
    job_run(2, calls_lossy, "LOG=error SWITCH_SLOTS=16", calls_killed);
}

static void one_of_several_switches_is_killed_and_comes_back(void **state)
{
    (void)state;
    calls_on_switches(2, 3, calls_no_options, "LOG=error", calls_killed);
    calls_on_switches(3, 2, calls_lossy, "LOG=error SWITCH_SLOTS=16",
                      calls_killed);
}

static void calls_that_differ_are_errors_on_all_ranks(void **state)
{
    (void)state;
    job_run(3, calls_no_options, "", calls_other_count);
    job_run(2, calls_no_options, "", calls_other_call);
    job_run(3, calls_no_options, "", calls_other_call);
}

static void a_rank_that_has_called_nothing_yet_is_waited_for(void **state)
{
    (void)state;
    job_run(2, calls_no_options, "", calls_late);
}

static void the_death_of_a_rank_is_named(void **state)
{
    (void)state;
    job_run_as(&(job_plan){.ranks = 3,
                           .options = calls_no_options,
                           .body = calls_death,
                           .doomed = 1u << 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_is_killed_and_comes_back),
        cmocka_unit_test(one_of_several_switches_is_killed_and_comes_back),
        cmocka_unit_test(calls_that_differ_are_errors_on_all_ranks),
        cmocka_unit_test(a_rank_that_has_called_nothing_yet_is_waited_for),
        cmocka_unit_test(the_death_of_a_rank_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
