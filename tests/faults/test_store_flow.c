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
enum { ARRIVED, STRUCK }; /* words of the board */

static unsigned when; /* calls before the death; set before ranks are forked */

static bool tolerate(weft_status st)
{
    if (st != WEFT_OK &&
        (st != WEFT_ERR_PEER ||
         !wt_names_rank(weft_error_detail(), wt_doomed.victim))) {
        WT_FAIL("%s: %s", weft_status_name(st), weft_error_detail());
    }
    return st == WEFT_OK;
}

/* Several long calls at a time, of which every other one writes. */
static void long_calls(weft_worker *worker, const int64_t *keys, void **values)
{
    weft_request *request[CALLS] = {NULL};

    for (unsigned i = 0; i < CALLS; i++) {
        weft_pairs all = wt_pairs(keys, KEYS, values[i], VALUES);
        weft_status st = i % 2 == 0
                             ? weft_store_pull(worker, &all, &request[i])
                             : weft_store_push(worker, &all, &request[i]);

        (void)tolerate(st);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        if (request[i] != NULL) {
            (void)tolerate(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
    }
}

static void check_nothing_waits(const weft_store *store)
{
    wf_store_hosts *h = store->remote;

    pthread_mutex_lock(&h->world->drive);
    WT_CHECK(h->waiting_shares == 0);
    for (uint32_t host = 0; host < store->hosts; host++) {
        WT_CHECK(h->line[host].under_way == 0 && h->line[host].first == NULL);
    }
    pthread_mutex_unlock(&h->world->drive);
}

static void death_body(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .cache = KEYS};
    int64_t *keys = malloc(KEYS * sizeof(*keys));
    void *values[CALLS];
    weft_store *store = NULL;
    weft_worker *worker;

    WT_CHECK(keys != NULL);
    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    for (unsigned i = 0; i < CALLS; i++) {
        values[i] = calloc(VALUES, sizeof(int64_t));
        WT_CHECK(values[i] != NULL);
    }
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    for (unsigned i = 0; i < when && wt_is_victim(); i++) {
        long_calls(worker, keys, values);
    }
    if (wt_is_victim()) {
        atomic_store(wt_word(STRUCK), 1);
        kill(getpid(), SIGKILL);
    }
    while (atomic_load(wt_word(STRUCK)) == 0) {
        long_calls(worker, keys, values);
    }
    wt_await_gone(wt_doomed.victim);
    long_calls(worker, keys, values);
    check_nothing_waits(store);
    wt_survivors_meet(ARRIVED, 1);
    weft_worker_destroy(worker);
    weft_store_destroy(store);
    for (unsigned i = 0; i < CALLS; i++) {
        free(values[i]);
    }
    free(keys);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_calls_outlive_a_server),
    };

    return cmocka_run_group_tests_name("store flow", tests, NULL, NULL);
}
