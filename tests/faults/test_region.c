/* SPDX-License-Identifier: Apache-2.0 */
/* Regions whose making or growing goes wrong on one rank: at each step, by
 * death, by a failure, by an allocation. The others are told who and why, all
 * undo what they did, and nothing is left. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "region/region.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_deny.h"
#include "wt_fault.h"
#include "wt_proc.h"

/* --- storage that goes wrong ---------------------------------------------- */

/* The steps of creation and growth, in their order. */
typedef enum step {
    GRANULE,
    ROOM,
    OPEN,
    CREATE,
    ATTACH,
    COMMIT,
    ACCESS,
    STEPS
} step;

/* What goes wrong; set before the ranks are forked. */
static struct {
    step step;
    unsigned rank;
    bool dies;
} fault;

/* Only from here on does it: growth, after a creation that went well. */
static _Thread_local bool armed;

static weft_status trip(step now)
{
    if (!armed || now != fault.step || wt_rank() != fault.rank) {
        return WEFT_OK;
    }
    if (fault.dies) {
        kill(getpid(), SIGKILL);
    }
    return wf_fail(WEFT_ERR_SYSTEM, "step %d went wrong", (int)now);
}

static weft_status bad_granule(const wf_storage_spec *spec, uint64_t *out)
{
    weft_status st = trip(GRANULE);

    return st != WEFT_OK ? st : wf_storage_host.granule(spec, out);
}

static weft_status bad_room(const wf_storage_spec *spec,
                            const wf_storage_need *need)
{
    weft_status st = trip(ROOM);

    return st != WEFT_OK ? st : wf_storage_host.room(spec, need);
}

static weft_status bad_open(const wf_storage_spec *spec, uint64_t reserve,
                            void **base, void **state)
{
    weft_status st = trip(OPEN);

    return st != WEFT_OK ? st
                         : wf_storage_host.open(spec, reserve, base, state);
}

static weft_status bad_create(void *state, uint64_t at, uint64_t bytes, int *fd)
{
    weft_status st = trip(CREATE);

    return st != WEFT_OK ? st : wf_storage_host.create(state, at, bytes, fd);
}

static weft_status bad_attach(void *state, uint64_t at, uint64_t bytes, int fd)
{
    weft_status st = trip(ATTACH);

    if (st != WEFT_OK) {
        close(fd);
        return st;
    }
    return wf_storage_host.attach(state, at, bytes, fd);
}

static weft_status bad_commit(void *state, uint64_t at, uint64_t bytes)
{
    weft_status st = trip(COMMIT);

    return st != WEFT_OK ? st : wf_storage_host.commit(state, at, bytes);
}

static weft_status bad_access(void *state, uint64_t end)
{
    weft_status st = trip(ACCESS);

    armed = armed && st == WEFT_OK;
    return st != WEFT_OK ? st : wf_storage_host.access(state, end);
}

static wf_storage bad_storage(void)
{
    wf_storage s = wf_storage_host;

    s.granule = bad_granule;
    s.room = bad_room;
    s.open = bad_open;
    s.create = bad_create;
    s.attach = bad_attach;
    s.commit = bad_commit;
    s.access = bad_access;
    return s;
}

/* The storage must live as long as the region. */
static wf_storage bad;

static weft_status make(weft_comm *comm, uint64_t max_rows, weft_region **out)
{
    static const uint64_t shape[] = {1000, 30};
    wf_region_plan plan = {.dims = 2,
                           .shape = shape,
                           .type = WEFT_I64,
                           .options = {.max_rows = max_rows},
                           .storage = &bad};

    return wf_region_form(comm, &plan, WEFT_OK, out);
}

/* Does the step happen on the rank at all? The first of a node makes the
 * object, the others attach it. */
static bool happens(step s, unsigned rank, bool growing)
{
    return s == CREATE   ? rank == 0 && !growing
           : s == ATTACH ? rank != 0 && !growing
           : s <= OPEN   ? !growing || s == ROOM
                         : true;
}

/* --- failures ------------------------------------------------------------- */

static void check_told(weft_status st)
{
    char want[32];

    snprintf(want, sizeof(want), "step %d went wrong", (int)fault.step);
    if (st != WEFT_ERR_SYSTEM ||
        !wt_names_rank(weft_error_detail(), fault.rank) ||
        strstr(weft_error_detail(), want) == NULL) {
        WT_FAIL("step %d of rank %u: %s: %s", (int)fault.step, fault.rank,
                weft_status_name(st), weft_error_detail());
    }
}

