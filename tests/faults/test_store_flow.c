/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies while calls on a store over pretended nodes are about more than
 * may be under way: what had not been sent is sent to whoever serves then, or
 * fails with the name of the dead rank; nothing waits for ever. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/hosts/hosts.h"
#include "wt_cmocka.h"
#include "wt_doomed.h"
#include "wt_store.h"

enum { KEYS = 3000, LENGTH = 32, VALUES = KEYS * LENGTH, CALLS = 4 };
enum { ARRIVED, STRUCK, PID }; /* words of the board */

static unsigned when; /* calls before the death; set before ranks are forked */

/* A store, and keys and values for several calls at a time. */
typedef struct job {
    weft_store *store;
    weft_worker *worker;
    int64_t keys[KEYS];
    int64_t *values[CALLS];
} job;

static job *job_open(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .cache = KEYS};
    job *j = calloc(1, sizeof(*j));

    WT_CHECK(j != NULL);
    for (int64_t i = 0; i < KEYS; i++) {
        j->keys[i] = i;
    }
    for (unsigned i = 0; i < CALLS; i++) {
        j->values[i] = calloc(VALUES, sizeof(int64_t));
        WT_CHECK(j->values[i] != NULL);
    }
    WT_OK(weft_store_create(weft_world_comm(world), &o, &j->store));
    WT_OK(weft_worker_create(j->store, &j->worker));
    return j;
}

static uint32_t shares_that_wait(const job *j)
{
    wf_store_hosts *h = j->store->remote;
    uint32_t n;

    pthread_mutex_lock(&h->world->drive);
    n = h->waiting_shares;
    pthread_mutex_unlock(&h->world->drive);
    return n;
}

static void check_nothing_is_under_way(const job *j)
{
    wf_store_hosts *h = j->store->remote;

    WT_CHECK(shares_that_wait(j) == 0);
    pthread_mutex_lock(&h->world->drive);
    for (uint32_t host = 0; host < j->store->hosts; host++) {
        WT_CHECK(h->line[host].under_way == 0 && h->line[host].first == NULL);
    }
    pthread_mutex_unlock(&h->world->drive);
}

static void job_close(job *j)
{
    check_nothing_is_under_way(j);
    wt_survivors_meet(ARRIVED, 1);
    weft_worker_destroy(j->worker);
    weft_store_destroy(j->store);
    for (unsigned i = 0; i < CALLS; i++) {
        free(j->values[i]);
    }
    free(j);
}

static void wait_all(weft_request **request)
{
    for (unsigned i = 0; i < CALLS; i++) {
        if (request[i] != NULL) {
            (void)wt_survives(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
    }
}

/* --- at any time ---------------------------------------------------------- */

/* Several long calls at a time, of which every other one writes. */
static void long_calls(job *j)
{
    weft_request *request[CALLS] = {NULL};

    for (unsigned i = 0; i < CALLS; i++) {
        weft_pairs all = wt_pairs(j->keys, KEYS, j->values[i], VALUES);
        weft_status st = i % 2 == 0
                             ? weft_store_pull(j->worker, &all, &request[i])
                             : weft_store_push(j->worker, &all, &request[i]);

        (void)wt_survives(st);
    }
    wait_all(request);
}

static void death_body(weft_world *world)
{
    job *j = job_open(world);

    for (unsigned i = 0; i < when && wt_is_victim(); i++) {
        long_calls(j);
    }
    if (wt_is_victim()) {
        atomic_store(wt_word(STRUCK), 1);
        kill(getpid(), SIGKILL);
    }
    while (atomic_load(wt_word(STRUCK)) == 0) {
        long_calls(j);
    }
    wt_await_gone(wt_doomed.victim);
    long_calls(j);
    job_close(j);
}

static void long_calls_outlive_a_server(void **state)
{
    static const struct {
        const char *nodes;
        unsigned victim;
    } shape[] = {{"aabb", 0}, {"abb", 1}, {"abc", 1}};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        when = i / 3;
        wt_run_doomed(shape[i % 3].nodes, shape[i % 3].victim, death_body);
    }
}

/* --- while several wait in line ------------------------------------------- */

/* Each of its own keys, so that no call waits for the one before it to end. */
static void begin_pulls(job *j, weft_request **request)
{
    enum { PART = KEYS / CALLS };

    for (unsigned i = 0; i < CALLS; i++) {
        weft_pairs part = wt_pairs(&j->keys[(size_t)i * PART], PART,
                                   j->values[i], (uint64_t)PART * LENGTH);

        WT_OK(weft_store_pull(j->worker, &part, &request[i]));
    }
}

/* A server that is stopped answers nothing, so that pulls wait in line behind
 * others; then it dies. */
static void line_body(weft_world *world)
{
    weft_request *request[CALLS] = {NULL};
    job *j = job_open(world);

    wt_meet();
    if (wt_is_victim()) {
        atomic_store(wt_word(PID), (uint32_t)getpid());
        WT_CHECK(raise(SIGSTOP) == 0);
        return;
    }
    wt_await_gone(wt_doomed.victim);
    begin_pulls(j, request);
    if (wt_doomed.nodes[wt_rank()] != wt_doomed.nodes[wt_doomed.victim]) {
        WT_CHECK(shares_that_wait(j) >= 2);
    }
    wt_survivors_meet(STRUCK, 1);
    if (wt_rank() == 0) {
        WT_CHECK(kill((pid_t)atomic_load(wt_word(PID)), SIGKILL) == 0);
    }
    wait_all(request);
    job_close(j);
}

static void pulls_that_wait_behind_others_outlive_the_server(void **state)
{
    (void)state;
    wt_run_doomed("abb", 1, line_body);
    wt_run_doomed("abc", 1, line_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_calls_outlive_a_server),
        cmocka_unit_test(pulls_that_wait_behind_others_outlive_the_server),
    };

    return cmocka_run_group_tests_name("store flow", tests, NULL, NULL);
}
