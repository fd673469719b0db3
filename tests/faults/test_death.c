/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies or is stopped, in any phase: every other rank is told which one,
 * in time, goes on without it, and nothing is left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"
#include "wt_proc.h"

/* Rounds of work before the blow. */
static unsigned strike_at(wt_phase phase)
{
    return phase == WT_LARGE ? 2 : 50;
}

/* Rank 0 and the last one are special in most designs; in the short run they
 * take turns. */
static void strike_in_phase(wt_phase phase)
{
    for (unsigned blow = 0; blow < WT_BLOWS; blow++) {
        for (unsigned i = 0; i < 3; i++) {
            wt_fault fault = {.ranks = 3,
                              .victim = i,
                              .phase = phase,
                              .blow = (wt_blow)blow,
                              .strike_at = strike_at(phase)};

            if (wt_full() || i == (blow + (unsigned)phase) % 3) {
                wt_fault_run(&fault);
            }
        }
    }
}

static void a_fault_of_an_idle_rank_is_told_of(void **state)
{
    (void)state;
    strike_in_phase(WT_IDLE);
}

static void a_fault_during_small_operations_is_told_of(void **state)
{
    (void)state;
    strike_in_phase(WT_SMALL);
}

static void a_fault_during_large_operations_is_told_of(void **state)
{
    (void)state;
    strike_in_phase(WT_LARGE);
}

static void a_fault_during_messages_is_told_of(void **state)
{
    (void)state;
    strike_in_phase(WT_MESSAGE);
}

static void a_fault_during_pending_requests_is_told_of(void **state)
{
    (void)state;
    strike_in_phase(WT_PENDING);
}

static void a_living_child_does_not_keep_a_dead_rank_alive(void **state)
{
    static const wt_blow deaths[] = {WT_BLOW_KILL, WT_BLOW__EXIT, WT_BLOW_EXIT};

    (void)state;
    for (unsigned phase = 0; phase < WT_PHASES; phase++) {
        for (unsigned i = 0; i < 3; i++) {
            wt_fault fault = {.ranks = 3,
                              .victim = (phase + i) % 3,
                              .phase = (wt_phase)phase,
                              .blow = deaths[i],
                              .with_child = true,
                              .strike_at = strike_at((wt_phase)phase)};

            if (wt_full() || i == phase % 3 || i == 0) {
                wt_fault_run(&fault);
            }
        }
    }
}

/* Two, so that one is left alone; and more ranks than each one talks to. */
static void pairs_and_larger_groups_are_told_too(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase < WT_PHASES; phase++) {
        wt_fault two = {.ranks = 2,
                        .victim = phase % 2,
                        .phase = (wt_phase)phase,
                        .blow = WT_BLOW_KILL,
                        .strike_at = strike_at((wt_phase)phase)};
        wt_fault six = two;

        six.ranks = 6;
        six.victim = phase;
        wt_fault_run(&two);
        wt_fault_run(&six);
    }
}

/* Each rank watches only some others; the news must spread. */
static void a_death_is_told_of_although_not_all_watch_all(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase < WT_PHASES; phase++) {
        wt_fault fault = {.ranks = 8,
                          .victim = 3,
                          .phase = (wt_phase)phase,
                          .blow = WT_BLOW_KILL,
                          .strike_at = strike_at((wt_phase)phase),
                          .settings = "MESH_RANKS=2"};

        wt_fault_run(&fault);
    }
}

static void the_message_engine_tells_of_faults_too(void **state)
{
    (void)state;
    for (unsigned blow = 0; blow < WT_BLOWS; blow++) {
        wt_fault fault = {.ranks = 4,
                          .victim = blow,
                          .phase = blow % 2 == 0 ? WT_SMALL : WT_LARGE,
                          .blow = (wt_blow)blow,
                          .strike_at = 2,
                          .settings = "ENGINE=message"};

        wt_fault_run(&fault);
    }
}

/* --- every collective ---------------------------------------------------- */

/* Who is struck and when differs from one to the next. A stop costs its whole
 * deadline, so the short run has few of them. */
static void strike_in_collective(wt_coll_kind kind, unsigned i,
                                 const char *settings)
{
    unsigned turn = (unsigned)kind + i;
    wt_fault fault = {.ranks = 3,
                      .victim = turn % 3,
                      .phase = WT_COLLECTIVE,
                      .blow = WT_BLOW_KILL,
                      .coll = kind,
                      .large = i % 2 != 0,
                      .by_request = turn / 2 % 2 != 0,
                      .settings = settings};

    fault.strike_at = fault.large ? 1 + turn % 4 : 3 * turn;
    wt_fault_run(&fault);
    if (wt_full() || (settings == NULL && turn % (WT_ASAN ? 16 : 8) == 3)) {
        fault.blow = WT_BLOW_STOP;
        wt_fault_run(&fault);
    }
}

static void strike_in_all_collectives(const char *settings)
{
    for (unsigned kind = 0; kind < WT_COLLS; kind++) {
        for (unsigned i = 0; i < (wt_full() ? 12 : 2); i++) {
            strike_in_collective((wt_coll_kind)kind, i, settings);
        }
    }
}

static void a_fault_in_any_collective_is_told_of(void **state)
{
    (void)state;
    strike_in_all_collectives(NULL);
}

static void a_fault_in_any_collective_by_messages_is_told_of(void **state)
{
    (void)state;
    strike_in_all_collectives("ENGINE=message");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_of_an_idle_rank_is_told_of),
        cmocka_unit_test(a_fault_during_small_operations_is_told_of),
        cmocka_unit_test(a_fault_during_large_operations_is_told_of),
        cmocka_unit_test(a_fault_during_messages_is_told_of),
        cmocka_unit_test(a_fault_during_pending_requests_is_told_of),
        cmocka_unit_test(a_living_child_does_not_keep_a_dead_rank_alive),
        cmocka_unit_test(pairs_and_larger_groups_are_told_too),
        cmocka_unit_test(a_death_is_told_of_although_not_all_watch_all),
        cmocka_unit_test(the_message_engine_tells_of_faults_too),
        cmocka_unit_test(a_fault_in_any_collective_is_told_of),
        cmocka_unit_test(a_fault_in_any_collective_by_messages_is_told_of),
    };

    if (WT_TSAN) {
        return WT_EXIT_SKIP;
    }
    if (!wt_isolate()) {
        wt_note("no namespaces here: sockets left behind go unseen");
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
