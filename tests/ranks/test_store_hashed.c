/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed keys of a store over pretended nodes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/coll.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

#define KEYS 60u
#define LENGTH 2u

static weft_store *make(weft_world *world, weft_store_options o)
{
    weft_store *store = NULL;

    o.size = sizeof(o);
    o.length = LENGTH;
    o.type = WEFT_I64;
    o.hashed = 1;
    o.keys = o.keys > 0 ? o.keys : KEYS;
    o.cache = o.cache > 0 ? o.cache : 3 * KEYS;
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static weft_worker *worker_of(weft_store *store)
{
    weft_worker *worker = NULL;

    WT_OK(weft_worker_create(store, &worker));
    return worker;
}

static int64_t name_of(int64_t i)
{
    return (i - 7) * 0x1234567890abll;
}

static void run_shapes(wt_body *body)
{
    wt_run_nodes(1, 2, body);
    wt_run_nodes(2, 2, body);
    wt_run_nodes(3, 1, body);
    wt_run_nodes(4, 1, body);
}

static uint64_t messages_of(weft_store *store)
{
    weft_store_stats s;

    weft_store_count(store, &s);
    return s.messages;
}

/* --- numbers ---------------------------------------------------------------
 */

/* All ranks name the same keys at the same time, in different orders. */
static void race_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){0});
    weft_worker *worker = worker_of(store);
    int64_t ranks = weft_world_size(world);
    int64_t keys[2 * KEYS];
    int64_t values[2 * KEYS * LENGTH];
    weft_pairs p =
        wt_pairs(keys, 2 * (uint64_t)KEYS, values, 2 * (uint64_t)KEYS * LENGTH);

    for (unsigned i = 0; i < 2 * KEYS; i++) { /* each of them twice */
        keys[i] = name_of((i * 7 + weft_world_rank(world) * 11) % KEYS);
        values[i * LENGTH] = 1;
        values[i * LENGTH + 1] = keys[i];
    }
    WT_OK(weft_store_push(worker, &p, NULL));
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_pull(worker, &p, NULL));
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        WT_CHECK(values[i * LENGTH] == 2 * ranks);
        WT_CHECK(values[i * LENGTH + 1] == 2 * ranks * keys[i]);
    }
    wt_store_finish(store, worker);
}

static void a_key_that_several_ranks_make_at_once_is_one_key(void **state)
{
    (void)state;
    run_shapes(race_body);
}

static void batch_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.keys = 40000});
    weft_worker *worker = worker_of(store);
    int64_t keys[1000];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = 1000};
    weft_store_info info;
    uint64_t before;

    weft_store_describe(store, &info);
    for (int64_t i = 0; i < 1000; i++) {
        keys[i] = name_of(i + 1000 * (int64_t)weft_world_rank(world));
    }
    before = messages_of(store);
    WT_OK(weft_store_intent(worker, &ids, 1 << 20, 0)); /* asks, and no more */
    if (weft_world_size(world) == info.hosts) {
        /* Those are what it asked and what it was asked for. */
        WT_CHECK(messages_of(store) - before <= 2 * (info.hosts - 1));
    }
    WT_OK(weft_store_barrier(store));
    before = messages_of(store);
    WT_OK(weft_store_intent(worker, &ids, 1 << 20, 0));
    WT_CHECK(messages_of(store) == before);
    wt_store_finish(store, worker);
}

static void each_home_is_asked_once_for_the_keys_of_a_call(void **state)
{
    (void)state;
    run_shapes(batch_body);
}

