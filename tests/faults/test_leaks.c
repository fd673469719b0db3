/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending worlds again and again in one process costs nothing that
 * stays: no memory, no descriptor, no mapping, no thread. */
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

/* Cycles before the first count: libc and the kernel fill their caches. */
enum { WARM_UP = 10, CYCLES = WT_TSAN ? 20 : 200 };

typedef struct holdings {
    unsigned fds;
    unsigned mappings;
    unsigned threads;
    size_t heap;
    size_t resident_kib;
} holdings;

static holdings count_holdings(void)
{
    return (holdings){wt_count_fds(), wt_count_mappings(), wt_count_threads(),
                      mallinfo2().uordblks, wt_resident_kib()};
}

/* The kernel lists a thread for a moment after it was joined. */
static void await_threads(unsigned most)
{
    double until = wt_now() + 20;

    while (wt_count_threads() > most && wt_now() < until) {
        sched_yield();
    }
}

/* One leak of any kind in each cycle shows as CYCLES of them. */
static void check_holdings(holdings before)
{
    holdings after;

    await_threads(before.threads);
    after = count_holdings();
    if (after.fds != before.fds) {
        wt_print_fds();
        WT_FAIL("%u descriptors have become %u", before.fds, after.fds);
    }
    WT_CHECK(after.threads <= before.threads);
    /* Sanitizers keep freed memory, mapped in pieces, and look for leaks
     * themselves. */
    if (!WT_TSAN && !WT_ASAN) {
        if (after.mappings > before.mappings + CYCLES / 10) {
            wt_print_mappings();
            WT_FAIL("%u mappings have become %u", before.mappings,
                    after.mappings);
        }
        /* Blocks that the allocator keeps for this thread count as used. */
        if (after.heap > before.heap + CYCLES * 20 + 8192) {
            WT_FAIL("%zu bytes of heap have become %zu", before.heap,
                    after.heap);
        }
        if (after.resident_kib > before.resident_kib + 2 * CYCLES) {
            WT_FAIL("%zu KiB of memory have become %zu", before.resident_kib,
                    after.resident_kib);
        }
    }
}

/* A little of everything that allocates. */
static void live_once(unsigned round)
{
    static const size_t n = 50000;
    float *x = calloc(n, sizeof(*x));
    weft_world *world = NULL;
    weft_comm *dup = NULL;
    weft_comm *half = NULL;
    weft_request *request = NULL;
    unsigned next;

    WT_CHECK(x != NULL);
    WT_OK(wt_join(NULL, round, &world));
    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    WT_OK(weft_comm_split(dup, wt_rank() % 2, 0, &half));
    WT_OK(weft_iallreduce(dup, x, x, n, WEFT_F32, WEFT_SUM, &request));
    WT_OK(weft_allreduce(half, x, x, 0, WEFT_F32, WEFT_SUM));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    next = (wt_rank() + 1) % wt_ranks();
    WT_OK(weft_send(dup, x, 100, next, 1));
    WT_OK(weft_recv(dup, x, 100, (wt_rank() + wt_ranks() - 1) % wt_ranks(), 1,
                    NULL));
    weft_comm_destroy(half);
    weft_comm_destroy(dup);
    weft_world_destroy(world);
    free(x);
}

static void cycles_body(void)
{
    holdings before = {0};

    for (unsigned i = 0; i < WARM_UP + CYCLES; i++) {
        if (i == WARM_UP) {
            before = count_holdings();
        }
        live_once(i);
    }
    check_holdings(before);
}

static void worlds_of_one_rank_leave_nothing_in_the_process(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 1, .bare = cycles_body, .deadline = 120});
}

static void worlds_of_three_ranks_leave_nothing_in_the_process(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 3, .bare = cycles_body, .deadline = 120});
}

/* What the ranks of one process hold is counted when all are done. */
static void cycles_uncounted(void)
{
    for (unsigned i = 0; i < (WT_TSAN ? 10 : 50); i++) {
        live_once(i);
    }
}

static void worlds_in_threads_leave_no_descriptor(void **state)
{
    (void)state;
    wt_run_job_threads(
        &(wt_job){.ranks = 3, .bare = cycles_uncounted, .deadline = 120});
}

/* A world that nobody ever used, and one that could not be made. */
static void failed_body(void)
{
    holdings before = {0};
    weft_world *world = NULL;

    for (unsigned i = 0; i < WARM_UP + CYCLES; i++) {
        if (i == WARM_UP) {
            before = count_holdings();
        }
        WT_OK(wt_join(NULL, 2 * i, &world));
        weft_world_destroy(world);
        WT_STATUS(wt_join("SHM_RING_BYTES=no", 2 * i + 1, &world),
                  WEFT_ERR_INVALID);
    }
    check_holdings(before);
}

static void failed_and_unused_worlds_leave_nothing(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 1, .bare = failed_body, .deadline = 120});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_of_one_rank_leave_nothing_in_the_process),
        cmocka_unit_test(worlds_of_three_ranks_leave_nothing_in_the_process),
        cmocka_unit_test(worlds_in_threads_leave_no_descriptor),
        cmocka_unit_test(failed_and_unused_worlds_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
