/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, buffers, regions and files whose making goes wrong on one
 * rank, at each of its steps: by its death, by mail that cannot be sent, by a
 * lack of memory or of descriptors, by an interruption. The others are told at
 * once, however long their timeout is. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "step/step.h"
#include "wt_cmocka.h"
#include "wt_deny.h"
#include "wt_fault.h"
#include "wt_file.h"
#include "wt_proc.h"

/* Far longer than a test may take. */
#define PATIENT "TIMEOUT=1800s BOOT_TIMEOUT=1800s"

enum { RANKS = 3, TREE_RANKS = 8, ROWS = 3000 };

/* Words of the board. */
enum { THROUGH, STRUCK, OVER, TOLD };

/* --- what is made --------------------------------------------------------- */

typedef enum what {
    DUP,
    SPLIT,
    SUBSET,
    ALLOC,
    REGION,
    RESIZE,
    SAVE,
    LOAD,
    OPEN_FILE,
    WHATS
} what;

static const char *const names[WHATS] = {"dup",   "split",  "subset",
                                         "alloc", "region", "resize",
                                         "save",  "load",   "open"};

typedef struct made {
    weft_comm *comm;
    weft_region *region;
    void *buffer;
} made;

static const char *file(void)
{
    return wt_path("rows");
}

static weft_status make_region(weft_comm *comm, weft_region **out)
{
    static const uint64_t shape[] = {ROWS, 8};
    weft_region_options options = {.size = sizeof(options),
                                   .max_rows = 10 * ROWS};

    return weft_region_create(comm, 2, shape, WEFT_F32, &options, out);
}

/* What has to be there before. */
static void prepare(what w, weft_comm *comm, made *m)
{
    if (w >= RESIZE) {
        WT_OK(make_region(comm, &m->region));
    }
    if (w >= LOAD) {
        WT_OK(weft_region_save(m->region, comm, file(), NULL));
    }
    if (w == OPEN_FILE) {
        weft_region_destroy(m->region);
        m->region = NULL;
    }
}

