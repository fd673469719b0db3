/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: a clock, and what it will use. */
#include <inttypes.h>

#include "base/alloc.h"
#include "store/hosts/hosts.h"

uint32_t wf_worker_index(const weft_worker *worker)
{
    return worker->store->host->rank * WF_BOOK_WORKERS + worker->place;
}

static bool take_place(wf_store_hosts *h, uint32_t *out)
{
    bool found = false;

    pthread_mutex_lock(&h->world->drive);
    for (uint32_t i = 0; i < WF_BOOK_WORKERS && !found; i++) {
        if ((h->places[i / 64] >> i % 64 & 1) == 0) {
            h->places[i / 64] |= 1ull << i % 64;
            *out = i;
            found = true;
        }
    }
    pthread_mutex_unlock(&h->world->drive);
    return found;
}

/* All intents of the worker are over. */
static void give_place(wf_store_hosts *h, weft_worker *worker)
{
    int64_t end = wf_clock_end(atomic_load(worker->clock));

    pthread_mutex_lock(&h->world->drive);
    atomic_store(worker->clock, end);
    if (!wf_clock_last(end)) {
        h->places[worker->place / 64] &= ~(1ull << worker->place % 64);
    }
    pthread_mutex_unlock(&h->world->drive);
}

/* Between hosts the server reads the clocks of its host's workers. */
static weft_status give_clock(weft_worker *worker)
{
    wf_store_hosts *h = worker->store->remote;

    if (h == NULL) {
        return WEFT_OK;
    }
    if (!take_place(h, &worker->place)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "a rank can have %u workers of a store over several "
                       "hosts at a time, and has them",
                       WF_BOOK_WORKERS);
    }
    worker->clock = &h->book.clock[wf_worker_index(worker)];
    worker->zero = atomic_load(worker->clock);
    /* What nobody here was told of it is told, though it was not there. */
    worker->lost_seen = atomic_load(&worker->store->lost_told);
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
    worker->hot_random = (uint64_t)worker->number << 32;
    wf_samples_init(&worker->samples, worker, worker->number);
    wf_worker_enroll(worker);
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
        if (worker->clock != &worker->own_clock) {
            give_place(worker->store->remote, worker);
        }
        wf_worker_leave(worker);
        wf_store_release(worker->store);
        wf_free(worker);
    }
}

int64_t weft_worker_advance(weft_worker *worker)
{
    return atomic_fetch_add_explicit(worker->clock, 1, memory_order_relaxed) +
           1 - worker->zero;
}

int64_t weft_worker_clock(const weft_worker *worker)
{
    return atomic_load_explicit(worker->clock, memory_order_relaxed) -
           worker->zero;
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
