/* SPDX-License-Identifier: Apache-2.0 */
/* Stores over pretended nodes get more and fewer keys, whatever is copied,
 * wanted or on its way. */
#include <string.h>
#include <weft/coll.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

#define MOST 48u
#define LEAST 16u
#define LENGTH 2u

static weft_techniques techniques;

static weft_store *make_with(weft_world *world, uint64_t keys, uint64_t cache)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = keys,
                            .max_keys = MOST,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .techniques = techniques,
                            .cache = cache,
                            .rounds = 5000};
    weft_store *store = NULL;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static weft_store *make(weft_world *world, uint64_t keys)
{
    return make_with(world, keys, 4 * MOST);
}

static weft_pairs all_keys(int64_t *keys, uint64_t n, int64_t *values)
{
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = (int64_t)i;
        for (unsigned j = 0; j < LENGTH; j++) {
            values[i * LENGTH + j] = 1;
        }
    }
    return wt_pairs(keys, n, values, n * LENGTH);
}

/* Each rank wants all keys, with an intent or for good, and pushes once. */
static void use(weft_store *store, weft_worker *worker, unsigned cycle)
{
    int64_t keys[MOST];
    int64_t values[MOST * LENGTH];
    weft_pairs p = all_keys(keys, MOST, values);
    int64_t clock = weft_worker_clock(worker);
    weft_store_info info;

    weft_store_describe(store, &info);
    if (cycle % 3 == 0) {
        p.keys.n = info.host % 2 == 0 ? MOST : MOST / 2;
        WT_OK(weft_store_localize(worker, &p.keys, NULL));
        p.keys.n = MOST;
    } else {
        WT_OK(weft_store_intent(worker, &p.keys, clock, clock + 2));
        WT_OK(weft_store_intent(worker, &p.keys, clock + 5, clock + 9));
    }
    WT_OK(weft_store_push(worker, &p, NULL));
    weft_worker_advance(worker);
}

static void check(weft_worker *worker, uint64_t n, int64_t low, int64_t high)
{
    int64_t keys[MOST];
    int64_t values[MOST * LENGTH];
    weft_pairs p = all_keys(keys, n, values);

    WT_OK(weft_store_pull(worker, &p, NULL));
    for (uint64_t i = 0; i < n; i++) {
        int64_t wanted = i < LEAST ? low : high;

        if (values[i * LENGTH] != wanted || values[i * LENGTH + 1] != wanted) {
            WT_FAIL("key %u is %lld and not %lld", (unsigned)i,
                    (long long)values[i * LENGTH], (long long)wanted);
        }
    }
}

static void cycles_body(weft_world *world)
{
    weft_store *store = make(world, MOST);
    int64_t ranks = weft_world_size(world);
    unsigned cycles = 6;
    weft_worker *worker;
    weft_store_info info;
    weft_store_stats s;

    WT_OK(weft_worker_create(store, &worker));
    for (unsigned i = 0; i < cycles; i++) {
        use(store, worker, i);
        if (i % 2 == 0) { /* else with differences and moves on their way */
            WT_OK(weft_store_barrier(store));
            wt_store_settle(store, worker);
            check(worker, MOST, (i + 1) * ranks, ranks);
            WT_OK(weft_store_barrier(store));
        }
        WT_OK(weft_store_resize(store, LEAST));
        weft_store_describe(store, &info);
        WT_CHECK(info.keys == LEAST);
        WT_OK(weft_store_resize(store, MOST));
        wt_store_settle(store, worker);
        check(worker, MOST, (i + 1) * ranks, 0);
        WT_OK(weft_store_barrier(store));
    }
    weft_store_count(store, &s);
    WT_CHECK(s.owned <= MOST);
    weft_worker_destroy(worker);
    WT_OK(weft_store_barrier(store));
    weft_store_destroy(store);
}

static void run_shapes(wt_body *body)
{
    wt_run_nodes(2, 2, body);
    wt_run_nodes(3, 1, body);
    wt_run_nodes(4, 1, body);
}

static void keys_that_stay_keep_their_rows_and_new_ones_are_zero(void **state)
{
    (void)state;
    for (int t = WEFT_TECHNIQUES_ALL; t <= WEFT_RELOCATION_ONLY; t++) {
        techniques = (weft_techniques)t;
        run_shapes(cycles_body);
    }
    techniques = WEFT_TECHNIQUES_ALL;
}

