/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of row operations: every part once, several callers, forks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region/rows/pool.h"
#include "wt.h"
#include "wt_cmocka.h"

#define PARTS 1000u

typedef struct tally {
    _Atomic uint32_t done[PARTS];
    uint32_t plain[PARTS]; /* seen by the caller without an atomic */
} tally;

static void tally_part(void *ctx, uint32_t part)
{
    tally *t = ctx;

    atomic_fetch_add_explicit(&t->done[part], 1, memory_order_relaxed);
    t->plain[part] = part + 1;
}

/* On the stack: what a thread has on the heap when another one forks looks like
 * a leak in the child. */
static bool run_and_check(uint32_t threads, uint32_t parts)
{
    tally t = {0};
    bool right = true;

    wf_pool_run(threads, parts, tally_part, &t);
    for (uint32_t i = 0; right && i < PARTS; i++) {
        right =
            t.done[i] == (i < parts) && t.plain[i] == (i < parts ? i + 1 : 0);
    }
    return right;
}

static void every_part_is_done_once(void **state)
{
    static const uint32_t parts[] = {0, 1, 2, 3, 7, 64, PARTS};

    (void)state;
    for (uint32_t threads = 0; threads <= 9; threads++) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            assert_true(run_and_check(threads, parts[i]));
        }
    }
    assert_in_range(wf_pool_count(), 1, 8);
    assert_true(wf_pool_threads() >= 1);
}

/* What a caller returns if a result was wrong. */
static int bad;

static void *caller_main(void *arg)
{
    for (int i = 0; i < 50; i++) {
        if (!run_and_check(2 + (uint32_t)i % 4, PARTS - (uint32_t)i)) {
            return arg;
        }
    }
    return NULL;
}

/* More of them than can have helpers at once. */
static void several_callers_share_the_threads(void **state)
{
    enum { CALLERS = 12 };
    pthread_t caller[CALLERS];
    void *failed;

    (void)state;
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&caller[i], NULL, caller_main, &bad),
                         0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(caller[i], &failed);
        assert_null(failed);
    }
}

static int child_works(void)
{
    return run_and_check(4, PARTS) && run_and_check(3, 10) ? 0 : 1;
}

/* With helpers asleep, and with a caller at work in another thread. */
static void a_forked_child_makes_threads_of_its_own(void **state)
{
    (void)state;
    assert_true(run_and_check(4, PARTS));
    for (int i = 0; i < 10; i++) {
        pthread_t busy;
        pid_t child;
        int status;

        assert_int_equal(pthread_create(&busy, NULL, caller_main, &bad), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            /* exit, so that the threads are joined. */
            exit(child_works());
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        pthread_join(busy, NULL);
    }
    assert_true(run_and_check(4, PARTS));
}

static void no_more_threads_are_made_than_asked_for(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_true(run_and_check(6, PARTS));
    }
    assert_in_range(wf_pool_count(), 1, 8);
}

int main(void)
{
    const struct CMUnitTest forking[] = {
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(several_callers_share_the_threads),
        cmocka_unit_test(a_forked_child_makes_threads_of_its_own),
        cmocka_unit_test(no_more_threads_are_made_than_asked_for),
    };
    /* TSan cannot start threads in the child of a process that has some. */
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(several_callers_share_the_threads),
        cmocka_unit_test(no_more_threads_are_made_than_asked_for),
    };

    return WT_TSAN ? cmocka_run_group_tests(threads, NULL, NULL)
                   : cmocka_run_group_tests(forking, NULL, NULL);
}
