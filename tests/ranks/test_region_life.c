/* SPDX-License-Identifier: Apache-2.0 */
/* A region over its life: barriers and signals, resizing, read-only views,
 * forked children, nodes, and what is left of it when the job is over. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

static weft_region *make(weft_world *world, uint64_t rows, uint64_t max_rows,
                         weft_partition partition)
{
    uint64_t shape[] = {rows, 30};
    weft_region_options o = {.size = sizeof(o),
                             .partition = partition,
                             .run = 2,
                             .max_rows = max_rows};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I64, &o,
                             &region));
    return region;
}

static weft_region_info describe(const weft_region *region)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    return info;
}

static int64_t *row_of(const weft_region *region, uint64_t row)
{
    weft_region_part part;
    uint32_t owner = 0;
    uint64_t local = 0;
    uint32_t index = 0;

    WT_OK(weft_region_locate(region, row, &owner, &local));
    do {
        WT_OK(weft_region_part_of(region, owner, index++, &part));
        if (local < part.rows) {
            return (int64_t *)part.at + local * 30;
        }
        local -= part.rows;
    } while (index < weft_region_parts(region, owner));
    WT_FAIL("row %llu is nowhere", (unsigned long long)row);
}

/* --- barriers and signals ------------------------------------------------- */

static void barrier_body(weft_world *world)
{
    weft_region *region = make(world, 64, 0, WEFT_PARTITION_EQUAL);
    uint32_t ranks = describe(region).ranks;
    uint32_t me = describe(region).rank;
    int64_t *x = weft_region_base(region);

    for (int64_t turn = 1; turn <= (WT_TSAN ? 20 : 100); turn++) {
        x[me] = turn;
        WT_OK(weft_region_barrier(region, 0));
        for (uint32_t r = 0; r < ranks; r++) {
            WT_CHECK(x[r] == turn);
        }
        WT_OK(weft_region_barrier(region, 20));
    }
    weft_region_destroy(region);
}

static void a_barrier_lets_nobody_pass_before_all_have_come(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        wt_run_both(ranks[i], "TIMEOUT=1800s", barrier_body);
    }
}

static void late_body(weft_world *world)
{
    weft_region *region = make(world, 10, 0, WEFT_PARTITION_EQUAL);

    if (wt_rank() == 1) {
        wt_word_await(0, 2);
        WT_OK(weft_region_barrier(region, 0));
    } else {
        WT_STATUS(weft_region_barrier(region, 0.02), WEFT_ERR_TIMEOUT);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        wt_word_add(0, 1);
        WT_OK(weft_region_barrier(region, 0)); /* the same one, again */
    }
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void a_barrier_that_timed_out_is_taken_up_again(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", late_body);
}

static void gone_body(weft_world *world)
{
    weft_region *region = make(world, 10, 0, WEFT_PARTITION_EQUAL);

    if (wt_rank() == 2) {
        row_of(region, 9)[0] = 77;
        weft_region_destroy(region);
        wt_meet();
        return;
    }
    WT_STATUS(weft_region_barrier(region, 0), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), 2));
    WT_CHECK(strstr(weft_error_detail(), "released the region") != NULL);
    wt_meet();
    WT_CHECK(row_of(region, 9)[0] == 77);
    weft_region_destroy(region);
}

static void a_barrier_does_not_wait_for_one_who_gave_the_region_up(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", gone_body);
}

static void signal_body(weft_world *world)
{
    weft_region *region = make(world, 64, 0, WEFT_PARTITION_EQUAL);
    uint32_t ranks = describe(region).ranks;
    uint32_t me = describe(region).rank;
    uint32_t next = (me + 1) % ranks;
    int64_t *x = weft_region_base(region);
    uint64_t value = 0;

    /* A ball goes round; its word is no atomic. */
    for (uint64_t turn = 1; turn <= 50; turn++) {
        if (me != 0 || turn > 1) {
            WT_OK(weft_region_wait(region, 3, me == 0 ? turn - 1 : turn, 0));
        }
        WT_CHECK(x[0] == (int64_t)((turn - 1) * ranks + me));
        x[0]++;
        WT_OK(weft_region_signal(region, next, 3, 1));
    }
    if (me == 0) {
        WT_OK(weft_region_wait(region, 3, 50, 0));
    }
    WT_OK(weft_region_signalled(region, next, 3, &value));
    WT_CHECK(value == 50);
    WT_STATUS(weft_region_wait(region, 4, 1, 0.01), WEFT_ERR_TIMEOUT);
    WT_STATUS(weft_region_wait(region, WEFT_REGION_SIGNALS, 1, 0),
              WEFT_ERR_INVALID);
    WT_STATUS(weft_region_signal(region, ranks, 0, 1), WEFT_ERR_INVALID);
    WT_STATUS(weft_region_signalled(region, 0, 0, NULL), WEFT_ERR_INVALID);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void signals_order_what_was_written_before_them(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        wt_run_both(ranks[i], "TIMEOUT=1800s", signal_body);
    }
}