/* Operations that nobody has waited for are over before keys go. */
static void pending_body(weft_world *world)
{
    weft_store *store = make(world, MOST);
    int64_t keys[MOST];
    int64_t values[MOST * LENGTH];
    weft_pairs p = all_keys(keys, MOST, values);
    weft_request *request[20];
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    for (int i = 0; i < 20; i++) {
        WT_OK(weft_store_push(worker, &p, &request[i]));
    }
    WT_OK(weft_store_resize(store, 0));
    WT_OK(weft_store_resize(store, MOST));
    for (int i = 0; i < 20; i++) {
        if (request[i] != NULL) {
            WT_OK(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
    }
    check(worker, MOST, 0, 0);
    WT_OK(weft_store_barrier(store));
    weft_worker_destroy(worker);
    WT_OK(weft_store_barrier(store));
    weft_store_destroy(store);
}

static void operations_under_way_are_done_before_keys_go(void **state)
{
    (void)state;
    run_shapes(pending_body);
}

/* Keys of hosts that have none at first; odd numbers; the bounds. */
static void sizes_body(weft_world *world)
{
    static const uint64_t sizes[] = {1, 0, 2, 7, MOST, 5, 5, MOST - 1};
    weft_store *store = make(world, 0);
    weft_worker *worker;
    int64_t key;
    int64_t row[LENGTH] = {0};
    weft_pairs p = wt_pairs(&key, 1, row, LENGTH);

    WT_OK(weft_worker_create(store, &worker));
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        WT_OK(weft_store_resize(store, sizes[i]));
        check(worker, sizes[i], 0, 0);
        key = (int64_t)sizes[i];
        WT_STATUS(weft_store_pull(worker, &p, NULL), WEFT_ERR_INVALID);
    }
    WT_STATUS(weft_store_resize(store, MOST + 1), WEFT_ERR_INVALID);
    WT_STATUS(weft_store_resize(store, weft_world_rank(world) == 1 ? 3 : 4),
              WEFT_ERR_MISMATCH);
    check(worker, MOST - 1, 0, 0);
    wt_store_finish(store, worker);
}

static void any_number_of_keys_up_to_the_most_is_possible(void **state)
{
    (void)state;
    run_shapes(sizes_body);
}

/* Rows that hosts had no room for. */
static uint64_t refused(weft_world *world, weft_store *store)
{
    weft_store_stats s;

    weft_store_count(store, &s);
    WT_OK(weft_allreduce(weft_world_comm(world), &s.refused, &s.refused, 1,
                         WEFT_I64, (weft_op){.kind = WEFT_OP_SUM}));
    return s.refused;
}

/* All ranks want all keys all the time, which is more than there is room for:
 * hosts are full of rows of others, and take every slot that they can get. */
static void full_body(weft_world *world)
{
    static const uint64_t sizes[] = {MOST - 6, MOST - 5, MOST - 4, MOST - 3,
                                     MOST,     MOST - 9, MOST,     MOST - 16,
                                     MOST - 1, MOST,     MOST - 8, MOST};
    weft_store *store = make_with(world, MOST - 7, 0);
    int64_t keys[MOST];
    int64_t values[MOST * LENGTH];
    weft_pairs p = all_keys(keys, MOST, values);
    weft_worker *worker;
    weft_store_info info;

    WT_OK(weft_worker_create(store, &worker));
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        weft_store_describe(store, &info);
        p.keys.n = info.keys;
        WT_OK(weft_store_intent(worker, &p.keys, 0, 1000));
        wt_store_settle(store, worker);
        WT_CHECK(refused(world, store) > 0);
        WT_OK(weft_store_resize(store, sizes[i]));
        check(worker, sizes[i], 0, 0);
        WT_OK(weft_store_barrier(store));
    }
    weft_worker_destroy(worker);
    WT_OK(weft_store_barrier(store));
    weft_store_destroy(store);
}

static void a_host_that_is_full_of_copies_has_room_for_its_new_keys(void **s)
{
    (void)s;
    run_shapes(full_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_stay_keep_their_rows_and_new_ones_are_zero),
        cmocka_unit_test(operations_under_way_are_done_before_keys_go),
        cmocka_unit_test(any_number_of_keys_up_to_the_most_is_possible),
        cmocka_unit_test(
            a_host_that_is_full_of_copies_has_room_for_its_new_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
