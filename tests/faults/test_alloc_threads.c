/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out on the threads of the library: the one that serves the boot
 * table, the one that collects mail, the one that drives requests. Nothing is
 * lost without a word, and nobody waits for it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_fault.h"

#define PATIENT "TIMEOUT=1800s BOOT_TIMEOUT=1800s"
#define FOR_GOOD (1u << 30)

enum { RANKS = 3 };

/* Words of the board: one is through; requests that are over, by rank. */
enum { OVER, ENDED };

static void check_in_time(double began, const char *what, unsigned nth)
{
    if (wt_now() - began > wt_death_bound()) {
        WT_FAIL("%s, allocation %u: told only after %.2f s: %s", what, nth,
                wt_now() - began, weft_error_detail());
    }
}

static void check_told(weft_status st, const char *what, unsigned nth)
{
    if (st != WEFT_OK && weft_error_detail()[0] == '\0') {
        WT_FAIL("%s, allocation %u: %s without a reason", what, nth,
                weft_status_name(st));
    }
}

/* Switch it off; true if the threads made fewer than `nth` allocations. */
static bool fed_again(unsigned nth)
{
    unsigned made = wf_alloc_others();

    wf_alloc_fail_others(0, 0);
    return made < nth;
}

/* --- joining -------------------------------------------------------------- */

/* Rank 0 has the thread with the boot table. */
static void joining_body(void)
{
    for (unsigned nth = 1; atomic_load(wt_word(OVER)) == 0; nth++) {
        weft_world_options options = {.size = sizeof(options),
                                      .settings = PATIENT};
        weft_boot *boot = wt_boot(nth);
        weft_world *world = NULL;
        double began = wt_now();
        weft_status st;

        options.boot = boot;
        if (wt_rank() == 0) {
            wf_alloc_fail_others(nth, 1);
        }
        st = weft_world_create(&options, &world);
        weft_boot_close(boot);
        check_in_time(began, "joining", nth);
        check_told(st, "joining", nth);
        WT_CHECK((st == WEFT_OK) == (world != NULL));
        if (wt_rank() == 0) {
            atomic_store(wt_word(OVER), fed_again(nth));
        }
        wt_meet();
        weft_world_destroy(world);
    }
}

static void a_boot_table_without_memory_fails_for_all_at_once(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = RANKS, .bare = joining_body});
}

/* --- mail ----------------------------------------------------------------- */

static void one_mail_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < RANKS * 6; i++) {
        weft_comm *made = NULL;
        void *buffer = NULL;

        wt_meet();
        if (wt_rank() == i % RANKS) {
            wf_alloc_fail_others(1 + i / RANKS, 1);
        }
        WT_OK(weft_comm_split(comm, 0, 0, &made));
        WT_OK(weft_alloc(made, 1000, &buffer));
        wf_alloc_fail_others(0, 0);
        weft_free(made, buffer);
        weft_comm_destroy(made);
    }
}

static void mail_that_finds_no_memory_is_not_lost(void **state)
{
    (void)state;
    wt_run(RANKS, PATIENT, one_mail_body);
}

/* Who gets no mail any more says so, and all are told. */
static void no_mail_body(weft_world *world)
{
    for (unsigned starved = 0; starved < RANKS; starved++) {
        weft_comm *comm = NULL;
        weft_comm *made = NULL;
        double began;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        if (wt_rank() == starved) {
            wf_alloc_fail_others(1, FOR_GOOD);
        }
        wt_meet();
        began = wt_now();
        for (unsigned i = 0; i < 3; i++) { /* there is a spare for one */
            weft_comm_destroy(made);
            made = NULL;
            if (weft_comm_split(comm, 0, 0, &made) != WEFT_OK) {
                break;
            }
        }
        WT_STATUS(weft_comm_error(comm), WEFT_ERR_NOMEM);
        WT_CHECK(wt_names_rank(weft_error_detail(), starved));
        check_in_time(began, "split", 1);
        wt_meet();
        wf_alloc_fail_others(0, 0);
        weft_comm_destroy(comm);
        WT_OK(weft_barrier(weft_world_comm(world)));
    }
}

static void a_rank_that_can_receive_no_mail_tells_all(void **state)
{
    (void)state;
    wt_run(RANKS, PATIENT, no_mail_body);
}

/* --- requests ------------------------------------------------------------- */

static weft_status ended_with;

static void ended(weft_request *request, weft_status status, void *ctx)
{
    (void)request;
    (void)ctx;
    ended_with = status;
    wt_word_add(ENDED + wt_rank(), 1);
}

/* The caller only sleeps: the library's thread does all the work. */
static bool run_request(weft_world *world, wt_coll_kind kind, unsigned nth)
{
    wt_coll what = {.kind = kind,
                    .type = WEFT_F32,
                    .op = WEFT_SUM,
                    .n = 50000,
                    .seed = nth};
    bool starved = wt_rank() == 1;
    uint32_t before = atomic_load(wt_word(ENDED + wt_rank()));
    weft_request *request = NULL;
    weft_comm *comm = NULL;
    wt_call call;
    double began;

    what.rounded_often = true;
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    wt_call_init(&call, comm, &what, NULL);
    if (starved) {
        wf_alloc_fail_others(nth, 1);
    }
    began = wt_now();
    WT_OK(wt_call_start(&call, &request));
    WT_OK(weft_request_on_done(request, ended, NULL));
    wt_word_await(ENDED + wt_rank(), before + 1);
    check_in_time(began, wt_coll_name(kind), nth);
    if (ended_with == WEFT_OK) {
        wt_call_check(&call);
    } else {
        WT_STATUS(ended_with, WEFT_ERR_NOMEM);
    }
    if (starved) {
        atomic_store(wt_word(OVER), fed_again(nth));
    }
    weft_request_release(request);
    wt_call_fini(&call);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
    return atomic_load(wt_word(OVER)) != 0;
}

static void requests_body(weft_world *world)
{
    for (unsigned kind = 0; kind < WT_COLLS; kind++) {
        bool over = false;

        for (unsigned nth = 1; !over; nth++) {
            over = run_request(world, (wt_coll_kind)kind, nth);
            WT_OK(weft_barrier(weft_world_comm(world)));
        }
    }
}

static void requests_that_find_no_memory_end_on_all_ranks(void **state)
{
    (void)state;
    wt_run(RANKS, PATIENT " ENGINE=message", requests_body);
    wt_run(RANKS, PATIENT, requests_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_boot_table_without_memory_fails_for_all_at_once),
        cmocka_unit_test(mail_that_finds_no_memory_is_not_lost),
        cmocka_unit_test(a_rank_that_can_receive_no_mail_tells_all),
        cmocka_unit_test(requests_that_find_no_memory_end_on_all_ranks),
    };

    if (WT_TSAN) {
        return WT_EXIT_SKIP; /* ranks as threads would count each other's */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
