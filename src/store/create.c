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

/* Directory words have 31 bits for slots. */
#define KEYS_MAX (1ull << 31)
#define LENGTH_MAX (1ull << 32)

/* --- options -------------------------------------------------------------- */

static bool is_value_type(weft_dtype type)
{
    return type == WEFT_F32 || type == WEFT_F64 || type == WEFT_F16 ||
           type == WEFT_BF16 || type == WEFT_I32 || type == WEFT_I64;
}

static weft_status check_lengths(const weft_store_options *o)
{
    if (o->lengths != NULL && o->hashed) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a store with hashed keys has rows of one length: "
                       "lengths must be NULL");
    }
    if (o->lengths == NULL) {
        return o->length <= LENGTH_MAX
                   ? WEFT_OK
                   : wf_fail(WEFT_ERR_INVALID,
                             "a store with rows of %" PRIu64
                             " elements: at most %llu are possible",
                             o->length, LENGTH_MAX);
    }
    if (o->max_keys > o->keys) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a store with a length for each key cannot be resized: "
                       "max_keys must be 0");
    }
    for (uint64_t k = 0; k < o->keys; k++) {
        if (o->lengths[k] < 0 || (uint64_t)o->lengths[k] > LENGTH_MAX) {
            return wf_fail(WEFT_ERR_INVALID,
                           "the length of key %" PRIu64 " is %" PRId64
                           ": it must be between 0 and %llu",
                           k, o->lengths[k], LENGTH_MAX);
        }
    }
    return WEFT_OK;
}

static weft_status check_optimizer(const weft_store_options *o)
{
    if (o->optimizer == NULL) {
        return WEFT_OK;
    }
    if (weft_optimizer_name(o->optimizer->kind) == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "unknown optimizer %d",
                       (int)o->optimizer->kind);
    }
    if (o->type != WEFT_F32 && o->type != WEFT_F16 && o->type != WEFT_BF16) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a store of %s cannot have an optimizer: its values "
                       "must be f32, f16 or bf16",
                       weft_dtype_name(o->type));
    }
    return WEFT_OK;
}

static weft_status check_options(const weft_store_options *o)
{
    weft_status st;

    if ((unsigned)o->type >= WF_DTYPE_COUNT || !is_value_type(o->type)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a store of %s: values must be f32, f64, f16, bf16, i32 "
                       "or i64",
                       (unsigned)o->type < WF_DTYPE_COUNT
                           ? weft_dtype_name(o->type)
                           : "an unknown dtype");
    }
    if (o->keys >= KEYS_MAX || o->max_keys >= KEYS_MAX) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a store of %" PRIu64 " keys: fewer than %llu are "
                       "possible",
                       o->keys > o->max_keys ? o->keys : o->max_keys, KEYS_MAX);
    }
    if ((unsigned)o->techniques > WEFT_RELOCATION_ONLY) {
        return wf_fail(WEFT_ERR_INVALID, "unknown techniques %d",
                       (int)o->techniques);
    }
    if (isnan(o->rounds) || isnan(o->timeout)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rounds and timeout of a store must be numbers");
    }
    st = check_lengths(o);
    return st == WEFT_OK ? check_optimizer(o) : st;
}

static weft_status read_options(const weft_store_options *given,
                                weft_store_options *o)
{
    weft_status st =
        wf_options_read(given, "weft_store_options", o, sizeof(*o));

    if (st == WEFT_OK) {
        st = check_options(o);
    }
    if (o->max_keys < o->keys) {
        o->max_keys = o->keys;
    }
    return st;
}

/* --- the same on all ranks ------------------------------------------------ */

/* What all ranks must have passed alike. Bytes that no member uses are zero. */
typedef struct store_facts {
    uint64_t keys;
    uint64_t max_keys;
    uint64_t length;
    uint64_t lengths; /* a checksum; 0: none */
    uint64_t type;
    uint64_t techniques;
    uint64_t optimizer; /* a checksum; 0: none */
    uint64_t hashed;
    uint64_t cache;
    uint64_t seed;
} store_facts;

static uint64_t checksum(const void *data, size_t n)
{
    return data != NULL ? 1 + (uint64_t)wf_crc32c(0, data, n) : 0;
}

static store_facts facts_of(const weft_store_options *o)
{
    return (store_facts){
        .keys = o->keys,
        .max_keys = o->max_keys,
        .length = o->lengths == NULL ? o->length : 0,
        .lengths = checksum(o->lengths, o->keys * sizeof(*o->lengths)),
        .type = o->type,
        .techniques = o->techniques,
        .optimizer = checksum(o->optimizer, sizeof(*o->optimizer)),
        .hashed = o->hashed != 0,
        .cache = o->cache,
        .seed = o->seed};
}

static weft_status differ(uint32_t rank, const char *what, uint64_t a,
                          uint64_t b)
{
    return a == b ? WEFT_OK
                  : wf_fail(WEFT_ERR_MISMATCH,
                            "weft_store_create: %s of rank %" PRIu32
                            " differ from those of rank 0 (%" PRIu64
                            " and %" PRIu64 ")",
                            what, rank, b, a);
}

