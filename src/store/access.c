/* SPDX-License-Identifier: Apache-2.0 */
/* Pull, push and set: rows of this host in place, those of others by
 * messages. */
#include "base/alloc.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"
#include "store/keymap.h"
#include "transport/msg.h"

/* A call whose arguments have been checked. */
typedef struct access {
    wf_dense keys;
    wf_batch batch;
    uint64_t few[WF_DENSE_FEW]; /* positions of absent keys */
    uint64_t *many;
} access;

/* Between hosts: room for the positions of keys that are not here, and earlier
 * operations on the same keys are over. */
static weft_status begin_remote(access *a, weft_worker *worker)
{
    uint64_t n = a->keys.ids.n;

    a->batch.absent = a->few;
    if (n > WF_DENSE_FEW) {
        a->batch.absent = a->many = wf_alloc(n * sizeof(*a->many));
        if (a->many == NULL) {
            return wf_fail_nomem("%llu keys", (unsigned long long)n);
        }
    }
    return worker->store->remote != NULL
               ? wf_remote_wait_conflicts(worker, &a->keys.ids)
               : WEFT_OK;
}

static weft_status begin(access *a, weft_worker *worker, const char *who,
                         const weft_pairs *pairs, weft_request **request,
                         bool wait)
{
    weft_store *store = worker->store;
    weft_status st = wf_store_check(store);

    if (request != NULL) {
        *request = NULL;
    }
    a->keys.many = NULL;
    a->many = NULL;
    if (st == WEFT_OK) {
        st = wf_dense_init(&a->keys, store, who, &pairs->keys, wait);
    }
    if (st == WEFT_OK) {
        st = wf_store_check_length(store, who, &a->keys.ids, pairs);
    }
    a->batch = (wf_batch){.keys = a->keys.ids, .values = pairs->values};
    if (st == WEFT_OK && (store->remote != NULL || !store->uniform)) {
        st = begin_remote(a, worker);
    }
    return st;
}

static void end(access *a)
{
    wf_free(a->many);
    wf_dense_fini(&a->keys);
}

/* One key of a store on one host, with nothing to object to: so short that a
 * processor reads the rows of several such calls at a time. False, and nothing
 * is told, if it is anything else, or somebody is writing the row. */
static inline bool pull_one(weft_worker *worker, const weft_pairs *pairs)
{
    const weft_store *store = worker->store;
    const weft_ids *keys = &pairs->keys;
    const int64_t *key = keys->at;

    return keys->n == 1 && keys->type == WEFT_I64 && keys->place == WEFT_HOST &&
           store->hash == NULL && pairs->values != NULL && key != NULL &&
           (uintptr_t)key % sizeof(*key) == 0 &&
           (uint64_t)*key < store->options.keys &&
           pairs->length == store->options.length &&
           !atomic_load_explicit(&store->closed, memory_order_relaxed) &&
           wf_slots_pull_one(store->slots, (uint64_t)*key, pairs->values);
}

/* Apart from the call for one key, whose registers need no saving then. */
__attribute__((noinline)) static weft_status
pull_many(weft_worker *worker, const weft_pairs *pairs, weft_request **request)
{
    wf_store_counts *c = worker->store->counts;
    access a;
    weft_status st = begin(&a, worker, "pull", pairs, request, true);

    if (st == WEFT_OK) {
        st = wf_slots_pull(worker->store->slots, &a.batch);
    }
    if (st == WEFT_OK) {
        wf_count_alone(&worker->count->pulls, pairs->keys.n);
        wf_worker_meet(worker, &pairs->keys);
        wf_count_some(&c->away_pulls, a.batch.absents);
        wf_count_some(&c->copy_pulls, a.batch.copies);
    }
    if (st == WEFT_OK && a.batch.absents > 0) {
        st = wf_remote_begin(worker, WF_OP_PULL, &a.batch, request);
    }
    end(&a);
    return st;
}

weft_status weft_store_pull(weft_worker *worker, const weft_pairs *pairs,
                            weft_request **request)
{
    if (!pull_one(worker, pairs)) {
        return pull_many(worker, pairs, request);
    }
    wf_count_alone(&worker->count->pulls, 1);
    wf_worker_meet(worker, &pairs->keys);
    if (request != NULL) {
        *request = NULL;
    }
    return WEFT_OK;
}

/* Where the rows go until it is known whether all of them are here. */
static weft_status pull_apart(weft_worker *worker, access *a, int *local)
{
    weft_store *store = worker->store;
    char *values = a->batch.values;
    uint64_t bytes = wf_store_length_of(store, &a->keys.ids) *
                     wf_dtype_bytes(store->options.type);
    weft_status st;

    a->batch.values = wf_alloc(bytes + 1);
    if (a->batch.values == NULL) {
        a->batch.values = values;
        return wf_fail_nomem("%llu bytes of rows", (unsigned long long)bytes);
    }
    st = wf_slots_pull(store->slots, &a->batch);
    *local = st == WEFT_OK && a->batch.absents == 0;
    if (*local) {
        if (bytes > 0) {
            memcpy(values, a->batch.values, bytes);
        }
    }
    wf_free(a->batch.values);
    return st;
}

