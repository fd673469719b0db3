/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies while calls on a store over pretended nodes are about more than
 * may be under way: what had not been sent is sent to whoever serves then, or
 * fails with the name of the dead rank; nothing waits for ever. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/time.h"
#include "store/hosts/hosts.h"
#include "wt_cmocka.h"
#include "wt_doomed.h"
#include "wt_store.h"

enum { KEYS = 3000, CALLS = 4 };
enum { ARRIVED, STRUCK, PID }; /* words of the board */

static unsigned when; /* calls before the death; set before ranks are forked */

/* A store, and keys and values for several calls at a time. */
typedef struct job {
    weft_store *store;
    weft_worker *worker;
    uint64_t length; /* of a row */
    int64_t keys[KEYS];
    int64_t *values[CALLS];
} job;

static job *job_open(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = wt_long_length(world, KEYS),
                            .type = WEFT_I64,
                            .cache = KEYS};
    job *j = calloc(1, sizeof(*j));

    WT_CHECK(j != NULL);
    j->length = o.length;
    for (int64_t i = 0; i < KEYS; i++) {
        j->keys[i] = i;
    }
    for (unsigned i = 0; i < CALLS; i++) {
        j->values[i] = calloc(KEYS * o.length, sizeof(int64_t));
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

/* Nor to any rank by its flow: what a dead one did not answer was given up by
 * the flow to it. */
static void check_nothing_is_under_way(const job *j)
{
    wf_store_hosts *h = j->store->remote;

    WT_CHECK(shares_that_wait(j) == 0);
    pthread_mutex_lock(&h->world->drive);
    for (uint32_t host = 0; host < j->store->hosts; host++) {
        WT_CHECK(h->line[host].under_way == 0 && h->line[host].first == NULL);
    }
    for (unsigned rank = 0; rank < wt_ranks(); rank++) {
        const wf_flow *flow = wf_ports_flow(h->world, rank);

        WT_CHECK(flow->sent == flow->answered);
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
        weft_pairs all =
            wt_pairs(j->keys, KEYS, j->values[i], KEYS * j->length);
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
                                   j->values[i], PART * j->length);

        WT_OK(weft_store_pull(j->worker, &part, &request[i]));
    }
}

