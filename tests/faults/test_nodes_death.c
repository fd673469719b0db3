/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks die, are stopped or leave on other nodes, which are pretended: they
 * share neither board nor sockets for this, so that everything is told by the
 * control plane, as between hosts. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

/* Words of the board; LATE: a rank that came late was taken for the absent one.
 */
enum { ARRIVED = 0, TOLD, LATE };

/* --- one rank ------------------------------------------------------------- */

static unsigned strike_at(wt_phase phase)
{
    return phase == WT_LARGE ? 2 : 20;
}

static void strike(const char *nodes, unsigned victim, wt_phase phase,
                   wt_blow blow)
{
    wt_fault fault = {.ranks = (unsigned)strlen(nodes),
                      .victim = victim,
                      .phase = phase,
                      .blow = blow,
                      .strike_at = strike_at(phase),
                      .nodes = nodes};

    wt_fault_run(&fault);
}

/* Rank 0, the lowest of another node, and one that has no mates. */
static void a_death_on_another_node_is_named_and_the_others_go_on(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase < WT_PHASES; phase++) {
        wt_blow blow = phase % 2 == 0 ? WT_BLOW_KILL : WT_BLOW__EXIT;

        strike("aabb", 0, (wt_phase)phase, blow);
        strike("aabb", 2, (wt_phase)phase, blow);
        strike("aab", 2, (wt_phase)phase, blow);
        if (wt_full()) {
            strike("abab", 3, (wt_phase)phase, blow);
            strike("abcdefgh", phase, (wt_phase)phase, blow);
        }
    }
    strike("ab", 0, WT_SMALL, WT_BLOW_KILL);
    strike("abcdefgh", 0, WT_SMALL, WT_BLOW_KILL);
    strike("abbccdde", 3, WT_MESSAGE, WT_BLOW_EXIT);
}

static void a_stopped_rank_on_another_node_is_named_in_time(void **state)
{
    (void)state;
    strike("aabb", 0, WT_SMALL, WT_BLOW_STOP);
    strike("aab", 2, WT_MESSAGE, WT_BLOW_STOP);
}

static void
a_child_does_not_keep_a_dead_rank_of_another_node_alive(void **state)
{
    wt_fault fault = {.ranks = 3,
                      .victim = 2,
                      .phase = WT_SMALL,
                      .blow = WT_BLOW_KILL,
                      .with_child = true,
                      .strike_at = 20,
                      .nodes = "aab"};

    (void)state;
    wt_fault_run(&fault);
}

/* --- several -------------------------------------------------------------- */

/* Set before the ranks are forked. */
static struct {
    const char *nodes;
    const char *settings;
    char struck; /* this node */
    wt_blow blow;
} job;

static bool is_struck(unsigned rank)
{
    return job.nodes[rank] == job.struck;
}

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[128];

    snprintf(text, sizeof(text), "TIMEOUT=60s NODE=%c %s", job.nodes[rank],
             job.settings);
    return text;
}

static void run(const char *nodes, char struck, wt_blow blow,
                const char *settings, wt_body *body)
{
    uint32_t doomed = 0;

    job.nodes = nodes;
    job.struck = struck;
    job.blow = blow;
    job.settings = settings;
    for (unsigned r = 0; nodes[r] != '\0'; r++) {
        doomed |= (uint32_t)is_struck(r) << r;
    }
    wt_run_job(&(wt_job){.ranks = (unsigned)strlen(nodes),
                         .settings_of = settings_of,
                         .body = body,
                         .doomed = doomed});
    wt_expect_no_names();
}

static bool names_a_struck_rank(const char *text)
{
    bool named = false;

    for (unsigned r = 0; r < wt_ranks(); r++) {
        named = named || (is_struck(r) && wt_names_rank(text, r));
    }
    return named;
}

static void node_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *others = NULL;
    bool struck = is_struck(wt_rank());
    int64_t x = 1;
    weft_status st = WEFT_OK;

    WT_OK(weft_comm_split(comm, struck ? -1 : 0, 0, &others));
    wt_meet();
    if (struck) {
        wt_strike(job.blow);
        pause();
    }
    while (st == WEFT_OK) {
        st = weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM);
    }
    WT_STATUS(st, WEFT_ERR_PEER);
    if (!names_a_struck_rank(weft_error_detail())) {
        WT_FAIL("names nobody: %s", weft_error_detail());
    }
    x = 1;
    WT_OK(weft_allreduce(others, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == weft_comm_size(others));
    weft_comm_destroy(others);
}

static void a_node_that_dies_as_a_whole_is_named(void **state)
{
    (void)state;
    run("aabb", 'b', WT_BLOW_KILL, "", node_body);
    run("aabb", 'a', WT_BLOW_KILL, "", node_body);
    run("aabbccdd", 'b', WT_BLOW_KILL, "", node_body);
}

