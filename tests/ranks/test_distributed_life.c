/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on other nodes over the life of a region: owners that call nothing,
 * resize, save and load, that let go or leave; several threads and regions at
 * once; what is counted, and what an idle job costs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft/file.h>

#include "distributed_rows.h"

/* Words of the board. */
enum { DONE = 0, READY, PID };

static const dr_shape plain = {.rows = 40, .width = 9, .type = WEFT_F32};

static dr_shape plain_by(weft_reach reach)
{
    dr_shape shape = plain;

    shape.reach = reach;
    return shape;
}

/* The first row of a rank's part. */
static int64_t row_of(weft_region *region, uint32_t rank)
{
    weft_region_part part;

    WT_OK(weft_region_part_of(region, rank, 0, &part));
    WT_CHECK(part.rows > 0);
    return (int64_t)part.row;
}

static weft_status gather_one(weft_region *region, int64_t id)
{
    weft_table table = dr_table(region);
    float out[9];

    return weft_rows_gather(&table,
                            &(weft_ids){.at = &id, .type = WEFT_I64, .n = 1},
                            &(weft_rows){.at = out, .type = WEFT_F32}, NULL);
}

/* --- one-sided ------------------------------------------------------------ */

/* Rank 0 works alone; the others sleep without the library, or in a barrier. */
static void alone_body(weft_world *world)
{
    dr_shape shape = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_region *region = dr_create(world, &shape);
    uint32_t rank = weft_world_rank(world);

    if (rank == 0) {
        for (int i = 0; i < 100; i++) {
            dr_check_gather(region, (int64_t[]){i % 40, 39 - i % 40, -1}, 3);
        }
        wt_word_set(DONE, 1);
    } else if (rank == 1) {
        wt_word_await(DONE, 1);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_region_destroy(region);
}

static void owners_need_not_call_anything(void **state)
{
    (void)state;
    dr_run("aaa", alone_body);
    dr_run("abc", alone_body);
}

/* --- the end of an owner -------------------------------------------------- */

/* The last rank gives the region up. */
static void destroyed_body(weft_world *world)
{
    dr_shape shape = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_region *region = dr_create(world, &shape);
    uint32_t last = weft_world_size(world) - 1;
    int64_t lost = row_of(region, last);

    WT_OK(weft_region_barrier(region, 0));
    if (weft_world_rank(world) == last) {
        weft_region_destroy(region);
        region = NULL;
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    for (int i = 0; region != NULL && i < 3; i++) {
        WT_STATUS(gather_one(region, lost), WEFT_ERR_CLOSED);
        WT_CHECK(wt_names_rank(weft_error_detail(), last));
        dr_check_gather(region, (int64_t[]){0, lost - 1, 3}, 3);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_region_destroy(region);
}

static void an_owner_that_let_go_is_named(void **state)
{
    (void)state;
    dr_run("aaa", destroyed_body);
    dr_run("ab", destroyed_body);
    dr_run("abcc", destroyed_body);
}

/* It leaves the job; its own part is still its to use. */
static void left_bare(void)
{
    dr_shape shape = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_world *world = NULL;
    weft_region *region;
    uint32_t last = wt_ranks() - 1;
    int64_t lost;

    WT_OK(wt_join("TIMEOUT=30", 0, &world));
    region = dr_create(world, &shape);
    lost = row_of(region, last);
    WT_OK(weft_region_barrier(region, 0));
    if (wt_rank() == last) {
        weft_world_destroy(world);
        WT_STATUS(gather_one(region, 0), WEFT_ERR_CLOSED);
        dr_check_gather(region, &lost, 1);
        wt_word_set(DONE, 1);
        weft_region_destroy(region);
        return;
    }
    wt_word_await(DONE, 1);
    WT_STATUS(gather_one(region, lost), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), last));
    dr_check_gather(region, (int64_t[]){0, lost - 1}, 2);
    wt_word_add(READY, 1);
    wt_word_await(READY, last);
    weft_region_destroy(region);
    weft_world_destroy(world);
}

static void an_owner_that_left_the_job_is_named(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 3, .bare = left_bare});
}

