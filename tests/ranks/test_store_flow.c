/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on a store over pretended nodes that are about more than may be under
 * way: they are done in parts, whatever moves meanwhile. */
#include <stdlib.h>
#include <unistd.h>
#include <weft/coll.h>

#include "store/hosts/hosts.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

enum { KEYS = 3000, ROUNDS = 6 };
enum { DONE }; /* a word of the board */

/* What this rank has waiting, and how much is under way. */
static void look(weft_store *store, uint32_t *waiting, uint64_t *under_way)
{
    wf_store_hosts *h = store->remote;

    *under_way = 0;
    pthread_mutex_lock(&h->world->drive);
    *waiting = h->waiting_shares;
    for (uint32_t host = 0; host < store->hosts; host++) {
        *under_way += h->line[host].under_way;
    }
    pthread_mutex_unlock(&h->world->drive);
}

/* Every seventh key or so is wanted here for a while. */
static void want_some(weft_worker *worker, uint64_t among, uint64_t *seed)
{
    int64_t clock = weft_worker_clock(worker);
    int64_t key[KEYS / 7];
    weft_ids ids = {.at = key, .type = WEFT_I64, .n = among / 7};

    for (unsigned i = 0; i < among / 7; i++) {
        key[i] = (int64_t)(wt_random(seed) % among);
    }
    WT_OK(weft_store_intent(worker, &ids, clock, clock + 2));
    weft_worker_advance(worker);
}

/* There is none where all keys were here. */
static void end(weft_request *request)
{
    if (request != NULL) {
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    }
}

/* Add 1 everywhere, in calls of all keys and of one. */
static void push_rounds(weft_store *store, weft_worker *worker, int64_t *keys,
                        int64_t *values)
{
    uint64_t length = store->options.length;
    weft_pairs all = wt_pairs(keys, KEYS, values, KEYS * length);
    weft_pairs one = wt_pairs(keys, 1, values, length);
    uint64_t seed = 4711 + wt_rank();
    int64_t waited = 0;

    for (unsigned i = 0; i < ROUNDS; i++) {
        weft_request *long_call;
        weft_request *short_call;
        uint32_t waiting;
        uint64_t under_way;

        keys[0] = keys[KEYS - 1];
        keys[KEYS - 1] = (int64_t)KEYS - 1 - keys[0];
        WT_OK(weft_store_push(worker, &all, &long_call));
        look(store, &waiting, &under_way);
        waited += waiting;
        WT_OK(weft_store_push(worker, &one, &short_call));
        want_some(worker, KEYS, &seed);
        end(long_call);
        end(short_call);
    }
    WT_OK(weft_allreduce(store->comm, &waited, &waited, 1, WEFT_I64,
                         (weft_op){.kind = WEFT_OP_SUM}));
    WT_CHECK(waited > 0);
}

static void flow_body(weft_world *world)
{
    uint64_t length = wt_long_length(world, KEYS);
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = length,
                            .type = WEFT_I64,
                            .cache = 2 * KEYS};
    int64_t *keys = malloc(KEYS * sizeof(*keys));
    int64_t *values = malloc(KEYS * length * sizeof(*values));
    int64_t size = weft_world_size(world);
    weft_pairs all = wt_pairs(keys, KEYS, values, KEYS * length);
    weft_store *store = NULL;
    weft_worker *worker;
    uint32_t waiting;
    uint64_t under_way;

    WT_CHECK(keys != NULL && values != NULL);
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    for (uint64_t i = 0; i < KEYS * length; i++) {
        values[i] = 1;
    }
    push_rounds(store, worker, keys, values);
    look(store, &waiting, &under_way);
    WT_CHECK(waiting == 0 && under_way == 0);
    wt_store_settle(store, worker);
    WT_OK(weft_store_pull(worker, &all, NULL));
    for (int64_t i = 0; i < KEYS; i++) {
        /* The first and the last key were named once more, in turn. */
        bool twice = keys[i] == 0 || keys[i] == KEYS - 1;
        int64_t sum = twice ? ROUNDS + ROUNDS / 2 : ROUNDS;

        WT_CHECK(values[(uint64_t)i * length] == sum * size);
        WT_CHECK(values[((uint64_t)i + 1) * length - 1] == sum * size);
    }
    wt_store_finish(store, worker);
    free(keys);
    free(values);
}

static void long_calls_are_done_in_parts_whatever_moves(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, flow_body);
    wt_run_nodes(3, WT_TSAN ? 1 : 2, flow_body);
}

/* --- sets that name keys twice --------------------------------------------
 */

enum { SETS = 30, MOVED = 500, LENGTH = 32 };

/* All of MOVED keys twice, while some of them come here and go: what was set in
 * place and what is sent would be in any order, so that only the last one of a
 * key is sent. The worker then finds the later values. */
static void set_twice(weft_worker *worker, int64_t *keys, int64_t *values)
{
    weft_pairs twice = wt_pairs(keys, 2 * MOVED, values, 2 * MOVED * LENGTH);
    weft_pairs once = wt_pairs(keys, MOVED, values, MOVED * LENGTH);

    for (int64_t round = 1; round <= SETS; round++) {
        for (int64_t i = 0; i < 2 * MOVED; i++) {
            keys[i] = i % MOVED;
            for (int64_t j = 0; j < LENGTH; j++) {
                values[i * LENGTH + j] = 2 * round + i / MOVED;
            }
        }
        WT_OK(weft_store_set(worker, &twice, NULL));
        WT_OK(weft_store_pull(worker, &once, NULL));
        for (int64_t i = 0; i < MOVED; i++) {
            WT_CHECK(values[i * LENGTH] == 2 * round + 1);
        }
    }
}

