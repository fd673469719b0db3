/* SPDX-License-Identifier: Apache-2.0 */
/* The place in a job: whoever comes second is told at once by whom it is taken,
 * and it is free again once that process is no rank any more, whatever it
 * leaves behind. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot/seat.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_user.h"

/* Words of the board. */
enum { STEP, CHILD };

static void be(unsigned rank, unsigned round)
{
    char number[16];
    char job[64];

    snprintf(number, sizeof(number), "%u", rank);
    wt_job_name(round, job, sizeof(job));
    WT_CHECK(setenv("WEFT_RANK", number, 1) == 0);
    WT_CHECK(setenv("WEFT_RANKS", "3", 1) == 0);
    WT_CHECK(setenv("WEFT_JOB", job, 1) == 0);
}

static wf_boot_seat *take(void)
{
    wf_boot_seat *seat = NULL;

    WT_OK(wf_boot_seat_take(&seat));
    WT_CHECK(seat != NULL);
    return seat;
}

static void must_be_told(pid_t holder)
{
    wf_boot_seat *seat = NULL;
    char who[32];

    snprintf(who, sizeof(who), "process %d is", (int)holder);
    WT_STATUS(wf_boot_seat_take(&seat), WEFT_ERR_CLOSED);
    WT_CHECK(strstr(weft_error_detail(), who) != NULL);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    WT_CHECK(seat == NULL);
}

static void must_end_well(pid_t pid)
{
    int status = 0;

    WT_CHECK(waitpid(pid, &status, 0) == pid);
    WT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- one process --------------------------------------------------------- */

static void share(void)
{
    wf_boot_seat *first;
    wf_boot_seat *second;

    be(1, 0);
    first = take();
    second = take();
    WT_CHECK(first == second);
    wf_boot_seat_leave(first);
    WT_CHECK(take() == second);
    wf_boot_seat_leave(second);
    wf_boot_seat_leave(second);
    wf_boot_seat_leave(take());
    wf_boot_seat_leave(NULL);
}

static void worlds_of_one_process_share_a_place(void **state)
{
    (void)state;
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = share});
}

static void hold_nothing(void)
{
    wf_boot_seat *seat = NULL;

    be(0, 0);
    WT_CHECK(setenv("WEFT_RANKS", "1", 1) == 0);
    WT_OK(wf_boot_seat_take(&seat));
    WT_CHECK(seat == NULL);
    WT_CHECK(setenv("WEFT_RANKS", "many", 1) == 0);
    WT_STATUS(wf_boot_seat_take(&seat), WEFT_ERR_INVALID);
}

static void one_rank_alone_holds_nothing(void **state)
{
    (void)state;
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = hold_nothing});
}

/* --- two ----------------------------------------------------------------- */

/* Rank 0 of the run has met others elsewhere, as rank 1 of 3. */
static void be_elsewhere(void)
{
    wf_boot_seat *seat = NULL;
    wf_boot_seat *again = NULL;

    be(1, 0);
    if (wt_rank() == 1) { /* nobody doubts that it is one, too */
        wt_word_await(STEP, 1);
        wf_boot_seat_keep(1, 3, &seat);
        WT_CHECK(seat != NULL);
        wf_boot_seat_leave(take());
        wf_boot_seat_leave(seat);
        wt_word_set(STEP, 2);
        return;
    }
    wf_boot_seat_keep(0, 3, &seat);
    WT_CHECK(seat == NULL);
    wf_boot_seat_keep(1, 2, &seat);
    WT_CHECK(seat == NULL);
    wf_boot_seat_keep(1, 3, &seat);
    wf_boot_seat_keep(1, 3, &again);
    WT_CHECK(seat != NULL && seat == again);
    wt_word_set(STEP, 1);
    wt_word_await(STEP, 2);
    wf_boot_seat_leave(take());
    wf_boot_seat_leave(seat);
    wf_boot_seat_leave(seat);
}

static void a_rank_that_met_others_elsewhere_is_in_nobodys_way(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 2, .bare = be_elsewhere});
}

/* And so are a child of it and a child of that. */
static void have_descendants(void)
{
    wf_boot_seat *seat = NULL;
    pid_t self = getpid();
    pid_t child;

    be(1, 0);
    wf_boot_seat_keep(1, 3, &seat);
    WT_CHECK(seat != NULL);
    child = fork();
    if (child == 0) {
        must_be_told(self);
        child = fork();
        if (child == 0) {
            must_be_told(self);
            _exit(0);
        }
        must_end_well(child);
        _exit(0);
    }
    must_end_well(child);
    wf_boot_seat_leave(seat);
    child = fork();
    if (child == 0) {
        wf_boot_seat_leave(take());
        _exit(0);
    }
    must_end_well(child);
}