static weft_status compare(const store_facts *a, const store_facts *b,
                           uint32_t rank)
{
    static const char *const name[] = {
        "keys",        "max_keys",   "the lengths of rows", "lengths",
        "dtypes",      "techniques", "optimizers",          "hashed keys",
        "cache sizes", "seeds"};
    uint64_t x[sizeof(*a) / sizeof(uint64_t)];
    uint64_t y[sizeof(*a) / sizeof(uint64_t)];
    weft_status st = WEFT_OK;

    _Static_assert(sizeof(name) / sizeof(name[0]) == sizeof(x) / sizeof(x[0]),
                   "a name for each");
    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]) && st == WEFT_OK; i++) {
        st = differ(rank, name[i], x[i], y[i]);
    }
    return st;
}

static weft_status compare_all(weft_comm *comm, const weft_store_options *o)
{
    store_facts mine = facts_of(o);
    store_facts *all = wf_alloc(comm->size * sizeof(*all));
    weft_status st = wf_region_verdict(
        NULL, comm, all == NULL ? wf_fail_nomem("a store's options") : WEFT_OK,
        wf_now_ns() + comm->timeout_ns);

    if (st == WEFT_OK && all != NULL) {
        st = weft_allgather(comm, &mine, all, sizeof(mine), WEFT_U8);
        for (uint32_t r = 1; r < comm->size && st == WEFT_OK; r++) {
            st = compare(&all[0], &all[r], r);
        }
    }
    wf_free(all);
    return st;
}

/* --- building ------------------------------------------------------------- */

static weft_store *store_alloc(const weft_store_options *options)
{
    weft_store *store = wf_zalloc(sizeof(*store));

    if (store != NULL) {
        store->options = *options;
        store->uniform = options->lengths == NULL;
        store->optimizes = options->optimizer != NULL;
        store->optimizer_kind =
            store->optimizes ? 1 + (uint64_t)options->optimizer->kind : 0;
        store->lengths_sum =
            checksum(options->lengths, options->keys * sizeof(int64_t));
        /* The caller's memory. */
        store->options.lengths = NULL;
        store->options.optimizer = NULL;
        atomic_store(&store->users, 1);
        for (uint32_t i = 0; i < WF_WRITERS; i++) {
            pthread_mutex_init(&store->writer[i], NULL);
        }
    }
    return store;
}

static void store_free(weft_store *store)
{
    wf_hosts_close(store);
    wf_trace_close(store);
    wf_sampler_destroy(atomic_load(&store->sampler));
    weft_comm_destroy(store->alone);
    wf_slots_destroy(store->slots);
    wf_hash_destroy(store->hash);
    weft_comm_destroy(store->host);
    weft_comm_destroy(store->comm);
    for (uint32_t i = 0; i < WF_WRITERS; i++) {
        pthread_mutex_destroy(&store->writer[i]);
    }
    wf_free(store);
}

/* Number the hosts in the order of their first ranks. */
static void number_hosts(weft_store *store)
{
    const weft_comm *comm = store->comm;
    const wf_peer *peer = comm->world->host->peer;

    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t before = 0;

        while (peer[comm->member[before]].node != peer[comm->member[r]].node) {
            before++;
        }
        if (before == r) {
            if (peer[comm->member[r]].node ==
                peer[comm->member[comm->rank]].node) {
                store->number = store->hosts;
            }
            store->hosts++;
        }
    }
}

/* --- rows ----------------------------------------------------------------- */

/* Who asks for the room of which rows. */
typedef struct room_ctx {
    const weft_store *store;
    const int64_t *lengths; /* NULL: all keys have one length */
} room_ctx;

/* Slots for rows of one length, which `keys` keys have: those that begin here,
 * and this length's part of the cache. */
static uint64_t room_of(void *ctx, uint64_t length, uint64_t keys)
{
    const room_ctx *r = ctx;
    const weft_store *store = r->store;
    uint64_t all = store->options.keys;
    uint64_t cache = store->options.cache;
    uint64_t home = 0;

    if (store->hosts == 1) {
        return keys;
    }
    for (uint64_t k = store->number; k < store->options.max_keys;
         k += store->hosts) {
        home += r->lengths == NULL || (uint64_t)r->lengths[k] == length;
    }
    cache = cache > 0 ? (uint64_t)((double)cache / (double)(all > 0 ? all : 1) *
                                   (double)keys) +
                            2
                      : keys / store->hosts + 2;
    return home + cache;
}

static weft_status build_slots(weft_store *store,
                               const weft_store_options *options)
{
    room_ctx ctx = {store, options->lengths};
    wf_slots_options s = {.type = options->type,
                          .keys = options->keys,
                          .max_keys = options->max_keys,
                          .length = options->length,
                          .lengths = options->lengths,
                          .optimizer = options->optimizer,
                          .direct =
                              options->lengths == NULL && store->hosts == 1,
                          .room = room_of,
                          .ctx = &ctx,
                          .timeout = weft_comm_timeout(store->comm)};
    weft_status st = wf_slots_create(store->host, &s, &store->slots);

    if (st == WEFT_OK && options->hashed) {
        st = wf_hash_create(store->host, options->keys, options->max_keys,
                            &store->hash);
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

    if (store->options.hashed) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "hashed keys are supported on one host only (this "
                       "store has %" PRIu32 ")",
                       store->hosts);
    }
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
    st = read_options(options, &o);
    if (st == WEFT_OK && (store = store_alloc(&o)) == NULL) {
        st = wf_fail_nomem("a store");
    }
    st = wf_region_verdict(NULL, comm, st, wf_now_ns() + comm->timeout_ns);
    if (st == WEFT_OK) {
        st = compare_all(comm, &o);
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