/* Rank 0 sets keys that all ranks want now and then, so that they move. */
static void set_body(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = MOVED,
                            .length = LENGTH,
                            .type = WEFT_I64,
                            .cache = 2 * MOVED};
    int64_t *keys = malloc(2 * MOVED * sizeof(*keys));
    int64_t *values = malloc(2 * MOVED * LENGTH * sizeof(*values));
    uint64_t seed = 815 + wt_rank();
    weft_store *store = NULL;
    weft_worker *worker;

    WT_CHECK(keys != NULL && values != NULL);
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    if (weft_world_rank(world) == 0) {
        set_twice(worker, keys, values);
        wt_word_set(DONE, 1);
    }
    while (atomic_load(wt_word(DONE)) == 0) {
        want_some(worker, MOVED, &seed);
        usleep(300);
    }
    wt_store_finish(store, worker);
    free(keys);
    free(values);
}

static void of_a_key_that_a_set_names_twice_the_last_value_stays(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, set_body);
    wt_run_nodes(3, 1, set_body);
}

/* Their communicator is this rank alone, which says nothing of where keys are.
 * A short one is one answer, for which it may sleep. */
static void far_body(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = 2 * KEYS,
                            .length = LENGTH,
                            .type = WEFT_I64};
    int64_t *keys = malloc(2 * KEYS * sizeof(*keys));
    int64_t *values = malloc(2 * KEYS * LENGTH * sizeof(*values));
    weft_pairs all = wt_pairs(keys, 2 * KEYS, values, 2 * KEYS * LENGTH);
    weft_pairs some = wt_pairs(keys, 2, values, 2 * LENGTH);
    weft_request *request = NULL;
    weft_store *store = NULL;
    weft_worker *worker;

    WT_CHECK(keys != NULL && values != NULL);
    for (int64_t i = 0; i < 2 * KEYS; i++) {
        keys[i] = i;
    }
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_pull(worker, &all, &request));
    WT_CHECK(request != NULL && wf_op_goal(request->op).far);
    end(request);
    request = NULL;
    WT_OK(weft_store_pull(worker, &some, &request));
    WT_CHECK(request != NULL && !wf_op_goal(request->op).far);
    end(request);
    wt_store_finish(store, worker);
    free(keys);
    free(values);
}

static void a_wait_for_many_rows_of_another_node_is_known_as_one(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, far_body);
}

/* --- a short call beside a long one ----------------------------------------
 */

/* All keys, so that most wait, and then one key of the other node; does some of
 * the first call still wait when the second is over? */
static bool passes(weft_store *store, weft_worker *worker, int64_t *keys,
                   int64_t *values)
{
    uint64_t length = store->options.length;
    weft_pairs all = wt_pairs(keys, KEYS, values, KEYS * length);
    int64_t key = wt_rank() == 0 ? 1 : 0;
    weft_request *long_call = NULL;
    weft_worker *other;
    uint64_t under_way;
    uint32_t waiting;
    int64_t *one = malloc(length * sizeof(*one));
    weft_pairs short_call = wt_pairs(&key, 1, one, length);

    WT_CHECK(one != NULL);
    WT_OK(weft_worker_create(store, &other));
    WT_OK(weft_store_pull(worker, &all, &long_call));
    WT_OK(weft_store_pull(other, &short_call, NULL));
    look(store, &waiting, &under_way);
    end(long_call);
    WT_CHECK(one[0] == 0 && one[length - 1] == 0);
    weft_worker_destroy(other);
    free(one);
    return waiting > 0;
}

/* A rank that gets no processor may see its short call late: the long one is
 * over by then in all of a thousand tries only if the short one waited for it.
 */
static void short_body(weft_world *world)
{
    uint64_t length = 4 * wt_long_length(world, KEYS);
    weft_store_options o = {
        .size = sizeof(o), .keys = KEYS, .length = length, .type = WEFT_I64};
    int64_t *keys = malloc(KEYS * sizeof(*keys));
    int64_t *values = malloc(KEYS * length * sizeof(*values));
    weft_store *store = NULL;
    weft_worker *worker;
    unsigned tries = 1;

    WT_CHECK(keys != NULL && values != NULL);
    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_worker_create(store, &worker));
    while (!passes(store, worker, keys, values)) {
        WT_CHECK(++tries < 1000);
    }
    wt_store_finish(store, worker);
    free(keys);
    free(values);
}

static void a_short_call_does_not_wait_for_all_of_a_long_one(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, short_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_calls_are_done_in_parts_whatever_moves),
        cmocka_unit_test(of_a_key_that_a_set_names_twice_the_last_value_stays),
        cmocka_unit_test(a_wait_for_many_rows_of_another_node_is_known_as_one),
        cmocka_unit_test(a_short_call_does_not_wait_for_all_of_a_long_one),
    };

    return cmocka_run_group_tests_name("store flow", tests, NULL, NULL);
}
