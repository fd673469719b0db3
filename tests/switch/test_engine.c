/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a job through a switch, or several: right results, through it
 * and not beside it, also when it loses packets, or is not there. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "calls.h"
#include "wt_cmocka.h"

static void every_type_and_operation_goes_through_the_switch(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        job_run(ranks[i], calls_no_options, "", calls_values);
    }
}

static void packets_are_lost_and_results_are_right(void **state)
{
    (void)state;
    job_run(3, calls_lossy, "", calls_values);
    job_run(2, calls_lossy, "SWITCH_SLOTS=1", calls_values);
}

static void the_daemon_counts_the_chunks_of_the_calls(void **state)
{
    (void)state;
    job_run(3, calls_no_options, "", calls_chunks);
}

static void requests_go_through_the_switch_on_two_communicators(void **state)
{
    (void)state;
    job_run(2, calls_no_options, "", calls_requests);
    job_run(3, calls_lossy, "", calls_requests);
}

static void no_switch_is_no_failure(void **state)
{
    (void)state;
    job_run(3, NULL, "LOG=error", calls_requests);
}

static void unused_body(weft_world *world)
{
    calls_requests(world);
    WT_CHECK(wt_rank() != 0 || job_chunks() == 0);
}

static void a_switch_with_another_key_is_not_used(void **state)
{
    rig other;

    (void)state;
    rig_init(&other);
    job_run_as(&(job_plan){.ranks = 2,
                           .options = calls_no_options,
                           .key_file = other.key_file,
                           .settings = "LOG=error",
                           .body = unused_body});
    rig_fini(&other);
}

/* Each has its share of the chunks. */
static void shares_body(weft_world *world)
{
    calls_chunks(world);
    for (unsigned i = 0; wt_rank() == 0 && i <= calls_last_switch; i++) {
        WT_CHECK(job_chunks_of(i) > job_chunks() / (calls_last_switch + 2));
    }
    calls_values(world);
}

static void chunks_are_shared_by_all_switches_of_a_job(void **state)
{
    (void)state;
    calls_on_switches(2, 3, calls_no_options, "", shares_body);
    calls_on_switches(3, 2, calls_lossy, "", shares_body);
}

static double processor_seconds(void)
{
    struct rusage used;

    WT_CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Results have come twice, so that some lie in the socket after the calls; then
 * the switch goes, too. */
static void idle_body(weft_world *world)
{
    const wt_coll c = {.kind = WT_ALLREDUCE,
                       .type = WEFT_F32,
                       .op = {WEFT_OP_SUM, 0},
                       .n = 40009,
                       .seed = 1};
    double used;

    for (unsigned i = 0; i < 3; i++) {
        calls_one(world, &c);
    }
    if (wt_rank() == 0) {
        (void)rig_stop(&job_switch, SIGKILL);
    }
    usleep(100000);
    used = processor_seconds();
    usleep(1000000);
    used = processor_seconds() - used;
    WT_CHECK(used < 0.25);
    calls_one(world, &c);
}

static void a_rank_between_calls_uses_no_processor(void **state)
{
    static const char *const twice[] = {"--inject", "repeat=0.5,seed=7", NULL};

    (void)state;
    job_run(2, twice, "LOG=error", idle_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation_goes_through_the_switch),
        cmocka_unit_test(packets_are_lost_and_results_are_right),
        cmocka_unit_test(the_daemon_counts_the_chunks_of_the_calls),
        cmocka_unit_test(requests_go_through_the_switch_on_two_communicators),
        cmocka_unit_test(a_rank_between_calls_uses_no_processor),
        cmocka_unit_test(no_switch_is_no_failure),
        cmocka_unit_test(a_switch_with_another_key_is_not_used),
        cmocka_unit_test(chunks_are_shared_by_all_switches_of_a_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
