/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs through a switch that dies and loses packets, for as long as
 * asked; the same seed draws the same jobs:
 *
 *     soak [seconds [seed]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "crashes.h"
#include "wt_cmocka.h"

enum { JOB_SECONDS = 5 };

static double soak_seconds = 60;
static unsigned soak_seed = 1;

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void one_job(unsigned *state)
{
    static const unsigned slots[] = {1, 4, 32, 256};
    char shards[8];
    char faults[80];
    char settings[80];
    const char *const options[] = {"--shards", shards, "--inject", faults,
                                   NULL};
    unsigned seed = draw(state, 1u << 20);
    unsigned ranks = 2 + draw(state, 4);

    (void)snprintf(shards, sizeof(shards), "%u", 1 + draw(state, 4));
    (void)snprintf(faults, sizeof(faults),
                   "loss=0.%02u,repeat=0.%02u,reorder=0.%02u,seed=%u",
                   draw(state, 11), draw(state, 6), draw(state, 6), seed);
    (void)snprintf(settings, sizeof(settings),
                   "LOG=error SWITCH_SLOTS=%u SWITCH_PAYLOAD=%u",
                   slots[draw(state, 4)], 64 * (1 + draw(state, 22)));
    print_message("%u ranks, %s shards, %s, %s\n", ranks, shards, faults,
                  settings);
    crash_run(&(job_plan){.ranks = ranks,
                          .switches = 1 + draw(state, 2),
                          .options = options,
                          .settings = settings},
              JOB_SECONDS, seed);
}

static void random_jobs_survive_crashes_and_loss(void **state)
{
    double end = wt_now() + soak_seconds;
    unsigned random = soak_seed;

    (void)state;
    do {
        one_job(&random);
    } while (wt_now() + JOB_SECONDS < end);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_jobs_survive_crashes_and_loss),
    };

    soak_seconds = argc > 1 ? atof(argv[1]) : soak_seconds;
    soak_seed = argc > 2 ? (unsigned)atoi(argv[2]) : soak_seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
