/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a store over pretended nodes dies while keys are made, or while the
 * number of keys changes. The others are told, and what is left is whole. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "wt_cmocka.h"
#include "wt_doomed.h"
#include "wt_fault.h"

#define KEYS 24u
#define FEWER 8u
#define LENGTH 3u

enum { ARRIVED, STRUCK, BEGUN }; /* words of the board; from BEGUN on by key */

/* Set before the ranks are forked. */
static struct {
    unsigned seed;
    bool hashed;
} job;

static weft_store *make(weft_world *world, uint64_t keys)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = keys,
                            .max_keys = 4 * keys,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .hashed = job.hashed,
                            .cache = 4 * keys,
                            .rounds = 5000};
    weft_store *store = NULL;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static bool tolerate(weft_status st)
{
    if (st != WEFT_OK &&
        (st != WEFT_ERR_PEER ||
         !wt_names_rank(weft_error_detail(), wt_doomed.victim))) {
        WT_FAIL("seed %u, nodes %s, rank %u dies: %s: %s", job.seed,
                wt_doomed.nodes, wt_doomed.victim, weft_status_name(st),
                weft_error_detail());
    }
    return st == WEFT_OK;
}

static void *strike_later(void *arg)
{
    const struct timespec pause_ns = {.tv_nsec = *(const long *)arg};

    nanosleep(&pause_ns, NULL);
    atomic_store(wt_word(STRUCK), 1);
    kill(getpid(), SIGKILL);
    return NULL;
}

static unsigned first_seed(void)
{
    const char *from = getenv("WT_SEED");

    return from != NULL ? (unsigned)atoi(from) : 1;
}

static void doom(void)
{
    static long pause_ns;
    pthread_t thread;

    pause_ns = (long)(job.seed * 7919 % 40) * 200000;
    WT_CHECK(pthread_create(&thread, NULL, strike_later, &pause_ns) == 0);
}

static weft_status push_one(weft_worker *worker, int64_t key)
{
    int64_t ones[LENGTH] = {1, 1, 1};
    weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                    .values = ones,
                    .length = LENGTH};

    return weft_store_push(worker, &p, NULL);
}

static weft_status pull_one(weft_worker *worker, int64_t key, int64_t *value)
{
    int64_t row[LENGTH];
    weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                    .values = row,
                    .length = LENGTH};
    weft_status st = weft_store_pull(worker, &p, NULL);

    WT_CHECK(st != WEFT_OK || (row[0] == row[1] && row[0] == row[2]));
    *value = row[0];
    return st;
}

static void leave(weft_store *store, weft_worker *worker, unsigned nth)
{
    wt_survivors_meet(ARRIVED, nth);
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}

/* --- keys that are made ----------------------------------------------------
 */

#define NAMES 4000

/* All ranks make the same keys. A rank alone counts those that it has pushed
 * to; of these none may be lost while their host lives. */
static void name_body(weft_world *world)
{
    weft_store *store = make(world, NAMES);
    weft_worker *worker;
    int64_t key = 0;
    int64_t last;
    int64_t value;

    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        doom();
    }
    for (; key < NAMES / 2 && (wt_is_victim() || !atomic_load(wt_word(STRUCK)));
         key++) {
        (void)tolerate(push_one(worker, key * 999983));
    }
    if (wt_is_victim()) {
        pause();
    }
    wt_await_gone(wt_doomed.victim);
    last = key + 100;
    for (; key < last; key++) {
        double since = wt_now();
        bool ok = tolerate(push_one(worker, key * 999983));

        WT_CHECK(wt_now() - since < 3 * wt_death_bound());
        /* One that was begun just when the death was noticed may fail. */
        WT_CHECK(ok || !wt_victims_node_lives() ||
                 tolerate(push_one(worker, key * 999983)));
    }
    wt_survivors_meet(ARRIVED, 1);
    for (key = 0; key < last; key++) {
        if (tolerate(pull_one(worker, key * 999983, &value))) {
            WT_CHECK(value <= (int64_t)wt_ranks());
        } else {
            WT_CHECK(!wt_victims_node_lives());
        }
    }
    leave(store, worker, 2);
}

static void keys_are_made_whenever_a_rank_dies(void **state)
{
    static const struct {
        const char *nodes;
        unsigned victim;
    } shape[] = {{"aabb", 0}, {"abc", 1}, {"aabb", 3}, {"abb", 1}, {"ab", 0}};
    unsigned seeds = wt_full() ? 300 : WT_ASAN ? 5 : 10;

    (void)state;
    job.hashed = true;
    for (job.seed = first_seed(); seeds-- > 0; job.seed++) {
        unsigned s = job.seed % (sizeof(shape) / sizeof(shape[0]));

        wt_run_doomed(shape[s].nodes, shape[s].victim, name_body);
    }
    job.hashed = false;
}

