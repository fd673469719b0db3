/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and lengths that callers pass. Types come from other languages, so any
 * number may be in them. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/num.h"
#include "base/types.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"

static weft_status check_array(const char *who, const weft_ids *keys)
{
    if (keys->type != WEFT_I32 && keys->type != WEFT_I64) {
        return wf_fail(
            WEFT_ERR_INVALID, "%s: keys must be i32 or i64, not %s", who,
            (unsigned)keys->type < WF_DTYPE_COUNT ? weft_dtype_name(keys->type)
                                                  : "an unknown dtype");
    }
    if (keys->place != WEFT_HOST) {
        return wf_fail(WEFT_ERR_INVALID, "%s: keys must be in host memory",
                       who);
    }
    if (keys->n > 0 && keys->at == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "%s: keys is NULL", who);
    }
    if ((uintptr_t)keys->at % wf_dtype_bytes(keys->type) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: keys must be aligned to %zu bytes", who,
                       wf_dtype_bytes(keys->type));
    }
    return WEFT_OK;
}

static weft_status tell_bad(const weft_store *store, const char *who,
                            const weft_ids *keys)
{
    for (uint64_t i = 0; i < keys->n; i++) {
        int64_t key = wf_id_at(keys, i);

        if (key < 0 || (uint64_t)key >= store->options.keys) {
            return wf_fail(WEFT_ERR_INVALID,
                           "%s: key %" PRId64 " at position %" PRIu64
                           " is out of range (%" PRIu64 " keys)",
                           who, key, i, store->options.keys);
        }
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "%s: a key was out of range, and has changed since", who);
}

static weft_status check_range(const weft_store *store, const char *who,
                               const weft_ids *keys)
{
    const wf_row_kernels *kernels = wf_row_kernels_of(wf_cpu_level_used());
    wf_survey found = {0};

    (keys->type == WEFT_I64 ? kernels->survey_i64 : kernels->survey_i32)(
        keys->at, keys->n, (int64_t)store->options.keys, 0, 0, &found);
    return found.negative + found.past == 0 ? WEFT_OK
                                            : tell_bad(store, who, keys);
}

static weft_status make_dense(wf_dense *dense, weft_store *store,
                              const char *who, const weft_ids *keys, bool wait)
{
    int64_t *to = dense->few;
    weft_status st;

    if (keys->n > WF_DENSE_FEW) {
        to = dense->many = wf_alloc(keys->n * sizeof(*to));
        if (to == NULL) {
            return wf_fail_nomem("%" PRIu64 " keys", keys->n);
        }
    }
    dense->ids = (weft_ids){.at = to, .type = WEFT_I64, .n = keys->n};
    if (store->remote != NULL) {
        return wf_names_find(store, who, keys, to, wait);
    }
    st = wf_hash_enter(store->hash, keys, to);
    for (uint64_t i = 0; i < keys->n && st == WEFT_OK; i++) {
        if (to[i] < 0) {
            st = wf_fail(WEFT_ERR_NOMEM,
                         "%s: key %" PRId64 " at position %" PRIu64
                         " is new, but the store has its %" PRIu64
                         " keys already",
                         who, wf_id_at(keys, i), i, store->options.keys);
        }
    }
    return st;
}

weft_status wf_dense_init(wf_dense *dense, weft_store *store, const char *who,
                          const weft_ids *keys, bool wait)
{
    weft_status st = check_array(who, keys);

    dense->many = NULL;
    dense->ids = *keys;
    if (st != WEFT_OK) {
        return st;
    }
    return store->hash != NULL ? make_dense(dense, store, who, keys, wait)
                               : check_range(store, who, keys);
}

void wf_dense_fini(wf_dense *dense)
{
    wf_free(dense->many);
}

int64_t wf_store_name(const weft_store *store, uint64_t key)
{
    int64_t name = (int64_t)key;

    if (store->hash != NULL && !wf_hash_key(store->hash, key, &name)) {
        return -1;
    }
    return name;
}

uint64_t wf_store_length_of(const weft_store *store, const weft_ids *keys)
{
    uint64_t length = 0;

    if (store->uniform) {
        return keys->n * store->options.length;
    }
    for (uint64_t i = 0; i < keys->n; i++) {
        length += wf_slots_length(store->slots, (uint64_t)wf_id_at(keys, i));
    }
    return length;
}

weft_status wf_store_check_length(const weft_store *store, const char *who,
                                  const weft_ids *keys, const weft_pairs *pairs)
{
    uint64_t length = wf_store_length_of(store, keys);

    if (pairs->length != length) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: values have %" PRIu64 " elements, but the rows of "
                       "the %" PRIu64 " keys have %" PRIu64,
                       who, pairs->length, keys->n, length);
    }
    return length > 0 && pairs->values == NULL
               ? wf_fail(WEFT_ERR_INVALID, "%s: values is NULL", who)
               : WEFT_OK;
}

weft_status wf_store_check_window(const char *who, int64_t start, int64_t end)
{
    if (start < 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: start is %" PRId64 ": clocks are not negative", who,
                       start);
    }
    if (end != 0 && end <= start) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: end %" PRId64 " is not behind start %" PRId64
                       " (0 means start + 1)",
                       who, end, start);
    }
    return WEFT_OK;
}

weft_status weft_store_length(const weft_store *store, int64_t key,
                              uint64_t *out)
{
    weft_ids keys = {.at = &key, .type = WEFT_I64, .n = 1};

    if (store->hash != NULL) { /* all keys have one length */
        *out = store->options.length;
        return WEFT_OK;
    }
    if (check_range(store, "length", &keys) != WEFT_OK) {
        return WEFT_ERR_INVALID;
    }
    *out = wf_slots_length(store->slots, (uint64_t)key);
    return WEFT_OK;
}