static void but_its_descendants_are_told(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = have_descendants});
}

/* A child has the same rank in a group that its parent has made for it. */
static void have_helpers(void)
{
    wf_boot_seat *seat = NULL;
    pid_t child;

    be(1, 0);
    child = fork();
    if (child == 0) {
        wf_boot_seat_keep(1, 3, &seat);
        WT_CHECK(seat != NULL);
        wt_word_set(STEP, 1);
        wt_word_await(STEP, 2);
        wf_boot_seat_leave(seat);
        _exit(0);
    }
    wt_word_await(STEP, 1);
    wf_boot_seat_leave(take());
    wt_word_set(STEP, 2);
    must_end_well(child);
}

static void a_child_that_met_others_takes_no_place_from_its_parent(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = have_helpers});
}

/* Rank 0 of the run takes the place of rank 1, and rank 1 finds it taken. */
static void come_second(void)
{
    wf_boot_seat *seat = NULL;

    be(1, 0);
    if (wt_rank() == 0) {
        seat = take();
        wt_word_set(CHILD, (uint32_t)getpid());
        wt_word_set(STEP, 1);
        wt_word_await(STEP, 2);
        wf_boot_seat_leave(seat);
        wt_word_set(STEP, 3);
        return;
    }
    wt_word_await(STEP, 1);
    must_be_told((pid_t)*wt_word(CHILD));
    be(2, 0);
    wf_boot_seat_leave(take());
    be(1, 1);
    wf_boot_seat_leave(take());
    be(1, 0);
    wt_word_set(STEP, 2);
    wt_word_await(STEP, 3);
    wf_boot_seat_leave(take());
}

static void a_second_process_is_told_who_has_its_place(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 2, .bare = come_second});
}

/* Jobs that have no name are told apart by where they meet. */
static void meet_elsewhere(void)
{
    char dir[] = "/tmp/weft-seat-XXXXXX";
    char at[64];
    wf_boot_seat *here;
    wf_boot_seat *there;

    WT_CHECK(mkdtemp(dir) != NULL);
    be(1, 0);
    unsetenv("WEFT_JOB");
    for (unsigned i = 0; i < 2; i++) {
        snprintf(at, sizeof(at), "%s/%u", dir, i);
        WT_CHECK(mkdir(at, 0700) == 0);
        snprintf(at, sizeof(at), "%s/%u/job", dir, i);
        WT_CHECK(mkdir(at, 0700) == 0);
    }
    WT_CHECK(setenv("WEFT_BOOT_DIR", "job", 1) == 0);
    snprintf(at, sizeof(at), "%s/0", dir);
    WT_CHECK(chdir(at) == 0);
    here = take();
    WT_CHECK(chdir("../1") == 0);
    there = take();
    WT_CHECK(here != there);
    WT_CHECK(setenv("WEFT_BOOT_DIR", "../0/job", 1) == 0);
    WT_CHECK(take() == here);
    wf_boot_seat_leave(here);
    wf_boot_seat_leave(here);
    wf_boot_seat_leave(there);
    WT_CHECK(rmdir("job") == 0 && rmdir("../0/job") == 0);
    WT_CHECK(rmdir("../0") == 0 && chdir("/") == 0);
    snprintf(at, sizeof(at), "%s/1", dir);
    WT_CHECK(rmdir(at) == 0 && rmdir(dir) == 0);
}

static void a_directory_is_known_by_what_it_is(void **state)
{
    (void)state;
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = meet_elsewhere});
}

/* --- children ------------------------------------------------------------ */

static void child_is_told(void)
{
    wf_boot_seat *seat;
    pid_t pid;

    be(1, 0);
    seat = take();
    pid = fork();
    if (pid == 0) {
        must_be_told(getppid());
        wf_boot_seat_leave(seat); /* the copy: the parent keeps its place */
        must_be_told(getppid());
        _exit(0);
    }
    must_end_well(pid);
    wf_boot_seat_leave(seat);
}

static void a_forked_child_is_told(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = child_is_told});
}

