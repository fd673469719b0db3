/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a store over pretended nodes dies, stops or has no memory. What it
 * leaves is whole, the others go on or are told, and no push counts twice. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/hosts/hosts.h"
#include "wt_cmocka.h"
#include "wt_doomed.h"
#include "wt_fault.h"
#include "wt_store.h"

#define KEYS 12u
#define LENGTH 3u

/* Words of the board. Of each key, over all ranks: pushes that were begun, that
 * were done, and those of them that everybody knows. */
enum {
    ARRIVED,
    READY,
    STRUCK,
    PID,
    LOST, /* somebody was told that differences are lost */
    BEGUN = 8,
    DONE = BEGUN + KEYS,
    SYNCED = DONE + KEYS,
    VICTIMS = SYNCED + KEYS /* those of DONE that the victim did */
};

/* Set before the ranks are forked. */
static struct {
    uint64_t seed;
    weft_techniques techniques;
} job;

static weft_store *make(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .techniques = job.techniques,
                            .cache = 3 * KEYS,
                            .rounds = 5000};
    weft_store *store = NULL;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

/* --- operations that are counted ------------------------------------------ */

static weft_status push_one(weft_worker *worker, int64_t key)
{
    int64_t ones[LENGTH] = {1, 1, 1};
    weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                    .values = ones,
                    .length = LENGTH};
    weft_status st;

    atomic_fetch_add(wt_word(BEGUN + (unsigned)key), 1);
    st = weft_store_push(worker, &p, NULL);
    if (st == WEFT_OK) {
        if (wt_is_victim()) { /* first, so that it is never too small */
            atomic_fetch_add(wt_word(VICTIMS + (unsigned)key), 1);
        }
        atomic_fetch_add(wt_word(DONE + (unsigned)key), 1);
    }
    return st;
}

static weft_status pull_one(weft_worker *worker, int64_t key, int64_t *value)
{
    int64_t row[LENGTH];
    weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                    .values = row,
                    .length = LENGTH};
    weft_status st = weft_store_pull(worker, &p, NULL);

    if (st == WEFT_OK) {
        WT_CHECK(row[0] == row[1] && row[0] == row[2]);
        *value = row[0];
    }
    return st;
}

static void wish(weft_worker *worker, int64_t key, int64_t length)
{
    int64_t clock = weft_worker_clock(worker);
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};

    WT_OK(weft_store_intent(worker, &ids, clock, clock + length));
}

/* One step of somebody who does not mind the victim's death. */
static void step(weft_worker *worker, uint64_t *seed)
{
    uint64_t r = wt_random(seed);
    int64_t key = (int64_t)(r % KEYS);
    int64_t value;

    switch (r >> 32 & 7) {
    case 0:
    case 1:
        wish(worker, key, 1 + (int64_t)(r >> 40 & 7));
        break;
    case 2:
        (void)wt_survives(pull_one(worker, key, &value));
        break;
    default:
        (void)wt_survives(push_one(worker, key));
        break;
    }
    weft_worker_advance(worker);
}

/* --- before and after ----------------------------------------------------- */

/* All ranks push with intents, and everybody knows it. */
static void begin(weft_store *store, weft_worker *worker, uint64_t *seed)
{
    for (unsigned i = 0; i < 60; i++) {
        step(worker, seed);
    }
    WT_OK(weft_store_barrier(store));
    for (int i = 0; i < 2; i++) {
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
    }
    if (wt_rank() == 0) {
        for (unsigned k = 0; k < KEYS; k++) {
            atomic_store(wt_word(SYNCED + k), atomic_load(wt_word(DONE + k)));
        }
    }
    WT_OK(weft_store_barrier(store));
}

static void survivors_settle(weft_worker *worker, unsigned nth)
{
    wt_survivors_meet(ARRIVED, nth);
    for (unsigned i = 1; i <= 2; i++) {
        if (!wt_survives(weft_store_wait_sync(worker))) {
            atomic_store(wt_word(LOST), 1);
        }
        wt_survivors_meet(ARRIVED, nth + i);
    }
}

/* Pushes that must be there. What the victim pushed to a copy may be gone with
 * its host; unless somebody was told of losses, what others have done is not.
 */
