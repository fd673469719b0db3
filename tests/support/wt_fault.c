/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "wt_fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

/* Words of the board. */
enum {
    READY,  /* survivors that are where the phase wants them */
    ROUNDS, /* of the victim's work */
    STRUCK  /* milliseconds of the clock at the blow, plus one */
};

#define LARGE_COUNT (4u << 20)
#define MESSAGE_BYTES 100000u
#define COLLECTIVE_COUNT (1u << 20) /* elements of all blocks of a rank */

/* Set before the ranks are forked. */
static wt_fault the;

/* What a rank works on. Static, so that a victim that exits in the middle of
 * its work is not said to leak it. */
static float *work;
static wt_call work_call;

double wt_death_bound(void)
{
    return 10.0 * WT_SLOWDOWN;
}

/* A death must be told of long before the deadline, a stop by one that begins
 * with it. */
#define DEADLINE_S 60.0
#define STOP_DEADLINE_S (1.0 * WT_SLOWDOWN)

static uint32_t milliseconds(void)
{
    return (uint32_t)(uint64_t)(1e3 * wt_now());
}

void wt_strike(wt_blow blow)
{
    switch (blow) {
    case WT_BLOW_KILL:
        kill(getpid(), SIGKILL);
        break;
    case WT_BLOW_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case WT_BLOW__EXIT:
        _exit(0);
    default:
        exit(0);
    }
}

static void strike_now(void)
{
    atomic_store(wt_word(STRUCK), milliseconds() | 1);
    wt_strike(the.blow);
}

/* --- the work of each phase ---------------------------------------------- */

static weft_status round_of_sums(weft_comm *comm, size_t n)
{
    return weft_allreduce(comm, work, work, n, WEFT_F32, WEFT_SUM);
}

static weft_status round_of_messages(weft_comm *comm, char *buf)
{
    uint32_t size = weft_comm_size(comm);
    uint32_t me = weft_comm_rank(comm);
    weft_request *request = NULL;
    weft_status st;
    weft_status sent;

    st = weft_irecv(comm, buf, MESSAGE_BYTES, (me + size - 1) % size, 1, NULL,
                    &request);
    if (st != WEFT_OK) {
        return st;
    }
    sent =
        weft_send(comm, buf + MESSAGE_BYTES, MESSAGE_BYTES, (me + 1) % size, 1);
    st = weft_request_wait(request, 0);
    weft_request_release(request);
    return st != WEFT_OK ? st : sent;
}

/* A small and a large request; neither can end without the victim. */
static weft_status round_of_requests(weft_comm *comm, float *buf)
{
    weft_request *request[2] = {NULL, NULL};
    weft_status st;
    weft_status other = WEFT_OK;

    st = weft_iallreduce(comm, buf, buf, 8, WEFT_F32, WEFT_SUM, &request[0]);
    if (st == WEFT_OK) {
        other = weft_iallreduce(comm, buf + 8, buf + 8, LARGE_COUNT - 8,
                                WEFT_F32, WEFT_SUM, &request[1]);
    }
    wt_word_add(READY, 1);
    if (other == WEFT_OK && request[1] != NULL) {
        other = weft_request_wait(request[1], 0);
        WT_CHECK(other != WEFT_OK);
    }
    st = request[0] != NULL ? weft_request_wait(request[0], 0) : st;
    weft_request_release(request[0]);
    weft_request_release(request[1]);
    return st;
}

static weft_status round_of_calls(void)
{
    return the.by_request ? wt_call_run_request(&work_call)
                          : wt_call_run(&work_call);
}

/* The root is the victim or another rank, as it comes. */
static void prepare_call(weft_comm *comm)
{
    wt_coll what = {.kind = the.coll,
                    .type = WEFT_F32,
                    .op = WEFT_SUM,
                    .n = the.large ? COLLECTIVE_COUNT / the.ranks : 8,
                    .root = the.strike_at % the.ranks,
                    .seed = 1 + the.strike_at};

    wt_call_init(&work_call, comm, &what, NULL);
}