/* --- forked children ------------------------------------------------------ */

/* A child has its rank's part and may let go of it; it asks nobody, and the
 * ranks go on. */
static void forked_body(weft_world *world)
{
    dr_shape shape = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_region *region = dr_create(world, &shape);
    uint32_t rank = weft_world_rank(world);
    int64_t own = row_of(region, rank);
    int64_t other = row_of(region, rank == 0 ? 1 : 0);
    int status = -1;
    pid_t child;

    dr_check_all(region);
    child = fork();
    WT_CHECK(child >= 0);
    if (child == 0) {
        WT_STATUS(gather_one(region, other), WEFT_ERR_CLOSED);
        dr_check_gather(region, &own, 1);
        weft_region_destroy(region);
        _exit(0);
    }
    for (int i = 0; i < 20; i++) {
        dr_check_all(region);
    }
    WT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void a_forked_child_asks_nobody(void **state)
{
    (void)state;
    wt_run(3, NULL, forked_body);
}

/* --- at once -------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 30 };

typedef struct worker {
    weft_region *read;
    weft_region *add;
    unsigned rank;
    unsigned number;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    weft_table table = dr_table(w->add);
    float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

    wt_speak_for(w->rank);
    for (unsigned i = 0; i < ROUNDS; i++) {
        int64_t id = (int64_t)((i * THREADS + w->number) % 40);
        int64_t ids[5] = {id, 39 - id, -1, id, (id + 11) % 40};

        WT_OK(weft_rows_scatter_add(
            &table, &(weft_ids){.at = &id, .type = WEFT_I64, .n = 1},
            &(weft_rows){.at = ones, .type = WEFT_F32}, NULL));
        dr_check_gather(w->read, ids, 5);
    }
    return NULL;
}

static void crowd_body(weft_world *world)
{
    dr_shape one = plain_by(WEFT_REACH_DISTRIBUTED);
    dr_shape two = plain_by(WEFT_REACH_HIERARCHY);
    weft_region *read = dr_create(world, &one);
    weft_region *add = dr_create(world, &two);
    pthread_t thread[THREADS];
    worker w[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (worker){read, add, weft_world_rank(world), i};
        WT_CHECK(pthread_create(&thread[i], NULL, work, &w[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    WT_OK(weft_region_barrier(add, 0));
    /* Every row was added to equally often by each rank. */
    for (uint64_t row = 0; row < 40; row++) {
        const float *at = (const float *)dr_own_row(add, row);

        WT_CHECK(at == NULL ||
                 (int)at[2] == dr_value(row, 2) +
                                   THREADS * ROUNDS / 40 * (int)wt_ranks());
    }
    WT_OK(weft_region_barrier(read, 0));
    weft_region_destroy(read);
    weft_region_destroy(add);
}

static void threads_and_regions_ask_at_once_in_both_directions(void **state)
{
    (void)state;
    dr_run("ab", crowd_body);
    dr_run("aabb", crowd_body);
}

/* --- resize, files, counts ------------------------------------------------ */

static void resize_body(weft_world *world)
{
    static const weft_partition parts[] = {WEFT_PARTITION_EQUAL,
                                           WEFT_PARTITION_ROUND_ROBIN};

    for (unsigned i = 0; i < 4; i++) {
        dr_shape shape =
            plain_by(i < 2 ? WEFT_REACH_DISTRIBUTED : WEFT_REACH_HIERARCHY);
        weft_region *region;
        int64_t new_rows[60];

        shape.partition = parts[i % 2];
        shape.max_rows = 200;
        region = dr_create(world, &shape);
        WT_OK(weft_region_resize(region, 100));
        /* At once: nobody waits for the others but in resize. */
        for (int k = 0; k < 60; k++) {
            new_rows[k] = 99 - k;
        }
        WT_OK(gather_one(region, 99));
        WT_OK(weft_region_barrier(region, 0));
        dr_fill(region);
        WT_OK(weft_region_barrier(region, 0));
        dr_check_gather(region, new_rows, 60);
        WT_OK(weft_region_barrier(region, 0));
        WT_OK(weft_region_resize(region, 30));
        dr_check_all(region);
        WT_STATUS(gather_one(region, 30), WEFT_ERR_INVALID);
        WT_OK(weft_region_barrier(region, 0));
        weft_region_destroy(region);
    }
}

