/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on stores, with faults. Without settings: a few jobs, in
 * seconds. "make soak" gives it more:
 *
 *     SOAK_OPERATIONS  on keys, that are to be done, as 1e9
 *     SOAK_MINUTES     that it may take
 *     SOAK_SEED        of all that is drawn
 *     SOAK_FIRST       number of the first job, to begin with one that failed
 *     SOAK_JOBS        how many at most */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "soak.h"
#include "socket/socket.h"
#include "wt_cmocka.h"
#include "wt_fault.h"
#include "wt_proc.h"

static struct {
    bool is_short;
    double operations;
    double minutes;
    uint64_t seed;
    unsigned first;
    unsigned jobs;
} task;

static unsigned running = UINT32_MAX; /* the job that runs */
static double began;
static double reported;

static double setting(const char *name, double otherwise)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? strtod(text, NULL) : otherwise;
}

static void read_settings(void)
{
    const char *seed = getenv("SOAK_SEED");

    task.is_short = getenv("SOAK_OPERATIONS") == NULL;
    task.operations = setting("SOAK_OPERATIONS", 1e9);
    task.minutes = setting("SOAK_MINUTES", task.is_short ? 2 : 30);
    task.first = (unsigned)setting("SOAK_FIRST", 0);
    task.jobs =
        (unsigned)setting("SOAK_JOBS", task.is_short ? 2 * SOAK_FAULTS : 1e9);
    task.seed = seed != NULL && seed[0] != '\0' ? strtoull(seed, NULL, 0)
                : task.is_short                 ? 1
                                                : (uint64_t)time(NULL);
}

static void report(void)
{
    double done = (double)atomic_load(&board->operations);
    double passed = wt_now() - began;

    wt_note("soak: %.3g of %.3g operations, %.3g a second, in %.0f s", done,
            task.operations, done / passed, passed);
    reported = wt_now();
}

static void run_one(unsigned number)
{
    char text[256];

    job_draw(task.seed, number, task.is_short ? 0.1 : 1.0, !WT_TSAN);
    job_text(text, sizeof(text));
    wt_note("soak: job %u: %s", number, text);
    atomic_store(&board->struck, 0);
    atomic_store(&board->over, 0);
    atomic_store(&board->lost, 0);
    memset(board->steps, 0, sizeof(board->steps));
    memset(board->synced, 0, sizeof(board->synced));
    memset(board->books, 0, sizeof(board->books));
    if (job.sockets) {
        setenv("WT_TRANSPORT", "far", 1);
    } else {
        unsetenv("WT_TRANSPORT");
    }
    wt_socket_delay = job.fault == SOAK_DELAY ? 2000 : 0;
    running = number;
    if (WT_TSAN) {
        wt_run_job_threads(&(wt_job){.ranks = job.ranks,
                                     .settings_of = job_settings,
                                     .body = soak_body});
    } else {
        wt_run_job(
            &(wt_job){.ranks = job.ranks,
                      .settings_of = job_settings,
                      .body = soak_body,
                      .doomed = job.fault == SOAK_KILL ? job.victims : 0});
    }
    wt_expect_no_names();
    running = UINT32_MAX;
}

static void sum_up(void)
{
    report();
    wt_note(
        "soak: %llu rows checked, %llu samples; keys: %llu moved, %llu "
        "copied, %llu copies expired, %llu requests parked, %llu "
        "forwarded, %llu intents refused",
        (unsigned long long)board->checked, (unsigned long long)board->samples,
        (unsigned long long)board->moved, (unsigned long long)board->copied,
        (unsigned long long)board->expired, (unsigned long long)board->parked,
        (unsigned long long)board->forwarded,
        (unsigned long long)board->refused);
    wt_note(
        "soak: %llu ranks killed, named after %.3f s at most, %llu "
        "operations failed for it, %llu rows repaired; %llu stops; %llu "
        "operations without memory",
        (unsigned long long)board->killed, 1e-6 * (double)board->named_after,
        (unsigned long long)board->failed, (unsigned long long)board->repaired,
        (unsigned long long)board->stopped, (unsigned long long)board->starved);
}

static void totals_are_exact_whatever_happens_to_ranks(void **state)
{
    unsigned i = 0;

    (void)state;
    for (; i < task.jobs; i++) {
        if ((double)atomic_load(&board->operations) >= task.operations ||
            wt_now() - began > 60 * task.minutes) {
            break;
        }
        run_one(task.first + i);
        if (wt_now() - reported > 10) {
            report();
        }
    }
    sum_up();
    if (i >= 2 * SOAK_FAULTS) { /* of fewer not all need happen */
        assert_true(board->moved > 0 && board->copied > 0 &&
                    board->expired > 0 && board->parked > 0);
    }
}

static int say_how_to_repeat(void **state)
{
    (void)state;
    if (running != UINT32_MAX) {
        wt_note("soak: SOAK_SEED=%llu SOAK_FIRST=%u runs this job again",
                (unsigned long long)task.seed, running);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_exact_whatever_happens_to_ranks),
    };

    read_settings();
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    wt_note("soak: SOAK_SEED=%llu", (unsigned long long)task.seed);
    (void)wt_isolate();
    began = reported = wt_now();
    return cmocka_run_group_tests(tests, NULL, say_how_to_repeat);
}