/* Host 0 takes them all, those of other homes included. */
static void full_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.keys = 10});
    weft_worker *worker = worker_of(store);
    int64_t keys[12];
    int64_t values[12 * LENGTH] = {0};
    weft_pairs p = wt_pairs(keys, 12, values, 12 * LENGTH);
    int64_t first = 100 * (int64_t)weft_world_rank(world);
    uint64_t got = 0;

    for (int64_t i = 0; i < 12; i++) {
        int64_t key = first + i;
        weft_pairs q = wt_pairs(&key, 1, values, LENGTH);
        weft_status st = weft_store_push(worker, &q, NULL);

        got += st == WEFT_OK;
        if (st != WEFT_OK) {
            char name[32];

            snprintf(name, sizeof(name), "key %lld ", (long long)key);
            WT_CHECK(st == WEFT_ERR_NOMEM);
            WT_CHECK(strstr(weft_error_detail(), name) != NULL);
            WT_CHECK(strstr(weft_error_detail(), "10 keys") != NULL);
        }
    }
    WT_OK(weft_allreduce(weft_world_comm(world), &got, &got, 1, WEFT_I64,
                         (weft_op){.kind = WEFT_OP_SUM}));
    WT_CHECK(got == 10);
    for (int64_t i = 0; i < 12; i++) {
        keys[i] = first + i;
    }
    WT_STATUS(weft_store_pull(worker, &p, NULL), WEFT_ERR_NOMEM);
    wt_store_finish(store, worker);
}

static void there_are_exactly_as_many_keys_as_there_is_room_for(void **state)
{
    (void)state;
    run_shapes(full_body);
}

/* --- what goes on with keys ------------------------------------------------
 */

static void local_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){0});
    weft_worker *worker = worker_of(store);
    weft_store_info info;
    int64_t values[KEYS * LENGTH];
    int64_t keys[KEYS];
    weft_pairs p = wt_pairs(keys, KEYS, values, KEYS * LENGTH);
    unsigned here = 0;
    int local;

    weft_store_describe(store, &info);
    for (int64_t i = 0; i < KEYS; i++) {
        weft_pairs q = wt_pairs(&keys[i], 1, values, LENGTH);

        keys[i] = name_of(i);
        WT_OK(weft_store_pull_local(worker, &q, &local));
        here += local != 0;
    }
    WT_OK(weft_store_barrier(store));
    WT_CHECK(here == KEYS || info.hosts > 1);
    WT_CHECK(here > 0 && (here < KEYS || info.hosts == 1));
    WT_OK(weft_store_localize(worker, &p.keys, NULL));
    WT_OK(weft_store_pull_local(worker, &p, &local));
    WT_CHECK(local == 1);
    for (unsigned i = 0; i < KEYS * LENGTH; i++) {
        values[i] = 3;
    }
    WT_OK(weft_store_push(worker, &p, NULL));
    wt_store_settle(store, worker);
    WT_OK(weft_store_pull(worker, &p, NULL));
    for (unsigned i = 0; i < KEYS * LENGTH; i++) {
        WT_CHECK(values[i] == 3 * (int64_t)weft_world_size(world));
    }
    wt_store_finish(store, worker);
}

static void hashed_keys_come_to_where_they_are_wanted(void **state)
{
    (void)state;
    run_shapes(local_body);
}

/* Two threads of each rank, with requests under way, make keys as they go. */
#define STEPS 150

static void *train(void *arg)
{
    weft_store *store = arg;
    weft_worker *worker = worker_of(store);
    weft_request *request[2] = {NULL, NULL};

    for (int64_t i = 0; i < STEPS; i++) {
        int64_t keys[3] = {name_of(i * 5 % KEYS), name_of(i % 4),
                           name_of(i * 11 % KEYS)};
        int64_t values[3 * LENGTH] = {1, 1, 1, 1, 1, 1};
        int64_t seen[LENGTH] = {0};
        weft_pairs p = wt_pairs(keys, 3, values, 3 * LENGTH);
        weft_pairs q = wt_pairs(keys, 1, seen, LENGTH);

        WT_OK(weft_store_intent(worker, &p.keys, i + 2, i + 5));
        WT_OK(weft_store_push(worker, &p, &request[0]));
        WT_OK(weft_store_pull(worker, &q, &request[1])); /* its own push */
        for (int r = 0; r < 2; r++) {
            if (request[r] != NULL) {
                WT_OK(weft_request_wait(request[r], 0));
                weft_request_release(request[r]);
            }
        }
        WT_CHECK(seen[0] >= 1 && seen[0] == seen[1]);
        weft_worker_advance(worker);
    }
    weft_worker_destroy(worker);
    return NULL;
}