/* The last rank never comes, so that the others wait for it alone. */
static void elsewhere_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    weft_status st;

    WT_OK(weft_barrier(comm));
    if (is_struck(wt_rank())) {
        wt_strike(job.blow);
        pause();
    }
    if (wt_rank() == wt_ranks() - 1) {
        wt_word_await(TOLD, wt_ranks() - 2);
        return;
    }
    if (wt_rank() % 2 == 0) {
        WT_OK(weft_ibarrier(comm, &request));
        st = weft_request_wait(request, 0);
        weft_request_release(request);
    } else {
        st = weft_barrier(comm);
    }
    WT_STATUS(st, WEFT_ERR_PEER);
    if (!names_a_struck_rank(weft_error_detail())) {
        WT_FAIL("names nobody: %s", weft_error_detail());
    }
    wt_word_add(TOLD, 1);
    /* One that leaves because of it would tell the others as well. */
    wt_word_await(TOLD, wt_ranks() - 2);
}

static void a_death_is_told_to_those_who_wait_for_others(void **state)
{
    (void)state;
    run("abbb", 'a', WT_BLOW_KILL, "", elsewhere_body);
    run("abcd", 'b', WT_BLOW_KILL, "", elsewhere_body);
}

static void a_node_that_is_silent_for_too_long_is_dead(void **state)
{
    char settings[64];

    (void)state;
    /* A node that lives but gets no core must not be silent for so long. */
    snprintf(settings, sizeof(settings), "HOST_TIMEOUT=%gs HEARTBEAT=100ms",
             2 * WT_SLOWDOWN);
    run("aabb", 'b', WT_BLOW_STOP, settings, node_body);
    run("abc", 'a', WT_BLOW_STOP, settings, node_body);
}

/* --- stopped for a while -------------------------------------------------- */

/* A child wakes it; the children of a rank are not part of the job. */
static void sleep_stopped(unsigned seconds)
{
    pid_t self = getpid();
    pid_t child = fork();

    WT_CHECK(child >= 0);
    if (child == 0) {
        sleep(seconds);
        kill(self, SIGCONT);
        _exit(0);
    }
    kill(self, SIGSTOP);
    WT_CHECK(waitpid(child, NULL, 0) == child);
}

static void nap_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    int64_t x = 1;

    WT_OK(weft_barrier(comm));
    if (is_struck(wt_rank())) {
        sleep_stopped(3);
    }
    WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == wt_ranks());
    /* Those who were stopped do not take the others for dead either. */
    usleep(500000);
    WT_OK(weft_barrier(comm));
}

static void one_that_was_stopped_for_a_while_goes_on(void **state)
{
    (void)state;
    run("aab", 'b', WT_BLOW_STOP, "", nap_body);
    run("aabb", 'a', WT_BLOW_STOP, "HOST_TIMEOUT=20s HEARTBEAT=100ms",
        nap_body);
}

/* --- goodbye -------------------------------------------------------------- */

static void goodbye_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    int x = 0;
    weft_status st;

    WT_OK(weft_barrier(comm));
    if (is_struck(wt_rank())) {
        x = 7;
        WT_OK(weft_send(comm, &x, sizeof(x), 0, 1));
        return; /* and leave */
    }
    if (wt_rank() != 0) {
        wt_word_await(TOLD, 1);
        return;
    }
    WT_OK(weft_recv(comm, &x, sizeof(x), wt_ranks() - 1, 1, NULL));
    WT_CHECK(x == 7);
    st = weft_recv(comm, &x, sizeof(x), wt_ranks() - 1, 1, NULL);
    WT_STATUS(st, WEFT_ERR_PEER);
    if (strstr(weft_error_detail(), "has left the job") == NULL) {
        WT_FAIL("%s", weft_error_detail());
    }
    wt_word_set(TOLD, 1);
}

static void one_that_leaves_another_node_has_left_and_not_died(void **state)
{
    (void)state;
    run("aab", 'b', WT_BLOW_KILL, "", goodbye_body);
    run("ab", 'b', WT_BLOW_KILL, "", goodbye_body);
}

/* Rank 2 is stopped. Rank 1 speaks for both, so that nobody takes it for dead;
 * and rank 0 goes on hearing from the others. */