/* With the only rank of host 1 about a third of all keys lose their home. */
static void home_body(weft_world *world)
{
    weft_store *store = make(world, NAMES);
    weft_worker *worker;
    unsigned gone = 0;
    unsigned known = 0;
    int64_t value;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t key = 0; wt_rank() == 0 && key < 100; key++) {
        weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};

        WT_OK(weft_store_localize(worker, &ids, NULL));
        WT_OK(push_one(worker, key));
    }
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        kill(getpid(), SIGKILL);
    }
    wt_await_gone(wt_doomed.victim);
    for (int64_t key = 100; key < 400; key++) {
        double since = wt_now();
        weft_status st = push_one(worker, key);
        char text[40];

        snprintf(text, sizeof(text), "key %" PRId64, key);
        WT_CHECK(wt_now() - since < 3 * wt_death_bound());
        if (!tolerate(st)) {
            WT_CHECK(strstr(weft_error_detail(), text) != NULL);
            gone++;
        }
    }
    WT_CHECK(gone > 50 && gone < 150);
    for (int64_t key = 0; key < 100; key++) {
        bool ok = tolerate(pull_one(worker, key, &value));

        known += ok;
        WT_CHECK(!ok || value == 1);
    }
    /* Host 0 has them all; host 2 has to ask the homes. */
    WT_CHECK(wt_rank() == 0 ? known == 100 : known > 40 && known < 90);
    leave(store, worker, 1);
}

static void keys_whose_home_is_gone_are_named_and_others_are_made(void **state)
{
    (void)state;
    job.hashed = true;
    wt_run_doomed("abc", 1, home_body);
    job.hashed = false;
}

/* --- another number of keys ------------------------------------------------
 */

/* All ranks resize the store over and over, and one dies. Pushes to keys that
 * stay are counted: none is lost, none counts twice. */
static void resize_body(weft_world *world)
{
    weft_store *store = make(world, KEYS);
    unsigned turns = 0;
    weft_worker *worker;
    double since;
    int64_t value;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};

        WT_OK(push_one(worker, key));
        if (!wt_is_victim() && key % 2 == 0) {
            WT_OK(weft_store_localize(worker, &ids, NULL));
        }
    }
    for (int i = 0; i < 2; i++) {
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
    }
    if (wt_is_victim()) {
        doom();
    }
    while (tolerate(weft_store_resize(store, ++turns % 2 != 0 ? FEWER
                                             : turns % 4 == 0 ? KEYS
                                                              : 4 * KEYS))) {
    }
    if (wt_is_victim()) {
        pause();
    }
    wt_await_gone(wt_doomed.victim);
    for (int64_t key = 0; key < (int64_t)FEWER; key++) {
        if (tolerate(pull_one(worker, key, &value))) {
            WT_CHECK(value == wt_ranks());
        } else {
            WT_CHECK(!wt_victims_node_lives());
        }
    }
    wt_survivors_meet(ARRIVED, 1);
    for (int64_t key = 0; key < (int64_t)FEWER; key++) {
        WT_CHECK(tolerate(push_one(worker, key)) || !wt_victims_node_lives() ||
                 tolerate(push_one(worker, key)));
    }
    since = wt_now();
    (void)tolerate(weft_store_wait_sync(worker));
    WT_CHECK(wt_now() - since < 3 * wt_death_bound());
    leave(store, worker, 2);
}

static void a_death_while_keys_come_and_go_leaves_the_others_whole(void **state)
{
    static const struct {
        const char *nodes;
        unsigned victim;
    } shape[] = {{"aabb", 0}, {"abc", 1}, {"aabb", 1}, {"abb", 2},
                 {"aab", 2},  {"abb", 1}, {"aabb", 2}};
    unsigned seeds = wt_full() ? 300 : WT_ASAN ? 7 : 14;

    (void)state;
    for (job.seed = first_seed(); seeds-- > 0; job.seed++) {
        unsigned s = job.seed % (sizeof(shape) / sizeof(shape[0]));

        wt_run_doomed(shape[s].nodes, shape[s].victim, resize_body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_made_whenever_a_rank_dies),
        cmocka_unit_test(keys_whose_home_is_gone_are_named_and_others_are_made),
        cmocka_unit_test(
            a_death_while_keys_come_and_go_leaves_the_others_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
