/* SPDX-License-Identifier: Apache-2.0 */
/* The world as a whole: alone, several in one process, left early, aborted,
 * and described by weft_dump. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

/* --- alone, and several -------------------------------------------------- */

static void alone_body(void)
{
    weft_world *world = NULL;
    weft_peer me;
    float x = 3;

    WT_OK(weft_world_create(NULL, &world));
    WT_CHECK(weft_world_size(world) == 1 && weft_world_rank(world) == 0);
    WT_OK(weft_world_peer(world, 0, &me));
    WT_CHECK(me.pid == getpid() && me.shares_memory);
    WT_OK(
        weft_allreduce(weft_world_comm(world), &x, &x, 1, WEFT_F32, WEFT_SUM));
    WT_CHECK(x == 3);
    weft_world_destroy(world);
}

static void without_a_launcher_the_world_has_one_rank(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 1, .bare = alone_body});
}

static void two_worlds_body(void)
{
    weft_world *a = NULL;
    weft_world *b = NULL;
    int64_t x = 1;
    int64_t y = wt_rank();

    WT_OK(wt_join(NULL, 0, &a));
    WT_OK(wt_join("ENGINE=message", 1, &b));
    for (unsigned i = 0; i < 20; i++) {
        WT_OK(weft_broadcast(weft_world_comm(b), &y, 1, WEFT_I64, i % 3));
        WT_OK(weft_barrier(weft_world_comm(a)));
    }
    weft_world_destroy(a);
    WT_OK(weft_allreduce(weft_world_comm(b), &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == 3);
    weft_world_destroy(b);
}

static void two_worlds_live_side_by_side_in_one_process(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 3, .bare = two_worlds_body});
}

/* --- a place that is taken ----------------------------------------------- */

static void launched_as(unsigned rank)
{
    char number[16];
    char job[64];

    snprintf(number, sizeof(number), "%u", rank);
    wt_job_name(0, job, sizeof(job));
    WT_CHECK(setenv("WEFT_RANK", number, 1) == 0);
    snprintf(number, sizeof(number), "%u", wt_ranks());
    WT_CHECK(setenv("WEFT_RANKS", number, 1) == 0);
    WT_CHECK(setenv("WEFT_JOB", job, 1) == 0);
}

/* The child would wait for minutes. */
static void child_body(void)
{
    weft_world *world = NULL;
    weft_world *second = NULL;
    int status = 0;
    pid_t pid;

    launched_as(wt_rank());
    WT_OK(weft_world_create(NULL, &world));
    pid = fork();
    if (pid == 0) {
        WT_STATUS(weft_world_create(NULL, &second), WEFT_ERR_CLOSED);
        WT_CHECK(wt_names_rank(weft_error_detail(), wt_rank()));
        _exit(0);
    }
    WT_CHECK(waitpid(pid, &status, 0) == pid);
    WT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_OK(weft_world_create(NULL, &second));
    weft_world_destroy(world);
    WT_OK(weft_barrier(weft_world_comm(second)));
    weft_world_destroy(second);
}

static void a_child_is_no_rank_and_a_second_world_is(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 3, .bare = child_body});
}

/* --- leaving ------------------------------------------------------------- */

/* Rank 1 leaves in good order; the others see that it left and go on without
 * it. */
static void leave_body(void)
{
    weft_world *world = NULL;
    weft_comm *others = NULL;

    WT_OK(wt_join("TIMEOUT=1800s", 0, &world));
    WT_OK(weft_comm_split(weft_world_comm(world), wt_rank() == 1 ? -1 : 0, 0,
                          &others));
    WT_OK(weft_barrier(weft_world_comm(world)));
    /* One that is still in it when another finds the communicator broken would
     * fail, too. */
    wt_meet();
    if (wt_rank() != 1) {
        WT_STATUS(weft_barrier(weft_world_comm(world)), WEFT_ERR_PEER);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        WT_OK(weft_barrier(others));
        weft_comm_destroy(others);
    }
    weft_world_destroy(world);
}

static void the_others_go_on_when_a_rank_has_left(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 3, .bare = leave_body});
}

/* What was sent before leaving still arrives. */
static void last_words_body(void)
{
    size_t n = wt_scaled(300000);
    char *x = calloc(1, n);
    weft_world *world = NULL;

    WT_CHECK(x != NULL);
    WT_OK(wt_join("TIMEOUT=1800s", 0, &world));
    if (wt_rank() == 0) {
        x[0] = x[n - 1] = 1;
        WT_OK(weft_send(weft_world_comm(world), x, 4, 1, 1));
        WT_OK(weft_send(weft_world_comm(world), x, n, 1, 2));
    } else {
        WT_OK(weft_recv(weft_world_comm(world), x, n, 0, 1, NULL));
        WT_OK(weft_recv(weft_world_comm(world), x, n, 0, 2, NULL));
        WT_CHECK(x[0] == 1 && x[n - 1] == 1);
    }
    weft_world_destroy(world);
    free(x);
}

static void what_was_sent_before_leaving_still_arrives(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 2, .bare = last_words_body});
}

/* --- abort --------------------------------------------------------------- */

/* A word of the board: ranks that wait. */
enum { PENDING };

static void abort_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_barrier(comm));
    if (weft_world_rank(world) == 1) {
        wt_word_await(PENDING, weft_world_size(world) - 1);
        weft_comm_abort(comm, "the loss is not a number");
        WT_STATUS(weft_barrier(comm), WEFT_ERR_ABORTED);
    } else {
        WT_OK(weft_ibarrier(comm, &request));
        wt_word_add(PENDING, 1);
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_ABORTED);
        weft_request_release(request);
    }
    WT_CHECK(strstr(weft_error_detail(), "the loss is not a number") != NULL);
    WT_STATUS(weft_comm_error(comm), WEFT_ERR_ABORTED);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static void an_abort_ends_the_operations_of_all_ranks(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", abort_body);
}

/* --- dump ---------------------------------------------------------------- */

static unsigned count_lines(const char *text)
{
    unsigned n = 0;

    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

static void dump_body(weft_world *world)
{
    uint32_t ranks = weft_world_size(world);
    char text[8192];
    char small[10];
    size_t n = weft_dump(world, text, sizeof(text));

    WT_CHECK(n == strlen(text) && n > 0 && n < sizeof(text));
    WT_CHECK(count_lines(text) >= ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        if (!wt_names_rank(text, i)) {
            WT_FAIL("rank %u is not in the dump:\n%s", i, text);
        }
    }
    WT_CHECK(weft_dump(world, NULL, 0) > 0);
    WT_CHECK(weft_dump(world, small, sizeof(small)) > sizeof(small));
    WT_CHECK(strlen(small) == sizeof(small) - 1);
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void a_dump_has_a_line_for_every_rank(void **state)
{
    (void)state;
    wt_run_both(1, NULL, dump_body);
    wt_run_both(3, NULL, dump_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_launcher_the_world_has_one_rank),
        cmocka_unit_test(two_worlds_live_side_by_side_in_one_process),
        cmocka_unit_test(a_child_is_no_rank_and_a_second_world_is),
        cmocka_unit_test(the_others_go_on_when_a_rank_has_left),
        cmocka_unit_test(what_was_sent_before_leaving_still_arrives),
        cmocka_unit_test(an_abort_ends_the_operations_of_all_ranks),
        cmocka_unit_test(a_dump_has_a_line_for_every_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