/* --- several threads -------------------------------------------------------
 */

typedef struct caller {
    weft_region *region;
    unsigned rank;
    uint32_t slot;
    pthread_t thread;
} caller;

static void *calls(void *arg)
{
    const caller *c = arg;
    weft_region_stats stats;
    uint32_t owner = 0;
    uint64_t local = 0;
    void *view = NULL;

    wt_speak_for(c->rank);
    for (uint64_t i = 1; i <= 20; i++) {
        weft_region *found = weft_region_find(weft_region_base(c->region));

        WT_CHECK(found == c->region);
        WT_OK(weft_region_locate(found, i % 10, &owner, &local));
        WT_OK(weft_region_view_readonly(found, &view));
        weft_region_unview(found, view);
        WT_OK(weft_region_signal(found, c->rank, c->slot, 1));
        WT_OK(weft_region_wait(found, c->slot, i, 0));
        weft_region_count(found, &stats);
        WT_OK(weft_region_barrier(found, 0));
        weft_region_destroy(found);
    }
    return NULL;
}

static void threads_body(weft_world *world)
{
    enum { THREADS = 3 };
    weft_region *region = make(world, 10, 0, WEFT_PARTITION_EQUAL);
    caller c[THREADS];

    for (uint32_t i = 0; i < THREADS; i++) {
        c[i] = (caller){.region = region, .rank = wt_rank(), .slot = i};
        WT_CHECK(pthread_create(&c[i].thread, NULL, calls, &c[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(c[i].thread, NULL);
    }
    weft_region_destroy(region);
}

static void several_threads_may_call_at_once(void **state)
{
    (void)state;
    wt_run_both(2, "TIMEOUT=1800s", threads_body);
}

/* --- resize --------------------------------------------------------------- */

static void check_rows(weft_region *region, uint64_t written)
{
    uint64_t rows = describe(region).shape[0];

    for (uint64_t i = 0; i < rows; i++) {
        const int64_t *at = row_of(region, i);

        for (unsigned k = 0; k < 30; k++) {
            if (at[k] != (i < written ? (int64_t)(i * 30 + k) : 0)) {
                WT_FAIL("row %llu of %llu, %llu written: %lld",
                        (unsigned long long)i, (unsigned long long)rows,
                        (unsigned long long)written, (long long)at[k]);
            }
        }
    }
}

static void write_rows(weft_region *region, uint64_t from)
{
    weft_region_info info = describe(region);

    for (uint64_t i = from; i < info.shape[0]; i++) {
        int64_t *at = row_of(region, i);
        uint32_t owner = 0;
        uint64_t local = 0;

        WT_OK(weft_region_locate(region, i, &owner, &local));
        for (unsigned k = 0; owner == info.rank && k < 30; k++) {
            at[k] = (int64_t)(i * 30 + k);
        }
    }
}

static void resize_of(weft_world *world, weft_partition kind, int32_t aligned)
{
    static const uint64_t sizes[] = {50, 300, 120, 7, 200, 0, 90, 90, 600, 1};
    uint64_t shape[] = {13, 30};
    weft_region_options o = {.size = sizeof(o),
                             .partition = kind,
                             .run = 3,
                             .max_rows = 1000,
                             .aligned = aligned};
    weft_region *region = NULL;
    uint64_t had = 13;
    void *base;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I64, &o,
                             &region));
    base = weft_region_base(region);
    write_rows(region, 0);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        WT_OK(weft_region_barrier(region, 0));
        WT_OK(weft_region_resize(region, sizes[i]));
        WT_CHECK(weft_region_base(region) == base);
        WT_CHECK(describe(region).shape[0] == sizes[i]);
        check_rows(region, had < sizes[i] ? had : sizes[i]);
        WT_OK(weft_region_barrier(region, 0));
        write_rows(region, had < sizes[i] ? had : sizes[i]);
        WT_OK(weft_region_barrier(region, 0));
        check_rows(region, sizes[i]);
        had = sizes[i];
    }
    WT_STATUS(weft_region_resize(region, 1001), WEFT_ERR_INVALID);
    WT_CHECK(describe(region).shape[0] == 1);
    weft_region_destroy(region);
}