static weft_status work_once(weft_comm *comm)
{
    switch (the.phase) {
    case WT_SMALL:
        return round_of_sums(comm, 8);
    case WT_LARGE:
        return round_of_sums(comm, LARGE_COUNT);
    case WT_MESSAGE:
        return round_of_messages(comm, (char *)work);
    case WT_PENDING:
        return round_of_requests(comm, work);
    case WT_COLLECTIVE:
        return round_of_calls();
    default:
        return weft_barrier(comm);
    }
}

/* Until the victim stands still, a rank that is only slow must not be taken for
 * it. */
static void *impatience_main(void *comm)
{
    wt_await_gone(the.victim);
    weft_comm_set_timeout(comm, STOP_DEADLINE_S);
    return NULL;
}

/* Returns the first failure, and when the call that failed was made. */
static weft_status work_until_error(weft_comm *comm, double *began)
{
    bool stops = the.blow == WT_BLOW_STOP;
    weft_status st = WEFT_OK;
    pthread_t impatience;

    WT_CHECK(!stops ||
             pthread_create(&impatience, NULL, impatience_main, comm) == 0);
    if (the.phase == WT_IDLE) {
        wt_word_add(READY, 1);
        wt_await_gone(the.victim);
    }
    while (st == WEFT_OK) {
        *began = wt_now();
        st = work_once(comm);
    }
    if (stops) {
        pthread_join(impatience, NULL);
    }
    return st;
}

/* --- the victim ---------------------------------------------------------- */

static void *striker_main(void *arg)
{
    (void)arg;
    wt_word_await(ROUNDS, the.strike_at);
    strike_now();
    return NULL;
}

static void keep_a_child(void)
{
    pid_t pid = fork();

    WT_CHECK(pid >= 0);
    if (pid == 0) {
        /* In case nobody is left to kill us. */
        alarm(600);
        for (;;) {
            pause();
        }
    }
}

static _Noreturn void victim_body(weft_comm *comm)
{
    pthread_t striker;

    if (the.with_child) {
        keep_a_child();
    }
    if (the.phase == WT_IDLE || the.phase == WT_PENDING) {
        wt_word_await(READY, the.ranks - 1);
        strike_now();
    } else {
        WT_CHECK(pthread_create(&striker, NULL, striker_main, NULL) == 0);
        while (work_once(comm) == WEFT_OK) {
            wt_word_add(ROUNDS, 1);
        }
    }
    for (;;) {
        pause();
    }
}

/* --- the survivors ------------------------------------------------------- */

static void check_in_time(double began)
{
    uint32_t now = milliseconds();
    uint32_t struck = atomic_load(wt_word(STRUCK));
    double since_blow = 1e-3 * (double)(int32_t)(now - struck);
    double since_call = wt_now() - began;
    double waited = since_blow < since_call ? since_blow : since_call;
    double bound =
        wt_death_bound() + (the.blow == WT_BLOW_STOP ? STOP_DEADLINE_S : 0);

    WT_CHECK(struck != 0);
    if (waited > bound) {
        WT_FAIL("told of it after %.2f s, %.2f s since the call", since_blow,
                since_call);
    }
}

static void check_told(weft_comm *comm, weft_status st, double began)
{
    weft_status want =
        the.blow == WT_BLOW_STOP ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER;
    char text[1024];

    snprintf(text, sizeof(text), "%s", weft_error_detail());
    check_in_time(began);
    WT_STATUS(st, want);
    if (!wt_names_rank(text, the.victim)) {
        WT_FAIL("does not name rank %u: %s", the.victim, text);
    }
    WT_STATUS(weft_barrier(comm), want);
    if (strcmp(text, weft_error_detail()) != 0) {
        WT_FAIL("first \"%s\", then \"%s\"", text, weft_error_detail());
    }
    WT_STATUS(weft_comm_error(comm), want);
}

static void go_on_without(weft_comm *others)
{
    int64_t x = 1;

    WT_OK(weft_allreduce(others, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == the.ranks - 1);
    WT_OK(weft_barrier(others));
    weft_comm_destroy(others);
}

static void fault_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    bool struck = weft_world_rank(world) == the.victim;
    weft_comm *others = NULL;
    double began = 0;
    weft_status st;

    work = calloc(LARGE_COUNT, sizeof(*work));
    WT_CHECK(work != NULL);
    prepare_call(comm);
    WT_OK(weft_comm_split(comm, struck ? -1 : 0, 0, &others));
    /* One that is still in it at the blow would fail already here. */
    wt_meet();
    if (struck) {
        victim_body(comm);
    }
    st = work_until_error(comm, &began);
    check_told(comm, st, began);
    go_on_without(others);
    wt_call_fini(&work_call);
    free(work);
}

