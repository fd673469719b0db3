/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are localized many at a time, on hosts that have room for them when
 * they have come, and not while all of them are on their way. */
#include "store/hosts/hosts.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

#define KEYS 100u
#define LENGTH 4u

static weft_store_options options; /* of the run */

static weft_store *make(weft_world *world)
{
    weft_store_options o = options;
    weft_store *store = NULL;

    o.size = sizeof(o);
    o.keys = KEYS;
    o.length = o.lengths == NULL ? LENGTH : 0;
    o.type = WEFT_I64;
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static void number(int64_t *keys, int64_t from)
{
    for (int64_t k = 0; k < KEYS; k++) {
        keys[k] = from + k;
    }
}

static weft_status localize(weft_worker *worker, const weft_ids *ids,
                            bool later)
{
    weft_request *request = NULL;
    weft_status st = weft_store_localize(worker, ids, later ? &request : NULL);

    if (st == WEFT_OK && request != NULL) {
        st = weft_request_wait(request, 0);
        weft_request_release(request);
    }
    return st;
}

/* Of a store whose worker has localized n keys. */
static void check_here(weft_worker *worker, const int64_t *keys, uint64_t n)
{
    int64_t values[KEYS * LENGTH];
    weft_pairs p = wt_pairs(keys, n, values, 0);
    int local = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t length;

        WT_OK(weft_store_length(worker->store, keys[i], &length));
        p.length += length;
    }
    WT_OK(weft_store_pull_local(worker, &p, &local));
    WT_CHECK(local == 1);
}

/* Wait until this host has done all that is to be done for others. */
static void wait_idle(weft_store *store, weft_worker *worker)
{
    wf_store_hosts *h = store->remote;
    bool busy = true;

    while (busy) {
        WT_OK(weft_store_wait_sync(worker));
        pthread_mutex_lock(&h->world->drive);
        busy = h->ending > 0 || h->roomless.count > 0;
        pthread_mutex_unlock(&h->world->drive);
    }
}

/* --- keys that fit -------------------------------------------------------- */

/* Ranks in turn bring all keys to their hosts, in one call each. */
static void all_body(weft_world *world)
{
    weft_store *store = make(world);
    int64_t from = options.hashed != 0 ? 1000000007 : 0;
    int64_t keys[KEYS];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};

    number(keys, from);
    for (uint32_t turn = 0; turn < 4; turn++) {
        weft_worker *worker;

        WT_OK(weft_worker_create(store, &worker));
        WT_OK(weft_store_barrier(store));
        if (turn % weft_world_size(world) == weft_world_rank(world)) {
            weft_store_stats now;

            WT_OK(localize(worker, &ids, turn >= 2));
            check_here(worker, keys, KEYS);
            weft_store_count(store, &now);
            WT_CHECK(now.refused == 0);
        }
        WT_OK(weft_store_barrier(store));
        weft_worker_destroy(worker); /* nobody wants them any more */
        WT_OK(weft_worker_create(store, &worker));
        wt_store_settle(store, worker);
        wait_idle(store, worker);
        WT_OK(weft_store_barrier(store));
        weft_worker_destroy(worker);
    }
    weft_store_destroy(store);
}

static void keys_that_fit_are_localized_in_one_call(void **state)
{
    (void)state;
    options = (weft_store_options){.cache = 0};
    wt_run_nodes(2, 1, all_body);
    wt_run_nodes(2, 2, all_body);
    options.hashed = 1;
    wt_run_nodes(2, 1, all_body);
    options = (weft_store_options){.cache = KEYS};
    wt_run_nodes(3, 1, all_body);
    options.techniques = WEFT_RELOCATION_ONLY;
    wt_run_nodes(3, 1, all_body);
    options.rounds = 1;
    wt_run_nodes(2, 2, all_body);
}

static void keys_of_several_lengths_that_fit_are_localized(void **state)
{
    static int64_t lengths[KEYS];

    (void)state;
    for (unsigned k = 0; k < KEYS; k++) {
        lengths[k] = 1 + k / 30; /* 30 keys of each length, 10 of the last */
    }
    options = (weft_store_options){.lengths = lengths};
    wt_run_nodes(2, 1, all_body);
}

/* Each of two ranks of a host brings half of the keys, in two requests that are
 * under way at the same time. */
