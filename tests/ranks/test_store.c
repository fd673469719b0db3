/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of weft/store.h that are not about where keys are: arguments,
 * hashed keys, files, resizing, sampling, tracing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/coll.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

static weft_store *make(weft_world *world, weft_store_options o)
{
    weft_store *store = NULL;

    o.size = sizeof(o);
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static weft_worker *worker_of(weft_store *store)
{
    weft_worker *worker = NULL;

    WT_OK(weft_worker_create(store, &worker));
    return worker;
}

/* --- arguments -------------------------------------------------------------
 */

static void refuse(weft_world *world, weft_store_options o, const char *text)
{
    weft_store *store = NULL;

    o.size = sizeof(o);
    WT_CHECK(weft_store_create(weft_world_comm(world), &o, &store) ==
             WEFT_ERR_INVALID);
    WT_CHECK(store == NULL && wt_said(text));
}

static void options_body(weft_world *world)
{
    const int64_t lengths[3] = {1, -4, 2};
    weft_update adam = {.size = sizeof(adam), .kind = WEFT_ADAM};
    uint32_t rank = weft_world_rank(world);
    weft_store_options o = {
        .size = sizeof(o), .keys = 3 + rank, .length = 1, .type = WEFT_F32};
    weft_store *store = NULL;

    refuse(world, (weft_store_options){.keys = 1, .type = WEFT_BOOL}, "bool");
    refuse(
        world,
        (weft_store_options){.keys = 3, .type = WEFT_F32, .lengths = lengths},
        "key 1 is -4");
    refuse(world,
           (weft_store_options){
               .keys = 3, .length = 2, .type = WEFT_I64, .optimizer = &adam},
           "optimizer");
    refuse(world, (weft_store_options){.keys = 1ull << 40, .type = WEFT_F32},
           "keys");
    if (weft_world_size(world) > 1) {
        WT_CHECK(weft_store_create(weft_world_comm(world), &o, &store) ==
                 WEFT_ERR_MISMATCH);
        WT_CHECK(wt_said("number of keys 4 on rank 1"));
    }
}

static void options_that_do_not_fit_are_named(void **state)
{
    (void)state;
    wt_run_nodes(1, 1, options_body);
    wt_run_nodes(1, 2, options_body);
    wt_run_nodes(2, 1, options_body);
}

static void keys_body(weft_world *world)
{
    weft_store *store = make(
        world, (weft_store_options){.keys = 7, .length = 2, .type = WEFT_I32});
    weft_worker *worker = worker_of(store);
    int64_t keys[3] = {1, -2, 3};
    int32_t values[6] = {5, 5, 5, 5, 5, 5};
    weft_pairs p = wt_pairs(keys, 3, values, 6);

    WT_CHECK(weft_store_push(worker, &p, NULL) == WEFT_ERR_INVALID);
    WT_CHECK(wt_said("key -2") && wt_said("position 1"));
    keys[1] = 7;
    WT_CHECK(weft_store_pull(worker, &p, NULL) == WEFT_ERR_INVALID);
    WT_CHECK(wt_said("key 7") && values[0] == 5);
    WT_CHECK(weft_store_intent(worker, &p.keys, 0, 0) == WEFT_ERR_INVALID);
    WT_CHECK(weft_store_localize(worker, &p.keys, NULL) == WEFT_ERR_INVALID);
    keys[1] = 2;
    p.length = 5;
    WT_CHECK(weft_store_set(worker, &p, NULL) == WEFT_ERR_INVALID);
    WT_CHECK(wt_said("5 elements"));
    p.keys.type = WEFT_F32;
    WT_CHECK(weft_store_pull(worker, &p, NULL) == WEFT_ERR_INVALID);
    p = wt_pairs(keys, 3, values, 6);
    WT_CHECK(weft_store_intent(worker, &p.keys, 5, 3) == WEFT_ERR_INVALID);
    WT_CHECK(weft_store_intent(worker, &p.keys, -1, 3) == WEFT_ERR_INVALID);
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_pull(worker, &p, NULL));
    WT_CHECK(values[0] == 0 && values[5] == 0); /* nothing was pushed */
    p = wt_pairs(keys, 0, NULL, 0);
    WT_OK(weft_store_pull(worker, &p, NULL));
    WT_OK(weft_store_barrier(store));
    weft_store_destroy(store);
    p = wt_pairs(keys, 3, values, 6);
    WT_CHECK(weft_store_push(worker, &p, NULL) == WEFT_ERR_CLOSED);
    weft_worker_destroy(worker);
}

static void keys_that_are_wrong_are_named_and_nothing_changes(void **state)
{
    (void)state;
    wt_run_nodes(1, 1, keys_body);
    wt_run_nodes(1, 2, keys_body);
    wt_run_nodes(2, 1, keys_body);
}

/* --- hashed keys -----------------------------------------------------------
 */