static void train_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.rounds = 5000});
    weft_worker *worker = worker_of(store);
    pthread_t thread[2];
    int64_t total = 0;

    for (int i = 0; i < 2; i++) {
        WT_CHECK(pthread_create(&thread[i], NULL, train, store) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
    WT_OK(weft_store_barrier(store));
    wt_store_settle(store, worker);
    for (int64_t i = 0; i < KEYS; i++) {
        int64_t key = name_of(i);
        int64_t row[LENGTH];
        weft_pairs p = wt_pairs(&key, 1, row, LENGTH);

        WT_OK(weft_store_pull(worker, &p, NULL));
        total += row[0];
    }
    WT_CHECK(total == 2ll * 3 * STEPS * weft_world_size(world));
    wt_store_finish(store, worker);
}

static void totals_are_exact_while_keys_are_made_and_move(void **state)
{
    (void)state;
    run_shapes(train_body);
}

/* --- samples and traces ----------------------------------------------------
 */

static weft_sample_scheme scheme;

static void sample_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.keys = 200});
    weft_worker *worker = worker_of(store);
    weft_sample_options o = {.size = sizeof(o),
                             .scheme = scheme,
                             .min = -100,
                             .max = 100,
                             .distinct = 1};
    int64_t keys[20];
    int64_t rows[20 * LENGTH];
    weft_pairs p = wt_pairs(keys, 20, rows, 20 * LENGTH);
    int64_t id;

    WT_OK(weft_store_sampling(store, &o));
    WT_OK(weft_sample_prepare(worker, 20, 0, 0, &id));
    WT_OK(weft_sample_pull(worker, id, &p, NULL));
    for (int i = 0; i < 20; i++) {
        WT_CHECK(keys[i] >= -100 && keys[i] < 100 && rows[i * LENGTH] == 0);
        for (int j = 0; j < i; j++) {
            WT_CHECK(keys[i] != keys[j]);
        }
    }
    if (scheme == WEFT_SAMPLE_LOCAL) {
        int local;

        WT_OK(weft_store_pull_local(worker, &p, &local));
        WT_CHECK(local == 1);
    }
    wt_store_finish(store, worker);
}

static void samples_of_hashed_keys_are_pulled_in_every_scheme(void **state)
{
    (void)state;
    for (int s = WEFT_SAMPLE_NAIVE; s <= WEFT_SAMPLE_LOCAL; s++) {
        scheme = (weft_sample_scheme)s;
        wt_run_nodes(3, 1, sample_body);
    }
}

/* Host 0 takes all 9 keys, of which LOCAL finds those that are far from what it
 * draws, and host 1 has none. */
static void far_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){.keys = 9,
                                         .techniques = WEFT_RELOCATION_ONLY});
    weft_worker *worker = worker_of(store);
    weft_sample_options o = {.size = sizeof(o),
                             .scheme = WEFT_SAMPLE_LOCAL,
                             .min = INT64_MIN,
                             .max = INT64_MAX};
    int64_t keys[9];
    int64_t rows[9 * LENGTH];
    weft_pairs p = wt_pairs(keys, 9, rows, 9 * LENGTH);
    int64_t id;

    for (int64_t i = 0; i < 9; i++) {
        keys[i] = name_of(i) * 1000;
    }
    if (weft_world_rank(world) == 0) {
        WT_OK(weft_store_localize(worker, &p.keys, NULL));
    }
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_sampling(store, &o));
    WT_OK(weft_sample_prepare(worker, 1, 0, 0, &id));
    p = wt_pairs(keys, 1, rows, LENGTH);
    if (weft_world_rank(world) == 0) {
        bool known = false;

        WT_OK(weft_sample_pull(worker, id, &p, NULL));
        for (int64_t i = 0; i < 9; i++) {
            known = known || keys[0] == name_of(i) * 1000;
        }
        WT_CHECK(known);
    } else {
        WT_STATUS(weft_sample_pull(worker, id, &p, NULL), WEFT_ERR_INVALID);
    }
    wt_store_finish(store, worker);
}

