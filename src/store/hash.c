/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hash.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/status.h"
#include "region/rows/rows.h"

/* The first row of the entries. */
typedef struct hash_head {
    _Atomic uint64_t made; /* dense numbers that were given out */
} hash_head;

struct wf_hash {
    weft_region *key_region;
    weft_region *entry_region;
    _Atomic int64_t *key_of;
    _Atomic uint32_t *entry;
    hash_head *head;
    uint64_t keys;
    uint64_t mask; /* number of entries, a power of two, less 1 */
};

static weft_status array_create(weft_comm *host, uint64_t n, weft_dtype type,
                                weft_region **out)
{
    uint64_t shape[1] = {n};

    return weft_region_create(host, 1, shape, type, NULL, out);
}

weft_status wf_hash_create(weft_comm *host, uint64_t keys, uint64_t max_keys,
                           wf_hash **out)
{
    wf_hash *hash = wf_zalloc(sizeof(*hash));
    uint64_t entries = 16;
    weft_status st;

    while (entries < 2 * max_keys) {
        entries *= 2;
    }
    if (hash == NULL) {
        return wf_fail_nomem("hashed keys of a store");
    }
    st = array_create(host, max_keys + 1, WEFT_I64, &hash->key_region);
    if (st == WEFT_OK) {
        st = array_create(host, entries, WEFT_I32, &hash->entry_region);
    }
    if (st != WEFT_OK) {
        wf_hash_destroy(hash);
        return st;
    }
    hash->keys = keys;
    hash->mask = entries - 1;
    hash->head = weft_region_base(hash->key_region);
    hash->key_of = (_Atomic int64_t *)weft_region_base(hash->key_region) + 1;
    hash->entry = weft_region_base(hash->entry_region);
    *out = hash;
    return WEFT_OK;
}

void wf_hash_limit(wf_hash *hash, uint64_t keys)
{
    hash->keys = keys;
}

void wf_hash_destroy(wf_hash *hash)
{
    if (hash != NULL) {
        weft_region_destroy(hash->key_region);
        weft_region_destroy(hash->entry_region);
        wf_free(hash);
    }
}

/* The finalizer of splitmix64: all bits of the key reach all bits. */
static uint64_t mix(int64_t key)
{
    uint64_t x = (uint64_t)key + 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Where the key is, or the empty entry at which it would be. */
static uint64_t probe(const wf_hash *hash, int64_t key, uint64_t at,
                      uint32_t *found)
{
    for (;; at++) {
        uint32_t e = atomic_load_explicit(&hash->entry[at & hash->mask],
                                          memory_order_acquire);

        if (e == 0 || atomic_load_explicit(&hash->key_of[e - 1],
                                           memory_order_relaxed) == key) {
            *found = e;
            return at & hash->mask;
        }
    }
}

/* A dense number for a new key, one that was left over if there is one. */
static bool take_number(wf_hash *hash, int64_t *spare, uint64_t *out)
{
    if (*spare >= 0) {
        *out = (uint64_t)*spare;
        *spare = -1;
        return true;
    }
    *out = atomic_fetch_add(&hash->head->made, 1);
    if (*out >= hash->keys) {
        atomic_fetch_sub(&hash->head->made, 1);
        return false;
    }
    return true;
}

/* Enter a key that was not found at `at`. Another rank may be faster. */
static int64_t enter(wf_hash *hash, int64_t key, uint64_t at, int64_t *spare)
{
    uint32_t none = 0;
    uint32_t found = 0;
    uint64_t number;

    if (!take_number(hash, spare, &number)) {
        probe(hash, key, at, &found);
        return (int64_t)found - 1;
    }
    atomic_store_explicit(&hash->key_of[number], key, memory_order_relaxed);
    while (!atomic_compare_exchange_strong_explicit(
        &hash->entry[at], &none, (uint32_t)number + 1, memory_order_acq_rel,
        memory_order_acquire)) {
        none = 0;
        at = probe(hash, key, at, &found);
        if (found != 0) {
            *spare = (int64_t)number;
            return (int64_t)found - 1;
        }
    }
    return (int64_t)number;
}

/* Give back the last number that was made, if it stands for nothing. */
static void give_back(wf_hash *hash, int64_t spare)
{
    uint64_t last = (uint64_t)spare + 1;

    if (spare >= 0) {
        atomic_compare_exchange_strong(&hash->head->made, &last, last - 1);
    }
}

weft_status wf_hash_enter(wf_hash *hash, const weft_ids *keys, int64_t *dense)
{
    int64_t spare = -1;
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; i < keys->n && st == WEFT_OK; i++) {
        int64_t key = wf_id_at(keys, i);
        uint32_t found;
        uint64_t at = probe(hash, key, mix(key) & hash->mask, &found);

        dense[i] =
            found != 0 ? (int64_t)found - 1 : enter(hash, key, at, &spare);
        if (dense[i] < 0) {
            st = wf_fail(WEFT_ERR_NOMEM,
                         "key %" PRId64 " at position %" PRIu64
                         " is new, but the store has its %" PRIu64
                         " keys already",
                         key, i, hash->keys);
        }
    }
    give_back(hash, spare);
    return st;
}

void wf_hash_find(const wf_hash *hash, const weft_ids *keys, int64_t *dense)
{
    for (uint64_t i = 0; i < keys->n; i++) {
        int64_t key = wf_id_at(keys, i);
        uint32_t found;

        probe(hash, key, mix(key) & hash->mask, &found);
        dense[i] = (int64_t)found - 1;
    }
}

uint64_t wf_hash_count(const wf_hash *hash)
{
    uint64_t made = atomic_load(&hash->head->made);

    return made < hash->keys ? made : hash->keys;
}

int64_t wf_hash_key(const wf_hash *hash, uint64_t dense)
{
    return atomic_load_explicit(&hash->key_of[dense], memory_order_relaxed);
}
