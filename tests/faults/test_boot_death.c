/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies or is stopped before or while it joins the job: the others fail
 * within the boot deadline, name it, and leave nothing behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"
#include "wt_proc.h"

/* Words of the board. */
enum { JOINED };

/* Set before the ranks are forked: the victim is struck in its call number
 * `nth` of the boot table, counted from 0, or before it makes one. */
static struct {
    unsigned victim;
    wt_blow blow;
    unsigned nth;
    bool never_comes;
} the;

/* --- a boot table that strikes ------------------------------------------- */

typedef struct striking_boot {
    weft_boot table;
    weft_boot *real;
    unsigned calls;
} striking_boot;

static void count_and_strike(striking_boot *b)
{
    if (b->calls++ == the.nth) {
        wt_strike(the.blow);
    }
}

static weft_status striking_set(void *ctx, const char *key, const void *value,
                                size_t n)
{
    striking_boot *b = ctx;

    count_and_strike(b);
    return b->real->set(b->real->ctx, key, value, n);
}

static weft_status striking_get(void *ctx, const char *key, void *value,
                                size_t *n, uint32_t timeout_ms)
{
    striking_boot *b = ctx;

    count_and_strike(b);
    return b->real->get(b->real->ctx, key, value, n, timeout_ms);
}

static void striking_done(void *ctx)
{
    striking_boot *b = ctx;

    count_and_strike(b);
    if (b->real->done != NULL) {
        b->real->done(b->real->ctx);
    }
}

static void victim_joins(void)
{
    striking_boot b = {.calls = 0};
    weft_world_options options = {.size = sizeof(options),
                                  .boot = &b.table,
                                  .settings = WT_BOOT_SETTINGS};
    weft_world *world = NULL;
    char name[64];

    wt_job_name(0, name, sizeof(name));
    WT_OK(weft_boot_open_local(name, wt_rank(), wt_ranks(), &b.real));
    b.table = *b.real;
    b.table.ctx = &b;
    b.table.set = striking_set;
    b.table.get = striking_get;
    b.table.done = striking_done;
    WT_OK(weft_world_create(&options, &world));
    wt_word_set(JOINED, 1);
    wt_strike(the.blow);
}

/* --- the others ---------------------------------------------------------- */

/* A victim that came through is struck afterwards, and the first operation
 * tells. */
static weft_status join_and_meet(double *began)
{
    weft_world *world = NULL;
    weft_status st;

    *began = wt_now();
    st = wt_join(WT_BOOT_SETTINGS, 0, &world);
    if (st == WEFT_OK) {
        *began = wt_now();
        st = weft_barrier(weft_world_comm(world));
        if (st == WEFT_OK) {
            *began = wt_now();
            st = weft_barrier(weft_world_comm(world));
        }
    }
    weft_world_destroy(world);
    return st;
}

static void survivor_joins(void)
{
    double began = 0;
    weft_status st = join_and_meet(&began);
    double took = wt_now() - began;

    if (st != WEFT_ERR_TIMEOUT && st != WEFT_ERR_PEER) {
        WT_FAIL("%s: %s", weft_status_name(st),
                st != WEFT_OK ? weft_error_detail() : "no error");
    }
    if (!wt_names_rank(weft_error_detail(), the.victim)) {
        WT_FAIL("does not name rank %u: %s", the.victim, weft_error_detail());
    }
    /* Rank 0 may stay a moment longer, to tell the others. */
    if (took > WT_BOOT_DEADLINE_S + 2 * wt_death_bound()) {
        WT_FAIL("told only after %.2f s: %s", took, weft_error_detail());
    }
}

static void boot_body(void)
{
    wt_meet();
    if (wt_rank() != the.victim) {
        survivor_joins();
    } else if (the.never_comes) {
        wt_strike(the.blow);
    } else {
        victim_joins();
    }
    if (wt_rank() == the.victim) {
        for (;;) {
            pause();
        }
    }
}

static void run_boot(unsigned ranks)
{
    wt_note("rank %u of %u, blow %u, call %u", the.victim, ranks,
            (unsigned)the.blow, the.nth);
    wt_run_job(&(wt_job){
        .ranks = ranks, .bare = boot_body, .doomed = 1u << the.victim});
    wt_expect_no_names();
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    the.never_comes = true;
    for (unsigned i = 0; i < 3; i++) {
        the.victim = i;
        the.blow = i == 1 ? WT_BLOW_STOP : WT_BLOW_KILL;
        run_boot(3);
    }
}

/* Call by call, until the victim gets through. */
static void strike_at_every_call(unsigned victim, wt_blow blow)
{
    bool joined = false;

    the.never_comes = false;
    the.victim = victim;
    the.blow = blow;
    for (the.nth = 0; !joined && the.nth < 100; the.nth++) {
        run_boot(3);
        joined = atomic_load(wt_word(JOINED)) != 0;
    }
    assert_true(joined);
}

static void a_rank_killed_at_any_step_of_joining_is_named(void **state)
{
    (void)state;
    for (unsigned victim = 0; victim < 3; victim++) {
        strike_at_every_call(victim, WT_BLOW_KILL);
    }
}

static void a_rank_stopped_at_any_step_of_joining_is_named(void **state)
{
    (void)state;
    strike_at_every_call(0, WT_BLOW_STOP);
    strike_at_every_call(2, WT_BLOW_STOP);
}

static void a_rank_that_exits_at_any_step_of_joining_is_named(void **state)
{
    (void)state;
    strike_at_every_call(1, WT_BLOW__EXIT);
    strike_at_every_call(0, WT_BLOW_EXIT);
}

/* The survivors find out one after the other and give up: those who hear of it
 * from them must not take them for the victim. */
static void a_rank_killed_at_any_moment_of_joining_is_named(void **state)
{
    (void)state;
    for (unsigned i = 0; i < (wt_full() ? 100 : 5); i++) {
        wt_fault fault = {.ranks = 5,
                          .victim = i % 5,
                          .phase = WT_JOINING,
                          .blow = WT_BLOW_KILL,
                          .strike_at = i * (wt_full() ? 4 : 80)};

        wt_fault_run(&fault);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(a_rank_killed_at_any_step_of_joining_is_named),
        cmocka_unit_test(a_rank_stopped_at_any_step_of_joining_is_named),
        cmocka_unit_test(a_rank_that_exits_at_any_step_of_joining_is_named),
        cmocka_unit_test(a_rank_killed_at_any_moment_of_joining_is_named),
    };

    if (WT_TSAN) {
        return WT_EXIT_SKIP;
    }
    if (!wt_isolate()) {
        wt_note("no namespaces here: sockets left behind go unseen");
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