static void leaving_rank(void)
{
    weft_world *world = NULL;
    weft_comm *comm;
    int x = 7;
    int y = 0;
    double began;

    WT_OK(wt_join(settings_of(wt_rank()), 0, &world));
    comm = weft_world_comm(world);
    WT_OK(weft_barrier(comm));
    if (wt_rank() % 2 == 0 && wt_rank() < 3) { /* they are connected */
        WT_OK(weft_sendrecv(comm, &x, sizeof(x), 2 - wt_rank(), 1, &y,
                            sizeof(y), 2 - wt_rank(), 1, NULL));
    }
    wt_meet();
    if (wt_rank() == 2) {
        wt_strike(WT_BLOW_STOP);
        pause();
    }
    if (wt_rank() != 0) {
        wt_word_await(TOLD, 1);
        weft_world_destroy(world);
        return;
    }
    wt_await_gone(2);
    WT_OK(weft_send(comm, &x, sizeof(x), 2, 1));
    began = wt_now();
    weft_world_destroy(world);
    wt_word_set(TOLD, 1);
    WT_CHECK(wt_now() - began < 15.0 * WT_SLOWDOWN);
}

static void a_stopped_rank_does_not_keep_others_from_leaving(void **state)
{
    (void)state;
    job.nodes = "abbc";
    job.settings = "HOST_TIMEOUT=60s";
    wt_run_job(&(wt_job){
        .ranks = 4, .bare = leaving_rank, .doomed = 1u << 2, .deadline = 40});
}

/* --- closed communicators ------------------------------------------------- */

static void closed_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *dup = NULL;
    weft_status st;

    WT_OK(weft_comm_dup(comm, &dup));
    WT_OK(weft_barrier(dup));
    if (wt_rank() == wt_ranks() - 1) {
        weft_comm_destroy(dup);
        wt_word_await(TOLD, wt_ranks() - 1);
    } else {
        st = weft_barrier(dup);
        WT_STATUS(st, WEFT_ERR_PEER);
        if (strstr(weft_error_detail(), "has closed") == NULL ||
            !wt_names_rank(weft_error_detail(), wt_ranks() - 1)) {
            WT_FAIL("%s", weft_error_detail());
        }
        weft_comm_destroy(dup);
        wt_word_add(TOLD, 1);
    }
    WT_OK(weft_barrier(comm));
}

static void
a_communicator_closed_on_another_node_fails_those_who_wait(void **state)
{
    (void)state;
    run("ab", '-', WT_BLOW_KILL, "", closed_body);
    run("aab", '-', WT_BLOW_KILL, "", closed_body);
    run("aabb", '-', WT_BLOW_KILL, "", closed_body);
}

/* --- ranks that do not come ----------------------------------------------- */

#define LONGEST_WAIT_S 16.0

/* Rank 6 is between rank 4 and rank 7 in the tree: all others name it, also
 * where no communicator is there to tell them (shrink). False if one of those
 * who call came so late that another took it for the absent one. */
static bool does_not_come(weft_world *world, double seconds)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    weft_comm *comm = NULL;
    weft_comm *made = NULL;
    weft_status st;
    bool late;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_barrier(comm));
    wt_meet(); /* who shrinks it ends what others still do on it */
    weft_comm_set_timeout(comm, seconds);
    if (wt_rank() != 6) {
        st = job.struck == 's' ? weft_comm_shrink(comm, NULL, 0, &made)
                               : weft_comm_subset(comm, all, 8, &made);
        WT_STATUS(st, WEFT_ERR_TIMEOUT);
        if (!wt_names_rank(weft_error_detail(), 6)) {
            if (seconds >= LONGEST_WAIT_S) {
                WT_FAIL("does not name rank 6: %s", weft_error_detail());
            }
            wt_word_set(LATE, 1);
        }
    }
    wt_meet();
    late = atomic_load(wt_word(LATE)) != 0;
    wt_meet();
    wt_word_set(LATE, 0);
    weft_comm_destroy(comm);
    return !late;
}

static void absent_body(weft_world *world)
{
    double seconds = 1.0;

    while (!does_not_come(world, seconds)) {
        seconds *= 4;
    }
}

static void one_that_does_not_come_is_named_by_all(void **state)
{
    (void)state;
    run("aabbccdd", 'm', WT_BLOW_KILL, "", absent_body);
    run("aabbccdd", 's', WT_BLOW_KILL, "", absent_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_on_another_node_is_named_and_the_others_go_on),
        cmocka_unit_test(a_stopped_rank_on_another_node_is_named_in_time),
        cmocka_unit_test(
            a_child_does_not_keep_a_dead_rank_of_another_node_alive),
        cmocka_unit_test(a_node_that_dies_as_a_whole_is_named),
        cmocka_unit_test(a_death_is_told_to_those_who_wait_for_others),
        cmocka_unit_test(a_node_that_is_silent_for_too_long_is_dead),
        cmocka_unit_test(one_that_was_stopped_for_a_while_goes_on),
        cmocka_unit_test(one_that_leaves_another_node_has_left_and_not_died),
        cmocka_unit_test(a_stopped_rank_does_not_keep_others_from_leaving),
        cmocka_unit_test(
            a_communicator_closed_on_another_node_fails_those_who_wait),
        cmocka_unit_test(one_that_does_not_come_is_named_by_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