/* A server that is stopped answers nothing, so that pulls of rank 0 wait in
 * line behind others; then it dies. Nothing else comes to rank 0 which could
 * have them go on. */
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
    if (wt_rank() == 0) {
        begin_pulls(j, request);
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

/* --- that was busy when it was looked at ---------------------------------- */

/* As if a key of the newest operation had been answered just when the death of
 * a server is to be heard of again; its token. */
static uint32_t hear_again_while_busy(const job *j)
{
    wf_store_hosts *h = j->store->remote;
    wf_remote *r;
    uint32_t token;

    pthread_mutex_lock(&h->world->drive);
    r = j->worker->remotes;
    WT_CHECK(r != NULL);
    r->since = wf_now_ns();
    token = r->token;
    h->agains++;
    pthread_mutex_unlock(&h->world->drive);
    return token;
}

/* What is asked for again has another token. */
static bool is_asked_again(const job *j, weft_request *request, uint32_t token)
{
    wf_store_hosts *h = j->store->remote;
    bool again;
    int done = 0;

    WT_OK(weft_request_test(request, &done));
    WT_CHECK(done == 0);
    pthread_mutex_lock(&h->world->drive);
    again = j->worker->remotes->token != token;
    pthread_mutex_unlock(&h->world->drive);
    return again;
}

/* Rank 1 is stopped, and answers nothing meanwhile. */
static void busy_body(weft_world *world)
{
    job *j = job_open(world);
    weft_request *request = NULL;

    wt_meet();
    if (wt_rank() == 1) {
        atomic_store(wt_word(PID), (uint32_t)getpid());
        WT_CHECK(raise(SIGSTOP) == 0);
    } else {
        weft_pairs some = wt_pairs(&j->keys[1], 1, j->values[0], j->length);
        uint32_t token;

        wt_await_gone(1);
        WT_OK(weft_store_pull(j->worker, &some, &request));
        token = hear_again_while_busy(j);
        while (!is_asked_again(j, request, token)) {
            usleep(1000);
        }
        WT_CHECK(kill((pid_t)atomic_load(wt_word(PID)), SIGCONT) == 0);
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    }
    wt_meet();
    job_close(j);
}

static void a_pull_that_gets_stuck_after_it_was_looked_at_is_repeated(void **st)
{
    (void)st;
    wt_doomed.nodes = "ab";
    wt_doomed.victim = 1;
    wt_run_job(&(wt_job){.ranks = 2,
                         .settings_of = wt_doomed_settings,
                         .body = busy_body,
                         .deadline = 60});
}

/* --- no memory ------------------------------------------------------------ */

/* Elements of a row that is longer than one message of any transport. */
enum { LONG = 64 << 10 };

/* A push by another thread, whose allocations fail from the nth on. */
typedef struct starved {
    weft_worker *worker;
    int64_t key;
    int64_t *row;
    weft_status status;
} starved;

static void *starved_main(void *arg)
{
    starved *s = arg;
    weft_pairs p = wt_pairs(&s->key, 1, s->row, LONG);

    s->status = weft_store_push(s->worker, &p, NULL);
    return NULL;
}

static weft_status push_starved(starved *s, unsigned nth)
{
    pthread_t thread;

    wf_alloc_fail_others(nth, 1u << 30);
    WT_CHECK(pthread_create(&thread, NULL, starved_main, s) == 0);
    WT_CHECK(pthread_join(thread, NULL) == 0);
    wf_alloc_fail_others(0, 0);
    return s->status;
}

/* Memory for what is sent is waited for. So the first call that takes long is
 * one that had all that it needed but that. */
static void starve(weft_worker *worker, int64_t *row)
{
    starved s = {.worker = worker, .key = 1, .row = row};
    double took = 0;

    for (unsigned nth = 1; took < 0.5; nth++) {
        double began = wt_now();

        WT_STATUS(push_starved(&s, nth), WEFT_ERR_NOMEM);
        took = wt_now() - began;
    }
    WT_OK((starved_main(&s), s.status));
}

static void starve_body(weft_world *world)
{
    weft_store_options o = {
        .size = sizeof(o), .keys = 2, .length = LONG, .type = WEFT_I64};
    int64_t *row = malloc(LONG * sizeof(*row));
    weft_store *store = NULL;
    weft_worker *worker;

    WT_CHECK(row != NULL);
    for (unsigned i = 0; i < LONG; i++) {
        row[i] = 1;
    }
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    if (wt_rank() == 0) {
        int64_t key = 1;
        weft_pairs p = wt_pairs(&key, 1, row, LONG);

        starve(worker, row);
        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(row[0] == 1 && row[LONG - 1] == 1);
    }
    wt_store_finish(store, worker);
    free(row);
}

static void a_push_that_there_is_no_memory_to_send_fails_at_once(void **state)
{
    (void)state;
    if (wt_over("ucx_far")) {
        skip(); /* what comes in needs memory, too, or the connection ends */
    }
    wt_doomed.nodes = "ab";
    wt_run_job(&(wt_job){.ranks = 2,
                         .settings_of = wt_doomed_settings,
                         .body = starve_body,
                         .deadline = 60});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_calls_outlive_a_server),
        cmocka_unit_test(pulls_that_wait_behind_others_outlive_the_server),
        cmocka_unit_test(
            a_pull_that_gets_stuck_after_it_was_looked_at_is_repeated),
        cmocka_unit_test(a_push_that_there_is_no_memory_to_send_fails_at_once),
    };

    return cmocka_run_group_tests_name("store flow", tests, NULL, NULL);
}