static int64_t least_of(unsigned key)
{
    int64_t synced = atomic_load(wt_word(SYNCED + key));
    int64_t done = atomic_load(wt_word(DONE + key));

    if (atomic_load(wt_word(LOST)) != 0) {
        return synced;
    }
    done -= wt_victims_node_lives() ? 0 : atomic_load(wt_word(VICTIMS + key));
    return done > synced ? done : synced;
}

/* No push counts twice, and what everybody knew is there. */
static void check_rows(weft_worker *worker, bool all)
{
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        int64_t most = atomic_load(wt_word(BEGUN + (unsigned)key));
        int64_t some = least_of((unsigned)key);
        int64_t value = 0;

        if (!wt_survives(pull_one(worker, key, &value))) {
            WT_CHECK(!all);
            continue;
        }
        if (value < some || value > most) {
            WT_FAIL("seed %llu, nodes %s, rank %u dies: key %lld is %lld, of "
                    "between %lld and %lld pushes",
                    (unsigned long long)job.seed, wt_doomed.nodes,
                    wt_doomed.victim, (long long)key, (long long)value,
                    (long long)some, (long long)most);
        }
    }
}

/* Leave without a barrier, together. */
static void leave(weft_store *store, weft_worker *worker, unsigned nth)
{
    wt_survivors_meet(ARRIVED, nth);
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}

static void die(void)
{
    atomic_store(wt_word(STRUCK), 1);
    kill(getpid(), SIGKILL);
    pause();
}

/* --- the death of an idle rank -------------------------------------------- */

static bool all_keys_stay;

static void idle_body(weft_world *world)
{
    weft_store *store = make(world);
    uint64_t seed = 4711 + wt_rank();
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    begin(store, worker, &seed);
    if (wt_is_victim()) {
        die();
    }
    wt_await_gone(wt_doomed.victim);
    check_rows(worker, all_keys_stay);
    WT_CHECK(atomic_load(wt_word(LOST)) == 0);
    wt_survivors_meet(ARRIVED, 1);
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        /* One that was begun just when the death was noticed may fail. */
        if (!wt_survives(push_one(worker, key)) && all_keys_stay) {
            WT_OK(push_one(worker, key));
        }
    }
    survivors_settle(worker, 2);
    check_rows(worker, all_keys_stay);
    leave(store, worker, 5);
}

static void after_the_death_of_a_worker_all_keys_are_there(void **state)
{
    (void)state;
    all_keys_stay = true;
    wt_run_doomed("aabb", 1, idle_body);
    wt_run_doomed("abb", 2, idle_body);
}

static void the_next_rank_serves_when_the_server_of_a_host_dies(void **state)
{
    (void)state;
    all_keys_stay = true;
    wt_run_doomed("aabb", 0, idle_body);
    wt_run_doomed("abb", 1, idle_body);
    wt_run_doomed("aaab", 0, idle_body);
}

static void keys_of_other_hosts_outlive_a_host(void **state)
{
    (void)state;
    all_keys_stay = false;
    wt_run_doomed("abc", 1, idle_body);
    wt_run_doomed("aab", 2, idle_body);
}

/* --- a whole host --------------------------------------------------------- */

/* Key 1 begins on the victim's host, as 4, which is brought to host 0 before;
 * key 3 begins on host 0, and is brought to the victim's. */
static void gone_body(weft_world *world)
{
    weft_store *store = make(world);
    int64_t moved = wt_rank() == 0 ? 4 : 3;
    weft_ids ids = {.at = &moved, .type = WEFT_I64, .n = 1};
    int64_t value = 0;
    double since;
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    if (wt_rank() <= 1) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
        WT_OK(push_one(worker, moved));
    }
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        die();
    }
    wt_await_gone(wt_doomed.victim);
    since = wt_now();
    WT_STATUS(pull_one(worker, 1, &value), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), wt_doomed.victim));
    WT_CHECK(strstr(weft_error_detail(), "pid") != NULL);
    WT_STATUS(push_one(worker, 1), WEFT_ERR_PEER);
    WT_STATUS(pull_one(worker, 3, &value), WEFT_ERR_PEER);
    WT_CHECK(wt_now() - since < 3 * wt_death_bound());
    WT_OK(pull_one(worker, 4, &value));
    WT_CHECK(value == 1);
    WT_OK(push_one(worker, 0));
    WT_OK(push_one(worker, 2));
    wt_survivors_meet(ARRIVED, 1);
    WT_OK(pull_one(worker, 0, &value));
    WT_CHECK(value == 2);
    leave(store, worker, 2);
}

