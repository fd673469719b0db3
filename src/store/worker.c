/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: a clock, and what it will use. */
#include <inttypes.h>

#include "base/alloc.h"
#include "store/store.h"

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
    worker->writer = worker->number % WF_WRITERS;
    *out = worker;
    return WEFT_OK;
}

void weft_worker_destroy(weft_worker *worker)
{
    if (worker != NULL) {
        wf_store_release(worker->store);
        wf_free(worker);
    }
}

int64_t weft_worker_advance(weft_worker *worker)
{
    return atomic_fetch_add_explicit(&worker->clock, 1, memory_order_relaxed) +
           1;
}

int64_t weft_worker_clock(const weft_worker *worker)
{
    return atomic_load_explicit(&worker->clock, memory_order_relaxed);
}

weft_status weft_store_intent(weft_worker *worker, const weft_ids *keys,
                              int64_t start, int64_t end)
{
    weft_status st = wf_store_check(worker->store);
    wf_dense dense;

    if (st == WEFT_OK && start < 0) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "intent: start is %" PRId64 ": clocks are not negative",
                     start);
    }
    if (st == WEFT_OK && end != 0 && end <= start) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "intent: end %" PRId64 " is not behind start %" PRId64
                     " (0 means start + 1)",
                     end, start);
    }
    if (st == WEFT_OK) {
        st = wf_dense_init(&dense, worker->store, "intent", keys, true);
        wf_dense_fini(&dense);
    }
    return st;
}

weft_status weft_store_localize(weft_worker *worker, const weft_ids *keys,
                                weft_request **request)
{
    if (request != NULL) {
        *request = NULL;
    }
    return weft_store_intent(worker, keys, weft_worker_clock(worker),
                             WEFT_CLOCK_MAX);
}

weft_status weft_store_wait_sync(weft_worker *worker)
{
    return wf_store_check(worker->store);
}