/* Have all hashed keys numbers here? */
static bool all_known(const access *a)
{
    for (uint64_t i = 0; i < a->keys.ids.n; i++) {
        if (wf_id_at(&a->keys.ids, i) < 0) {
            return false;
        }
    }
    return true;
}

weft_status weft_store_pull_local(weft_worker *worker, const weft_pairs *pairs,
                                  int *local)
{
    wf_store_counts *c = worker->store->counts;
    access a;
    weft_status st = begin(&a, worker, "pull", pairs, NULL, false);

    *local = 0;
    if (st == WEFT_OK && worker->store->remote == NULL) {
        st = wf_slots_pull(worker->store->slots, &a.batch);
        *local = st == WEFT_OK;
    } else if (st == WEFT_OK && all_known(&a)) {
        st = pull_apart(worker, &a, local);
    }
    if (*local) {
        wf_count_alone(&worker->count->pulls, pairs->keys.n);
        wf_worker_meet(worker, &pairs->keys);
        wf_count_some(&c->copy_pulls, a.batch.copies);
    }
    end(&a);
    return st;
}

/* --- writing -------------------------------------------------------------- */

/* Does the key at `at` come again behind it? `last`: where each key is last, or
 * NULL. */
static bool comes_again(const weft_ids *keys, uint64_t at,
                        const wf_keymap *last)
{
    int64_t key = wf_id_at(keys, at);

    if (last != NULL) {
        return (uint64_t)*wf_keymap_find(last, key) != at;
    }
    for (uint64_t i = at + 1; i < keys->n; i++) {
        if (wf_id_at(keys, i) == key) {
            return true;
        }
    }
    return false;
}

/* Of equal keys the last one is set. One that is not here may come here, so
 * that the last one was set in place, or takes another way: so the others are
 * not sent. */
static weft_status drop_overwritten(wf_batch *batch)
{
    uint64_t n = batch->keys.n;
    bool many = n > WF_DENSE_FEW;
    uint64_t left = 0;
    wf_keymap last;
    weft_status st = many ? wf_keymap_init(&last, n) : WEFT_OK;

    if (st != WEFT_OK) {
        return st;
    }
    for (uint64_t i = n; many && i > 0; i--) {
        wf_keymap_add(&last, wf_id_at(&batch->keys, i - 1), (int64_t)i - 1);
    }
    for (uint64_t i = 0; i < batch->absents; i++) {
        if (!comes_again(&batch->keys, batch->absent[i], many ? &last : NULL)) {
            batch->absent[left++] = batch->absent[i];
        }
    }
    batch->absents = left;
    if (many) {
        wf_keymap_fini(&last);
    }
    return WEFT_OK;
}

typedef weft_status change_fn(wf_slots *slots, wf_batch *batch,
                              uint32_t writer);

/* Push or set. */
static weft_status change(weft_worker *worker, wf_op_kind kind, change_fn *how,
                          const weft_pairs *pairs, weft_request **request)
{
    weft_store *store = worker->store;
    wf_store_counts *c = store->counts;
    access a;
    weft_status st = begin(&a, worker, kind == WF_OP_SET ? "set" : "push",
                           pairs, request, true);

    if (st == WEFT_OK) {
        pthread_mutex_lock(&store->writer[worker->writer]);
        st = how(store->slots, &a.batch, worker->writer);
        pthread_mutex_unlock(&store->writer[worker->writer]);
    }
    if (st == WEFT_OK) {
        wf_count_alone(&worker->count->pushes, pairs->keys.n);
        wf_worker_meet(worker, &pairs->keys);
        wf_count_some(&c->away_pushes, a.batch.absents);
        wf_count_some(&c->copy_pushes, a.batch.copies);
    }
    if (st == WEFT_OK && a.batch.absents > 0 && kind == WF_OP_SET) {
        st = drop_overwritten(&a.batch);
    }
    if (st == WEFT_OK && a.batch.absents > 0) {
        st = wf_remote_begin(worker, kind, &a.batch, request);
    }
    end(&a);
    return st;
}

weft_status weft_store_push(weft_worker *worker, const weft_pairs *pairs,
                            weft_request **request)
{
    return change(worker, WF_OP_PUSH, wf_slots_push, pairs, request);
}

weft_status weft_store_set(weft_worker *worker, const weft_pairs *pairs,
                           weft_request **request)
{
    return change(worker, WF_OP_SET, wf_slots_set, pairs, request);
}
