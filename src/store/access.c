/* SPDX-License-Identifier: Apache-2.0 */
/* Pull, push and set: rows of this host in place, those of others by
 * messages. */
#include "store/store.h"

/* A call whose arguments have been checked. */
typedef struct access {
    wf_dense keys;
    wf_batch batch;
} access;

static weft_status begin(access *a, weft_worker *worker, const char *who,
                         const weft_pairs *pairs, bool enter)
{
    weft_store *store = worker->store;
    weft_status st = wf_store_check(store);

    a->keys.many = NULL;
    if (st == WEFT_OK) {
        st = wf_dense_init(&a->keys, store, who, &pairs->keys, enter);
    }
    if (st == WEFT_OK) {
        st = wf_store_check_length(store, who, &a->keys.ids, pairs);
    }
    a->batch = (wf_batch){.keys = a->keys.ids, .values = pairs->values};
    return st;
}

static weft_status pull(weft_worker *worker, const weft_pairs *pairs)
{
    weft_store *store = worker->store;
    access a;
    weft_status st = begin(&a, worker, "pull", pairs, true);

    if (st == WEFT_OK) {
        st = wf_slots_pull(store->slots, &a.batch);
    }
    if (st == WEFT_OK) {
        wf_count(&store->counts.pulls, pairs->keys.n);
        wf_count(&store->counts.local_pulls, pairs->keys.n - a.batch.absents);
        wf_count(&store->counts.copy_pulls, a.batch.copies);
    }
    wf_dense_fini(&a.keys);
    return st;
}

weft_status weft_store_pull(weft_worker *worker, const weft_pairs *pairs,
                            weft_request **request)
{
    if (request != NULL) {
        *request = NULL;
    }
    return pull(worker, pairs);
}

weft_status weft_store_pull_local(weft_worker *worker, const weft_pairs *pairs,
                                  int *local)
{
    *local = 1;
    return pull(worker, pairs);
}

typedef weft_status change_fn(wf_slots *slots, wf_batch *batch,
                              uint32_t writer);

/* Push or set. */
static weft_status change(weft_worker *worker, const char *who, change_fn *how,
                          const weft_pairs *pairs, weft_request **request)
{
    weft_store *store = worker->store;
    access a;
    weft_status st = begin(&a, worker, who, pairs, true);

    if (request != NULL) {
        *request = NULL;
    }
    if (st == WEFT_OK) {
        pthread_mutex_lock(&store->writer[worker->writer]);
        st = how(store->slots, &a.batch, worker->writer);
        pthread_mutex_unlock(&store->writer[worker->writer]);
    }
    if (st == WEFT_OK) {
        wf_count(&store->counts.pushes, pairs->keys.n);
        wf_count(&store->counts.local_pushes, pairs->keys.n - a.batch.absents);
        wf_count(&store->counts.copy_pushes, a.batch.copies);
    }
    wf_dense_fini(&a.keys);
    return st;
}

weft_status weft_store_push(weft_worker *worker, const weft_pairs *pairs,
                            weft_request **request)
{
    return change(worker, "push", wf_slots_push, pairs, request);
}

weft_status weft_store_set(weft_worker *worker, const weft_pairs *pairs,
                           weft_request **request)
{
    return change(worker, "set", wf_slots_set, pairs, request);
}
