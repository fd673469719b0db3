/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the number of keys, all ranks together. */
#include <inttypes.h>

#include "store/store.h"
#include <weft/coll.h>

static weft_status check_resize(weft_store *store, uint64_t keys)
{
    weft_status st = wf_store_check(store);

    if (st == WEFT_OK && !store->uniform) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "a store with a length for each key cannot be resized");
    }
    if (st == WEFT_OK && store->hosts > 1) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "a store over several hosts cannot be resized yet");
    }
    if (st == WEFT_OK && keys > store->options.max_keys) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "%" PRIu64 " keys are more than max_keys (%" PRIu64 ")",
                     keys, store->options.max_keys);
    }
    if (st == WEFT_OK && store->hash != NULL &&
        keys < wf_hash_count(store->hash)) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "a store with %" PRIu64 " hashed keys cannot be made "
                     "smaller than that",
                     wf_hash_count(store->hash));
    }
    return st;
}

weft_status weft_store_resize(weft_store *store, uint64_t keys)
{
    uint64_t all[2] = {keys, ~keys};
    weft_status st;

    if (store == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store is NULL");
    }
    st = wf_store_agree(store, check_resize(store, keys));
    if (st == WEFT_OK) {
        st = weft_allreduce(store->comm, all, all, 2, WEFT_I64,
                            (weft_op){.kind = WEFT_OP_BAND});
    }
    if (st == WEFT_OK && (all[0] != keys || all[1] != ~keys)) {
        st = wf_fail(WEFT_ERR_MISMATCH,
                     "ranks resize the store to different numbers of keys; "
                     "this one to %" PRIu64,
                     keys);
    }
    if (st == WEFT_OK) {
        st = wf_slots_resize(store->slots, keys);
    }
    if (st == WEFT_OK) {
        store->options.keys = keys;
        if (store->hash != NULL) {
            wf_hash_limit(store->hash, keys);
        }
        st = weft_barrier(store->comm);
    }
    return st;
}
