/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of the sampling scheme POOL: some keys that are drawn once and used
 * several times, so that fewer keys have to be brought to this host.
 *
 * Each rank has a pool of its own, which its workers share. A pass goes through
 * all keys of the pool in a random order. After `reuse` passes it is drawn
 * anew. Calls may come from any thread. */
#ifndef WF_STORE_SAMPLE_POOL_H
#define WF_STORE_SAMPLE_POOL_H

#include <pthread.h>

#include "store/draw.h"

#define WF_SAMPLE_POOL 250u
#define WF_SAMPLE_REUSE 16u

typedef struct wf_sample_pool {
    pthread_mutex_t lock;
    wf_draw draw; /* a copy */
    wf_generator random;
    bool distinct; /* no key is in it twice */
    uint64_t size; /* as was asked for */
    uint64_t reuse;
    int64_t *keys;   /* room for `size` */
    uint64_t count;  /* in it; 0: it has to be drawn */
    uint64_t at;     /* the next one of this pass */
    uint64_t passes; /* that were begun */
} wf_sample_pool;

/* Nothing is drawn yet. `size` and `reuse` of 0 are the defaults. */
weft_status wf_sample_pool_init(wf_sample_pool *pool, const wf_draw *draw,
                                const weft_sample_options *options);
void wf_sample_pool_fini(wf_sample_pool *pool);

/* The next `n` keys; `keys` is what the store has now. If the options say
 * distinct these are, and WEFT_ERR_INVALID if there are not so many in the
 * pool. A failed draw leaves the pool to be drawn anew. */
weft_status wf_sample_pool_take(wf_sample_pool *pool, uint64_t keys, uint64_t n,
                                int64_t *out);

#endif
