/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "region/region.h"
#include "region/rows/rows.h"
#include "store/robust.h"
#include <weft/coll.h>

/* It lies in front of the keys. */
typedef struct hash_head {
    pthread_mutex_t entering; /* robust */
    _Atomic uint64_t made;    /* dense numbers that this host gave out */
} hash_head;
#define HEAD_KEYS ((sizeof(hash_head) + 7) / 8)

struct wf_hash {
    weft_region *key_region;
    weft_region *entry_region;
    _Atomic int64_t *key_of;
    _Atomic uint32_t *entry;
    hash_head *head;
    uint32_t hosts;
    uint32_t number; /* of this host */
    uint64_t share;  /* dense numbers that it may give out */
    uint64_t mask;   /* number of entries, a power of two, less 1 */
};

static weft_status array_create(weft_comm *host, uint64_t n, weft_dtype type,
                                weft_region **out)
{
    uint64_t shape[1] = {n};

    wf_region_plan plan = {
        .dims = 1, .shape = shape, .type = type, .inside = true};

    return wf_region_form(host, &plan, WEFT_OK, out);
}

static weft_status build(wf_hash *hash, weft_comm *host, uint64_t max_keys,
                         uint64_t entries)
{
    weft_status st =
        array_create(host, max_keys + HEAD_KEYS, WEFT_I64, &hash->key_region);

    if (st == WEFT_OK) {
        st = array_create(host, entries, WEFT_I32, &hash->entry_region);
    }
    if (st != WEFT_OK) {
        return st;
    }
    hash->mask = entries - 1;
    hash->head = weft_region_base(hash->key_region);
    hash->key_of =
        (_Atomic int64_t *)weft_region_base(hash->key_region) + HEAD_KEYS;
    hash->entry = weft_region_base(hash->entry_region);
    if (weft_comm_rank(host) == 0) {
        errno = wf_robust_init(&hash->head->entering);
        st = errno == 0 ? WEFT_OK : wf_fail_errno("a lock of hashed keys");
    }
    return st == WEFT_OK ? weft_barrier(host) : st;
}

weft_status wf_hash_create(weft_comm *host, uint32_t hosts, uint32_t number,
                           uint64_t share, uint64_t max_keys, wf_hash **out)
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
    hash->hosts = hosts;
    hash->number = number;
    hash->share = share;
    st = build(hash, host, max_keys, entries);
    if (st != WEFT_OK) {
        wf_hash_destroy(hash);
        return st;
    }
    *out = hash;
    return WEFT_OK;
}

void wf_hash_limit(wf_hash *hash, uint64_t share)
{
    hash->share = share;
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

uint32_t wf_hash_home(const wf_hash *hash, int64_t key)
{
    return (uint32_t)((mix(key) >> 32) % hash->hosts); /* not as in probe */
}

static uint64_t dense_at(const wf_hash *hash, uint64_t position)
{
    return position * hash->hosts + hash->number;
}

/* --- entering ------------------------------------------------------------- */

/* The last number may have been given out without its entry. */
static void finish_entry(wf_hash *hash)
{
    uint64_t made = atomic_load(&hash->head->made);
    uint64_t dense = made > 0 ? dense_at(hash, made - 1) : 0;
    uint32_t found = 0;
    int64_t key;
    uint64_t at;

    if (made > 0) {
        key = atomic_load(&hash->key_of[dense]);
        at = probe(hash, key, mix(key) & hash->mask, &found);
        if (found == 0) {
            atomic_store(&hash->entry[at], (uint32_t)dense + 1);
        }
    }
}

static weft_status lock(wf_hash *hash)
{
    pthread_mutex_t *entering = &hash->head->entering;
    int got = pthread_mutex_lock(entering);

    if (got == EOWNERDEAD) {
        finish_entry(hash);
    }
    errno = wf_robust_got(entering, got);
    return errno == 0 ? WEFT_OK : wf_fail_errno("the lock of hashed keys");
}

static void unlock(wf_hash *hash)
{
    pthread_mutex_unlock(&hash->head->entering);
}

/* Enter a key under the lock, unless another rank has; -1: no number is left.
 */
static int64_t enter(wf_hash *hash, int64_t key)
{
    uint64_t made = atomic_load(&hash->head->made);
    uint64_t dense = dense_at(hash, made);
    uint32_t found;
    uint64_t at = probe(hash, key, mix(key) & hash->mask, &found);

    if (found != 0) {
        return (int64_t)found - 1;
    }
    if (made >= hash->share) {
        return -1;
    }
    atomic_store(&hash->key_of[dense], key);
    atomic_store(&hash->head->made, made + 1);
    atomic_store_explicit(&hash->entry[at], (uint32_t)dense + 1,
                          memory_order_release);
    return (int64_t)dense;
}

weft_status wf_hash_enter(wf_hash *hash, const weft_ids *keys, int64_t *dense)
{
    bool locked = false;
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; i < keys->n && st == WEFT_OK; i++) {
        int64_t key = wf_id_at(keys, i);
        uint32_t found;

        probe(hash, key, mix(key) & hash->mask, &found);
        dense[i] = (int64_t)found - 1;
        if (found == 0 && !locked) {
            st = lock(hash);
            locked = st == WEFT_OK;
        }
        if (found == 0 && locked) {
            dense[i] = enter(hash, key);
        }
    }
    if (locked) {
        unlock(hash);
    }
    return st;
}

weft_status wf_hash_learn(wf_hash *hash, const int64_t *keys,
                          const int64_t *dense, uint64_t n)
{
    weft_status st = lock(hash);

    for (uint64_t i = 0; i < n && st == WEFT_OK; i++) {
        uint32_t found = 0;
        uint64_t at = dense[i] < 0 ? 0
                                   : probe(hash, keys[i],
                                           mix(keys[i]) & hash->mask, &found);

        if (dense[i] >= 0 && found == 0) {
            atomic_store(&hash->key_of[dense[i]], keys[i]);
            atomic_store_explicit(&hash->entry[at], (uint32_t)dense[i] + 1,
                                  memory_order_release);
        }
    }
    if (st == WEFT_OK) {
        unlock(hash);
    }
    return st;
}

/* --- finding -------------------------------------------------------------- */

void wf_hash_find(const wf_hash *hash, const weft_ids *keys, int64_t *dense)
{
    for (uint64_t i = 0; i < keys->n; i++) {
        int64_t key = wf_id_at(keys, i);
        uint32_t found;

        probe(hash, key, mix(key) & hash->mask, &found);
        dense[i] = (int64_t)found - 1;
    }
}

uint64_t wf_hash_made(const wf_hash *hash)
{
    return atomic_load(&hash->head->made);
}

uint64_t wf_hash_share(const wf_hash *hash)
{
    return hash->share;
}

bool wf_hash_key(const wf_hash *hash, uint64_t dense, int64_t *key)
{
    uint32_t found;

    *key = atomic_load_explicit(&hash->key_of[dense], memory_order_relaxed);
    probe(hash, *key, mix(*key) & hash->mask, &found);
    return found == dense + 1;
}