static void new_rows_can_be_asked_for_at_once(void **state)
{
    (void)state;
    dr_run("ab", resize_body);
    dr_run("aab", resize_body);
    dr_run("aaa", resize_body);
}

/* The file is named by the process of rank 0. */
static void file_name(char *text, size_t room)
{
    const char *folder = getenv("TMPDIR");

    if (wt_rank() == 0) {
        wt_word_set(PID, (uint32_t)getpid());
    }
    wt_meet();
    snprintf(text, room, "%s/weft-distributed-%u", folder ? folder : "/tmp",
             atomic_load(wt_word(PID)));
}

static void file_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    dr_shape shape = plain_by(WEFT_REACH_AUTO);
    dr_shape other = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_region *region = dr_create(world, &shape);
    weft_region *copy;
    char path[200];

    file_name(path, sizeof(path));
    other.partition = WEFT_PARTITION_ROUND_ROBIN;
    copy = dr_create(world, &other);
    for (uint64_t row = 0; row < 40; row++) {
        char *at = dr_own_row(copy, row);

        if (at != NULL) {
            memset(at, 0, 9 * sizeof(float));
        }
    }
    WT_OK(weft_region_save(region, comm, path, NULL));
    WT_OK(weft_region_load(copy, comm, path, NULL));
    dr_check_all(copy);
    WT_OK(weft_barrier(comm));
    if (wt_rank() == 0) {
        unlink(path);
    }
    weft_region_destroy(region);
    weft_region_destroy(copy);
}

static void such_regions_are_saved_and_loaded(void **state)
{
    (void)state;
    dr_run("ab", file_body);
    dr_run("aabbc", file_body);
}

static void count_body(weft_world *world)
{
    dr_shape shape = plain_by(WEFT_REACH_AUTO);
    weft_region *region = dr_create(world, &shape);
    weft_region_stats stats;

    WT_CHECK(weft_region_base(region) == NULL);
    dr_check_all(region);
    weft_region_count(region, &stats);
    WT_CHECK(stats.gathers == 1 && stats.rows_own == 10);
    WT_CHECK(stats.rows_node == 10 && stats.rows_remote == 20);
    WT_CHECK(stats.bytes_remote == 20 * 9 * sizeof(float));
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void rows_are_counted_by_where_they_are(void **state)
{
    (void)state;
    dr_run("aabb", count_body);
    dr_run("abab", count_body);
}

/* --- idle ----------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A bound that polling would break by far. The sleep is what is measured, and
 * stands for no order: all have come, and none has anything to do. */
static void idle_body(weft_world *world)
{
    dr_shape shape = plain_by(WEFT_REACH_DISTRIBUTED);
    weft_region *region = dr_create(world, &shape);
    double before;

    dr_check_all(region);
    wt_meet();
    before = cpu_seconds();
    usleep(500000);
    WT_CHECK(cpu_seconds() - before < 0.1 * WT_SLOWDOWN);
    wt_meet();
    weft_region_destroy(region);
}

static void an_idle_job_uses_next_to_no_cpu(void **state)
{
    (void)state;
    dr_run("ab", idle_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_need_not_call_anything),
        cmocka_unit_test(an_owner_that_let_go_is_named),
        cmocka_unit_test(an_owner_that_left_the_job_is_named),
        cmocka_unit_test(a_forked_child_asks_nobody),
        cmocka_unit_test(threads_and_regions_ask_at_once_in_both_directions),
        cmocka_unit_test(new_rows_can_be_asked_for_at_once),
        cmocka_unit_test(such_regions_are_saved_and_loaded),
        cmocka_unit_test(rows_are_counted_by_where_they_are),
        cmocka_unit_test(an_idle_job_uses_next_to_no_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
