/* SPDX-License-Identifier: Apache-2.0 */
/* A store over pretended nodes: what a worker may rely on, one promise after
 * the other, while intents of others make the keys move and be copied. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/coll.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_store.h"

#define KEYS 24u
#define LENGTH 3u
#define ASYNC 4u /* operations under way */

static weft_store *make(weft_world *world, weft_store_options o)
{
    weft_store *store = NULL;

    o.size = sizeof(o);
    o.keys = o.keys > 0 ? o.keys : KEYS;
    o.length = o.length > 0 ? o.length : LENGTH;
    o.cache = 3 * o.keys;
    o.rounds = 5000;
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

static void wish(weft_worker *worker, uint64_t *seed)
{
    int64_t key = (int64_t)(wt_random(seed) % KEYS);
    int64_t clock = weft_worker_clock(worker);
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};

    WT_OK(weft_store_intent(worker, &ids, clock + 1,
                            clock + 2 + (int64_t)(wt_random(seed) % 8)));
    weft_worker_advance(worker);
}

static unsigned steps_of(unsigned n)
{
    return wt_full() ? 20 * n : WT_TSAN || WT_ASAN ? n / 4 : n;
}

/* --- own writes, in their order ------------------------------------------- */

/* A worker's own keys: what they must be. */
typedef struct owner {
    weft_store *store;
    uint64_t seed;
    unsigned number;
    unsigned of;
    int64_t value[KEYS];
} owner;

typedef struct pending {
    weft_request *request;
    int64_t row[LENGTH];
    int64_t want; /* -1: it was no pull */
} pending;

static void pending_wait(pending *p)
{
    if (p->request != NULL) {
        WT_OK(weft_request_wait(p->request, 0));
        weft_request_release(p->request);
        p->request = NULL;
    }
    for (unsigned i = 0; p->want >= 0 && i < LENGTH; i++) {
        if (p->row[i] != p->want) {
            WT_FAIL("element %u is %lld instead of %lld", i,
                    (long long)p->row[i], (long long)p->want);
        }
    }
    p->want = -1;
}

static void own_step(owner *o, weft_worker *worker, pending *p)
{
    uint64_t r = wt_random(&o->seed);
    int64_t key = (int64_t)(r % (KEYS / o->of) * o->of + o->number);
    int64_t by = (int64_t)(r >> 32 & 0xff);
    weft_pairs pairs = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = p->row,
                        .length = LENGTH};
    weft_request **request = (r >> 16 & 1) != 0 ? &p->request : NULL;

    for (unsigned i = 0; i < LENGTH; i++) {
        p->row[i] = by;
    }
    if ((r >> 20) % 8 < 3) {
        WT_OK(weft_store_push(worker, &pairs, request));
        o->value[key] += by;
    } else if ((r >> 20) % 8 < 4) {
        WT_OK(weft_store_set(worker, &pairs, request));
        o->value[key] = by;
    } else {
        p->want = o->value[key];
        /* The key is read before it returns, or copied. */
        WT_OK(weft_store_pull(worker, &pairs, NULL));
    }
}

static void *own_main(void *arg)
{
    owner *o = arg;
    pending p[ASYNC] = {{.request = NULL}};
    weft_worker *worker;

    WT_OK(weft_worker_create(o->store, &worker));
    for (unsigned i = 0; i < ASYNC; i++) {
        p[i].want = -1;
    }
    for (unsigned i = 0; i < steps_of(600); i++) {
        pending_wait(&p[i % ASYNC]);
        own_step(o, worker, &p[i % ASYNC]);
        if (i % 3 == 0) {
            wish(worker, &o->seed);
        }
    }
    for (unsigned i = 0; i < ASYNC; i++) {
        pending_wait(&p[i]);
    }
    weft_worker_destroy(worker);
    return NULL;
}

