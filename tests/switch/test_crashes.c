/* SPDX-License-Identifier: Apache-2.0 */
/* A switch that is killed at any moment of any call, and started again, over
 * and over: no result is wrong, and nobody hangs. */
#include "crashes.h"
#include "wt_cmocka.h"

/* Seconds of each job. */
static double seconds(void)
{
    return (wt_full() ? 60 : 4) * (WT_ASAN ? 1.5 : 1);
}

static void crash(unsigned ranks, const char *const *options,
                  const char *settings)
{
    crash_run(&(crash_plan){ranks, options, settings, seconds(), 0});
}

static void a_switch_dies_at_any_moment(void **state)
{
    static const char *const plain[] = {NULL};
    static const char *const shards[] = {"--shards", "3", NULL};
    static const char *const lossy[] = {"--inject", "loss=0.5,seed=3",
                                        "--shards", "2", NULL};

    (void)state;
    crash(3, plain, "LOG=error");
    crash(2, shards, "LOG=error SWITCH_SLOTS=4");
    crash(4, lossy, "LOG=error SWITCH_SLOTS=32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_dies_at_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
