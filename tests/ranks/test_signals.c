/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are for the threads of the program, whatever threads the library
 * has. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

enum { ROWS = 1 << 14, LARGE = 1 << 20 };

static unsigned long long blocked_in(const char *task)
{
    char path[300];
    char line[256];
    unsigned long long mask = 0;
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
    f = fopen(path, "re");
    if (f == NULL) {
        return ~0ull; /* it has just ended */
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        found = found || sscanf(line, "SigBlk: %llx", &mask) == 1;
    }
    fclose(f);
    return found ? mask : ~0ull;
}

static bool blocks(unsigned long long mask, int signal)
{
    return (mask >> (signal - 1) & 1) != 0;
}

/* Faults are not blocked, save that the C library blocks everything while a
 * thread begins or ends. */
static void check_faults(const char *task)
{
    double until = wt_now() + 30;
    unsigned long long mask = blocked_in(task);

    while (mask != ~0ull && blocks(mask, SIGSEGV) && wt_now() < until) {
        sched_yield();
        mask = blocked_in(task);
    }
    WT_CHECK(mask == ~0ull || !blocks(mask, SIGSEGV));
}

/* How many threads there are beside the caller's, none of which takes the
 * program's signals. */
static unsigned check_threads(void)
{
    static const int programs[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                                   SIGUSR2, SIGALRM, SIGCHLD, SIGPROF};
    DIR *tasks = opendir("/proc/self/task");
    unsigned threads = 0;
    struct dirent *task;

    WT_CHECK(tasks != NULL);
    while ((task = readdir(tasks)) != NULL) {
        unsigned long long mask;

        if (task->d_name[0] == '.' || atoi(task->d_name) == gettid()) {
            continue;
        }
        threads++;
        mask = blocked_in(task->d_name);
        for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
            if (!blocks(mask, programs[i])) {
                WT_FAIL("thread %s takes signal %d", task->d_name, programs[i]);
            }
        }
        check_faults(task->d_name);
    }
    closedir(tasks);
    return threads;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    check_threads();
}

static void use_rows(weft_world *world)
{
    uint64_t shape[2] = {ROWS, 16};
    weft_region *region = NULL;
    char path[64];
    weft_file_options options = {
        .size = sizeof(options), .threads = 4, .progress = on_progress};
    int64_t *ids = malloc(ROWS * sizeof(*ids));
    float *rows = malloc(sizeof(float[ROWS][16]));

    WT_CHECK(ids != NULL && rows != NULL);
    for (int64_t i = 0; i < ROWS; i++) {
        ids[i] = ROWS - 1 - i;
    }
    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32, NULL,
                             &region));
    WT_OK(weft_rows_gather(
        &(weft_table){.region = region, .width = 16, .type = WEFT_F32},
        &(weft_ids){.at = ids, .type = WEFT_I64, .n = ROWS},
        &(weft_rows){.at = rows, .type = WEFT_F32},
        &(weft_rows_options){.size = sizeof(weft_rows_options), .threads = 4}));
    snprintf(path, sizeof(path), "/tmp/weft-signals-%d", (int)getppid());
    WT_OK(weft_region_save(region, weft_world_comm(world), path, &options));
    WT_OK(weft_barrier(weft_world_comm(world)));
    unlink(path);
    weft_region_destroy(region);
    free(rows);
    free(ids);
}

/* The watching thread, that of progress, those of rows, and, between nodes, the
 * one that answers. */
static void body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t other = 1 - weft_world_rank(world);
    char *out = calloc(2, LARGE);
    weft_request *r = NULL;

    WT_CHECK(out != NULL);
    WT_OK(weft_isend(comm, out, LARGE, other, 1, &r));
    use_rows(world);
    WT_CHECK(check_threads() >= 2);
    WT_OK(weft_barrier(comm));
    WT_OK(weft_recv(comm, out + LARGE, LARGE, other, 1, NULL));
    WT_OK(weft_request_wait(r, 0));
    weft_request_release(r);
    free(out);
}

static const char *node_of(unsigned rank)
{
    return rank == 0 ? "NODE=a" : "NODE=b";
}

static void no_thread_of_the_library_takes_signals(void **s)
{
    wt_job job = {.ranks = 2, .settings_of = node_of, .body = body};

    (void)s;
    wt_run(2, NULL, body);
    wt_run_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_of_the_library_takes_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