static void keys_that_are_gone_with_their_host_are_told_of(void **state)
{
    (void)state;
    wt_run_doomed("abc", 1, gone_body);
}

/* Key 1 is of the other host, where it is wanted, too: so it is copied. */
static void intents_body(weft_world *world)
{
    weft_store *store = make(world);
    int64_t key = 1;
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};
    weft_store_stats s = {.copies = 1};
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    if (wt_rank() == 2) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
    }
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
    }
    WT_OK(weft_store_barrier(store));
    weft_store_count(store, &s);
    WT_CHECK(wt_rank() == 2 || s.copies == 1);
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        die();
    }
    wt_await_gone(wt_doomed.victim);
    for (unsigned i = 0; i < 1000 && s.copies > 0; i++) {
        WT_OK(weft_store_wait_sync(worker));
        weft_store_count(store, &s);
    }
    WT_CHECK(s.copies == 0);
    leave(store, worker, 1);
}

static void what_a_dead_worker_wanted_is_not_wanted_any_more(void **state)
{
    (void)state;
    wt_run_doomed("aab", 1, intents_body);
    wt_run_doomed("aab", 0, intents_body);
}

/* Key 1 is of host 1 and is wanted on both, so that host 0 has a copy. */
static void stale_body(weft_world *world)
{
    double since = wt_now();
    weft_store *store = make(world);
    int64_t key = 1;
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};
    weft_store_stats s;
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    if (wt_rank() == 2) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
    }
    WT_OK(weft_store_barrier(store));
    if (wt_rank() == 1) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
    }
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        die();
    }
    wt_await_gone(wt_doomed.victim);
    survivors_settle(worker, 1);
    if (wt_rank() == 2) {
        WT_OK(push_one(worker, key));
    }
    survivors_settle(worker, 4);
    weft_store_count(store, &s);
    WT_CHECK(wt_rank() == 2 || (s.copies == 1 && s.staleness > 0));
    WT_CHECK(s.staleness < wt_now() - since);
    leave(store, worker, 7);
}

static void no_copy_is_older_than_the_store_for_the_next_server(void **state)
{
    (void)state;
    wt_run_doomed("aab", 0, stale_body);
}

/* --- a death at any time -------------------------------------------------- */

static void *strike_later(void *arg)
{
    const struct timespec pause_ns = {.tv_nsec = *(const long *)arg};

    nanosleep(&pause_ns, NULL);
    die();
    return NULL;
}

static void any_time_body(weft_world *world)
{
    weft_store *store = make(world);
    uint64_t seed = job.seed * 1000003 + wt_rank() + 1;
    long pause_ns = (long)(job.seed * 7919 % 40) * 500000;
    weft_worker *worker;
    pthread_t thread;

    WT_OK(weft_worker_create(store, &worker));
    begin(store, worker, &seed);
    if (wt_is_victim()) {
        WT_CHECK(pthread_create(&thread, NULL, strike_later, &pause_ns) == 0);
        for (;;) {
            step(worker, &seed);
        }
    }
    while (atomic_load(wt_word(STRUCK)) == 0) {
        step(worker, &seed);
    }
    for (unsigned i = 0; i < 60; i++) {
        step(worker, &seed);
    }
    wt_await_gone(wt_doomed.victim);
    for (unsigned i = 0; i < 60; i++) {
        step(worker, &seed);
    }
    survivors_settle(worker, 1);
    check_rows(worker, false);
    leave(store, worker, 4);
}

