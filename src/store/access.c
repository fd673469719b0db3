/* SPDX-License-Identifier: Apache-2.0 */
/* Pull, push and set: rows of this host in place, those of others by
 * messages. */
#include "store/store.h"

static wf_batch batch_of(const weft_pairs *pairs)
{
    return (wf_batch){.keys = pairs->keys, .values = pairs->values};
}

static weft_status begin(weft_worker *worker, const char *who,
                         const weft_pairs *pairs, weft_request **request)
{
    weft_status st = wf_store_check(worker->store);

    if (request != NULL) {
        *request = NULL;
    }
    return st == WEFT_OK ? wf_store_check_pairs(worker->store, who, pairs) : st;
}

weft_status weft_store_pull(weft_worker *worker, const weft_pairs *pairs,
                            weft_request **request)
{
    weft_store *store = worker->store;
    wf_batch batch = batch_of(pairs);
    weft_status st = begin(worker, "pull", pairs, request);

    if (st == WEFT_OK) {
        st = wf_slots_pull(store->slots, &batch);
    }
    if (st == WEFT_OK) {
        wf_count(&store->counts.pulls, pairs->keys.n);
        wf_count(&store->counts.local_pulls, pairs->keys.n - batch.absents);
        wf_count(&store->counts.copy_pulls, batch.copies);
    }
    return st;
}

weft_status weft_store_pull_local(weft_worker *worker, const weft_pairs *pairs,
                                  int *local)
{
    *local = 1;
    return weft_store_pull(worker, pairs, NULL);
}

/* Push or set. */
static weft_status change(weft_worker *worker, const char *who,
                          weft_status (*how)(wf_slots *, wf_batch *, uint32_t),
                          const weft_pairs *pairs, weft_request **request)
{
    weft_store *store = worker->store;
    wf_batch batch = batch_of(pairs);
    weft_status st = begin(worker, who, pairs, request);

    if (st == WEFT_OK) {
        pthread_mutex_lock(&store->writer[worker->writer]);
        st = how(store->slots, &batch, worker->writer);
        pthread_mutex_unlock(&store->writer[worker->writer]);
    }
    if (st == WEFT_OK) {
        wf_count(&store->counts.pushes, pairs->keys.n);
        wf_count(&store->counts.local_pushes, pairs->keys.n - batch.absents);
        wf_count(&store->counts.copy_pushes, batch.copies);
    }
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
