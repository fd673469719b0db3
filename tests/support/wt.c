/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's side of a run: fork, watch, kill, and say which rank failed. */
#define _GNU_SOURCE
#include "wt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wt_board.h"
#include "wt_cmocka.h"
#include "wt_launched.h"
#include "wt_proc.h"

/* Once a rank has failed, the others get this long to notice and to end by
 * themselves, so that their own words can be read. */
#define GRACE_SECONDS 5.0

typedef struct run {
    const wt_job *job;
    unsigned procs; /* one for each rank, or one for all */
    pid_t pid[WT_MAX_RANKS];
    bool ended[WT_MAX_RANKS];
    int code[WT_MAX_RANKS]; /* as waitpid gives it */
    double deadline;        /* on wt_now's clock */
    bool late;
    sigset_t mask_before;
} run;

static bool run_doomed(const run *r, unsigned i)
{
    return r->procs > 1 && (r->job->doomed >> i & 1) != 0;
}

/* --- the children -------------------------------------------------------- */

static void *thread_main(void *arg)
{
    wt_rank_main((unsigned)(uintptr_t)arg);
    return NULL;
}

static void child_threads(unsigned ranks)
{
    pthread_t thread[WT_MAX_RANKS];

    for (unsigned i = 0; i < ranks; i++) {
        if (pthread_create(&thread[i], NULL, thread_main,
                           (void *)(uintptr_t)i) != 0) {
            WT_FAIL("no thread for rank %u", i);
        }
    }
    for (unsigned i = 0; i < ranks; i++) {
        pthread_join(thread[i], NULL);
    }
}

/* cmocka catches these to go on with the next test. In a rank they must kill,
 * so that the parent sees them. */
void wt_child_signals(void)
{
    static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};

    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++) {
        signal(caught[i], SIG_DFL);
    }
}

/* Ends through exit, so that LeakSanitizer looks at each rank. */
static _Noreturn void child_main(const run *r, unsigned index)
{
    unsigned fds = wt_count_fds();

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wt_child_signals();
    sigprocmask(SIG_SETMASK, &r->mask_before, NULL);
    if (r->procs == 1 && r->job->ranks > 1) {
        child_threads(r->job->ranks);
    } else {
        wt_process_speaks_for(index);
        wt_rank_main(index);
    }
    if (wt_count_fds() != fds) {
        WT_FAIL("%u file descriptors at the start, %u at the end", fds,
                wt_count_fds());
    }
    exit(0);
}

/* --- the parent ---------------------------------------------------------- */

static void run_start(run *r)
{
    sigset_t chld;

    /* Blocked, SIGCHLD stays pending until run_sleep takes it, so that no end
     * of a child falls between a look and a sleep. */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &r->mask_before);
    /* Orphans of a rank come to us, so that we see them. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    for (unsigned i = 0; i < r->procs; i++) {
        r->pid[i] = fork();
        if (r->pid[i] == 0) {
            child_main(r, i);
        }
        if (r->pid[i] < 0) {
            r->ended[i] = true;
            r->code[i] = -1;
        } else {
            setpgid(r->pid[i], r->pid[i]);
        }
    }
}

static void run_sleep(double until)
{
    double left = until - wt_now();
    struct timespec t = {0};
    sigset_t chld;

    if (left > 0) {
        t.tv_sec = (time_t)left;
        t.tv_nsec = (long)(1e9 * (left - (double)t.tv_sec));
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        sigtimedwait(&chld, NULL, &t);
    }
}

/* Note what has stopped or ended; true if nobody that matters is left. */
static bool run_reap(run *r)
{
    wt_board *b = wt_the_board;
    bool all = true;

    for (unsigned i = 0; i < r->procs; i++) {
        int code;

        if (!r->ended[i] &&
            waitpid(r->pid[i], &code, WNOHANG | WUNTRACED) == r->pid[i]) {
            r->ended[i] = !WIFSTOPPED(code);
            r->code[i] = code;
            atomic_store(&b->gone[i], 1);
            wt_futex_wake(&b->gone[i]);
        }
        all = all && (r->ended[i] || run_doomed(r, i));
    }
    return all;
}