static void no_push_counts_twice_whenever_a_rank_dies(void **state)
{
    static const struct {
        const char *nodes;
        unsigned victim;
    } shape[] = {{"ab", 1},   {"aab", 0}, {"aabb", 0}, {"aabb", 1}, {"abc", 1},
                 {"aabb", 2}, {"abb", 1}, {"abc", 0},  {"aab", 2}};
    bool few = WT_ASAN || wt_over("ucx_far");
    unsigned seeds = wt_full() ? 1000 : few ? 12 : 30;
    const char *from = getenv("WT_SEED");

    (void)state;
    for (unsigned i = 0; i < seeds; i++) {
        unsigned s = i % (sizeof(shape) / sizeof(shape[0]));

        job.seed = (from != NULL ? (uint64_t)atoi(from) : 1) + i;
        job.techniques = i % 7 == 5   ? WEFT_REPLICATION_ONLY
                         : i % 7 == 6 ? WEFT_RELOCATION_ONLY
                                      : WEFT_TECHNIQUES_ALL;
        wt_run_doomed(shape[s].nodes, shape[s].victim, any_time_body);
    }
    job.techniques = WEFT_TECHNIQUES_ALL;
}

/* --- a rank that stops for a while ---------------------------------------- */

static void stop_and_go(void)
{
    const struct timespec three = {.tv_sec = 3};
    pid_t pid = (pid_t)atomic_load(wt_word(PID));

    WT_CHECK(kill(pid, SIGSTOP) == 0);
    nanosleep(&three, NULL);
    WT_CHECK(kill(pid, SIGCONT) == 0);
}

static void *push_main(void *arg)
{
    weft_worker *worker = arg;
    uint64_t seed = 31 + wt_rank();

    for (unsigned i = 0; i < 300; i++) {
        step(worker, &seed);
    }
    return NULL;
}

/* All rows have what the words from `first` on say, once everything has been
 * exchanged. */
static void check_and_end(weft_store *store, weft_worker *worker,
                          unsigned first)
{
    WT_OK(weft_store_barrier(store));
    for (int i = 0; i < 2; i++) {
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
    }
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        int64_t value;

        WT_OK(pull_one(worker, key, &value));
        WT_CHECK(value == atomic_load(wt_word(first + (unsigned)key)));
    }
    wt_store_finish(store, worker);
}

static void stop_body(weft_world *world)
{
    weft_store *store = make(world);
    unsigned last = wt_ranks() - 1;
    weft_worker *worker;
    pthread_t thread;

    WT_OK(weft_worker_create(store, &worker));
    if (wt_is_victim()) {
        atomic_store(wt_word(PID), (uint32_t)getpid());
    }
    WT_OK(weft_store_barrier(store));
    WT_CHECK(pthread_create(&thread, NULL, push_main, worker) == 0);
    if (wt_rank() == last) {
        stop_and_go();
    }
    WT_CHECK(pthread_join(thread, NULL) == 0);
    check_and_end(store, worker, BEGUN);
}

static void a_rank_that_stops_for_a_while_costs_nothing_but_time(void **state)
{
    (void)state;
    wt_doomed.nodes = "aabb";
    wt_doomed.victim = 0;
    wt_run_job(&(wt_job){.ranks = 4,
                         .settings_of = wt_doomed_settings,
                         .body = stop_body,
                         .deadline = 60});
}

/* The second rank of the first host stops while it writes to a row of its host:
 * the third rank, of the other one, can use the first host's other keys. */
static void hold_row(weft_store *store, int64_t key)
{
    uint32_t slot =
        wf_directory_get(store->slots, (uint64_t)key) & ~WF_KEY_HERE;
    void *row = NULL;

    WT_OK(wf_slot_lock(store->slots, (uint64_t)key, slot, 3, &row));
    atomic_store(wt_word(PID), (uint32_t)getpid());
    WT_CHECK(raise(SIGSTOP) == 0);
    wf_slot_unlock(store->slots, slot, 3);
}