static void resize_body(weft_world *world)
{
    resize_of(world, WEFT_PARTITION_EQUAL, 0);
    resize_of(world, WEFT_PARTITION_EQUAL, 1);
    resize_of(world, WEFT_PARTITION_ROUND_ROBIN, 0);
    resize_of(world, WEFT_PARTITION_ROUND_ROBIN, 1);
}

static void resizing_keeps_rows_and_gives_zeros(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        wt_run_both(ranks[i], "TIMEOUT=1800s", resize_body);
    }
}

static void resize_mismatch_body(weft_world *world)
{
    weft_region *region = make(world, 10, 50, WEFT_PARTITION_EQUAL);

    WT_STATUS(weft_region_resize(region, wt_rank() == 1 ? 21 : 20),
              WEFT_ERR_MISMATCH);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    WT_OK(weft_region_resize(region, 20));
    weft_region_destroy(region);
}

static void a_resize_to_different_sizes_is_a_mismatch(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", resize_mismatch_body);
}

static void resize_late_body(weft_world *world)
{
    weft_region *region;

    weft_comm_set_timeout(weft_world_comm(world), 0.05);
    wt_meet();
    weft_comm_set_timeout(weft_world_comm(world), 20 * WT_SLOWDOWN);
    region = make(world, 10, 50, WEFT_PARTITION_EQUAL);
    WT_OK(weft_region_barrier(region, 0));
    if (wt_rank() == 0) {
        weft_region_destroy(region);
        wt_meet();
        return;
    }
    WT_STATUS(weft_region_resize(region, 20), WEFT_ERR_PEER);
    wt_meet();
    WT_STATUS(weft_region_resize(region, 20), WEFT_ERR_PEER);
    WT_CHECK(describe(region).shape[0] == 10);
    weft_region_destroy(region);
}

static void a_resize_that_not_all_came_to_is_the_last_one(void **state)
{
    (void)state;
    wt_run_both(2, "TIMEOUT=1800s", resize_late_body);
}

/* Memory of rows that go is given back. */
static void shrink_body(weft_world *world)
{
    uint64_t shape[] = {64, 1 << 20};
    weft_region_options o = {.size = sizeof(o), .pages = WEFT_PAGES_SMALL};
    weft_region *region = NULL;
    size_t before;
    size_t full;

    wt_meet();
    before = wt_resident_kib();
    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_U8, &o,
                             &region));
    full = wt_resident_kib();
    WT_CHECK(full > before + 16 * 1024);
    WT_OK(weft_region_resize(region, 1));
    wt_meet();
    WT_CHECK(wt_resident_kib() < full - 16 * 1024);
    weft_region_destroy(region);
}

static void shrinking_gives_memory_back(void **state)
{
    (void)state;
    wt_run(2, "TIMEOUT=1800s", shrink_body);
}

/* --- children of this rank ------------------------------------------------ */

