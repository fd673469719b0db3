/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is struck while others gather and write its rows by messages: they are
 * told which one, in time, and rows of all other ranks stay usable. And a rank
 * runs out of memory. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

enum { ROWS = 64, WIDTH = 300 };

/* Words of the board. */
enum { ROUNDS = 0, SURVIVED };

/* Set before the ranks are forked. */
static struct {
    const char *nodes;
    weft_reach reach;
    unsigned victim;
    wt_blow blow;
    bool writes;
} job;

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "NODE=%c TIMEOUT=%d", job.nodes[rank],
             job.blow == WT_BLOW_STOP ? 2 : 60);
    return text;
}

static weft_status move(weft_region *region, uint64_t first, uint64_t n)
{
    static _Thread_local float rows[ROWS][WIDTH];
    int64_t ids[ROWS];
    weft_table table = {.region = region, .width = WIDTH, .type = WEFT_F32};
    weft_ids all = {.at = ids, .type = WEFT_I64, .n = n};
    weft_rows near = {.at = rows, .type = WEFT_F32};

    for (uint64_t i = 0; i < n; i++) {
        ids[i] = (int64_t)(first + i);
    }
    return job.writes ? weft_rows_scatter_add(&table, &all, &near, NULL)
                      : weft_rows_gather(&table, &all, &near, NULL);
}

static void check_others(weft_region *region)
{
    weft_region_part part;

    for (unsigned r = 0; r < wt_ranks(); r++) {
        WT_OK(weft_region_part_of(region, r, 0, &part));
        if (r != job.victim) {
            WT_OK(move(region, part.row, part.rows));
        }
    }
}

/* The victim reads, too, until it is struck, or only owns rows. */
static void strike(weft_region *region)
{
    while (atomic_load(wt_word(ROUNDS)) < 20) {
        (void)move(region, 0, ROWS);
    }
    wt_strike(job.blow);
}

static void survive(weft_region *region)
{
    weft_status want =
        job.blow == WT_BLOW_STOP ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER;
    weft_status st = WEFT_OK;
    double since = wt_now();

    while (st == WEFT_OK) {
        if (wt_now() - since > 20 * WT_SLOWDOWN) {
            WT_FAIL("the fault is not told of");
        }
        st = move(region, 0, ROWS);
        wt_word_add(ROUNDS, 1);
    }
    if (st != want || !wt_names_rank(weft_error_detail(), job.victim)) {
        WT_FAIL("%s: %s", weft_status_name(st), weft_error_detail());
    }
    check_others(region);
    WT_STATUS(move(region, 0, ROWS), want);
    wt_word_add(SURVIVED, 1);
    wt_word_await(SURVIVED, wt_ranks() - 1);
}

static void fault_body(weft_world *world)
{
    uint64_t shape[2] = {ROWS, WIDTH};
    weft_region_options options = {.size = sizeof(options), .reach = job.reach};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32,
                             &options, &region));
    if (wt_rank() == job.victim) {
        strike(region);
        usleep(100000000);
    }
    survive(region);
    weft_region_destroy(region);
}

static void run_body(const char *nodes, weft_reach reach, wt_blow blow,
                     bool writes, wt_body *body)
{
    job.nodes = nodes;
    job.reach = reach;
    job.blow = blow;
    job.writes = writes;
    job.victim = 1;
    wt_run_job(&(wt_job){.ranks = (unsigned)strlen(nodes),
                         .settings_of = settings_of,
                         .body = body,
                         .doomed = 1u << job.victim});
    wt_expect_no_names();
}

static void run(const char *nodes, weft_reach reach, wt_blow blow, bool writes)
{
    run_body(nodes, reach, blow, writes, fault_body);
}

static void a_killed_owner_is_named_and_the_others_go_on(void **state)
{
    (void)state;
    run("aaa", WEFT_REACH_DISTRIBUTED, WT_BLOW_KILL, false);
    run("aaa", WEFT_REACH_DISTRIBUTED, WT_BLOW_KILL, true);
    run("abcde", WEFT_REACH_AUTO, WT_BLOW_KILL, false);
    run("ab", WEFT_REACH_HIERARCHY, WT_BLOW_KILL, true);
    run("abc", WEFT_REACH_AUTO, WT_BLOW__EXIT, false);
}

