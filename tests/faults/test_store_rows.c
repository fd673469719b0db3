/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies or stops while it writes a row of a store: the row is as it was
 * before that write or after it, and the others go on. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/coll.h>

#include "base/alloc.h"
#include "store/table.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"
#include "wt_proc.h"

enum { KEYS = 3, WIDTH = 4096, RANKS = 3, VICTIM = 2, KEY = 1 };
enum { BEGUN = 100 };

/* Words that the ranks share. */
enum { READY = 0, SURVIVED, DONE, PID };

/* Where the victim dies, in the order of the steps of a write. */
typedef enum fault_step {
    AFTER_LOCK,
    HALF_SAVED,
    AFTER_SAVE,
    HALF_CHANGED,
    BEFORE_UNLOCK,
    AFTER_UNLOCK,
    STEPS
} fault_step;

/* Set before the ranks are forked. */
static struct {
    fault_step step;
    bool direct;
    unsigned microseconds;
} job;

static uint64_t all_keys(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return keys;
}

static void do_row(wf_slots *slots, char what, int64_t key, int64_t *row)
{
    uint64_t absent[1];
    wf_batch b = {.keys = {&key, WEFT_I64, 1, WEFT_HOST},
                  .values = (char *)row,
                  .absent = absent};

    if (what == '+') {
        WT_OK(wf_slots_push(slots, &b, 0));
    } else if (what == '=') {
        WT_OK(wf_slots_set(slots, &b, 0));
    } else {
        WT_OK(wf_slots_pull(slots, &b));
    }
    WT_CHECK(b.absents == 0);
}

static void add_one(wf_slots *slots, int64_t key, int64_t by)
{
    static _Thread_local int64_t row[WIDTH];

    for (unsigned k = 0; k < WIDTH; k++) {
        row[k] = by;
    }
    do_row(slots, '+', key, row);
}

/* The row's value, which all its elements have. */
static int64_t read_even(wf_slots *slots, int64_t key)
{
    static _Thread_local int64_t row[WIDTH];

    do_row(slots, '?', key, row);
    for (unsigned k = 1; k < WIDTH; k++) {
        WT_CHECK(row[k] == row[0]);
    }
    return row[0];
}

