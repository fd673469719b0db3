/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: what samples need of a store, and the public calls. */
#include "base/status.h"
#include "store/sample.h"
#include "store/store.h"

/* A key may leave between its choice and its pull, so that LOCAL chooses again;
 * after so many times it waits for the key. */
#define CHOICES 16

static weft_status env_intent(void *worker, const int64_t *keys, uint64_t n,
                              int64_t start, int64_t end)
{
    return weft_store_intent(worker, &(weft_ids){keys, WEFT_I64, n, WEFT_HOST},
                             start, end);
}

/* So many keys of a hashed store are looked at one by one. */
#define NEAR 4096

/* A hashed key that is new is here if its home is. */
static bool hashed_here(const weft_store *store, int64_t key)
{
    weft_ids one = {.at = &key, .type = WEFT_I64, .n = 1};
    int64_t dense;

    wf_hash_find(store->hash, &one, &dense);
    if (dense >= 0) {
        return (wf_directory_get(store->slots, (uint64_t)dense) &
                WF_KEY_HERE) != 0;
    }
    return wf_hash_home(store->hash, key) == store->number &&
           wf_hash_made(store->hash) < wf_hash_share(store->hash);
}

/* The first key of [first, last] that is here: one that is near, or one of
 * those that are known. */
static bool first_hashed(const weft_store *store, int64_t first, int64_t last,
                         int64_t *out)
{
    bool found = false;

    for (int i = 0; i < NEAR; i++, first++) {
        if (hashed_here(store, first)) {
            *out = first;
            return true;
        }
        if (first == last) {
            return false;
        }
    }
    for (uint64_t dense = 0; dense < store->ids; dense++) {
        int64_t key;

        if (wf_hash_key(store->hash, dense, &key) && key >= first &&
            key <= last && (!found || key < *out) && hashed_here(store, key)) {
            *out = key;
            found = true;
        }
    }
    return found;
}

/* With one host all keys are here, hashed ones that are new included. */
static bool env_here(void *worker, int64_t first, int64_t last, int64_t *out)
{
    const weft_store *store = ((weft_worker *)worker)->store;

    if (store->remote != NULL && store->hash != NULL) {
        return first_hashed(store, first, last, out);
    }
    while (store->remote != NULL &&
           !(wf_directory_get(store->slots, (uint64_t)first) & WF_KEY_HERE)) {
        if (first++ == last) {
            return false;
        }
    }
    *out = first;
    return true;
}

static uint64_t env_keys(void *worker)
{
    return ((weft_worker *)worker)->store->options.keys;
}

static const wf_sample_env sample_env = {env_intent, env_here, env_keys};

weft_status weft_store_sampling(weft_store *store,
                                const weft_sample_options *options)
{
    wf_sampler_store about;
    wf_sampler *made = NULL;
    wf_sampler *none = NULL;
    weft_status st;

    if (store == NULL || options == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store or options is NULL");
    }
    about = (wf_sampler_store){.keys = store->options.keys,
                               .hashed = store->hash != NULL,
                               .seed = store->options.seed,
                               .rank = store->comm->rank,
                               .env = &sample_env};
    st = wf_store_check(store);
    if (st == WEFT_OK) {
        st = wf_sampler_create(options, &about, &made);
    }
    if (st == WEFT_OK &&
        !atomic_compare_exchange_strong(&store->sampler, &none, made)) {
        wf_sampler_destroy(made);
        st = wf_fail(WEFT_ERR_INVALID,
                     "this store has been told how to sample before");
    }
    return st;
}

weft_status weft_sample_prepare(weft_worker *worker, uint64_t n, int64_t start,
                                int64_t end, int64_t *id)
{
    weft_status st = wf_store_check(worker->store);

    if (st == WEFT_OK) {
        st = wf_store_check_window("prepare_sample", start, end);
    }
    return st == WEFT_OK
               ? wf_sample_prepare(&worker->samples,
                                   atomic_load(&worker->store->sampler), n,
                                   start, end, id)
               : st;
}

/* The keys are written, so that what they are is checked before. */
static weft_status check_room(const weft_ids *keys)
{
    if (keys->type != WEFT_I64 || keys->place != WEFT_HOST) {
        return wf_fail(WEFT_ERR_INVALID,
                       "sample_pull: keys must be i64 in host memory");
    }
    if ((keys->n > 0 && keys->at == NULL) ||
        (uintptr_t)keys->at % sizeof(int64_t) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "sample_pull: keys is NULL, or not aligned to 8 bytes");
    }
    return WEFT_OK;
}

static weft_status pull_anywhere(weft_worker *worker, int64_t id,
                                 const weft_pairs *pairs,
                                 weft_request **request)
{
    weft_status st = wf_sample_next(&worker->samples, id, pairs->keys.n,
                                    (int64_t *)(uintptr_t)pairs->keys.at);

    if (st != WEFT_OK) {
        return st;
    }
    st = weft_store_pull(worker, pairs, request);
    if (st != WEFT_OK) {
        wf_sample_undo(&worker->samples, id);
    }
    return st;
}

static weft_status pull_here(weft_worker *worker, int64_t id,
                             const weft_pairs *pairs)
{
    for (int i = 0; i < CHOICES; i++) {
        int local = 0;
        weft_status st = wf_sample_next(&worker->samples, id, pairs->keys.n,
                                        (int64_t *)(uintptr_t)pairs->keys.at);

        if (st != WEFT_OK) {
            return st;
        }
        st = weft_store_pull_local(worker, pairs, &local);
        if (st == WEFT_OK && local) {
            return WEFT_OK;
        }
        wf_sample_undo(&worker->samples, id);
        if (st != WEFT_OK) {
            return st;
        }
    }
    return pull_anywhere(worker, id, pairs, NULL);
}

weft_status weft_sample_pull(weft_worker *worker, int64_t id,
                             const weft_pairs *pairs, weft_request **request)
{
    const wf_sampler *sampler = atomic_load(&worker->store->sampler);
    weft_status st = wf_store_check(worker->store);

    if (request != NULL) {
        *request = NULL;
    }
    if (st == WEFT_OK) {
        st = check_room(&pairs->keys);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (sampler == NULL || wf_sampler_scheme(sampler) != WEFT_SAMPLE_LOCAL) {
        return pull_anywhere(worker, id, pairs, request);
    }
    return pull_here(worker, id, pairs);
}

weft_status weft_sample_finish(weft_worker *worker, int64_t id)
{
    return wf_sample_finish(&worker->samples, id);
}