/* --- a job that is just forming ------------------------------------------ */

static void *early_striker_main(void *arg)
{
    double until = wt_now() + 1e-5 * the.strike_at;

    (void)arg;
    while (wt_now() < until) {
    }
    strike_now();
    return NULL;
}

static _Noreturn void victim_joins(void)
{
    weft_world *world = NULL;
    pthread_t striker;

    WT_CHECK(pthread_create(&striker, NULL, early_striker_main, NULL) == 0);
    (void)wt_join(WT_BOOT_SETTINGS, 0, &world);
    for (;;) {
        pause();
    }
}

/* The job forms or it does not; if it does, the first operations tell. */
static void joining_body(void)
{
    weft_world *world = NULL;
    double began;
    weft_status st;

    wt_meet();
    if (wt_rank() == the.victim) {
        victim_joins();
    }
    began = wt_now();
    st = wt_join(WT_BOOT_SETTINGS, 0, &world);
    while (st == WEFT_OK) {
        began = wt_now();
        st = weft_barrier(weft_world_comm(world));
    }
    if (!wt_names_rank(weft_error_detail(), the.victim)) {
        WT_FAIL("does not name rank %u: %s", the.victim, weft_error_detail());
    }
    if (wt_now() - began > WT_BOOT_DEADLINE_S + 2 * wt_death_bound()) {
        WT_FAIL("told only after %.2f s: %s", wt_now() - began,
                weft_error_detail());
    }
    weft_world_destroy(world);
}

/* --- from outside -------------------------------------------------------- */

void wt_fault_text(const wt_fault *fault, char *text, size_t room)
{
    static const char *const phases[WT_JOINING + 1] = {
        "idle",    "small",      "large",  "message",
        "pending", "collective", "joining"};
    static const char *const blows[WT_BLOWS] = {"kill", "stop", "_exit",
                                                "exit"};
    char what[64] = "";

    if (fault->phase == WT_COLLECTIVE) {
        snprintf(what, sizeof(what), " %s%s%s", fault->large ? "large " : "",
                 wt_coll_name(fault->coll),
                 fault->by_request ? " by request" : "");
    }
    snprintf(text, room,
             "%s of rank %u of %u%s%s in %s%s after %u rounds%s%s%s",
             blows[fault->blow], fault->victim, fault->ranks,
             fault->nodes != NULL ? " on " : "",
             fault->nodes != NULL ? fault->nodes : "", phases[fault->phase],
             what, fault->strike_at, fault->with_child ? ", with a child" : "",
             fault->settings != NULL ? ", " : "",
             fault->settings != NULL ? fault->settings : "");
}

void wt_expect_no_names(void)
{
    char left[4096];

    wt_names_left(left, sizeof(left));
    if (left[0] != '\0') {
        fail_msg("left behind:\n%s", left);
    }
}

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[256];
    char node[] = {the.nodes != NULL ? the.nodes[rank] : 'a', '\0'};

    snprintf(text, sizeof(text), "TIMEOUT=%gs NODE=%s %s", DEADLINE_S,
             the.nodes != NULL ? node : "",
             the.settings != NULL ? the.settings : "");
    return text;
}

void wt_fault_run(const wt_fault *fault)
{
    char text[256];

    the = *fault;
    wt_fault_text(fault, text, sizeof(text));
    wt_note("%s", text);
    wt_run_job(
        &(wt_job){.ranks = fault->ranks,
                  .settings_of = settings_of,
                  .body = fault_body,
                  .bare = fault->phase == WT_JOINING ? joining_body : NULL,
                  .doomed = 1u << fault->victim});
    wt_expect_no_names();
}

bool wt_starved_left(unsigned nth)
{
    bool left = false;

    for (unsigned i = 0; i < nth && !left; i++) {
        void *p = wf_alloc(1);

        left = p == NULL;
        wf_free(p);
    }
    wf_alloc_fail_nth(0);
    return left;
}
