/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sample_pool.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "store/keymap.h"

typedef unsigned long long ull;

weft_status wf_sample_pool_init(wf_sample_pool *pool, const wf_draw *draw,
                                const weft_sample_options *options)
{
    *pool = (wf_sample_pool){
        .draw = *draw,
        .distinct = options->distinct != 0,
        .size = options->pool > 0 ? options->pool : WF_SAMPLE_POOL,
        .reuse = options->reuse > 0 ? options->reuse : WF_SAMPLE_REUSE,
    };
    if (pool->size <= SIZE_MAX / sizeof(*pool->keys)) {
        pool->keys = wf_alloc(pool->size * sizeof(*pool->keys));
    }
    if (pool->keys == NULL) {
        return wf_fail_nomem("a pool of %llu keys", (ull)pool->size);
    }
    pthread_mutex_init(&pool->lock, NULL);
    return WEFT_OK;
}

void wf_sample_pool_fini(wf_sample_pool *pool)
{
    if (pool->keys != NULL) {
        pthread_mutex_destroy(&pool->lock);
        wf_free(pool->keys);
        pool->keys = NULL;
    }
}

/* The keys of a full pool: fewer than asked for if there are not so many
 * different ones. */
static uint64_t pool_capacity(const wf_sample_pool *pool)
{
    return pool->distinct ? wf_least(pool->size, pool->draw.possible)
                          : pool->size;
}

static weft_status pool_draw(wf_sample_pool *pool)
{
    uint64_t n = pool_capacity(pool);
    weft_status st;

    pool->count = 0;
    pool->at = 0;
    if (pool->distinct) {
        st = wf_draw_distinct(&pool->draw, &pool->random, n, pool->keys);
    } else {
        st = wf_draw_keys(&pool->draw, &pool->random, n, pool->keys);
    }
    if (st == WEFT_OK) {
        pool->count = n;
        pool->passes = 1;
    }
    return st;
}

/* Begin a pass. */
static weft_status pool_turn(wf_sample_pool *pool)
{
    if (pool->count == 0 || pool->passes == pool->reuse) {
        weft_status st = pool_draw(pool);

        if (st != WEFT_OK) {
            return st;
        }
    } else {
        pool->passes++;
        pool->at = 0;
    }
    /* Also what was just drawn: without replacement, the likely ones came
     * first. */
    wf_draw_shuffle(&pool->random, pool->keys, pool->count);
    return WEFT_OK;
}

/* A new pass was begun in the middle of a call that has got `n` keys of the
 * last one. Take those of the pool first that are not among them, `more` of
 * them; the others remain for this pass, in a random order. */
static weft_status pool_prefer(wf_sample_pool *pool, const int64_t *got,
                               uint64_t n, uint64_t more)
{
    wf_keymap seen;
    uint64_t first = 0;
    weft_status st = wf_keymap_init(&seen, n);

    if (st != WEFT_OK) {
        return st;
    }
    for (uint64_t i = 0; i < n; i++) {
        wf_keymap_add(&seen, got[i], 0);
    }
    for (uint64_t i = 0; i < pool->count && first < more; i++) {
        if (wf_keymap_find(&seen, pool->keys[i]) == NULL) {
            int64_t key = pool->keys[i];

            pool->keys[i] = pool->keys[first];
            pool->keys[first++] = key;
        }
    }
    wf_keymap_fini(&seen);
    wf_draw_shuffle(&pool->random, pool->keys + more, pool->count - more);
    return WEFT_OK;
}

static weft_status pool_take(wf_sample_pool *pool, uint64_t n, int64_t *out)
{
    uint64_t got = 0;

    while (got < n) {
        uint64_t part;

        if (pool->at == pool->count) {
            weft_status st = pool_turn(pool);

            if (st == WEFT_OK && pool->distinct && got > 0) {
                st = pool_prefer(pool, out, got, n - got);
            }
            if (st != WEFT_OK) {
                return st;
            }
        }
        part = wf_least(n - got, pool->count - pool->at);
        memcpy(out + got, pool->keys + pool->at, part * sizeof(*out));
        pool->at += part;
        got += part;
    }
    return WEFT_OK;
}

weft_status wf_sample_pool_take(wf_sample_pool *pool, uint64_t keys, uint64_t n,
                                int64_t *out)
{
    weft_status st;
    uint64_t span;

    pthread_mutex_lock(&pool->lock);
    span = pool->draw.span;
    st = wf_draw_fit(&pool->draw, keys);
    if (pool->draw.span != span) {
        pool->count = 0; /* the store was resized */
        pool->at = 0;
    }
    if (st == WEFT_OK && pool->distinct && n > pool_capacity(pool)) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "%llu distinct samples are wanted, but the pool has %llu "
                     "keys",
                     (ull)n, (ull)pool_capacity(pool));
    }
    if (st == WEFT_OK) {
        st = pool_take(pool, n, out);
    }
    pthread_mutex_unlock(&pool->lock);
    return st;
}
