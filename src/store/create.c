/* SPDX-License-Identifier: Apache-2.0 */
/* Making a store, in steps after each of which all ranks agree:
 *
 *   1. each has sound options, and memory for what it keeps
 *   2. all have the same options
 *   3. there is a communicator of the store, and one of each host
 *   4. each host has its rows */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/num.h"
#include "base/options.h"
#include "base/time.h"
#include "base/types.h"
#include "region/region.h"
#include "region/rows/rule.h"
#include "store/hosts/hosts.h"
#include "store/store.h"
#include <weft/coll.h>

/* --- building ------------------------------------------------------------- */

static weft_store *store_alloc(const weft_store_options *options)
{
    weft_store *store = wf_zalloc(sizeof(*store));

    if (store != NULL) {
        store->options = *options;
        store->ids = options->keys;
        store->uniform = options->lengths == NULL;
        store->optimizes = options->optimizer != NULL;
        store->optimizer_kind =
            store->optimizes ? 1 + (uint64_t)options->optimizer->kind : 0;
        store->lengths_sum = wf_store_checksum(options->lengths,
                                               options->keys * sizeof(int64_t));
        /* The caller's memory. */
        store->options.lengths = NULL;
        store->options.optimizer = NULL;
        atomic_store(&store->users, 1);
        store->counts = &store->own_counts;
        pthread_mutex_init(&store->roll, NULL);
        for (uint32_t i = 0; i < WF_WRITERS; i++) {
            pthread_mutex_init(&store->writer[i], NULL);
        }
    }
    return store;
}

static void store_free(weft_store *store)
{
    wf_hosts_close(store);
    wf_store_hide(store);
    wf_trace_close(store);
    wf_sampler_destroy(atomic_load(&store->sampler));
    weft_comm_destroy(store->alone);
    wf_slots_destroy(store->slots);
    wf_hash_destroy(store->hash);
    weft_comm_destroy(store->host);
    weft_comm_destroy(store->comm);
    pthread_mutex_destroy(&store->roll);
    for (uint32_t i = 0; i < WF_WRITERS; i++) {
        pthread_mutex_destroy(&store->writer[i]);
    }
    wf_free(store);
}

/* Number the hosts in the order of their first ranks. */
static void number_hosts(weft_store *store)
{
    const weft_comm *comm = store->comm;
    uint32_t own = wf_first_on_node(comm, comm->rank);

    for (uint32_t r = 0; r < comm->size; r++) {
        if (r == own) {
            store->number = store->hosts;
        }
        store->hosts += wf_first_on_node(comm, r) == r;
    }
}

/* --- rows ----------------------------------------------------------------- */

/* Slots for rows of one length, which `keys` keys have: those that begin here,
 * and this length's part of the cache. */
static uint64_t room_of(void *ctx, uint64_t length, uint64_t keys)
{
    const weft_store *store = ctx;
    const int64_t *lengths = store->options.lengths;
    uint64_t all = store->options.keys;
    uint64_t cache = store->options.cache;
    uint64_t home = wf_keys_at(store, store->number, keys);

    if (store->hosts == 1) {
        return keys;
    }
    if (lengths != NULL) {
        home = 0;
        for (uint64_t k = store->number; k < all; k += store->hosts) {
            home += (uint64_t)lengths[k] == length;
        }
    }
    if (cache == 0) {
        cache = keys / store->hosts;
    } else if (lengths != NULL) {
        cache = (uint64_t)((double)cache / (double)all * (double)keys);
    }
    return home + cache + 2;
}

static weft_status build_slots(weft_store *store,
                               const weft_store_options *options)
{
    wf_slots_options s = {.type = options->type,
                          .keys = options->keys,
                          .max_keys = options->max_keys,
                          .length = options->length,
                          .lengths = options->lengths,
                          .optimizer = options->optimizer,
                          .direct =
                              options->lengths == NULL && store->hosts == 1,
                          .room = room_of,
                          .ctx = store,
                          .timeout = weft_comm_timeout(store->comm)};
    weft_status st;

    store->options.lengths = options->lengths; /* for room_of */
    st = wf_slots_create(store->host, &s, &store->slots);
    store->options.lengths = NULL;

    if (st == WEFT_OK && options->hashed) {
        st = wf_hash_create(store->host, store->hosts, store->number,
                            wf_keys_at(store, store->number, options->keys),
                            options->max_keys, &store->hash);
    }
    return st;
}

