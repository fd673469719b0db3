/* SPDX-License-Identifier: Apache-2.0 */
/* Random faults, one after another, for as long as asked:
 *
 *     soak [seconds [seed]]
 *
 * The seed is printed, and each fault before it is run, so that a failure can
 * be run again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"
#include "wt_fault.h"
#include "wt_proc.h"

static double seconds = 60;
static uint64_t seed;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    return wt_mix(seed, 0, (*state)++) % below;
}

/* How far the work may go before the blow. */
static unsigned strike_limit(const wt_fault *fault)
{
    bool large = fault->phase == WT_LARGE ||
                 (fault->phase == WT_COLLECTIVE && fault->large);

    return large ? 4 : fault->phase == WT_JOINING ? 1000 : 500;
}

static wt_fault random_fault(uint64_t *state)
{
    static const char *const settings[] = {NULL,
                                           "ENGINE=message",
                                           "SPIN=0s YIELD=0s",
                                           "SHM_CMA=0",
                                           "MESH_RANKS=2",
                                           "CHUNK_BYTES=4K FLAT_BYTES=64",
                                           "SHM_EAGER=64",
                                           NULL};
    wt_fault fault = {.ranks = 2 + (unsigned)draw(state, 7)};

    fault.victim = (unsigned)draw(state, fault.ranks);
    /* Half of them in collectives of all kinds. */
    fault.phase = draw(state, 2) == 0 ? WT_COLLECTIVE
                                      : (wt_phase)draw(state, WT_JOINING + 1);
    fault.coll = (wt_coll_kind)draw(state, WT_COLLS);
    fault.large = draw(state, 2) == 0;
    fault.by_request = draw(state, 2) == 0;
    /* A stop costs its whole deadline: few of them. */
    fault.blow = (wt_blow)draw(state, WT_BLOWS);
    if (fault.blow == WT_BLOW_STOP && draw(state, 4) != 0) {
        fault.blow = WT_BLOW_KILL;
    }
    /* A rank that waits for a message from one that waits itself cannot know
     * who is at the end of the chain; among three there is no chain. */
    if (fault.blow == WT_BLOW_STOP && fault.phase == WT_MESSAGE) {
        fault.ranks = 3;
        fault.victim %= 3;
    }
    fault.with_child = fault.blow != WT_BLOW_STOP && draw(state, 2) != 0;
    fault.strike_at = (unsigned)draw(state, strike_limit(&fault));
    fault.settings = settings[draw(state, 8)];
    return fault;
}

static void random_faults_are_always_told_of(void **state)
{
    double until = wt_now() + seconds;
    uint64_t draws = 0;
    unsigned faults = 0;

    (void)state;
    for (; wt_now() < until; faults++) {
        wt_fault fault = random_fault(&draws);

        wt_fault_run(&fault);
    }
    wt_note("%u faults told of", faults);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_faults_are_always_told_of),
    };

    seconds = argc > 1 ? strtod(argv[1], NULL) : 60;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
    wt_note("%.0f seconds, seed %llu", seconds, (unsigned long long)seed);
    if (WT_TSAN) {
        return WT_EXIT_SKIP;
    }
    if (!wt_isolate()) {
        wt_note("no namespaces here: sockets left behind go unseen");
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
