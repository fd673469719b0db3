/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the number of keys, all ranks together. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "store/hosts/hosts.h"
#include <weft/coll.h>

static weft_status check_resize(weft_store *store, uint64_t keys)
{
    weft_status st = wf_store_check(store);

    if (st == WEFT_OK && !store->uniform) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "a store with a length for each key cannot be resized");
    }
    if (st == WEFT_OK && keys > store->options.max_keys) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "%" PRIu64 " keys are more than max_keys (%" PRIu64 ")",
                     keys, store->options.max_keys);
    }
    return st;
}

/* Do all ranks say the same number? */
static weft_status compare(weft_store *store, uint64_t keys)
{
    uint64_t all[2] = {keys, ~keys};
    weft_status st = weft_allreduce(store->comm, all, all, 2, WEFT_I64,
                                    (weft_op){.kind = WEFT_OP_BAND});

    if (st == WEFT_OK && (all[0] != keys || all[1] != ~keys)) {
        st = wf_fail(WEFT_ERR_MISMATCH,
                     "ranks resize the store to different numbers of keys; "
                     "this one to %" PRIu64,
                     keys);
    }
    return st;
}

/* --- hashed keys ---------------------------------------------------------- */

weft_status wf_store_made(weft_store *store, uint64_t **made, uint64_t *all)
{
    const weft_comm *comm = store->comm;
    uint64_t own = wf_hash_made(store->hash);
    uint64_t *ranks = wf_alloc(comm->size * sizeof(*ranks));
    uint32_t host = 0;
    weft_status st = wf_store_agree(
        store, ranks == NULL ? wf_fail_nomem("the ranks of a store") : WEFT_OK);

    if (st == WEFT_OK) {
        st = weft_allgather(store->comm, &own, ranks, 1, WEFT_I64);
    }
    if (st != WEFT_OK || ranks == NULL) {
        wf_free(ranks);
        return st != WEFT_OK ? st : WEFT_ERR_NOMEM;
    }
    *all = 0;
    for (uint32_t r = 0; r < comm->size; r++) {
        if (wf_first_on_node(comm, r) == r) { /* host is at most r */
            ranks[host] = ranks[r];
            *all += ranks[host++];
        }
    }
    *made = ranks;
    return WEFT_OK;
}

/* How many numbers each host may give out when there are to be `keys` in all:
 * equal parts, but at least what it has given out. `share` has that. */
static void deal(const weft_store *store, uint64_t keys, uint64_t *share)
{
    uint64_t made[WF_HOSTS_MAX];
    uint64_t excess = 0;

    for (uint32_t host = 0; host < store->hosts; host++) {
        uint64_t part = wf_keys_at(store, host, keys);

        made[host] = share[host];
        share[host] = part > made[host] ? part : made[host];
        excess += share[host] - part;
    }
    while (excess > 0) {
        for (uint32_t host = 0; host < store->hosts && excess > 0; host++) {
            uint64_t less =
                wf_least(share[host] - made[host], excess / store->hosts + 1);

            less = wf_least(less, excess);
            share[host] -= less;
            excess -= less;
        }
    }
}

/* Dense numbers are below this if each host gives out its share. */
static uint64_t ids_of(const weft_store *store, const uint64_t *share)
{
    uint64_t ids = 0;

    for (uint32_t host = 0; host < store->hosts; host++) {
        uint64_t end =
            share[host] > 0 ? (share[host] - 1) * store->hosts + host + 1 : 0;

        ids = end > ids ? end : ids;
    }
    return ids;
}

/* A key is looked for at its home first, and may be entered there when that has
 * numbers again: so all hosts have to know keys that got theirs elsewhere. Host
 * `host` tells of those that it has given numbers. */