/* On one host all keys have their slots from the beginning. */
static weft_status settle_here(weft_store *store)
{
    if (store->uniform || store->host->rank != 0) {
        return WEFT_OK;
    }
    for (uint64_t key = 0; key < store->options.keys; key++) {
        uint32_t slot = wf_slot_take(store->slots, key);

        wf_directory_put(store->slots, key, WF_KEY_HERE | slot);
    }
    return WEFT_OK;
}

static weft_status build_hosts(weft_store *store)
{
    weft_status st;

    if (store->hosts > WF_HOSTS_MAX) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "a store over %" PRIu32 " hosts: at most %u are "
                       "possible",
                       store->hosts, WF_HOSTS_MAX);
    }
    st = weft_comm_subset(store->comm, &store->comm->rank, 1, &store->alone);
    st = wf_region_verdict(NULL, store->comm, st,
                           wf_now_ns() + store->comm->timeout_ns);
    if (st != WEFT_OK) {
        return st;
    }
    weft_comm_set_timeout(store->alone, 1e9); /* operations have their own */
    return wf_hosts_open(store);
}

static weft_status build(weft_comm *comm, weft_store *store,
                         const weft_store_options *options)
{
    weft_status st = weft_comm_dup(comm, &store->comm);

    if (st != WEFT_OK) {
        return st;
    }
    weft_comm_set_timeout(store->comm, store->options.timeout > 0
                                           ? store->options.timeout
                                           : weft_comm_timeout(comm));
    number_hosts(store);
    wf_store_show(store);
    st = weft_comm_split(store->comm, store->number, 0, &store->host);
    if (st == WEFT_OK) {
        st = build_slots(store, options);
    }
    if (st == WEFT_OK && store->hosts == 1) {
        st = settle_here(store);
    }
    /* Those of another host may not know that something went wrong. */
    st = wf_region_verdict(NULL, store->comm, st,
                           wf_now_ns() + store->comm->timeout_ns);
    if (st == WEFT_OK && store->hosts > 1) {
        st = build_hosts(store);
    }
    return st;
}

weft_status weft_store_create(weft_comm *comm,
                              const weft_store_options *options,
                              weft_store **out)
{
    weft_store_options o;
    weft_store *store = NULL;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = wf_store_options_read(options, &o);
    if (st == WEFT_OK && (store = store_alloc(&o)) == NULL) {
        st = wf_fail_nomem("a store");
    }
    st = wf_region_verdict(NULL, comm, st, wf_now_ns() + comm->timeout_ns);
    if (st == WEFT_OK) {
        st = wf_store_options_compare(comm, &o);
    }
    if (st == WEFT_OK && store != NULL) {
        st = build(comm, store, &o);
    }
    if (st != WEFT_OK && store != NULL) {
        char why[WF_DETAIL_MAX];

        memcpy(why, weft_error_detail(), sizeof(why));
        store_free(store);
        return wf_fail(st, "%s", why);
    }
    if (st == WEFT_OK) {
        *out = store;
    }
    return st;
}

weft_status wf_store_agree(weft_store *store, weft_status own)
{
    return wf_region_verdict(NULL, store->comm, own,
                             wf_now_ns() + store->comm->timeout_ns);
}

/* --- ending --------------------------------------------------------------- */

void wf_store_retain(weft_store *store)
{
    atomic_fetch_add(&store->users, 1);
}

void wf_store_release(weft_store *store)
{
    if (atomic_fetch_sub(&store->users, 1) == 1) {
        store_free(store);
    }
}

void weft_store_destroy(weft_store *store)
{
    if (store != NULL) {
        if (store->remote != NULL && wf_store_check(store) == WEFT_OK) {
            /* Others may still need what this host has. */
            (void)weft_barrier(store->comm);
        }
        atomic_store(&store->closed, true);
        wf_store_release(store);
    }
}

weft_status wf_store_check(weft_store *store)
{
    if (atomic_load_explicit(&store->closed, memory_order_relaxed)) {
        return wf_fail(WEFT_ERR_CLOSED, "the store was destroyed");
    }
    return wf_slots_here(store->slots);
}

void weft_store_describe(const weft_store *store, weft_store_info *out)
{
    const weft_store_options *o = &store->options;

    *out = (weft_store_info){.keys = o->keys,
                             .max_keys = o->max_keys,
                             .length = o->length,
                             .type = o->type,
                             .hosts = store->hosts,
                             .host = store->number,
                             .hashed = o->hashed};
}

weft_status weft_store_barrier(weft_store *store)
{
    weft_status st = wf_store_check(store);

    return st == WEFT_OK ? weft_barrier(store->comm) : st;
}