static void hashed_body(weft_world *world)
{
    weft_store *store = make(
        world, (weft_store_options){
                   .keys = 100, .length = 1, .hashed = 1, .type = WEFT_I64});
    weft_worker *worker = worker_of(store);
    uint32_t ranks = weft_world_size(world);
    int64_t keys[100];
    int64_t values[100];
    weft_pairs p = wt_pairs(keys, 100, values, 100);

    for (int64_t i = 0; i < 100; i++) {
        keys[i] = (i - 50) * 0x123456789abcdll;
        values[i] = i;
    }
    WT_OK(weft_store_push(worker, &p, NULL));
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_store_pull(worker, &p, NULL));
    for (int64_t i = 0; i < 100; i++) {
        WT_CHECK(values[i] == i * ranks);
    }
    keys[3] = 17;
    WT_CHECK(weft_store_pull(worker, &p, NULL) == WEFT_ERR_NOMEM);
    WT_CHECK(wt_said("key 17"));
    wt_store_finish(store, worker);
}

static void hashed_keys_are_any_numbers(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        wt_run_nodes(1, n, hashed_body);
        wt_run_nodes(n + 1, 1 + n % 2, hashed_body);
    }
}

/* --- files -----------------------------------------------------------------
 */

static char path[128];
static bool ragged;
static bool hashed;
static const weft_update adagrad = {
    .size = sizeof(adagrad), .kind = WEFT_ADAGRAD, .lr = 0.5, .eps = 1e-10};
#define FILE_KEYS 50u

static weft_store *file_store(weft_world *world, int64_t *lengths)
{
    weft_store_options o = {.keys = FILE_KEYS,
                            .length = 3,
                            .type = WEFT_F32,
                            .hashed = hashed,
                            .cache = 200,
                            .optimizer = ragged ? NULL : &adagrad};

    for (unsigned k = 0; k < FILE_KEYS; k++) {
        lengths[k] = k % 4;
    }
    o.lengths = ragged ? lengths : NULL;
    return make(world, o);
}

static int64_t name_of(int64_t k)
{
    return hashed ? k * k * 1000003 - 7 : k;
}

static void save_body(weft_world *world)
{
    int64_t lengths[FILE_KEYS];
    weft_store *store = file_store(world, lengths);
    weft_worker *worker = worker_of(store);

    for (int64_t k = weft_world_rank(world); k < FILE_KEYS;
         k += weft_world_size(world)) {
        int64_t key = name_of(k);
        float row[3] = {(float)k, 1, 2};
        weft_pairs p =
            wt_pairs(&key, 1, row, ragged ? (uint64_t)lengths[k] : 3);

        WT_OK(weft_store_set(worker, &p, NULL));
        row[0] = row[1] = row[2] = 1;
        WT_OK(weft_store_push(worker, &p, NULL)); /* a step, or a sum */
        if (k % 3 == 0) {
            WT_OK(weft_store_localize(worker, &p.keys, NULL));
        }
    }
    WT_OK(weft_store_save(store, path));
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}

static void load_body(weft_world *world)
{
    int64_t lengths[FILE_KEYS];
    weft_store *store = file_store(world, lengths);
    weft_worker *worker = worker_of(store);

    int64_t all[FILE_KEYS];
    weft_ids ids = {.at = all, .type = WEFT_I64, .n = FILE_KEYS};

    for (int64_t k = 0; k < FILE_KEYS; k++) {
        all[k] = name_of(k);
    }
    WT_OK(weft_store_intent(worker, &ids, 0, 10)); /* copies are renewed */
    WT_OK(weft_store_wait_sync(worker));
    WT_OK(weft_store_load(store, path));
    for (int64_t k = 0; k < FILE_KEYS; k++) {
        int64_t key = name_of(k);
        float row[3] = {-1, -1, -1};
        uint64_t n = ragged ? (uint64_t)lengths[k] : 3;
        weft_pairs p = wt_pairs(&key, 1, row, n);
        float by = ragged ? 1 : -0.5f;

        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(n < 1 || row[0] == (float)k + by);
        WT_CHECK(n < 3 || row[2] == 2 + by);
    }
    wt_store_finish(store, worker);
}

static void other_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){
                        .keys = FILE_KEYS + 1, .length = 3, .type = WEFT_F32});

    WT_CHECK(weft_store_load(store, path) == WEFT_ERR_INVALID);
    WT_CHECK(weft_store_load(store, "/nonexistent") != WEFT_OK);
    weft_store_destroy(store);
}

static void files_are_loaded_by_any_number_of_ranks_and_hosts(void **state)
{
    static const unsigned shape[][2] = {{1, 1}, {1, 3}, {2, 1}, {3, 2}};

    (void)state;
    snprintf(path, sizeof(path), "%s/weft-store-%d",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp",
             (int)getpid());
    for (int kind = 0; kind < 3; kind++) {
        ragged = kind == 1;
        hashed = kind == 2;
        for (unsigned i = 0; i < 4; i++) {
            unsigned j = 3 - i;

            wt_run_nodes(shape[i][0], shape[i][1], save_body);
            wt_run_nodes(shape[j][0], shape[j][1], load_body);
        }
    }
    ragged = hashed = false;
    wt_run_nodes(1, 2, save_body);
    wt_run_nodes(1, 2, other_body);
    unlink(path);
}

