/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed keys of several hosts. A key's home, found by its hash, gives it its
 * dense number, out of those that are the home's (store/hash.h); if it has none
 * left the next host does, and so on. Numbers never change, so every host keeps
 * those that it has asked for.
 *
 * A call that names keys which its host does not know asks their homes: one
 * parcel to each, with all of their keys. Any rank of the home can answer,
 * since the table is in the memory of its host, and an answer that is lost with
 * a rank can be asked for again. */
#include "base/alloc.h"
#include "base/log.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"

/* Keys of one question; calls with more ask several times. */
#define ASK_MAX (1u << 20)

void wf_names_asked(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                    const int64_t *keys)
{
    uint64_t n = parcel->bytes / sizeof(*keys);
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = n};
    int64_t *dense;
    wf_parcel answer = {.store = h->box.store,
                        .kind = WF_PARCEL_TELL,
                        .bytes = n * sizeof(*dense),
                        .count = parcel->count,
                        .token = parcel->token};

    if (parcel->count != n || (n > 0 && h->store->hash == NULL)) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent a malformed question for keys; dropped", from);
        return;
    }
    dense = wf_alloc((n + 1) * sizeof(*dense));
    if (dense == NULL ||
        (n > 0 && wf_hash_enter(h->store->hash, &ids, dense) != WEFT_OK)) {
        answer.bytes = 0;
        answer.count = 0;
        answer.extra = 1; /* it cannot say */
    }
    wf_out_parcel(h, from, &answer, dense);
    wf_free(dense);
}

/* --- keys of a call ------------------------------------------------------- */

/* Up to ASK_MAX of those keys from `*from` on that are not known. */
static weft_status ask_some(weft_store *store, const char *who,
                            const weft_ids *keys, const int64_t *dense,
                            uint64_t *from)
{
    weft_request *request;
    uint64_t asked = 0;
    uint64_t n = 0;
    weft_status st;

    for (uint64_t i = *from; i < keys->n; i++) {
        n += dense[i] < 0;
    }
    st = wf_ask_make(store, who, wf_least(n, ASK_MAX), &request);
    if (st != WEFT_OK) {
        return st;
    }
    for (; *from < keys->n && asked < ASK_MAX; ++*from) {
        if (dense[*from] < 0) {
            wf_ask_for(request, wf_id_at(keys, *from));
            asked++;
        }
    }
    return wf_ask_wait(store, request);
}

/* Keys whose home this is need no message. */
static weft_status enter_here(const weft_store *store, const weft_ids *keys,
                              int64_t *dense, bool *all)
{
    weft_status st = WEFT_OK;

    *all = true;
    for (uint64_t i = 0; i < keys->n && st == WEFT_OK; i++) {
        int64_t key;
        weft_ids one = {.at = &key, .type = WEFT_I64, .n = 1};

        if (dense[i] >= 0) {
            continue;
        }
        key = wf_id_at(keys, i);
        if (wf_hash_home(store->hash, key) == store->number) {
            st = wf_hash_enter(store->hash, &one, &dense[i]);
        }
        *all = *all && dense[i] >= 0;
    }
    return st;
}

weft_status wf_names_find(weft_store *store, const char *who,
                          const weft_ids *keys, int64_t *dense, bool wait)
{
    bool all;
    weft_status st;

    wf_hash_find(store->hash, keys, dense);
    st = enter_here(store, keys, dense, &all);
    if (all || !wait) {
        return st;
    }
    for (uint64_t from = 0; from < keys->n && st == WEFT_OK;) {
        st = ask_some(store, who, keys, dense, &from);
    }
    wf_hash_find(store->hash, keys, dense);
    return st;
}

weft_status wf_hosts_flush(weft_store *store, const char *who)
{
    weft_request *request;
    weft_status st = wf_ask_make(store, who, 0, &request);

    if (st == WEFT_OK) {
        wf_ask_every(request);
        st = wf_ask_wait(store, request);
    }
    return st;
}