static weft_status make(what w, weft_comm *comm, made *m)
{
    static const uint32_t all[TREE_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t last = weft_comm_rank(comm) == RANKS - 1;

    switch (w) {
    case DUP:
        return weft_comm_dup(comm, &m->comm);
    case SPLIT:
        return weft_comm_split(comm, 0, -last, &m->comm);
    case SUBSET:
        return weft_comm_subset(comm, all, weft_comm_size(comm), &m->comm);
    case ALLOC:
        return weft_alloc(comm, 100000, &m->buffer);
    case REGION:
        return make_region(comm, &m->region);
    case RESIZE:
        return weft_region_resize(m->region, 5 * ROWS);
    case SAVE:
        return weft_region_save(m->region, comm, file(), NULL);
    case LOAD:
        return weft_region_load(m->region, comm, file(), NULL);
    default:
        return weft_region_open(comm, file(), 0, &m->region);
    }
}

static void let_go(made *m, weft_comm *comm)
{
    weft_free(comm, m->buffer);
    weft_region_destroy(m->region);
    weft_comm_destroy(m->comm);
    *m = (made){0};
}

/* --- one rank dies, or its mail is not sent --------------------------------
 */

/* Set before the ranks are forked. */
static struct {
    what what;
    unsigned victim;
    wt_step_kind kind;
    unsigned nth;
    const char *settings;
} the;

static uint32_t milliseconds(void)
{
    return (uint32_t)(uint64_t)(1e3 * wt_now()) | 1;
}

static void check_in_time(double since)
{
    if (wt_now() - since > wt_death_bound()) {
        WT_FAIL("told only after %.2f s: %s", wt_now() - since,
                weft_error_detail());
    }
}

static _Noreturn void victim_dies(weft_comm *comm, made *m)
{
    atomic_store(wt_word(STRUCK), milliseconds());
    wt_step_arm(WT_STEP_KILL, the.nth);
    (void)make(the.what, comm, m);
    atomic_store(wt_word(THROUGH), wt_step_disarm());
    atomic_store(wt_word(STRUCK), milliseconds());
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* A creation that all had finished before is a good one; then the next call
 * tells. */
static void death_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    made m = {0};
    weft_status st;

    prepare(the.what, comm, &m);
    wt_meet();
    if (weft_world_rank(world) == the.victim) {
        victim_dies(comm, &m);
    }
    st = make(the.what, comm, &m);
    while (st == WEFT_OK) {
        st = weft_barrier(comm);
    }
    WT_STATUS(st, WEFT_ERR_PEER);
    if (!wt_names_rank(weft_error_detail(), the.victim)) {
        WT_FAIL("does not name rank %u: %s", the.victim, weft_error_detail());
    }
    if ((int32_t)(milliseconds() - atomic_load(wt_word(STRUCK))) >
        (int32_t)(1e3 * wt_death_bound())) {
        WT_FAIL("told too late: %s", weft_error_detail());
    }
    /* One that leaves because of it would tell the others as well. */
    wt_word_add(TOLD, 1);
    wt_word_await(TOLD, weft_comm_size(comm) - 1);
    let_go(&m, comm);
}

static bool run_death(void)
{
    wt_note("%s: rank %u dies at step %u%s%s", names[the.what], the.victim,
            the.nth, the.settings != NULL ? ", " : "",
            the.settings != NULL ? the.settings : "");
    wt_run_job(&(wt_job){.ranks = RANKS,
                         .settings = the.settings,
                         .body = death_body,
                         .doomed = 1u << the.victim});
    return atomic_load(wt_word(THROUGH)) != 0;
}

/* In the short run not every rank dies at every step of everything. */
static bool is_chosen(unsigned i)
{
    return wt_full() || (!WT_ASAN && i < 4) || i % (WT_ASAN ? 4 : 2) == 0;
}

static void die_at_each_step(what w, unsigned victim, const char *settings)
{
    bool through = false;

    the.what = w;
    the.victim = victim;
    the.settings = settings;
    for (the.nth = 1; !through; the.nth++) {
        assert_true(the.nth < 200);
        if (is_chosen(the.nth + (unsigned)w + victim)) {
            through = run_death();
        }
    }
}

static void a_death_at_any_step_is_told_at_once(void **state)
{
    (void)state;
    for (unsigned w = 0; w < WHATS; w++) {
        die_at_each_step((what)w, 0, PATIENT);
        die_at_each_step((what)w, 1 + w % 2, PATIENT);
    }
}

static const char *two_nodes(unsigned rank)
{
    return rank == 1 ? PATIENT " NODE=b" : PATIENT " NODE=a";
}

/* Heads 0, 2, 4 and 6: what rank 4 passes on is for ranks 5 and 6, and rank 6
 * passes it on to rank 7. */
static const char *four_nodes(unsigned rank)
{
    static const char *const nodes[] = {PATIENT " NODE=a", PATIENT " NODE=b",
                                        PATIENT " NODE=c", PATIENT " NODE=d"};

    return nodes[rank / 2];
}

static void death_between_nodes(what w, unsigned victim, unsigned ranks)
{
    bool through = false;

    the.what = w;
    the.victim = victim;
    for (the.nth = 1; !through; the.nth += wt_full() ? 1 : 3) {
        assert_true(the.nth < 200);
        wt_note("%s over nodes: rank %u of %u dies at step %u", names[w],
                victim, ranks, the.nth);
        wt_run_job(
            &(wt_job){.ranks = ranks,
                      .settings_of = ranks == RANKS ? two_nodes : four_nodes,
                      .body = death_body,
                      .doomed = 1u << victim});
        through = atomic_load(wt_word(THROUGH)) != 0;
    }
}

static void a_death_is_told_at_once_between_nodes_too(void **state)
{
    (void)state;
    death_between_nodes(DUP, 0, RANKS);
    death_between_nodes(SPLIT, 1, RANKS);
    death_between_nodes(REGION, 2, RANKS);
}

static void a_death_inside_the_tree_is_told_at_once(void **state)
{
    (void)state;
    death_between_nodes(DUP, 4, TREE_RANKS);
    death_between_nodes(SPLIT, 6, TREE_RANKS);
    if (wt_full()) {
        death_between_nodes(SUBSET, 4, TREE_RANKS);
        death_between_nodes(SPLIT, 4, TREE_RANKS);
        death_between_nodes(DUP, 0, TREE_RANKS);
        death_between_nodes(DUP, 7, TREE_RANKS);
    }
}

/* Nobody waits for mail that was not sent, and all have the reason. */
static void unsent_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    double began;
    made m = {0};
    weft_status st;

    prepare(the.what, comm, &m);
    wt_meet();
    if (weft_world_rank(world) == the.victim) {
        wt_step_arm(WT_STEP_DENY, the.nth);
    }
    began = wt_now();
    st = make(the.what, comm, &m);
    check_in_time(began);
    if (weft_world_rank(world) == the.victim) {
        bool left = wt_step_disarm();

        atomic_store(wt_word(THROUGH), left);
        WT_CHECK(left == (st == WEFT_OK));
        WT_CHECK(left || strstr(weft_error_detail(), "could not mail"));
    }
    WT_CHECK(st == WEFT_OK || weft_error_detail()[0] != '\0');
    wt_meet();
    let_go(&m, comm);
}