static void own_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    unsigned threads = 1 + weft_world_size(world) % 2;
    pthread_t thread[2];
    static _Thread_local owner o[2];
    weft_worker *worker;

    for (unsigned t = 0; t < threads; t++) {
        unsigned number = weft_world_rank(world) * threads + t;

        o[t] = (owner){.store = store,
                       .seed = 88172645463325252ull + number * 7919,
                       .number = number,
                       .of = weft_world_size(world) * threads};
        WT_CHECK(pthread_create(&thread[t], NULL, own_main, &o[t]) == 0);
    }
    for (unsigned t = 0; t < threads; t++) {
        WT_CHECK(pthread_join(thread[t], NULL) == 0);
    }
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    wt_store_settle(store, worker);
    wt_store_finish(store, worker);
}

static void own_writes_are_seen_at_once_and_in_their_order(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, own_body);
    wt_run_nodes(3, 1, own_body);
    wt_run_nodes(2, 2, own_body);
}

/* Requests without waiting: what a pull finds is what was done before it. */
static void order_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    uint64_t seed = 1234567 + weft_world_rank(world);
    int64_t key = (int64_t)(KEYS - 1 - weft_world_rank(world));
    int64_t row[ASYNC][LENGTH];
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t i = 0; i < steps_of(200); i++) {
        weft_request *request[3 * ASYNC] = {NULL};

        for (unsigned a = 0; a < ASYNC; a++) {
            int64_t values[LENGTH] = {100 * i + a, 100 * i + a, 100 * i + a};
            int64_t ones[LENGTH] = {1, 1, 1};
            weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                            .values = values,
                            .length = LENGTH};

            WT_OK(weft_store_set(worker, &p, &request[3 * a]));
            p.values = ones;
            WT_OK(weft_store_push(worker, &p, &request[3 * a + 1]));
            p.values = row[a];
            WT_OK(weft_store_pull(worker, &p, &request[3 * a + 2]));
        }
        for (unsigned r = 0; r < 3 * ASYNC; r++) {
            if (request[r] != NULL) {
                WT_OK(weft_request_wait(request[r], 0));
                weft_request_release(request[r]);
            }
        }
        for (unsigned a = 0; a < ASYNC; a++) {
            WT_CHECK(row[a][0] == 100 * i + a + 1 && row[a][0] == row[a][2]);
        }
        wish(worker, &seed);
    }
    wt_store_finish(store, worker);
}

static void asynchronous_operations_on_a_key_keep_their_order(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, order_body);
    wt_run_nodes(2, 2, order_body);
}

/* --- set ------------------------------------------------------------------ */

#define MILLION 1000000

static void set_round(weft_world *world, weft_worker *worker, int64_t key)
{
    uint32_t rank = weft_world_rank(world);
    int64_t row[LENGTH] = {1, 1, 1};
    weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                    .values = row,
                    .length = LENGTH};

    for (unsigned i = 0; i < 10; i++) {
        for (unsigned e = 0; e < LENGTH; e++) {
            row[e] = i == 5 && rank < 2 ? MILLION * (1 + (int64_t)rank) : 1;
        }
        if (i == 5 && rank < 2) {
            WT_OK(weft_store_set(worker, &p, NULL));
        } else {
            WT_OK(weft_store_push(worker, &p, NULL));
        }
    }
}

/* Of the two sets one is the last; what its rank pushed behind it is there, and
 * of what the others pushed any part. */
static void set_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    uint32_t ranks = weft_world_size(world);
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        int64_t row[LENGTH];
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = row,
                        .length = LENGTH};
        int64_t rest;

        WT_OK(weft_store_intent(worker, &p.keys, 0, WEFT_CLOCK_MAX));
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
        set_round(world, worker, key);
        WT_OK(weft_store_barrier(store));
        wt_store_settle(store, worker);
        WT_OK(weft_store_pull(worker, &p, NULL));
        rest = row[0] % MILLION;
        WT_CHECK(row[0] == row[1] && row[0] == row[2]);
        WT_CHECK(row[0] / MILLION == 1 || row[0] / MILLION == 2);
        WT_CHECK(rest >= 4 && rest <= 4 + (ranks - 1) * 10);
        wt_check_same(world, row, sizeof(row));
    }
    wt_store_finish(store, worker);
}

static void a_set_of_a_copied_key_is_a_set(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, set_body);
    wt_run_nodes(3, 1, set_body);
}