static void await_stopped(void)
{
    pid_t pid;
    char path[64];
    char state = 0;

    while ((pid = (pid_t)atomic_load(wt_word(PID))) == 0) {
        usleep(1000);
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    while (state != 'T') {
        FILE *f = fopen(path, "r");

        WT_CHECK(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
        fclose(f);
    }
}

static void use_while_held(weft_worker *worker, int64_t held, int64_t other)
{
    int64_t row[LENGTH] = {0};
    int64_t ones[LENGTH] = {1, 1, 1};
    weft_pairs pull = {.keys = {.at = &held, .type = WEFT_I64, .n = 1},
                       .values = row,
                       .length = LENGTH};
    weft_pairs push = {.keys = {.at = &held, .type = WEFT_I64, .n = 1},
                       .values = ones,
                       .length = LENGTH};
    weft_request *first = NULL;
    weft_request *second = NULL;
    int64_t value = 0;
    int done = 0;

    WT_OK(weft_store_pull(worker, &pull, &first));
    WT_OK(push_one(worker, other));
    WT_OK(pull_one(worker, other, &value));
    WT_CHECK(value == 1);
    WT_OK(weft_request_test(first, &done));
    WT_CHECK(done == 0);
    WT_CHECK(kill((pid_t)atomic_load(wt_word(PID)), SIGCONT) == 0);
    WT_OK(weft_store_push(worker, &push, &second));
    WT_OK(weft_request_wait(first, 0));
    WT_OK(weft_request_wait(second, 0));
    WT_CHECK(row[0] == 0);
    weft_request_release(first);
    weft_request_release(second);
    WT_OK(pull_one(worker, held, &value));
    WT_CHECK(value == 1);
}

static void held_body(weft_world *world)
{
    weft_store *store = make(world);
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    if (wt_rank() == 1) {
        hold_row(store, 0);
    } else if (wt_rank() == 2) {
        await_stopped();
        use_while_held(worker, 0, 2);
    }
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_wait_sync(worker));
    wt_store_finish(store, worker);
}

static void a_row_that_a_stopped_rank_holds_holds_up_no_other_key(void **state)
{
    (void)state;
    wt_doomed.nodes = "aab";
    wt_run_job(&(wt_job){.ranks = 3,
                         .settings_of = wt_doomed_settings,
                         .body = held_body,
                         .deadline = 60});
}

/* --- a rank that answers slowly ------------------------------------------- */

/* What rank 0 sees of its own rounds. */
typedef struct glimpse {
    bool rounding;
    uint32_t looks;
    uint64_t begun;
    double action;
} glimpse;

static glimpse look(weft_store *store)
{
    wf_store_hosts *h = store->remote;
    glimpse g;

    pthread_mutex_lock(&h->world->drive);
    g = (glimpse){.rounding = h->rounding,
                  .looks = h->looks,
                  .begun = atomic_load(&h->book.head->begun),
                  .action = h->action};
    pthread_mutex_unlock(&h->world->drive);
    return g;
}

enum { LOOKS = 20 };

/* The round that asks the stopped rank for a key takes LOOKS looks and more,
 * and those that follow one each. */
static void learn(weft_store *store, weft_worker *worker)
{
    int64_t key = 1; /* of rank 1 */
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};
    uint64_t round;
    glimpse g;

    WT_CHECK(look(store).action == 1);
    WT_OK(weft_store_intent(worker, &ids, 0, INT64_MAX));
    do {
        g = look(store);
    } while (!g.rounding || g.looks < LOOKS);
    round = g.begun;
    WT_CHECK(kill((pid_t)atomic_load(wt_word(PID)), SIGCONT) == 0);
    do {
        g = look(store);
    } while (g.rounding && g.begun == round);
    WT_CHECK(g.action > LOOKS / 4); /* some rounds may have passed */
    while (look(store).action >= 2) {
        usleep(1000);
    }
}

static void learn_body(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .rounds = 100};
    weft_store *store = NULL;
    weft_worker *worker;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    if (wt_rank() == 1) {
        atomic_store(wt_word(PID), (uint32_t)getpid());
        WT_CHECK(raise(SIGSTOP) == 0);
    } else {
        wt_await_gone(1);
        learn(store, worker);
    }
    wt_store_finish(store, worker);
}

static void intents_are_acted_on_earlier_while_answers_are_slow(void **state)
{
    (void)state;
    wt_doomed.nodes = "ab";
    wt_run_job(&(wt_job){.ranks = 2,
                         .settings_of = wt_doomed_settings,
                         .body = learn_body,
                         .deadline = 60});
}

/* --- no memory ------------------------------------------------------------
 * Over UCX a rank that has none for a message gives up the connection, and with
 * it the other rank. */

