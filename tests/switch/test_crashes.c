/* SPDX-License-Identifier: Apache-2.0 */
/* A switch that is killed at any moment of any call, and started again, over
 * and over: no result is wrong, and nobody hangs. */
#include "crashes.h"
#include "wt_cmocka.h"

/* Seconds of each job. */
static double seconds(void)
{
    return (wt_full() ? 60 : 2) * (WT_ASAN ? 1.5 : 1);
}

static void crash(const job_plan *plan)
{
    crash_run(plan, seconds(), 0);
}

static void a_switch_dies_at_any_moment(void **state)
{
    static const char *const plain[] = {NULL};
    static const char *const shards[] = {"--shards", "3", NULL};
    static const char *const lossy[] = {"--inject", "loss=0.5,seed=3",
                                        "--shards", "2", NULL};

    (void)state;
    crash(&(job_plan){.ranks = 3, .options = plain, .settings = "LOG=error"});
    crash(&(job_plan){
        .ranks = 2, .options = shards, .settings = "LOG=error SWITCH_SLOTS=4"});
    crash(&(job_plan){
        .ranks = 4, .options = lossy, .settings = "LOG=error SWITCH_SLOTS=32"});
}

/* Of one switch, or of two. */
static void a_switch_dies_at_any_moment_where_ranks_share_hosts(void **state)
{
    static const char *const lossy[] = {"--inject", "loss=0.05,seed=3", NULL};

    (void)state;
    crash(&(job_plan){.ranks = 4,
                      .nodes = "aabb",
                      .options = lossy,
                      .settings = "LOG=error CHUNK_BYTES=8K"});
    crash(&(job_plan){.ranks = 3,
                      .nodes = "abb",
                      .switches = 2,
                      .options = lossy,
                      .settings = "LOG=error"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_dies_at_any_moment),
        cmocka_unit_test(a_switch_dies_at_any_moment_where_ranks_share_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