/* --- resizing --------------------------------------------------------------
 */

static void resize_body(weft_world *world)
{
    weft_store *store =
        make(world,
             (weft_store_options){
                 .keys = 10, .max_keys = 5000, .length = 4, .type = WEFT_I32});
    weft_worker *worker = worker_of(store);
    int64_t key = 9;
    int32_t row[4] = {1, 2, 3, 4};
    weft_pairs p = wt_pairs(&key, 1, row, 4);

    WT_OK(weft_store_push(worker, &p, NULL));
    WT_OK(weft_store_resize(store, 5000));
    key = 4999;
    WT_OK(weft_store_pull(worker, &p, NULL));
    WT_CHECK(row[0] == 0 && row[3] == 0);
    WT_OK(weft_store_push(worker, &p, NULL));
    WT_CHECK(weft_store_resize(store, 5001) == WEFT_ERR_INVALID);
    key = 9;
    WT_OK(weft_store_pull(worker, &p, NULL));
    WT_CHECK(row[3] == 4 * (int32_t)weft_world_size(world));
    WT_OK(weft_store_resize(store, 9));
    WT_CHECK(weft_store_pull(worker, &p, NULL) == WEFT_ERR_INVALID);
    WT_OK(weft_store_resize(store, 10));
    WT_OK(weft_store_pull(worker, &p, NULL));
    WT_CHECK(row[3] == 0);
    wt_store_finish(store, worker);
}

static void a_store_grows_and_shrinks(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        wt_run_nodes(1, n, resize_body);
        wt_run_nodes(n + 1, 1 + n % 2, resize_body);
    }
}

/* --- sampling and tracing ---------------------------------------------------
 */

static void sample_body(weft_world *world)
{
    weft_store *store = make(
        world, (weft_store_options){
                   .keys = 60, .length = 1, .cache = 300, .type = WEFT_I64});
    weft_worker *worker = worker_of(store);
    weft_sample_options o = {
        .size = sizeof(o),
        .scheme = (weft_sample_scheme)(weft_world_rank(world) % 4),
        .distinct = 1};
    int64_t keys[20];
    int64_t values[20];
    weft_pairs p = wt_pairs(keys, 20, values, 20);
    int64_t id = 0;

    WT_CHECK(weft_sample_prepare(worker, 5, 0, 0, &id) == WEFT_ERR_INVALID);
    WT_OK(weft_store_sampling(store, &o));
    for (int64_t k = 0; weft_world_rank(world) == 0 && k < 60; k++) {
        int64_t value = k * 3;
        weft_pairs q = wt_pairs(&k, 1, &value, 1);

        WT_OK(weft_store_set(worker, &q, NULL));
    }
    WT_OK(weft_store_barrier(store));
    WT_OK(weft_sample_prepare(worker, 20, 0, 3, &id));
    WT_OK(weft_sample_pull(worker, id, &p, NULL));
    for (int i = 0; i < 20; i++) {
        WT_CHECK(keys[i] >= 0 && keys[i] < 60 && values[i] == keys[i] * 3);
    }
    p.keys.n = p.length = 1;
    WT_CHECK(weft_sample_pull(worker, id, &p, NULL) == WEFT_ERR_INVALID);
    WT_OK(weft_sample_finish(worker, id));
    WT_CHECK(weft_sample_prepare(worker, 61, 0, 0, &id) == WEFT_ERR_INVALID);
    wt_store_finish(store, worker);
}

static void samples_are_pulled_in_every_scheme(void **state)
{
    (void)state;
    wt_run_nodes(1, 4, sample_body);
    wt_run_nodes(2, 2,
                 sample_body); /* rank 2 brings its pool to rank 3's host */
}

static void trace_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){
                        .keys = 4, .length = 1, .cache = 20, .type = WEFT_I64});
    weft_worker *worker = worker_of(store);
    int64_t key = 1 - (int64_t)weft_world_rank(world); /* the other's */
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};
    char name[160];
    char text[400] = "";
    FILE *file;

    snprintf(name, sizeof(name), "%s.%u", path, weft_world_rank(world));
    WT_OK(weft_store_trace(store, &ids, name));
    WT_OK(weft_store_localize(worker, &ids, NULL));
    wt_store_finish(store, worker);
    file = fopen(name, "r");
    WT_CHECK(file != NULL);
    WT_CHECK(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    unlink(name);
    WT_CHECK(strstr(text, "\tmoved in\n") != NULL);
}

static void what_happens_to_traced_keys_is_written_down(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, trace_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_do_not_fit_are_named),
        cmocka_unit_test(keys_that_are_wrong_are_named_and_nothing_changes),
        cmocka_unit_test(hashed_keys_are_any_numbers),
        cmocka_unit_test(files_are_loaded_by_any_number_of_ranks_and_hosts),
        cmocka_unit_test(a_store_grows_and_shrinks),
        cmocka_unit_test(samples_are_pulled_in_every_scheme),
        cmocka_unit_test(what_happens_to_traced_keys_is_written_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