/* In the hierarchy the next rank of its node answers in its place, for its rows
 * too. */
static void replaced_body(weft_world *world)
{
    uint64_t shape[2] = {ROWS, WIDTH};
    weft_region_options options = {.size = sizeof(options),
                                   .reach = WEFT_REACH_HIERARCHY};
    weft_region *region = NULL;
    double since = wt_now();
    weft_status st;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32,
                             &options, &region));
    if (wt_rank() == job.victim) {
        strike(region);
    }
    while (atomic_load(wt_word(ROUNDS)) < 20) {
        st = move(region, 0, ROWS);
        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_PEER);
        wt_word_add(ROUNDS, 1);
    }
    wt_await_gone(job.victim);
    while ((st = move(region, 0, ROWS)) != WEFT_OK) {
        WT_CHECK(st == WEFT_ERR_PEER && wt_now() - since < 20 * WT_SLOWDOWN);
        WT_CHECK(wt_names_rank(weft_error_detail(), job.victim));
    }
    WT_OK(move(region, 0, ROWS));
    wt_word_add(SURVIVED, 1);
    wt_word_await(SURVIVED, wt_ranks() - 1);
    weft_region_destroy(region);
}

static void a_partner_that_died_is_replaced_by_the_next(void **state)
{
    (void)state;
    run_body("abab", WEFT_REACH_HIERARCHY, WT_BLOW_KILL, false, replaced_body);
    run_body("abbaa", WEFT_REACH_HIERARCHY, WT_BLOW_KILL, false, replaced_body);
}

static void a_stopped_owner_is_named_when_the_time_is_over(void **state)
{
    (void)state;
    run("aaa", WEFT_REACH_DISTRIBUTED, WT_BLOW_STOP, false);
    run("abc", WEFT_REACH_AUTO, WT_BLOW_STOP, true);
}

/* --- without memory ------------------------------------------------------- */

static void starve(weft_region *region)
{
    bool left = false;

    for (unsigned nth = 1; !left; nth++) {
        weft_status st;

        job.writes = nth % 2 == 0;
        wf_alloc_fail_nth(nth);
        st = move(region, 0, ROWS);
        left = wt_starved_left(nth);
        WT_CHECK(st == WEFT_OK || (st == WEFT_ERR_NOMEM && !left));
        WT_OK(move(region, 0, ROWS));
    }
}

/* A region is made by all or by none, whatever allocation of rank 0 fails. */
static void starved_body(void)
{
    uint64_t shape[2] = {ROWS, WIDTH};
    weft_region_options options = {.size = sizeof(options),
                                   .reach = WEFT_REACH_DISTRIBUTED};
    unsigned step = wt_full() ? 1 : 4;

    for (unsigned nth = 1; atomic_load(wt_word(ROUNDS)) == 0; nth += step) {
        weft_world *world = NULL;
        weft_region *region = NULL;
        weft_status st;

        WT_OK(wt_join("TIMEOUT=20", nth, &world));
        if (wt_rank() == 0) {
            wf_alloc_fail_nth(nth);
        }
        st = weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32,
                                &options, &region);
        WT_CHECK((st == WEFT_OK) == (region != NULL));
        if (wt_rank() == 0) {
            bool left = wt_starved_left(nth);

            WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
            if (st == WEFT_OK) {
                starve(region);
            }
            atomic_store(wt_word(ROUNDS), left);
        }
        wt_meet();
        weft_region_destroy(region);
        weft_world_destroy(world);
        wt_meet();
    }
}

static void no_memory_is_told_of_and_nothing_else_happens(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 2, .bare = starved_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_owner_is_named_and_the_others_go_on),
        cmocka_unit_test(a_partner_that_died_is_replaced_by_the_next),
        cmocka_unit_test(a_stopped_owner_is_named_when_the_time_is_over),
        cmocka_unit_test(no_memory_is_told_of_and_nothing_else_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