static void together_body(weft_world *world)
{
    weft_store *store = make(world);
    uint32_t rank = weft_world_rank(world);
    int64_t keys[KEYS];
    int64_t *own = keys + (rank % 2) * KEYS / 2;
    weft_worker *worker;
    weft_request *request[2] = {NULL};

    number(keys, 0);
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    for (unsigned i = 0; rank < 2 && i < 2; i++) {
        weft_ids ids = {
            .at = own + i * KEYS / 4, .type = WEFT_I64, .n = KEYS / 4};

        WT_OK(weft_store_localize(worker, &ids, &request[i]));
    }
    for (unsigned i = 0; i < 2; i++) {
        if (request[i] != NULL) {
            WT_OK(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
    }
    if (rank < 2) {
        check_here(worker, own, KEYS / 2);
    }
    wt_store_finish(store, worker);
}

static void workers_localize_at_the_same_time_what_fits(void **state)
{
    (void)state;
    options = (weft_store_options){.cache = 0};
    for (unsigned i = 0; i < 10; i++) {
        wt_run_nodes(2, 2, together_body);
    }
}

/* Each host brings the keys that begin on the other one. */
static void swap_body(weft_world *world)
{
    weft_store *store = make(world);
    int64_t other = 1 - (int64_t)weft_world_rank(world);
    int64_t keys[KEYS / 2];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS / 2};
    weft_worker *worker;

    for (int64_t k = 0; k < KEYS / 2; k++) {
        keys[k] = 2 * k + other;
    }
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_localize(worker, &ids, NULL));
    check_here(worker, keys, KEYS / 2);
    wt_store_finish(store, worker);
}

static void hosts_exchange_all_their_keys(void **state)
{
    (void)state;
    options = (weft_store_options){.cache = 0};
    wt_run_nodes(2, 1, swap_body);
}

/* --- keys that do not ----------------------------------------------------- */

/* Host 0 has room for 22 rows beside its own. */
static void too_many_body(weft_world *world)
{
    weft_store *store = make(world);
    bool later = options.seed != 0;
    int64_t keys[KEYS];
    int64_t values[KEYS * LENGTH];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};
    weft_pairs p = wt_pairs(keys, KEYS, values, KEYS * LENGTH);
    weft_store_stats now;
    weft_worker *worker;

    number(keys, 0);
    WT_OK(weft_worker_create(store, &worker));
    if (weft_world_rank(world) == 0) {
        WT_STATUS(localize(worker, &ids, later), WEFT_ERR_NOMEM);
        WT_CHECK(wt_said("no room for key") && wt_said("cache"));
        weft_store_count(store, &now);
        WT_CHECK(now.owned >= KEYS / 2 + 20);
        WT_CHECK(now.refused <= KEYS / 2 - 20); /* each of them once */
        WT_OK(weft_store_push(worker, &p, NULL));
        WT_OK(weft_store_pull(worker, &p, NULL));
    }
    wt_store_finish(store, worker);
}

static void
keys_that_do_not_fit_are_refused_when_the_others_have_come(void **state)
{
    (void)state;
    options = (weft_store_options){.cache = 20};
    wt_run_nodes(2, 1, too_many_body);
    options.seed = 1;
    wt_run_nodes(2, 2, too_many_body);
    options.techniques = WEFT_RELOCATION_ONLY;
    wt_run_nodes(2, 2, too_many_body);
}

/* Copies take two rows for good. */
static void copies_body(weft_world *world)
{
    weft_store *store = make(world);
    int64_t keys[KEYS];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};
    weft_worker *worker;

    number(keys, 0);
    WT_OK(weft_worker_create(store, &worker));
    WT_STATUS(localize(worker, &ids, false), WEFT_ERR_NOMEM);
    WT_CHECK(wt_said("no room for key") && wt_said("cache"));
    wt_store_finish(store, worker);
}

static void copies_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    options = (weft_store_options){.techniques = WEFT_REPLICATION_ONLY};
    wt_run_nodes(2, 1, copies_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_fit_are_localized_in_one_call),
        cmocka_unit_test(keys_of_several_lengths_that_fit_are_localized),
        cmocka_unit_test(workers_localize_at_the_same_time_what_fits),
        cmocka_unit_test(hosts_exchange_all_their_keys),
        cmocka_unit_test(
            keys_that_do_not_fit_are_refused_when_the_others_have_come),
        cmocka_unit_test(copies_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