static void creation_body(weft_world *world)
{
    unsigned by = wt_full() ? 1 : 4;

    for (unsigned nth = 1; atomic_load(wt_word(READY)) == 0; nth += by) {
        weft_store_options o = {.size = sizeof(o),
                                .keys = KEYS,
                                .length = LENGTH,
                                .type = WEFT_I64};
        weft_store *store = NULL;
        weft_status st;

        wf_alloc_fail_nth(wt_is_victim() ? nth : 0);
        st = weft_store_create(weft_world_comm(world), &o, &store);
        WT_CHECK((st == WEFT_OK) == (store != NULL));
        if (st != WEFT_OK && st != WEFT_ERR_NOMEM) {
            WT_FAIL("allocation %u: %s: %s", nth, weft_status_name(st),
                    weft_error_detail());
        }
        if (wt_is_victim() && wt_starved_left(nth)) {
            atomic_store(wt_word(READY), 1);
        }
        weft_store_destroy(store);
        wt_meet();
    }
}

static void a_store_that_one_rank_has_no_memory_for_is_not_made(void **state)
{
    (void)state;
    if (wt_over("ucx_far")) {
        skip(); /* a connection is given up then */
    }
    wt_doomed.nodes = "aab";
    for (wt_doomed.victim = 0; wt_doomed.victim < 3; wt_doomed.victim++) {
        wt_run_job_both(&(wt_job){.ranks = 3,
                                  .settings_of = wt_doomed_settings,
                                  .body = creation_body});
    }
}

static void starve_body(weft_world *world)
{
    weft_store *store = make(world);
    uint64_t seed = 17 + wt_rank();
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    for (unsigned i = 0; i < 200; i++) {
        uint64_t r = wt_random(&seed);
        int64_t key = (int64_t)(r % KEYS);
        int64_t ones[LENGTH] = {1, 1, 1};
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = ones,
                        .length = LENGTH};
        weft_status st;

        wf_alloc_fail_nth(wt_is_victim() ? 1 + (unsigned)(r >> 8 & 7) : 0);
        st = r >> 20 & 1 ? weft_store_intent(worker, &p.keys, 0, 3)
                         : weft_store_push(worker, &p, NULL);
        wf_alloc_fail_nth(0);
        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        if (st == WEFT_OK && (r >> 20 & 1) == 0) {
            atomic_fetch_add(wt_word(DONE + (unsigned)key), 1);
        }
        if (wt_is_victim()) { /* threads that serve */
            wf_alloc_fail_others(1 + (unsigned)(r >> 12 & 7), 2);
        }
    }
    wf_alloc_fail_others(0, 0);
    check_and_end(store, worker, DONE);
}

static void an_operation_without_memory_fails_or_is_done(void **state)
{
    (void)state;
    if (wt_over("ucx_far")) {
        skip(); /* a connection is given up then */
    }
    wt_doomed.nodes = "aab";
    for (wt_doomed.victim = 0; wt_doomed.victim < 3; wt_doomed.victim += 2) {
        wt_run_job(&(wt_job){.ranks = 3,
                             .settings_of = wt_doomed_settings,
                             .body = starve_body,
                             .deadline = 60});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_death_of_a_worker_all_keys_are_there),
        cmocka_unit_test(the_next_rank_serves_when_the_server_of_a_host_dies),
        cmocka_unit_test(keys_of_other_hosts_outlive_a_host),
        cmocka_unit_test(keys_that_are_gone_with_their_host_are_told_of),
        cmocka_unit_test(what_a_dead_worker_wanted_is_not_wanted_any_more),
        cmocka_unit_test(no_copy_is_older_than_the_store_for_the_next_server),
        cmocka_unit_test(no_push_counts_twice_whenever_a_rank_dies),
        cmocka_unit_test(a_rank_that_stops_for_a_while_costs_nothing_but_time),
        cmocka_unit_test(a_row_that_a_stopped_rank_holds_holds_up_no_other_key),
        cmocka_unit_test(intents_are_acted_on_earlier_while_answers_are_slow),
        cmocka_unit_test(a_store_that_one_rank_has_no_memory_for_is_not_made),
        cmocka_unit_test(an_operation_without_memory_fails_or_is_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