static int in_child(void (*what)(weft_region *region, void *arg),
                    weft_region *region, void *arg)
{
    int status = 0;
    pid_t pid = fork();

    WT_CHECK(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        what(region, arg);
        _exit(0);
    }
    WT_CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void child_writes(weft_region *region, void *arg)
{
    int64_t *x = weft_region_base(region);
    weft_region *found = weft_region_find(x);

    (void)arg;
    if (x[0] != 5 || found != region ||
        weft_region_barrier(region, 0.1) != WEFT_ERR_CLOSED ||
        weft_region_signal(region, 0, 0, 1) != WEFT_ERR_CLOSED ||
        weft_region_resize(region, 3) != WEFT_ERR_CLOSED) {
        _exit(1);
    }
    x[1] = 6;
    weft_region_destroy(found);
    weft_region_destroy(region);
}

static void fork_body(weft_world *world)
{
    weft_region *region = make(world, 10, 0, WEFT_PARTITION_EQUAL);
    int64_t *x = weft_region_base(region);

    if (wt_rank() == 0) {
        x[0] = 5;
        WT_CHECK(in_child(child_writes, region, NULL) == 0);
    }
    WT_OK(weft_region_barrier(region, 0));
    WT_CHECK(x[1] == 6);
    weft_region_destroy(region);
}

static void a_forked_child_reads_and_writes_but_does_not_wait(void **state)
{
    (void)state;
    wt_run(2, "TIMEOUT=1800s", fork_body);
}

static void child_stores(weft_region *region, void *arg)
{
    (void)region;
    *(volatile int64_t *)arg = 1;
}

static bool faults(int status)
{
    /* A sanitizer turns the signal into an exit. */
    return WIFSIGNALED(status)
               ? WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS
               : WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

static void readonly_body(weft_world *world)
{
    weft_region *region = make(world, 10, 1000, WEFT_PARTITION_EQUAL);
    int64_t *x = weft_region_base(region);
    int64_t *other = NULL;
    int64_t *view = NULL;
    weft_region *found;

    WT_OK(weft_region_view_readonly(region, (void **)(void *)&view));
    WT_OK(weft_region_view_readonly(region, (void **)(void *)&other));
    WT_CHECK(view != x && other != view);
    weft_region_unview(region, other);
    weft_region_unview(region, &found);
    weft_region_unview(region, NULL);
    x[299 - wt_rank()] = 7;
    WT_OK(weft_region_barrier(region, 0));
    WT_CHECK(view[299] == 7 && view[298] == 7);
    WT_CHECK(faults(in_child(child_stores, region, view)));
    WT_CHECK(in_child(child_stores, region, x) == 0);
    /* Rows that are not there yet cannot be touched either. */
    WT_CHECK(faults(in_child(child_stores, region, x + 900 * 30)));
    WT_CHECK(view[0] == 1);
    found = weft_region_find(view + 3);
    WT_CHECK(found == region);
    weft_region_destroy(found);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region); /* and its view with it */
    WT_CHECK(weft_region_find(view) == NULL);
}

static void a_readonly_view_cannot_be_written(void **state)
{
    (void)state;
    wt_run(2, "TIMEOUT=1800s", readonly_body);
}

/* --- the end of the job --------------------------------------------------- */

static void outlive_body(void)
{
    weft_world *world = NULL;
    weft_comm *comm = NULL;
    weft_region *region = NULL;
    uint64_t shape[] = {100, 30};
    unsigned fds = wt_count_fds();
    int64_t *x;

    WT_OK(wt_join("TIMEOUT=1800s", 0, &world));
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_region_create(comm, 2, shape, WEFT_I64, NULL, &region));
    weft_comm_destroy(comm);
    x = weft_region_base(region);
    x[wt_rank()] = 10 + wt_rank();
    WT_OK(weft_region_barrier(region, 0));
    WT_OK(weft_region_resize(region, 50));
    WT_OK(weft_region_barrier(region, 0));
    weft_world_destroy(world);
    wt_meet();
    for (unsigned r = 0; r < wt_ranks(); r++) {
        WT_CHECK(x[r] == 10 + r);
    }
    WT_STATUS(weft_region_barrier(region, 0), WEFT_ERR_CLOSED);
    WT_STATUS(weft_region_signal(region, 0, 0, 1), WEFT_ERR_CLOSED);
    WT_STATUS(weft_region_wait(region, 0, 1, 0), WEFT_ERR_CLOSED);
    WT_STATUS(weft_region_resize(region, 10), WEFT_ERR_CLOSED);
    x[50 + wt_rank()] = wt_rank();
    wt_meet();
    for (unsigned r = 0; r < wt_ranks(); r++) {
        WT_CHECK(x[50 + r] == r);
    }
    wt_meet();
    weft_region_retain(region);
    weft_region_destroy(region);
    x[0]++;
    weft_region_destroy(region);
    weft_region_destroy(NULL);
    wt_meet();
    /* One rank counts: to count takes a descriptor, and ranks may be threads.
     */
    if (!WT_TSAN && wt_rank() == 0) {
        WT_CHECK(wt_count_fds() <= fds + 1);
    }
    wt_meet();
}

static void memory_outlives_communicator_and_world(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 1, .bare = outlive_body});
    wt_run_job_both(&(wt_job){.ranks = 3, .bare = outlive_body});
}

/* --- nodes ---------------------------------------------------------------- */