/* --- whole rows ----------------------------------------------------------- */

#define LONG 3001u /* 24 kB: parcels of several pieces */

static void torn_body(weft_world *world)
{
    weft_store *store =
        make(world,
             (weft_store_options){.type = WEFT_I64, .keys = 4, .length = LONG});
    uint64_t seed = 77 + weft_world_rank(world);
    int64_t *row = malloc(LONG * sizeof(*row));
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    WT_CHECK(row != NULL);
    for (unsigned i = 0; i < steps_of(200); i++) {
        uint64_t r = wt_random(&seed);
        int64_t key = (int64_t)(r % 4);
        int64_t clock = weft_worker_clock(worker);
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = row,
                        .length = LONG};

        for (unsigned e = 0; e < LONG; e++) {
            row[e] = (int64_t)(r >> 40);
        }
        switch (r >> 8 & 3) {
        case 0:
            WT_OK(weft_store_set(worker, &p, NULL));
            break;
        case 1:
            WT_OK(weft_store_push(worker, &p, NULL));
            break;
        case 2:
            WT_OK(weft_store_intent(worker, &p.keys, clock, clock + 5));
            weft_worker_advance(worker);
            break;
        default:
            WT_OK(weft_store_pull(worker, &p, NULL));
            for (unsigned e = 1; e < LONG; e++) {
                WT_CHECK(row[e] == row[0]);
            }
        }
    }
    free(row);
    wt_store_finish(store, worker);
}

static void long_rows_are_read_and_written_whole(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, torn_body);
    wt_run_nodes(3, 1, torn_body);
}

/* --- types and lengths ---------------------------------------------------- */

static weft_dtype value_type;

/* Small whole numbers in any of the six types. */
static void put(void *at, uint64_t i, int value)
{
    float f = (float)value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    switch (value_type) {
    case WEFT_F64:
        ((double *)at)[i] = value;
        break;
    case WEFT_I32:
        ((int32_t *)at)[i] = value;
        break;
    case WEFT_I64:
        ((int64_t *)at)[i] = value;
        break;
    case WEFT_BF16:
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        break;
    case WEFT_F16: /* no subnormals among whole numbers */
        ((uint16_t *)at)[i] =
            (uint16_t)(value == 0 ? 0
                                  : ((bits >> 23) - 127 + 15) << 10 |
                                        (bits >> 13 & 0x3ff));
        break;
    default:
        ((float *)at)[i] = f;
        break;
    }
}

#define MOST 40 /* elements of a row */

/* Every rank pushes 1, 2, 3, ... to each key three times. */
static void types_body(weft_world *world)
{
    static const int64_t some[] = {3, 0, 1, MOST, 7};
    int64_t lengths[KEYS];
    weft_store *store;
    uint64_t seed = 5 + weft_world_rank(world);
    int ranks = (int)weft_world_size(world);
    char sent[MOST * 8];
    char got[MOST * 8];
    char want[MOST * 8];
    weft_worker *worker;

    for (unsigned k = 0; k < KEYS; k++) {
        lengths[k] = some[k % 5];
    }
    store = make(world,
                 (weft_store_options){.type = value_type, .lengths = lengths});
    WT_OK(weft_worker_create(store, &worker));
    for (int e = 0; e < MOST; e++) {
        put(sent, (uint64_t)e, 1 + e % 5);
        put(want, (uint64_t)e, (1 + e % 5) * 3 * ranks);
    }
    for (unsigned i = 0; i < 3 * KEYS; i++) {
        int64_t key = i % KEYS;
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = sent,
                        .length = (uint64_t)lengths[key]};

        WT_OK(weft_store_push(worker, &p, NULL));
        wish(worker, &seed);
    }
    WT_OK(weft_store_barrier(store));
    wt_store_settle(store, worker);
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = got,
                        .length = (uint64_t)lengths[key]};

        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(memcmp(got, want, p.length * weft_dtype_size(value_type)) ==
                 0);
    }
    wt_store_finish(store, worker);
}