/* Rank 0 dies, and a child that it forked goes on. */
static void die_as_a_parent(void)
{
    pid_t pid;

    be(1, 0);
    if (wt_rank() == 0) {
        (void)take();
        pid = fork();
        if (pid == 0) {
            wt_word_set(CHILD, (uint32_t)getpid());
            pause();
        }
        wt_word_await(CHILD, 1);
        kill(getpid(), SIGKILL);
    }
    wt_await_gone(0);
    WT_CHECK(kill((pid_t)*wt_word(CHILD), 0) == 0);
    wf_boot_seat_leave(take());
    kill((pid_t)*wt_word(CHILD), SIGKILL);
}

static void a_dead_rank_has_no_place_though_its_child_lives(void **state)
{
    (void)state;
    wt_run_job(
        &(const wt_job){.ranks = 2, .bare = die_as_a_parent, .doomed = 1});
}

/* The same socket after exec would be the place of a program that never
 * joined. */
static void become_another(void)
{
    int out[2];
    char byte;
    pid_t pid;

    be(1, 0);
    WT_CHECK(pipe(out) == 0);
    pid = fork();
    if (pid == 0) {
        (void)take();
        WT_CHECK(dup2(out[1], 1) == 1);
        execl("/bin/sh", "sh", "-c", "echo; exec sleep 100", (char *)NULL);
        _exit(1);
    }
    close(out[1]);
    WT_CHECK(read(out[0], &byte, 1) == 1);
    wf_boot_seat_leave(take());
    kill(pid, SIGKILL);
    WT_CHECK(waitpid(pid, NULL, 0) == pid);
    close(out[0]);
}

static void exec_gives_the_place_up(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = become_another});
}

/* --- other users ---------------------------------------------------------- */

/* What the place of this process is called, found out by holding it. */
static void own_address(struct sockaddr_un *address, socklen_t *n)
{
    wf_boot_seat *seat = take();

    *n = sizeof(*address);
    for (int fd = 3; fd < 1024; fd++) {
        *n = sizeof(*address);
        if (getsockname(fd, (struct sockaddr *)address, n) == 0 &&
            address->sun_family == AF_UNIX &&
            strncmp(address->sun_path + 1, "weft-seat", 9) == 0) {
            wf_boot_seat_leave(seat);
            return;
        }
    }
    WT_FAIL("the place has no socket");
}

/* The job starts, and a child is told all the same. */
static void others_hold(bool full)
{
    struct sockaddr_un address;
    wf_boot_seat *seat;
    socklen_t n;
    pid_t stranger;
    pid_t pid;

    be(1, full);
    own_address(&address, &n);
    stranger = wt_other_user_listens(&address, n, full);
    seat = take();
    pid = fork();
    if (pid == 0) {
        must_be_told(getppid());
        _exit(0);
    }
    must_end_well(pid);
    wf_boot_seat_leave(seat);
    kill(stranger, SIGKILL);
    WT_CHECK(waitpid(stranger, NULL, 0) == stranger);
}

/* Our own place, at which nobody can ask any more. */
static void others_fill(void)
{
    struct sockaddr_un address;
    wf_boot_seat *seat;
    socklen_t n;
    pid_t pid;

    be(1, 2);
    own_address(&address, &n);
    seat = take();
    wt_other_user_fills(&address, n);
    pid = fork();
    if (pid == 0) {
        must_be_told(getppid());
        _exit(0);
    }
    must_end_well(pid);
    wf_boot_seat_leave(seat);
}

static void start_beside_another_user(void)
{
    if (geteuid() != 0) {
        WT_SKIP("only root can be two users");
    }
    others_hold(false);
    others_hold(true);
    others_fill();
}

static void another_user_cannot_take_a_place(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = start_beside_another_user});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_cannot_take_a_place),
        cmocka_unit_test(worlds_of_one_process_share_a_place),
        cmocka_unit_test(one_rank_alone_holds_nothing),
        cmocka_unit_test(a_second_process_is_told_who_has_its_place),
        cmocka_unit_test(a_rank_that_met_others_elsewhere_is_in_nobodys_way),
        cmocka_unit_test(but_its_descendants_are_told),
        cmocka_unit_test(
            a_child_that_met_others_takes_no_place_from_its_parent),
        cmocka_unit_test(a_directory_is_known_by_what_it_is),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(a_dead_rank_has_no_place_though_its_child_lives),
        cmocka_unit_test(exec_gives_the_place_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