static void failing_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned fds;
    unsigned mappings;

    wt_meet();
    fds = wt_count_fds();
    mappings = wt_count_mappings();
    for (unsigned turn = 0; turn < 3; turn++) {
        weft_region *region = NULL;

        armed = true;
        check_told(make(comm, 0, &region));
        WT_CHECK(region == NULL);
        armed = false;
        wt_meet();
        WT_CHECK(wt_count_fds() == fds);
        /* A sanitizer maps memory of its own. */
        WT_CHECK(WT_ASAN || wt_count_mappings() <= mappings + 1);
        wt_meet();
    }
    {
        weft_region *region = NULL;

        WT_OK(make(comm, 0, &region));
        WT_OK(weft_region_barrier(region, 0));
        weft_region_destroy(region);
    }
}

static void a_step_that_fails_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    fault.dies = false;
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned rank = 0; rank < 3; rank++) {
            fault.step = (step)s;
            fault.rank = rank;
            if (happens(fault.step, rank, false)) {
                wt_run(3, "TIMEOUT=1800s", failing_body);
            }
        }
    }
}

static void growth_failing_body(weft_world *world)
{
    weft_region *region = NULL;
    weft_region_info info;
    int64_t *x;

    WT_OK(make(weft_world_comm(world), 5000, &region));
    x = weft_region_base(region);
    x[wt_rank()] = 1;
    armed = true;
    check_told(weft_region_resize(region, 5000));
    armed = false;
    weft_region_describe(region, &info);
    WT_CHECK(info.shape[0] == 1000);
    WT_OK(weft_region_barrier(region, 0));
    WT_CHECK(x[0] == 1 && x[1] == 1 && x[2] == 1);
    WT_OK(weft_region_resize(region, 5000));
    WT_CHECK(x[4999 * 30] == 0);
    WT_OK(weft_region_barrier(region, 0));
    x[4999 * 30] = 1;
    weft_region_destroy(region);
}

static void a_growth_that_fails_leaves_the_region_as_it_was(void **state)
{
    (void)state;
    fault.dies = false;
    for (unsigned s = 0; s < STEPS; s++) {
        fault.step = (step)s;
        fault.rank = s % 3;
        if (happens(fault.step, fault.rank, true)) {
            wt_run(3, "TIMEOUT=1800s", growth_failing_body);
        }
    }
}

/* --- deaths --------------------------------------------------------------- */

static void check_named(weft_status st, double began)
{
    if (st != WEFT_ERR_PEER ||
        !wt_names_rank(weft_error_detail(), fault.rank)) {
        WT_FAIL("death of rank %u in step %d: %s: %s", fault.rank,
                (int)fault.step, weft_status_name(st), weft_error_detail());
    }
    WT_CHECK(wt_now() - began < wt_death_bound());
}

/* The survivors make one without it. */
static void go_on(weft_world *world)
{
    uint32_t others[WT_MAX_RANKS];
    uint32_t n = 0;
    weft_comm *comm = NULL;
    weft_region *region = NULL;

    for (uint32_t r = 0; r < weft_world_size(world); r++) {
        if (r != fault.rank) {
            others[n++] = r;
        }
    }
    armed = false;
    WT_OK(weft_comm_subset(weft_world_comm(world), others, n, &comm));
    WT_OK(make(comm, 0, &region));
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
    weft_comm_destroy(comm);
}

/* A communicator that may break. */
static weft_comm *expendable(weft_world *world)
{
    weft_comm *comm = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    return comm;
}

static void death_body(weft_world *world)
{
    unsigned fds = wt_count_fds();
    weft_comm *comm = expendable(world);
    weft_region *region = NULL;
    double began;
    weft_status st;

    armed = true;
    wt_meet();
    began = wt_now();
    st = make(comm, 0, &region);
    check_named(st, began);
    WT_CHECK(region == NULL);
    weft_comm_destroy(comm);
    go_on(world);
    /* Those of links to the dead may be closed, too. */
    WT_CHECK(wt_count_fds() <= fds);
}

static void run_doomed(wt_body *body)
{
    wt_run_job(&(wt_job){.ranks = 3,
                         .settings = "TIMEOUT=1800s",
                         .body = body,
                         .doomed = 1u << fault.rank});
    wt_expect_no_names();
}

static void a_death_in_any_step_of_creation_is_told_of(void **state)
{
    (void)state;
    fault.dies = true;
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned rank = 0; rank < 3; rank += wt_full() ? 1 : 2) {
            fault.step = (step)s;
            fault.rank = rank;
            if (happens(fault.step, rank, false)) {
                run_doomed(death_body);
            }
        }
    }
}