static void sums_of_all_types_and_lengths_are_exact(void **state)
{
    static const weft_dtype types[] = {WEFT_F32,  WEFT_F64, WEFT_F16,
                                       WEFT_BF16, WEFT_I32, WEFT_I64};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        value_type = types[i];
        wt_run_nodes(2 + i % 2, 1, types_body);
    }
}

/* --- optimizers ----------------------------------------------------------- */

static weft_optimizer step_kind;

static weft_store *make_stepped(weft_comm *comm)
{
    weft_update rule = {.size = sizeof(rule),
                        .kind = step_kind,
                        .lr = 0.1,
                        .eps = 1e-8,
                        .beta1 = 0.9,
                        .beta2 = 0.99};
    weft_store_options o = {.size = sizeof(o),
                            .keys = KEYS,
                            .length = LENGTH,
                            .type = WEFT_F32,
                            .optimizer = &rule,
                            .cache = 3 * KEYS,
                            .rounds = 5000};
    weft_store *store = NULL;

    WT_OK(weft_store_create(comm, &o, &store));
    return store;
}

/* The same steps on a store of this rank alone. */
static void step_both(weft_worker *worker, weft_worker *alone, uint64_t *seed)
{
    for (unsigned i = 0; i < steps_of(300); i++) {
        int64_t key = (int64_t)(wt_random(seed) % KEYS);
        float gradient[LENGTH];
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = gradient,
                        .length = LENGTH};

        for (unsigned e = 0; e < LENGTH; e++) {
            gradient[e] = (float)(wt_random(seed) % 1000) / 500 - 1;
        }
        WT_OK(weft_store_push(worker, &p, NULL));
        WT_OK(weft_store_push(alone, &p, NULL));
        wish(worker, seed);
    }
}

static void steps_body(weft_world *world)
{
    weft_store *store = make_stepped(weft_world_comm(world));
    uint32_t own = weft_world_rank(world);
    uint64_t seed = 99 + own;
    weft_comm *self;
    weft_store *reference;
    weft_worker *worker;
    weft_worker *alone;

    WT_OK(weft_comm_subset(weft_world_comm(world), &own, 1, &self));
    reference = make_stepped(self);
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_worker_create(reference, &alone));
    for (unsigned i = 0; own != 0 && i < steps_of(300); i++) {
        wish(worker, &seed);
    }
    if (own == 0) {
        step_both(worker, alone, &seed);
    }
    WT_OK(weft_store_barrier(store));
    wt_store_settle(store, worker);
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        float got[LENGTH];
        float want[LENGTH];
        weft_pairs p = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                        .values = got,
                        .length = LENGTH};

        WT_OK(weft_store_pull(worker, &p, NULL));
        wt_check_same(world, got, sizeof(got));
        p.values = want;
        WT_OK(weft_store_pull(alone, &p, NULL));
        WT_CHECK(own != 0 || memcmp(got, want, sizeof(got)) == 0);
    }
    weft_worker_destroy(alone);
    weft_store_destroy(reference);
    weft_comm_destroy(self);
    wt_store_finish(store, worker);
}

static void steps_of_one_writer_are_those_of_one_host(void **state)
{
    static const weft_optimizer kinds[] = {WEFT_SGD, WEFT_ADAGRAD, WEFT_ADAM};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        step_kind = kinds[i];
        wt_run_nodes(2 + i % 2, 1, steps_body);
    }
}

/* --- odd calls ------------------------------------------------------------ */