static void
a_local_sample_of_any_numbers_finds_the_keys_that_are_here(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, far_body);
}

static void trace_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){0});
    weft_worker *worker = worker_of(store);
    char path[160];
    char line[200];
    char wanted[40];
    int64_t keys[KEYS];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};
    FILE *file;
    bool found = false;

    snprintf(path, sizeof(path), "%s/weft-hashed-%d-%u",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp",
             (int)getpid(), wt_rank());
    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = name_of(i);
    }
    WT_OK(weft_store_trace(store, &ids, path));
    WT_OK(weft_store_localize(worker, &ids, NULL));
    ids.n = 0;
    WT_OK(weft_store_trace(store, &ids, NULL));
    snprintf(wanted, sizeof(wanted), "\t%lld\tintent begins",
             (long long)keys[3]);
    file = fopen(path, "r");
    WT_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        found = found || strstr(line, wanted) != NULL;
    }
    fclose(file);
    unlink(path);
    WT_CHECK(found);
    wt_store_finish(store, worker);
}

static void traces_have_the_keys_that_the_caller_named(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, trace_body);
}

/* --- resizing --------------------------------------------------------------
 */

/* Those of one rank fill the store, so that some are not at their homes. */
static void resize_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){.keys = 10, .max_keys = 40});
    weft_worker *worker = worker_of(store);
    weft_comm *comm = weft_world_comm(world);
    int64_t key;
    int64_t row[LENGTH];
    weft_pairs p = wt_pairs(&key, 1, row, LENGTH);
    weft_store_info info;

    for (key = 0; weft_world_rank(world) == 0 && key < 10; key++) {
        row[0] = row[1] = 1 + key;
        WT_OK(weft_store_push(worker, &p, NULL));
    }
    WT_OK(weft_store_barrier(store));
    WT_STATUS(weft_store_resize(store, 9), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "10 hashed keys") != NULL);
    WT_OK(weft_store_resize(store, 40));
    WT_OK(weft_store_resize(store, 10));
    WT_OK(weft_store_resize(store, 10));
    WT_OK(weft_store_resize(store, 25));
    weft_store_describe(store, &info);
    WT_CHECK(info.keys == 25);
    for (key = 24; key >= 0; key--) {
        row[0] = row[1] = -1;
        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(row[0] == (key < 10 ? 1 + key : 0) && row[1] == row[0]);
    }
    WT_OK(weft_barrier(comm));
    key = 25;
    WT_STATUS(weft_store_pull(worker, &p, NULL), WEFT_ERR_NOMEM);
    WT_STATUS(weft_store_resize(store, 24), WEFT_ERR_INVALID);
    wt_store_finish(store, worker);
}

static void a_hashed_store_gets_more_room_and_keeps_its_keys(void **state)
{
    (void)state;
    run_shapes(resize_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_several_ranks_make_at_once_is_one_key),
        cmocka_unit_test(each_home_is_asked_once_for_the_keys_of_a_call),
        cmocka_unit_test(there_are_exactly_as_many_keys_as_there_is_room_for),
        cmocka_unit_test(hashed_keys_come_to_where_they_are_wanted),
        cmocka_unit_test(totals_are_exact_while_keys_are_made_and_move),
        cmocka_unit_test(samples_of_hashed_keys_are_pulled_in_every_scheme),
        cmocka_unit_test(
            a_local_sample_of_any_numbers_finds_the_keys_that_are_here),
        cmocka_unit_test(traces_have_the_keys_that_the_caller_named),
        cmocka_unit_test(a_hashed_store_gets_more_room_and_keeps_its_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