static void mail_that_cannot_be_sent_is_told_at_once(void **state)
{
    bool through;

    (void)state;
    for (unsigned w = 0; w < WHATS; w++) {
        for (unsigned victim = 0; victim < RANKS - 1; victim++) {
            the.what = (what)w;
            the.victim = victim;
            through = false;
            for (the.nth = 1; !through; the.nth++) {
                wt_note("%s: mail %u of rank %u is not sent", names[w], the.nth,
                        victim);
                wt_run(RANKS, PATIENT, unsent_body);
                through = atomic_load(wt_word(THROUGH)) != 0;
            }
        }
    }
}

/* --- one rank lacks something ----------------------------------------------
 */

/* All fail, or none does; then it can be done again. */
static bool try_once(what w, weft_comm *comm, unsigned starved, unsigned nth)
{
    bool here = weft_comm_rank(comm) == starved;
    double began = wt_now();
    made m = {0};
    weft_status st;

    prepare(w, comm, &m);
    if (here) {
        wf_alloc_fail_nth(nth);
    }
    st = make(w, comm, &m);
    if (here) {
        atomic_store(wt_word(OVER), wt_starved_left(nth));
    }
    check_in_time(began);
    if (st != WEFT_OK && st != WEFT_ERR_NOMEM) {
        WT_FAIL("%s, allocation %u of rank %u: %s: %s", names[w], nth, starved,
                weft_status_name(st), weft_error_detail());
    }
    if (st != WEFT_OK && !here &&
        !wt_names_rank(weft_error_detail(), starved)) {
        WT_FAIL("%s does not name rank %u: %s", names[w], starved,
                weft_error_detail());
    }
    WT_OK(weft_barrier(comm));
    let_go(&m, comm);
    return atomic_load(wt_word(OVER)) != 0;
}

static void starved_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < WHATS * RANKS; i++) {
        what w = (what)(i / RANKS);
        bool over = false;

        for (unsigned nth = 1; !over; nth++) {
            over = try_once(w, comm, i % RANKS, nth);
            WT_OK(weft_barrier(comm));
        }
    }
}

static void a_rank_without_memory_tells_the_others_at_once(void **state)
{
    (void)state;
    wt_run(RANKS, PATIENT, starved_body);
}