/* The first rank that ended badly, of those killed by a signal or of all;
 * UINT32_MAX if there is none. */
static unsigned bad_end(const run *r, bool by_signal)
{
    for (unsigned i = 0; i < r->procs; i++) {
        if (r->ended[i] && !run_doomed(r, i) && r->code[i] != 0 &&
            (!by_signal || WIFSIGNALED(r->code[i]))) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void run_watch(run *r)
{
    bool failed = false;

    while (!run_reap(r)) {
        if (!failed && bad_end(r, false) != UINT32_MAX) {
            double grace = wt_now() + GRACE_SECONDS * WT_SLOWDOWN;

            failed = true;
            r->deadline = grace < r->deadline ? grace : r->deadline;
        }
        if (wt_now() >= r->deadline) {
            r->late = true;
            return;
        }
        run_sleep(r->deadline);
    }
}

/* Kill all that is left of the ranks. Returns the number of processes that
 * were not theirs to leave: still there although their rank ended well. */
static unsigned run_clean(run *r)
{
    double until = wt_now() + GRACE_SECONDS * WT_SLOWDOWN;
    unsigned left;
    pid_t pid;

    for (unsigned i = 0; i < r->procs; i++) {
        if (r->pid[i] > 0 && (!r->ended[i] || run_doomed(r, i))) {
            kill(-r->pid[i], SIGKILL);
        }
    }
    while (wt_now() < until && (pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid == 0) {
            run_sleep(until);
        }
    }
    left = wt_kill_children();
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &r->mask_before, NULL);
    return left;
}

/* --- the verdict --------------------------------------------------------- */

static void describe_code(int code, char *text, size_t room)
{
    if (code == -1) {
        snprintf(text, room, "could not be forked");
    } else if (WIFSIGNALED(code)) {
        snprintf(text, room, "was killed by signal %d (%s)", WTERMSIG(code),
                 strsignal(WTERMSIG(code)));
    } else {
        snprintf(text, room, "exited with %d", WEXITSTATUS(code));
    }
}

static void describe_process(const run *r, unsigned i, char *text, size_t room)
{
    if (r->procs == r->job->ranks) {
        snprintf(text, room, "rank %u", i);
    } else {
        snprintf(text, room, "the process of all ranks");
    }
}

/* A crash comes first, since what other ranks say is most often its echo; then
 * a rank's own words; then what the kernel says. */
static bool describe_failure(const run *r, char *text, size_t room)
{
    const wt_board *b = wt_the_board;
    unsigned crashed = bad_end(r, true);
    unsigned bad = crashed != UINT32_MAX ? crashed : bad_end(r, false);
    char who[48];
    char code[96];

    if (crashed == UINT32_MAX && b->failed != 0) {
        snprintf(text, room, "%s", b->reason);
        return true;
    }
    if (bad == UINT32_MAX) {
        return false;
    }
    describe_process(r, bad, who, sizeof(who));
    describe_code(r->code[bad], code, sizeof(code));
    snprintf(text, room, "%s %s", who, code);
    return true;
}

static bool describe_late(const run *r, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "not done before the deadline:");

    for (unsigned i = 0; r->late && i < r->procs && n < room; i++) {
        char who[48];

        if (!r->ended[i] && !run_doomed(r, i)) {
            describe_process(r, i, who, sizeof(who));
            n += (size_t)snprintf(text + n, room - n, " %s", who);
        }
    }
    return r->late;
}

static bool run_skipped(const run *r)
{
    for (unsigned i = 0; i < r->procs; i++) {
        if (r->ended[i] && WIFEXITED(r->code[i]) &&
            WEXITSTATUS(r->code[i]) == WT_EXIT_SKIP) {
            return true;
        }
    }
    return false;
}