static void growth_death_body(weft_world *world)
{
    weft_comm *comm = expendable(world);
    weft_region *region = NULL;
    weft_region_info info;
    double began;
    int64_t *x;

    WT_OK(make(comm, 5000, &region));
    x = weft_region_base(region);
    x[wt_rank()] = 1;
    WT_OK(weft_region_barrier(region, 0));
    armed = true;
    began = wt_now();
    check_named(weft_region_resize(region, 5000), began);
    weft_region_describe(region, &info);
    WT_CHECK(info.shape[0] == 1000);
    /* The memory of the dead rank is still there. */
    WT_CHECK(x[0] == 1 && x[1] == 1 && x[2] == 1);
    x[999 * 30] = 1;
    x[500 * 30] = 1;
    weft_region_destroy(region);
    weft_comm_destroy(comm);
    go_on(world);
}

static void a_death_in_any_step_of_growth_leaves_the_rows(void **state)
{
    (void)state;
    fault.dies = true;
    for (unsigned s = 0; s < STEPS; s++) {
        fault.step = (step)s;
        fault.rank = s % 3;
        if (happens(fault.step, fault.rank, true)) {
            run_doomed(growth_death_body);
        }
    }
}

/* --- at any moment ---------------------------------------------------------
 */

static unsigned strike_us;

/* From a second thread, so that it falls anywhere. */
static void *striker_main(void *arg)
{
    struct timespec t = {.tv_nsec = (long)strike_us * 1000};

    (void)arg;
    nanosleep(&t, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static weft_status make_and_resize(weft_comm *comm)
{
    weft_region *region = NULL;
    weft_status st = make(comm, 3000, &region);

    if (st == WEFT_OK) {
        st = weft_region_resize(region, 3000);
    }
    if (st == WEFT_OK) {
        st = weft_region_barrier(region, 0);
    }
    weft_region_destroy(region);
    return st;
}

static void any_moment_body(weft_world *world)
{
    weft_comm *comm = expendable(world);
    weft_status st = WEFT_OK;
    double began = 0;
    pthread_t striker;

    armed = false;
    wt_meet();
    if (wt_rank() == fault.rank) {
        WT_CHECK(pthread_create(&striker, NULL, striker_main, NULL) == 0);
    }
    while (st == WEFT_OK) {
        began = wt_now();
        st = make_and_resize(comm);
    }
    /* One of the others may have given its region up for the same reason. */
    if (st != WEFT_ERR_PEER) {
        check_named(st, began);
    }
    WT_CHECK(wt_now() - began < wt_death_bound());
    weft_comm_destroy(comm);
    go_on(world);
}

static void a_death_at_any_moment_is_told_of(void **state)
{
    unsigned times = wt_full() ? 100 : 15;

    (void)state;
    fault.dies = true;
    for (unsigned i = 0; i < times; i++) {
        strike_us = 100 + i * 137;
        fault.rank = i % 3;
        run_doomed(any_moment_body);
    }
}

/* --- a death while others wait -------------------------------------------- */

static void waiting_death_body(weft_world *world)
{
    weft_comm *comm = expendable(world);
    weft_region *region = NULL;
    weft_region_part part;
    double began;

    armed = false;
    WT_OK(make(comm, 0, &region));
    WT_OK(weft_region_part_of(region, fault.rank, 0, &part));
    if (wt_rank() == fault.rank) {
        memset(part.at, 7, part.rows * 240);
        WT_OK(weft_region_signal(region, 0, 0, 1));
        WT_OK(weft_region_signal(region, 2, 0, 1));
        wt_word_await(0, 2);
        kill(getpid(), SIGKILL);
    }
    WT_OK(weft_region_wait(region, 0, 1, 0));
    wt_word_add(0, 1);
    began = wt_now();
    if (fault.step == GRANULE) {
        check_named(weft_region_barrier(region, 0), began);
    } else {
        check_named(weft_region_wait(region, 0, 2, 0), began);
    }
    check_named(weft_region_barrier(region, 0), wt_now());
    check_named(weft_region_signal(region, fault.rank, 1, 1), wt_now());
    /* What came before it died is still good; and so is its memory. */
    WT_OK(weft_region_wait(region, 0, 1, 0));
    WT_CHECK(((unsigned char *)part.at)[part.rows * 240 - 1] == 7);
    wt_word_add(1, 1);
    wt_word_await(1, 2);
    memset(part.at, 8, part.rows * 240);
    weft_region_destroy(region);
    weft_comm_destroy(comm);
    go_on(world);
}

static void a_death_ends_barriers_and_waits_and_leaves_the_memory(void **state)
{
    (void)state;
    fault.dies = true;
    fault.rank = 1;
    fault.step = GRANULE;
    run_doomed(waiting_death_body);
    fault.step = ROOM;
    run_doomed(waiting_death_body);
}

/* --- allocations ---------------------------------------------------------- */

enum { LEFT };

/* Rank 0 decides when it is over: all take part in each turn. */
static void alloc_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned fds;

    wt_meet();
    fds = wt_count_fds();
    for (unsigned nth = 1; *wt_word(LEFT) == 0; nth++) {
        bool hit = wt_rank() == wt_ranks() - 1;
        weft_region *region = NULL;
        weft_status st;

        if (hit) {
            wf_alloc_fail_nth(nth);
        }
        st = make(comm, 3000, &region);
        if (st == WEFT_OK) {
            void *view = NULL;

            st = weft_region_resize(region, 2000);
            if (st == WEFT_OK && hit) {
                st = weft_region_view_readonly(region, &view);
            }
        }
        if (st != WEFT_OK && st != WEFT_ERR_NOMEM) {
            WT_FAIL("allocation %u: %s: %s", nth, weft_status_name(st),
                    weft_error_detail());
        }
        if (hit && wt_starved_left(nth)) {
            WT_CHECK(st == WEFT_OK);
            wt_word_set(LEFT, 1);
        }
        weft_region_destroy(region);
        wt_meet();
        WT_CHECK(wt_count_fds() == fds);
        WT_OK(weft_barrier(comm));
    }
}

static void a_failed_allocation_on_one_rank_is_told_to_all(void **state)
{
    (void)state;
    wt_run(1, "TIMEOUT=1800s", alloc_body);
    wt_run(3, "TIMEOUT=1800s", alloc_body);
}

/* --- descriptors ---------------------------------------------------------- */

/* The last rank has no room for what the others send: it is told so, and not
 * taken for a failure of theirs. */
static void few_fds_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    bool limited = wt_rank() + 1 == wt_ranks();
    unsigned failed = 0;
    weft_status st = WEFT_ERR_SYSTEM;

    for (unsigned n = 0; st != WEFT_OK; n++) {
        weft_region *region = NULL;
        unsigned long before;

        wt_meet();
        before = limited ? wt_limit_fds(n) : 0;
        st = weft_region_create(comm, 1, (uint64_t[]){100000}, WEFT_F32, NULL,
                                &region);
        if (limited) {
            wt_restore_fds(before);
        }
        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_SYSTEM);
        WT_CHECK(st == WEFT_OK ||
                 wt_names_rank(weft_error_detail(), wt_ranks() - 1));
        WT_CHECK(st == WEFT_OK || strstr(weft_error_detail(), "ulimit -n"));
        failed += st != WEFT_OK;
        weft_region_destroy(region);
    }
    WT_CHECK(failed > 0);
    WT_OK(weft_barrier(comm));
}