static const char *nodes;

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "TIMEOUT=1800s NODE=%c", nodes[rank]);
    return text;
}

static void check_reach(weft_world *world, weft_reach reach)
{
    uint64_t shape[] = {1000, 30};
    weft_region_options o = {
        .size = sizeof(o), .reach = reach, .max_rows = 2000};
    weft_region *region = NULL;
    weft_region_info info;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I64, &o,
                             &region));
    info = describe(region);
    WT_CHECK(info.reach ==
             (reach == WEFT_REACH_AUTO ? WEFT_REACH_DISTRIBUTED : reach));
    WT_CHECK(weft_region_base(region) == NULL);
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t r = 0; r < info.ranks; r++) {
            bool mapped = reach == WEFT_REACH_DISTRIBUTED
                              ? r == info.rank
                              : nodes[r] == nodes[info.rank];
            weft_region_part part;

            WT_OK(weft_region_part_of(region, r, round, &part));
            WT_CHECK((part.at != NULL) == mapped);
            if (mapped) {
                WT_CHECK(((int64_t *)part.at)[0] == 0);
                WT_CHECK(((int64_t *)part.at)[part.rows * 30 - 1] == 0);
            }
        }
        WT_OK(weft_region_barrier(region, 0));
        for (uint32_t r = 0; r < info.ranks; r++) {
            weft_region_part part;

            WT_OK(weft_region_part_of(region, r, round, &part));
            if (part.at != NULL) {
                int64_t *x = part.at;

                x[info.rank] = 1 + info.rank;
                x[part.rows * 30 - 1 - info.rank] = 1;
            }
        }
        WT_OK(weft_region_barrier(region, 0));
        WT_OK(weft_region_resize(region, round == 0 ? 2000 : 500));
    }
    WT_STATUS(weft_region_signal(region, 0, 0, 1),
              nodes[0] == nodes[info.rank] ? WEFT_OK : WEFT_ERR_UNSUPPORTED);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void nodes_body(weft_world *world)
{
    uint64_t shape[] = {10, 4};
    weft_region_options o = {.size = sizeof(o), .reach = WEFT_REACH_MAPPED};
    weft_region *region = NULL;

    WT_STATUS(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I64, &o,
                                 &region),
              WEFT_ERR_UNSUPPORTED);
    check_reach(world, WEFT_REACH_AUTO);
    check_reach(world, WEFT_REACH_DISTRIBUTED);
    check_reach(world, WEFT_REACH_HIERARCHY);
}

static void over_nodes_each_maps_the_parts_of_its_own(void **state)
{
    static const char *const layouts[] = {"aabb", "abc", "abab", "abbcca"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        nodes = layouts[i];
        wt_run_job_both(&(wt_job){.ranks = (unsigned)strlen(nodes),
                                  .settings_of = settings_of,
                                  .body = nodes_body});
    }
}

static void distributed_body(weft_world *world)
{
    check_reach(world, WEFT_REACH_DISTRIBUTED);
}

static void on_one_node_distributed_maps_the_own_part_only(void **state)
{
    (void)state;
    nodes = "aaa";
    wt_run_job_both(&(wt_job){
        .ranks = 3, .settings_of = settings_of, .body = distributed_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_lets_nobody_pass_before_all_have_come),
        cmocka_unit_test(a_barrier_that_timed_out_is_taken_up_again),
        cmocka_unit_test(
            a_barrier_does_not_wait_for_one_who_gave_the_region_up),
        cmocka_unit_test(signals_order_what_was_written_before_them),
        cmocka_unit_test(several_threads_may_call_at_once),
        cmocka_unit_test(resizing_keeps_rows_and_gives_zeros),
        cmocka_unit_test(a_resize_to_different_sizes_is_a_mismatch),
        cmocka_unit_test(a_resize_that_not_all_came_to_is_the_last_one),
        cmocka_unit_test(shrinking_gives_memory_back),
        cmocka_unit_test(a_forked_child_reads_and_writes_but_does_not_wait),
        cmocka_unit_test(a_readonly_view_cannot_be_written),
        cmocka_unit_test(memory_outlives_communicator_and_world),
        cmocka_unit_test(over_nodes_each_maps_the_parts_of_its_own),
        cmocka_unit_test(on_one_node_distributed_maps_the_own_part_only),
    };

    return cmocka_run_group_tests_name("region_life", tests, NULL, NULL);
}
