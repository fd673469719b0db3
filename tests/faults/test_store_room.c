/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies while keys are localized that wait for room at a server. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "wt_cmocka.h"
#include "wt_doomed.h"
#include "wt_fault.h"
#include "wt_store.h"

#define KEYS 60u
#define LENGTH 3u

/* Words of the board. */
enum { ARRIVED, STRUCK };

static uint64_t seed; /* set before the ranks are forked */

static weft_store *make(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .cache = KEYS};
    weft_store *store = NULL;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static void die_later(void)
{
    const struct timespec pause_ns = {.tv_nsec =
                                          (long)(seed * 7919 % 40) * 100000};

    nanosleep(&pause_ns, NULL);
    atomic_store(wt_word(STRUCK), 1);
    kill(getpid(), SIGKILL);
}

/* All keys in one call, by a worker that ends then. */
static weft_status localize_all(weft_store *store)
{
    int64_t keys[KEYS];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};
    weft_request *request = NULL;
    weft_worker *worker;
    weft_status st;

    for (int64_t k = 0; k < KEYS; k++) {
        keys[k] = k;
    }
    WT_OK(weft_worker_create(store, &worker));
    st = weft_store_localize(worker, &ids, &request);
    if (request != NULL) {
        st = weft_request_wait(request, 0);
        weft_request_release(request);
    }
    weft_worker_destroy(worker);
    return st;
}

/* Ranks of two hosts want the same keys: those that are copies at that time may
 * not fit. When one has them for itself they do. */
static void localize_body(weft_world *world)
{
    weft_store *store = make(world);
    bool whole = !wt_victims_node_lives();
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    if (wt_is_victim()) {
        die_later();
    }
    for (unsigned i = 0; i < 3; i += atomic_load(wt_word(STRUCK)) != 0) {
        weft_status st = localize_all(store);

        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM ||
                 (whole && st == WEFT_ERR_PEER));
    }
    wt_await_gone(wt_doomed.victim);
    for (unsigned i = 1; i <= 2; i++) {
        weft_status st = weft_store_wait_sync(worker);

        WT_CHECK(st == WEFT_OK || st == WEFT_ERR_PEER);
        wt_survivors_meet(ARRIVED, i);
    }
    if (wt_rank() == 1) {
        weft_status st = localize_all(store);

        WT_CHECK(st == WEFT_OK || (whole && st == WEFT_ERR_PEER));
    }
    wt_survivors_meet(ARRIVED, 3);
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}

static void keys_that_wait_for_room_come_when_their_server_dies(void **state)
{
    (void)state;
    for (seed = 1; seed <= 12; seed++) {
        wt_run_doomed("aab", 0, localize_body);
        wt_run_doomed("bbaa", 2, localize_body);
    }
}

static void keys_that_wait_for_room_end_when_their_host_dies(void **state)
{
    (void)state;
    for (seed = 1; seed <= 12; seed++) {
        wt_run_doomed("aab", 2, localize_body);
        wt_run_doomed("abc", 2, localize_body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_wait_for_room_come_when_their_server_dies),
        cmocka_unit_test(keys_that_wait_for_room_end_when_their_host_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