/* A descriptor that cannot be received is no reason for others to wait. */
static void few_fds_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    bool limited = weft_comm_rank(comm) == 1;
    made m = {0};

    for (unsigned w = 0; w < SAVE; w++) {
        unsigned long before = 0;
        double began = wt_now();
        weft_status st;

        prepare((what)w, comm, &m);
        if (limited) {
            before = wt_limit_fds(0);
        }
        wt_meet();
        st = make((what)w, comm, &m);
        if (limited) {
            wt_restore_fds(before);
        }
        check_in_time(began);
        if (w != RESIZE && w != ALLOC) { /* which need no descriptor here */
            if (st != WEFT_ERR_SYSTEM) {
                WT_FAIL("%s: %s", names[w], weft_status_name(st));
            }
            WT_CHECK(!limited || strstr(weft_error_detail(), "ulimit -n"));
            WT_CHECK(limited || wt_names_rank(weft_error_detail(), 1));
        }
        WT_OK(weft_barrier(comm));
        let_go(&m, comm);
    }
}

static void a_rank_without_descriptors_tells_the_others_at_once(void **state)
{
    (void)state;
    wt_run(RANKS, PATIENT, few_fds_body);
}

/* --- one rank is interrupted -----------------------------------------------
 */

static _Thread_local bool may_interrupt;

/* Only once the others are where it matters. */
static int interrupted(void *ctx)
{
    (void)ctx;
    return may_interrupt && wt_rank() == 1 &&
           atomic_load(wt_word(WT_STEP_STALLED)) != 0;
}

static weft_status join(unsigned round, weft_world **out)
{
    weft_world_options options = {.size = sizeof(options),
                                  .settings = PATIENT,
                                  .interrupted = interrupted};
    weft_boot *boot = NULL;
    weft_status st;
    char name[64];

    wt_job_name(round, name, sizeof(name));
    st = weft_boot_open_local(name, wt_rank(), wt_ranks(), &boot);
    if (st == WEFT_OK) {
        options.boot = boot;
        st = weft_world_create(&options, out);
        weft_boot_close(boot);
    }
    return st;
}

/* Rank 0 does not mail what the others wait for, rank 1 is interrupted, and
 * all that wait are told; rank 0 is, too, when it goes on. */
static void interrupted_body(void)
{
    weft_world *world = NULL;
    weft_comm *comm;
    made m = {0};
    double began;

    WT_OK(join(0, &world));
    comm = weft_world_comm(world);
    prepare(the.what, comm, &m);
    wt_meet();
    if (wt_rank() == 0) {
        wt_step_arm(WT_STEP_STALL, 1);
    }
    may_interrupt = true;
    began = wt_now();
    WT_STATUS(make(the.what, comm, &m), WEFT_ERR_ABORTED);
    check_in_time(began);
    may_interrupt = false;
    wt_word_add(OVER, 1);
    if (atomic_load(wt_word(OVER)) == RANKS - 1) {
        wt_word_set(WT_STEP_GO, 1);
    }
    if (the.what != RESIZE) { /* which needs no communicator */
        WT_STATUS(weft_comm_error(comm), WEFT_ERR_ABORTED);
        WT_CHECK(strstr(weft_error_detail(), "interrupted") != NULL);
    }
    let_go(&m, comm);
    wt_meet();
    weft_world_destroy(world);
}

static void an_interrupted_rank_tells_the_others_at_once(void **state)
{
    static const what mailed[] = {DUP, SPLIT, SUBSET, REGION, SAVE};

    (void)state;
    for (unsigned i = 0; i < sizeof(mailed) / sizeof(mailed[0]); i++) {
        the.what = mailed[i];
        wt_note("interrupted in %s", names[the.what]);
        wt_run_job(&(wt_job){.ranks = RANKS, .bare = interrupted_body});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_at_any_step_is_told_at_once),
        cmocka_unit_test(a_death_is_told_at_once_between_nodes_too),
        cmocka_unit_test(a_death_inside_the_tree_is_told_at_once),
        cmocka_unit_test(mail_that_cannot_be_sent_is_told_at_once),
        cmocka_unit_test(a_rank_without_memory_tells_the_others_at_once),
        cmocka_unit_test(a_rank_without_descriptors_tells_the_others_at_once),
        cmocka_unit_test(an_interrupted_rank_tells_the_others_at_once),
    };

    if (WT_TSAN) {
        return WT_EXIT_SKIP;
    }
    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