static void run_judge(const run *r, unsigned left)
{
    const char *how = r->procs == r->job->ranks ? "processes" : "threads";
    char text[2100];

    if (run_skipped(r)) {
        skip();
    }
    if (describe_failure(r, text, sizeof(text)) ||
        describe_late(r, text, sizeof(text))) {
        fail_msg("%u ranks as %s%s: %s", r->job->ranks, how,
                 r->late ? ", killed at the deadline" : "", text);
    }
    if (left != 0) {
        fail_msg("%u ranks as %s left %u processes behind", r->job->ranks, how,
                 left);
    }
}

/* --- the runs ------------------------------------------------------------ */

static void board_make(const wt_job *job)
{
    uint64_t random = 0;

    /* Made once and kept, so that a rank that outlives its run by a moment
     * never finds it gone. */
    if (wt_the_board == NULL) {
        wt_the_board = mmap(NULL, sizeof(wt_board), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(wt_the_board != MAP_FAILED);
    }
    memset(wt_the_board, 0, sizeof(*wt_the_board));
    wt_the_board->ranks = job->ranks;
    wt_the_board->job = job;
    assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
    snprintf(wt_the_board->name, sizeof(wt_the_board->name), "wt-%016llx",
             (unsigned long long)random);
}

static void run_job(const wt_job *job, unsigned procs)
{
    double seconds = job->deadline > 0 ? job->deadline : 120;
    run r = {.job = job, .procs = procs};
    unsigned left;

    assert_in_range(job->ranks, 1, WT_MAX_RANKS);
    board_make(job);
    r.deadline = wt_now() + seconds * WT_SLOWDOWN;
    run_start(&r);
    run_watch(&r);
    left = run_clean(&r);
    run_judge(&r, left);
}

void wt_run_job(const wt_job *job)
{
    if (wt_launched()) {
        wt_launched_run(job);
        return;
    }
    if (WT_TSAN) {
        skip();
    }
    run_job(job, job->ranks);
}

void wt_run_job_threads(const wt_job *job)
{
    if (wt_launched()) { /* a process has one rank of MPI */
        wt_launched_skip();
    }
    assert_int_equal(job->doomed, 0);
    run_job(job, 1);
}

void wt_run_job_both(const wt_job *job)
{
    if (!WT_TSAN || wt_launched()) {
        wt_run_job(job);
    }
    if (!wt_launched()) {
        wt_run_job_threads(job);
    }
}

static unsigned ranks_a_node;

static const char *node_settings(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "NODE=n%u TIMEOUT=60s", rank / ranks_a_node);
    return text;
}

wt_job wt_job_on_nodes(unsigned nodes, unsigned ranks, wt_body *body)
{
    ranks_a_node = ranks;
    return (wt_job){
        .ranks = nodes * ranks, .settings_of = node_settings, .body = body};
}

void wt_run_nodes(unsigned nodes, unsigned ranks, wt_body *body)
{
    wt_job job = wt_job_on_nodes(nodes, ranks, body);

    wt_run_job_both(&job);
}

void wt_run(unsigned ranks, const char *settings, wt_body *body)
{
    wt_run_job(&(wt_job){.ranks = ranks, .settings = settings, .body = body});
}

void wt_run_threads(unsigned ranks, const char *settings, wt_body *body)
{
    wt_run_job_threads(
        &(wt_job){.ranks = ranks, .settings = settings, .body = body});
}

void wt_run_both(unsigned ranks, const char *settings, wt_body *body)
{
    wt_run_job_both(
        &(wt_job){.ranks = ranks, .settings = settings, .body = body});
}

void wt_run_counts(const char *settings, wt_body *body)
{
    static const unsigned counts[] = {1, 2, 3, 5, 8};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        wt_run_both(counts[i], settings, body);
    }
}