static void odd_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    int64_t keys[] = {5, 4, 5, 5, 4};
    int64_t values[5 * LENGTH];
    weft_pairs p = {.keys = {.at = keys, .type = WEFT_I64, .n = 5},
                    .values = values,
                    .length = 5 * LENGTH};
    weft_pairs none = {.keys = {.type = WEFT_I64}};
    weft_request *request;
    weft_worker *worker;
    int local;

    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_pull(worker, &none, NULL));
    WT_OK(weft_store_push(worker, &none, &request));
    WT_CHECK(request == NULL);
    WT_OK(weft_store_set(worker, &none, NULL));
    WT_OK(weft_store_intent(worker, &none.keys, 0, 1));
    WT_OK(weft_store_localize(worker, &none.keys, NULL));
    WT_OK(weft_store_pull_local(worker, &none, &local));
    WT_CHECK(local == 1);
    for (unsigned r = 0; r < weft_world_size(world); r++) {
        WT_OK(weft_store_barrier(store));
        if (r != weft_world_rank(world)) {
            continue;
        }
        for (unsigned i = 0; i < 5 * LENGTH; i++) {
            values[i] = 10 * (1 + i / LENGTH);
        }
        WT_OK(weft_store_set(worker, &p, NULL));
        WT_OK(weft_store_push(worker, &p, NULL));
        WT_OK(weft_store_pull(worker, &p, NULL));
        for (unsigned i = 0; i < 5; i++) {
            /* 5: 40 was set, 10 + 30 + 40 added; 4: 50, and 20 + 50. */
            WT_CHECK(values[i * LENGTH] == 120);
        }
    }
    wt_store_finish(store, worker);
}

static void empty_calls_and_equal_keys_are_fine(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, odd_body);
    wt_run_nodes(3, 1, odd_body);
}

static void local_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    uint32_t rank = weft_world_rank(world);
    int64_t keys[] = {0, 1}; /* of host 0 and of host 1 */
    int64_t values[2 * LENGTH];
    weft_pairs p = {.keys = {.at = keys, .type = WEFT_I64, .n = 2},
                    .values = values,
                    .length = 2 * LENGTH};
    weft_worker *worker;
    int local = 7;

    memset(values, 0x5a, sizeof(values));
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_pull_local(worker, &p, &local));
    WT_CHECK(local == 0 && values[0] == 0x5a5a5a5a5a5a5a5a &&
             values[LENGTH] == 0x5a5a5a5a5a5a5a5a);
    p.keys = (weft_ids){.at = &keys[rank % 2], .type = WEFT_I64, .n = 1};
    p.length = LENGTH;
    WT_OK(weft_store_pull_local(worker, &p, &local));
    WT_CHECK(local == 1 && values[0] == 0);
    wt_store_finish(store, worker);
}

static void pull_local_takes_all_or_nothing(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, local_body);
}

/* --- workers -------------------------------------------------------------- */

/* Host 0 wants all keys for ever, so that those of host 1 get copies. */
static void workers_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    int64_t key = 0;
    weft_ids ids = {.at = &key, .type = WEFT_I64, .n = 1};
    weft_store_stats s = {.copies = 1};
    weft_worker *worker;
    weft_worker *other;

    WT_OK(weft_worker_create(store, &worker));
    if (weft_world_rank(world) == 0) {
        WT_OK(weft_store_localize(worker, &ids, NULL));
    }
    WT_OK(weft_store_barrier(store));
    for (unsigned i = 0; i < 600; i++) {
        WT_OK(weft_worker_create(store, &other));
        WT_CHECK(weft_worker_clock(other) == 0);
        WT_OK(weft_store_intent(other, &ids, i % 2, WEFT_CLOCK_MAX));
        WT_CHECK(weft_worker_advance(other) == 1);
        if (i % 100 == 0) {
            WT_OK(weft_store_localize(other, &ids, NULL));
        }
        weft_worker_destroy(other);
    }
    for (unsigned i = 0; i < 200 && s.copies > 0; i++) {
        WT_OK(weft_store_wait_sync(worker));
        weft_store_count(store, &s);
    }
    WT_CHECK(s.copies == 0);
    wt_store_finish(store, worker);
}

static void intents_end_with_their_worker_however_many_there_were(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, workers_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_writes_are_seen_at_once_and_in_their_order),
        cmocka_unit_test(asynchronous_operations_on_a_key_keep_their_order),
        cmocka_unit_test(a_set_of_a_copied_key_is_a_set),
        cmocka_unit_test(long_rows_are_read_and_written_whole),
        cmocka_unit_test(sums_of_all_types_and_lengths_are_exact),
        cmocka_unit_test(steps_of_one_writer_are_those_of_one_host),
        cmocka_unit_test(empty_calls_and_equal_keys_are_fine),
        cmocka_unit_test(pull_local_takes_all_or_nothing),
        cmocka_unit_test(intents_end_with_their_worker_however_many_there_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