static void too_few_descriptors_on_one_rank_are_told_to_all(void **state)
{
    (void)state;
    wt_run(2, "TIMEOUT=1800s", few_fds_body);
    wt_run(3, "TIMEOUT=1800s", few_fds_body);
}

/* --- system calls --------------------------------------------------------- */

static int denied;

static void denied_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    unsigned fds;
    weft_status st;

    wt_meet();
    fds = wt_count_fds();
    if (wt_rank() == 0) {
        wt_deny_syscall(denied, ENOMEM);
    }
    st = make(comm, 0, &region);
    if (st == WEFT_OK) {
        WT_FAIL("a region without system call %d", denied);
    }
    WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    WT_CHECK(region == NULL);
    wt_meet();
    WT_CHECK(wt_count_fds() == fds);
    WT_OK(weft_barrier(comm));
}

static void a_system_call_that_fails_is_told_to_all(void **state)
{
    static const int calls[] = {SYS_memfd_create, SYS_ftruncate, SYS_mmap,
                                SYS_mprotect,     SYS_madvise,   SYS_fcntl};

    (void)state;
    if (WT_ASAN || WT_TSAN) {
        skip(); /* sanitizers need some of them */
    }
    for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        denied = calls[i];
        wt_run(2, "TIMEOUT=1800s", denied_body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(a_growth_that_fails_leaves_the_region_as_it_was),
        cmocka_unit_test(a_death_in_any_step_of_creation_is_told_of),
        cmocka_unit_test(a_death_in_any_step_of_growth_leaves_the_rows),
        cmocka_unit_test(a_death_at_any_moment_is_told_of),
        cmocka_unit_test(a_death_ends_barriers_and_waits_and_leaves_the_memory),
        cmocka_unit_test(a_failed_allocation_on_one_rank_is_told_to_all),
        cmocka_unit_test(too_few_descriptors_on_one_rank_are_told_to_all),
        cmocka_unit_test(a_system_call_that_fails_is_told_to_all),
    };

    bad = bad_storage();
    return cmocka_run_group_tests_name("region faults", tests, NULL, NULL);
}