static wf_slots *make(weft_world *world, double timeout)
{
    wf_slots_options options = {.type = WEFT_I64,
                                .keys = KEYS,
                                .length = WIDTH,
                                .direct = job.direct,
                                .room = all_keys,
                                .timeout = timeout};
    wf_slots *slots = NULL;

    WT_OK(wf_slots_create(weft_world_comm(world), &options, &slots));
    if (!job.direct && wt_rank() == 0) {
        for (uint64_t key = 0; key < KEYS; key++) {
            wf_directory_put(slots, key,
                             WF_KEY_HERE | wf_slot_take(slots, key));
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    return slots;
}

static wf_place place_of(const wf_slots *slots)
{
    return wf_place_of(slots, KEY,
                       job.direct
                           ? (uint32_t)KEY
                           : wf_directory_get(slots, KEY) & ~WF_KEY_HERE);
}

static void add_by_hand(char *row, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        ((int64_t *)(void *)row)[k] += 1;
    }
}

/* A push of 1, step by step, that ends in the middle. */
static void die_writing(wf_slots *slots)
{
    wf_place place = place_of(slots);
    char *row = wf_place_row(&place);
    uint64_t word = 0;

    WT_OK(wf_place_lock(slots, &place, 0, &word));
    if (job.step == HALF_SAVED) {
        memcpy(wf_undo_of(slots, word)->row, row, place.class->bytes / 2);
    }
    if (job.step >= AFTER_SAVE) {
        wf_place_save(slots, &place, word);
    }
    if (job.step >= HALF_CHANGED) {
        add_by_hand(row, job.step == HALF_CHANGED ? WIDTH / 2 : WIDTH);
    }
    if (job.step == AFTER_UNLOCK) {
        wf_place_unlock(&place, word);
    }
    wt_word_set(READY, 1);
    wt_strike(WT_BLOW_KILL);
}

/* --- every step ----------------------------------------------------------- */

/* The victim wrote the row before, so that its undo row has an older one. */
static void step_body(weft_world *world)
{
    wf_slots *slots = make(world, 60);
    int64_t want = BEGUN + (job.step == AFTER_UNLOCK ? 1 : 0);

    if (wt_rank() == VICTIM) {
        add_one(slots, KEY, BEGUN - 1);
        add_one(slots, KEY, 1);
        die_writing(slots);
    }
    wt_word_await(READY, 1);
    if (wt_rank() == 0) {
        WT_CHECK(read_even(slots, KEY) == want);
        wt_word_set(DONE, 1);
    } else {
        wt_word_await(DONE, 1);
    }
    add_one(slots, KEY, 1000);
    wt_word_add(SURVIVED, 1);
    wt_word_await(SURVIVED, RANKS - 1);
    WT_CHECK(read_even(slots, KEY) == want + 1000 * (RANKS - 1));
    WT_CHECK(read_even(slots, KEY - 1) == 0);
    WT_CHECK(wf_slots_repaired(slots) == (job.step == AFTER_UNLOCK ? 0 : 1));
    wf_slots_destroy(slots);
}

static void run_doomed(wt_body *body, uint32_t doomed)
{
    wt_run_job(&(wt_job){.ranks = RANKS,
                         .settings = "TIMEOUT=60s",
                         .body = body,
                         .doomed = doomed});
}

static void a_death_at_any_step_of_a_write_leaves_the_row_whole(void **state)
{
    (void)state;
    for (unsigned step = 0; step < STEPS; step++) {
        for (unsigned direct = 0; direct < 2; direct++) {
            job.step = (fault_step)step;
            job.direct = direct != 0;
            run_doomed(step_body, 1u << VICTIM);
        }
    }
}

/* The first to come after a death may be a writer, and two at once. */
static void writers_body(weft_world *world)
{
    wf_slots *slots = make(world, 60);

    if (wt_rank() == VICTIM) {
        add_one(slots, KEY, BEGUN);
        die_writing(slots);
    }
    wt_word_await(READY, 1);
    for (unsigned i = 0; i < 10; i++) {
        add_one(slots, KEY, 1000);
    }
    wt_word_add(SURVIVED, 1);
    wt_word_await(SURVIVED, RANKS - 1);
    WT_CHECK(read_even(slots, KEY) == BEGUN + 10000 * (RANKS - 1));
    WT_CHECK(wf_slots_repaired(slots) == 1);
    wf_slots_destroy(slots);
}

static void a_row_is_repaired_once_by_writers_that_wait_for_it(void **state)
{
    (void)state;
    job.direct = true;
    job.step = HALF_CHANGED;
    run_doomed(writers_body, 1u << VICTIM);
}

/* --- a repairer dies ------------------------------------------------------ */

/* The steps of a repair, up to the middle of the row. */
static void die_repairing(wf_slots *slots)
{
    wf_place place = place_of(slots);
    uint64_t word = atomic_load(wf_place_word(&place));

    WT_CHECK((word & WF_WORD_WRITER) != 0);
    WT_CHECK(pthread_mutex_lock(&slots->shared->repair) == 0);
    memcpy(wf_place_row(&place), wf_undo_of(slots, word)->row,
           place.class->bytes / 4);
    wt_word_set(DONE, 1);
    wt_strike(WT_BLOW_KILL);
}

static void repairer_body(weft_world *world)
{
    wf_slots *slots = make(world, 60);

    if (wt_rank() == VICTIM) {
        add_one(slots, KEY, BEGUN);
        die_writing(slots);
    }
    wt_word_await(READY, 1);
    if (wt_rank() == 1) {
        die_repairing(slots);
    }
    wt_word_await(DONE, 1);
    WT_CHECK(read_even(slots, KEY) == BEGUN);
    add_one(slots, KEY, 1);
    WT_CHECK(read_even(slots, KEY) == BEGUN + 1);
    WT_CHECK(wf_slots_repaired(slots) == 1);
    wf_slots_destroy(slots);
}

static void a_death_of_the_repairer_is_repaired_too(void **state)
{
    (void)state;
    job.direct = true;
    job.step = HALF_CHANGED;
    run_doomed(repairer_body, 1u << VICTIM | 1u << 1);
}

/* --- at any moment -------------------------------------------------------- */

static void *strike_later(void *ctx)
{
    usleep(job.microseconds);
    wt_strike(WT_BLOW_KILL);
    return ctx;
}

/* What the victim has certainly pushed is in DONE; the last one may be in or
 * not. */
static void moment_body(weft_world *world)
{
    wf_slots *slots = make(world, 60);
    pthread_t thread;
    int64_t pushed = 0;
    int64_t rest;

    if (wt_rank() == VICTIM) {
        WT_CHECK(pthread_create(&thread, NULL, strike_later, NULL) == 0);
        wt_word_set(READY, 1);
        for (;;) {
            add_one(slots, KEY, 1);
            atomic_fetch_add(wt_word(DONE), 1);
        }
    }
    wt_word_await(READY, 1);
    for (; wf_host_check(world->host, VICTIM) == WEFT_OK; pushed++) {
        add_one(slots, KEY, 1);
        (void)read_even(slots, KEY);
    }
    add_one(slots, KEY, 1);
    wt_word_add(PID, (uint32_t)(pushed + 1));
    wt_word_add(SURVIVED, 1);
    wt_word_await(SURVIVED, RANKS - 1);
    rest = read_even(slots, KEY) - atomic_load(wt_word(PID)) -
           atomic_load(wt_word(DONE));
    WT_CHECK(rest == 0 || rest == 1);
    WT_CHECK(wf_slots_repaired(slots) <= 1);
    wf_slots_destroy(slots);
}

static void a_death_at_any_moment_loses_at_most_its_last_push(void **state)
{
    (void)state;
    job.direct = true;
    for (unsigned i = 0; i < (wt_full() ? 100 : 12); i++) {
        job.microseconds = 500 + i * 311 % 3000;
        run_doomed(moment_body, 1u << VICTIM);
    }
}

/* --- a rank that stops ---------------------------------------------------- */

static void check_told(wf_slots *slots)
{
    static int64_t row[WIDTH];
    int64_t key = KEY;
    wf_batch b = {.keys = {&key, WEFT_I64, 1, WEFT_HOST},
                  .values = (char *)row};
    char pid[32];

    WT_STATUS(wt_rank() == 0 ? wf_slots_pull(slots, &b)
                             : wf_slots_push(slots, &b, 0),
              WEFT_ERR_TIMEOUT);
    snprintf(pid, sizeof(pid), "pid %u", atomic_load(wt_word(PID)));
    if (!wt_names_rank(weft_error_detail(), VICTIM) ||
        strstr(weft_error_detail(), pid) == NULL ||
        strstr(weft_error_detail(), "key 1 ") == NULL) {
        WT_FAIL("%s", weft_error_detail());
    }
    WT_CHECK(read_even(slots, KEY + 1) == 0);
}

static void stop_body(weft_world *world)
{
    wf_slots *slots = make(world, 0.3);
    void *row = NULL;

    if (wt_rank() == VICTIM) {
        WT_OK(wf_slot_lock(slots, KEY, KEY, 7, &row));
        add_by_hand(row, WIDTH / 2);
        wt_word_set(PID, (uint32_t)getpid());
        raise(SIGSTOP);
        add_by_hand((char *)row + WIDTH / 2 * 8, WIDTH / 2);
        wf_slot_unlock(slots, KEY, 7);
        wt_word_set(DONE, 1);
    } else {
        wt_await_gone(VICTIM);
        check_told(slots);
        wt_word_add(SURVIVED, 1);
        wt_word_await(SURVIVED, RANKS - 1);
        kill((pid_t)atomic_load(wt_word(PID)), SIGCONT);
    }
    wt_word_await(DONE, 1);
    add_one(slots, KEY, 10);
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(read_even(slots, KEY) == 1 + 10 * RANKS);
    WT_CHECK(wf_slots_repaired(slots) == 0);
    wf_slots_destroy(slots);
}

static void a_stopped_writer_is_named_and_all_goes_on_after_it(void **state)
{
    (void)state;
    job.direct = true;
    run_doomed(stop_body, 1u << VICTIM);
}

/* --- allocations ---------------------------------------------------------- */

/* The last rank decides when it is over: all take part in each turn. */
static void alloc_body(weft_world *world)
{
    const int64_t lengths[KEYS] = {1, 2, 1};
    wf_slots_options options = {
        .type = WEFT_F32, .keys = KEYS, .lengths = lengths, .room = all_keys};
    unsigned fds;

    wt_meet();
    fds = wt_count_fds();
    for (unsigned nth = 1; atomic_load(wt_word(DONE)) == 0; nth++) {
        bool hit = wt_rank() == wt_ranks() - 1;
        wf_slots *slots = NULL;
        weft_status st;

        if (hit) {
            wf_alloc_fail_nth(nth);
        }
        st = wf_slots_create(weft_world_comm(world), &options, &slots);
        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        if (hit && wt_starved_left(nth)) {
            WT_CHECK(st == WEFT_OK);
            wt_word_set(DONE, 1);
        }
        wf_slots_destroy(slots);
        wt_meet();
        WT_CHECK(wt_count_fds() == fds);
        WT_OK(weft_barrier(weft_world_comm(world)));
    }
}

static void a_failed_allocation_on_one_rank_is_told_to_all(void **state)
{
    (void)state;
    wt_run(1, "TIMEOUT=1800s", alloc_body);
    wt_run(2, "TIMEOUT=1800s", alloc_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_at_any_step_of_a_write_leaves_the_row_whole),
        cmocka_unit_test(a_row_is_repaired_once_by_writers_that_wait_for_it),
        cmocka_unit_test(a_death_of_the_repairer_is_repaired_too),
        cmocka_unit_test(a_death_at_any_moment_loses_at_most_its_last_push),
        cmocka_unit_test(a_stopped_writer_is_named_and_all_goes_on_after_it),
        cmocka_unit_test(a_failed_allocation_on_one_rank_is_told_to_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
