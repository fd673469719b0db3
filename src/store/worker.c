/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: a clock, and what it will use. */
#include <inttypes.h>

#include "base/alloc.h"
#include "store/hosts/hosts.h"

uint32_t wf_worker_index(const weft_worker *worker)
{
    return worker->store->host->rank * WF_BOOK_WORKERS + worker->number;
}

/* Between hosts the server reads the clocks of its host's workers. */
static weft_status give_clock(weft_worker *worker)
{
    wf_store_hosts *h = worker->store->remote;

    if (h == NULL) {
        return WEFT_OK;
    }
    if (worker->number >= WF_BOOK_WORKERS) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "a rank can make %u workers of a store over several "
                       "hosts, and has made them",
                       WF_BOOK_WORKERS);
    }
    worker->clock = &h->book.clock[wf_worker_index(worker)];
    atomic_store(worker->clock, 0);
    worker->lost_seen = atomic_load(&h->book.head->lost);
    return WEFT_OK;
}

weft_status weft_worker_create(weft_store *store, weft_worker **out)
{
    weft_status st;
    weft_worker *worker;

    if (store == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store or out is NULL");
    }
    st = wf_store_check(store);
    if (st != WEFT_OK) {
        return st;
    }
    worker = wf_zalloc(sizeof(*worker));
    if (worker == NULL) {
        return wf_fail_nomem("a worker of a store");
    }
    wf_store_retain(store);
    worker->store = store;
    worker->number = atomic_fetch_add(&store->workers, 1);
    worker->writer = worker->number % (WF_WRITERS - 1);
    worker->clock = &worker->own_clock;
    wf_samples_init(&worker->samples, worker, worker->number);
    st = give_clock(worker);
    if (st != WEFT_OK) {
        weft_worker_destroy(worker);
        return st;
    }
    *out = worker;
    return WEFT_OK;
}

/* Operations that are not over have the worker in them. */
static void finish_operations(weft_worker *worker)
{
    while (atomic_load(&worker->under_way) > 0) {
        weft_request *request = wf_remote_newest(worker);

        if (request != NULL) {
            (void)weft_request_wait(request, 0);
            weft_request_release(request);
        }
    }
}

void weft_worker_destroy(weft_worker *worker)
{
    if (worker != NULL) {
        if (worker->store->remote != NULL) {
            finish_operations(worker);
        }
        wf_samples_fini(&worker->samples);
        /* All its intents are over. */
        atomic_store(worker->clock, WEFT_CLOCK_MAX);
        wf_store_release(worker->store);
        wf_free(worker);
    }
}

int64_t weft_worker_advance(weft_worker *worker)
{
    return atomic_fetch_add_explicit(worker->clock, 1, memory_order_relaxed) +
           1;
}

int64_t weft_worker_clock(const weft_worker *worker)
{
    return atomic_load_explicit(worker->clock, memory_order_relaxed);
}

weft_status weft_store_intent(weft_worker *worker, const weft_ids *keys,
                              int64_t start, int64_t end)
{
    weft_store *store = worker->store;
    weft_status st = wf_store_check(store);
    wf_dense dense;

    if (st == WEFT_OK) {
        st = wf_store_check_window("intent", start, end);
    }
    if (st != WEFT_OK) {
        return st;
    }
    st = wf_dense_init(&dense, store, "intent", keys, true);
    if (st == WEFT_OK && store->remote != NULL && keys->n > 0) {
        st = wf_remote_intent(worker, &dense.ids, start,
                              end == 0 ? start + 1 : end);
    }
    wf_dense_fini(&dense);
    return st;
}

weft_status weft_store_localize(weft_worker *worker, const weft_ids *keys,
                                weft_request **request)
{
    weft_store *store = worker->store;
    weft_status st = wf_store_check(store);
    wf_dense dense;

    if (request != NULL) {
        *request = NULL;
    }
    if (st != WEFT_OK) {
        return st;
    }
    st = wf_dense_init(&dense, store, "localize", keys, true);
    if (st == WEFT_OK && store->remote != NULL && keys->n > 0) {
        st = wf_remote_localize(worker, &dense.ids, request);
    }
    wf_dense_fini(&dense);
    return st;
}

weft_status weft_store_wait_sync(weft_worker *worker)
{
    weft_status st = wf_store_check(worker->store);

    return st == WEFT_OK && worker->store->remote != NULL
               ? wf_remote_sync(worker)
               : st;
}