#define TELL 4096u
static weft_status tell_strays(weft_store *store, uint32_t host, uint32_t root,
                               uint64_t made)
{
    int64_t told[1 + 2 * TELL] = {0};
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; st == WEFT_OK && i < made; i += TELL) {
        int64_t n = 0;

        for (uint64_t j = i;
             store->comm->rank == root && j < wf_least(i + TELL, made); j++) {
            uint64_t dense = j * store->hosts + host;
            int64_t key;

            if (wf_hash_key(store->hash, dense, &key) &&
                wf_hash_home(store->hash, key) != host) {
                told[1 + n] = key;
                told[1 + TELL + n++] = (int64_t)dense;
            }
        }
        told[0] = n;
        st = weft_broadcast(store->comm, told, 1 + 2 * TELL, WEFT_I64, root);
        if (st == WEFT_OK) {
            st = wf_hash_learn(store->hash, told + 1, told + 1 + TELL,
                               (uint64_t)told[0]);
        }
    }
    return st;
}

static weft_status tell_all_strays(weft_store *store, const uint64_t *made)
{
    const weft_comm *comm = store->comm;
    uint32_t host = 0;
    weft_status st = WEFT_OK;

    for (uint32_t r = 0; r < comm->size && st == WEFT_OK; r++) {
        if (wf_first_on_node(comm, r) == r) {
            st = tell_strays(store, host, r, made[host]);
            host++;
        }
    }
    return st;
}

/* `*share` is how many numbers each host may give out then. */
static weft_status plan_hashed(weft_store *store, uint64_t keys,
                               uint64_t **share)
{
    uint64_t all = 0;
    weft_status st = wf_store_made(store, share, &all);

    if (st == WEFT_OK && keys < all) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "a store with %" PRIu64 " hashed keys cannot be made "
                     "smaller than that",
                     all);
    }
    if (st == WEFT_OK && store->hosts > 1) {
        st = tell_all_strays(store, *share);
    }
    if (st == WEFT_OK) {
        deal(store, keys, *share);
    }
    return st;
}

/* --- the whole ------------------------------------------------------------ */

static weft_status resize_rows(weft_store *store, uint64_t ids)
{
    weft_status st = WEFT_OK;

    if (store->remote == NULL) {
        st = wf_slots_resize(store->slots, ids, 0);
        store->ids = st == WEFT_OK ? ids : store->ids;
    } else if (ids != store->ids) {
        st = wf_hosts_resize(store, ids);
    }
    return st;
}

static weft_status resize(weft_store *store, uint64_t keys, uint64_t **share)
{
    weft_status st = wf_store_agree(store, check_resize(store, keys));

    if (st == WEFT_OK) {
        st = compare(store, keys);
    }
    if (st == WEFT_OK && store->hash != NULL) {
        st = plan_hashed(store, keys, share);
    }
    return st == WEFT_OK
               ? resize_rows(store,
                             *share != NULL ? ids_of(store, *share) : keys)
               : st;
}

/* What this rank has done counts when all have. If one has died there are not
 * more keys than before; those that were to go are gone. */
static weft_status finish(weft_store *store, uint64_t keys,
                          const uint64_t *share)
{
    uint64_t few = wf_least(keys, store->options.keys);
    uint64_t limit = store->hash != NULL ? wf_hash_share(store->hash) : 0;
    weft_status st;

    store->options.keys = keys;
    if (share != NULL) {
        wf_hash_limit(store->hash, share[store->number]);
    }
    st = wf_store_agree(store, WEFT_OK);
    if (st != WEFT_OK && store->remote != NULL) {
        store->options.keys = few;
        if (share != NULL) {
            wf_hash_limit(store->hash, wf_least(limit, share[store->number]));
        } else if (store->ids > few) {
            wf_hosts_cut(store, few, store->ids);
        }
    }
    return st;
}

weft_status weft_store_resize(weft_store *store, uint64_t keys)
{
    uint64_t *share = NULL;
    uint64_t before;
    weft_status st;

    if (store == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "store is NULL");
    }
    before = store->ids;
    st = resize(store, keys, &share);
    if (st == WEFT_OK) {
        st = finish(store, keys, share);
    } else if (store->ids < before) {
        store->options.keys = keys;
    }
    wf_free(share);
    if (store->remote != NULL) {
        wf_hosts_give_up(store, st);
    }
    wf_store_show_keys(store);
    return st;
}
