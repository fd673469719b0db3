/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a store: are they sound, and the same on all ranks? */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/options.h"
#include "base/time.h"
#include "region/region.h"
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

weft_status wf_store_options_read(const weft_store_options *given,
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

uint64_t wf_store_checksum(const void *data, size_t n)
{
    return data != NULL ? 1 + (uint64_t)wf_crc32c(0, data, n) : 0;
}

static store_facts facts_of(const weft_store_options *o)
{
    return (store_facts){
        .keys = o->keys,
        .max_keys = o->max_keys,
        .length = o->lengths == NULL ? o->length : 0,
        .lengths = wf_store_checksum(o->lengths, o->keys * sizeof(*o->lengths)),
        .type = o->type,
        .techniques = o->techniques,
        .optimizer = wf_store_checksum(o->optimizer, sizeof(*o->optimizer)),
        .hashed = o->hashed != 0,
        .cache = o->cache,
        .seed = o->seed};
}

/* An option of a store; `plain`: its number is what the caller gave. */
typedef struct store_fact {
    const char *name;
    bool plain;
} store_fact;

static weft_status differ(uint32_t rank, const store_fact *fact, uint64_t a,
                          uint64_t b)
{
    if (a == b) {
        return WEFT_OK;
    }
    return fact->plain
               ? wf_fail(WEFT_ERR_MISMATCH,
                         "a store is made with %s %" PRIu64 " on rank %" PRIu32
                         ", but %" PRIu64 " on rank 0",
                         fact->name, b, rank, a)
               : wf_fail(WEFT_ERR_MISMATCH,
                         "a store is made with another %s on rank %" PRIu32
                         " than on rank 0",
                         fact->name, rank);
}

static weft_status compare(const store_facts *a, const store_facts *b,
                           uint32_t rank)
{
    static const store_fact fact[] = {
        {"number of keys", true}, {"max_keys", true},
        {"length of rows", true}, {"list of lengths", false},
        {"type", false},          {"choice of techniques", false},
        {"optimizer", false},     {"kind of keys (hashed)", false},
        {"cache", true},          {"seed", true}};
    uint64_t x[sizeof(*a) / sizeof(uint64_t)];
    uint64_t y[sizeof(*a) / sizeof(uint64_t)];
    weft_status st = WEFT_OK;

    _Static_assert(sizeof(fact) / sizeof(fact[0]) == sizeof(x) / sizeof(x[0]),
                   "a name for each");
    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]) && st == WEFT_OK; i++) {
        st = differ(rank, &fact[i], x[i], y[i]);
    }
    return st;
}

weft_status wf_store_options_compare(weft_comm *comm,
                                     const weft_store_options *o)
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
