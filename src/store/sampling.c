/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls of sampling; sample.h draws the keys. */
#include "base/options.h"
#include "store/hosts/hosts.h"

/* --- what samples ask the store ------------------------------------------- */

static weft_status sample_intent(void *worker, const int64_t *keys, uint64_t n,
                                 int64_t start, int64_t end)
{
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = n};

    return weft_store_intent(worker, &ids, start, end);
}

static bool sample_here(void *ctx, int64_t first, int64_t last, int64_t *out)
{
    const weft_worker *worker = ctx;
    const weft_store *store = worker->store;

    if (store->remote == NULL) {
        *out = first;
        return true;
    }
    for (int64_t key = first; key <= last; key++) {
        if ((wf_directory_get(store->slots, (uint64_t)key) & WF_KEY_HERE) !=
            0) {
            *out = key;
            return true;
        }
    }
    return false;
}

static uint64_t sample_keys(void *ctx)
{
    const weft_worker *worker = ctx;

    return worker->store->options.keys;
}

static const wf_sample_env env = {
    .intent = sample_intent, .here = sample_here, .keys = sample_keys};

/* --- calls ---------------------------------------------------------------- */

weft_status weft_store_sampling(weft_store *store,
                                const weft_sample_options *options)
{
    weft_sample_options o;
    wf_sampler_store about;
    weft_status st;

    if (store == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store is NULL");
    }
    st = wf_store_check(store);
    if (st == WEFT_OK) {
        st = wf_options_read(options, "weft_sample_options", &o, sizeof(o));
    }
    if (st == WEFT_OK && store->sampler != NULL) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "sampling of this store was set up before");
    }
    if (st != WEFT_OK) {
        return st;
    }
    about = (wf_sampler_store){.keys = store->options.keys,
                               .hashed = store->hash != NULL,
                               .seed = store->options.seed,
                               .rank = store->comm->rank,
                               .env = &env};
    return wf_sampler_create(&o, &about, &store->sampler);
}

weft_status weft_sample_prepare(weft_worker *worker, uint64_t n, int64_t start,
                                int64_t end, int64_t *id)
{
    weft_status st = wf_store_check(worker->store);

    if (st == WEFT_OK) {
        st = wf_store_check_window("prepare_sample", start, end);
    }
    return st == WEFT_OK
               ? wf_sample_prepare(&worker->samples, worker->store->sampler, n,
                                   start, end, id)
               : st;
}

/* LOCAL may have lost a key to another host between drawing and reading it;
 * then others are drawn. */
static weft_status pull_local(weft_worker *worker, int64_t id,
                              const weft_pairs *pairs)
{
    int64_t *keys = (int64_t *)(uintptr_t)pairs->keys.at;
    weft_status st;
    int local = 0;

    do {
        st = wf_sample_next(&worker->samples, id, pairs->keys.n, keys);
        if (st != WEFT_OK) {
            return st;
        }
        st = weft_store_pull_local(worker, pairs, &local);
        if (st != WEFT_OK || !local) {
            wf_sample_undo(&worker->samples, id);
        }
    } while (st == WEFT_OK && !local);
    return st;
}

weft_status weft_sample_pull(weft_worker *worker, int64_t id,
                             const weft_pairs *pairs, weft_request **request)
{
    int64_t *keys = (int64_t *)(uintptr_t)pairs->keys.at;
    weft_status st = wf_store_check(worker->store);

    if (request != NULL) {
        *request = NULL;
    }
    if (st == WEFT_OK && pairs->keys.type != WEFT_I64) {
        st = wf_fail(WEFT_ERR_INVALID, "pull_sample: keys must be i64");
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (worker->store->remote != NULL && worker->store->sampler != NULL &&
        wf_sampler_scheme(worker->store->sampler) == WEFT_SAMPLE_LOCAL) {
        return pull_local(worker, id, pairs);
    }
    st = wf_sample_next(&worker->samples, id, pairs->keys.n, keys);
    if (st == WEFT_OK) {
        st = weft_store_pull(worker, pairs, request);
        if (st != WEFT_OK) {
            wf_sample_undo(&worker->samples, id);
        }
    }
    return st;
}

weft_status weft_sample_finish(weft_worker *worker, int64_t id)
{
    weft_status st = wf_store_check(worker->store);

    return st == WEFT_OK ? wf_sample_finish(&worker->samples, id) : st;
}
