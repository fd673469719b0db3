/* SPDX-License-Identifier: Apache-2.0 */
/* Samples: the keys that a worker draws, in the four schemes of weft/store.h.
 *
 * A wf_sampler says how the workers of a rank draw. The store makes one in
 * weft_store_sampling. Each worker has a wf_samples beside its clock, which
 * holds what it has prepared. What is needed of the store is a table of
 * functions, so that all this is tested without one.
 *
 *   weft_sample_prepare   wf_sample_prepare
 *   weft_sample_pull      wf_sample_next, then a pull of these keys;
 *                         wf_sample_undo if the pull was refused
 *   weft_sample_finish    wf_sample_finish
 *
 * Threads: wf_samples is used by one thread at a time, as its worker is. Many
 * may use one sampler: it is read only but for the pool, which has a lock. The
 * draw function of the user is called under that lock if the scheme is POOL,
 * so it must not prepare samples itself. */
#ifndef WF_STORE_SAMPLE_H
#define WF_STORE_SAMPLE_H

#include "store/draw.h"

/* What samples need of the store. `worker` is what wf_samples_init was given.
 */
typedef struct wf_sample_env {
    /* As weft_store_intent. */
    weft_status (*intent)(void *worker, const int64_t *keys, uint64_t n,
                          int64_t start, int64_t end);
    /* Find the first key of [first, last] that is on this host; false if there
     * is none. In most cases it should be `first` itself. LOCAL only. */
    bool (*here)(void *worker, int64_t first, int64_t last, int64_t *out);
    /* The keys that the store has now; of hashed stores it is not used. */
    uint64_t (*keys)(void *worker);
} wf_sample_env;

/* What a store says when it makes a sampler. */
typedef struct wf_sampler_store {
    uint64_t keys;
    bool hashed;
    uint64_t seed;
    uint32_t rank;
    const wf_sample_env *env; /* outlives the sampler */
} wf_sampler_store;

typedef struct wf_sampler wf_sampler;

/* Check the options and copy what they point to, `ctx` of the user's function
 * excepted. WEFT_ERR_INVALID names the option that does not fit. */
weft_status wf_sampler_create(const weft_sample_options *options,
                              const wf_sampler_store *store, wf_sampler **out);

/* When no worker uses it any more. Takes NULL. */
void wf_sampler_destroy(wf_sampler *sampler);

weft_sample_scheme wf_sampler_scheme(const wf_sampler *sampler);

/* One that was prepared. */
typedef struct wf_sample wf_sample;

/* The samples of one worker. */
typedef struct wf_samples {
    void *worker;
    uint64_t number;     /* of the worker in its rank: its stream of numbers */
    wf_sampler *sampler; /* NULL until something is prepared */
    wf_draw draw;
    wf_generator random;
    wf_sample **list; /* by increasing id */
    uint64_t count;
    uint64_t room;
    uint64_t spent; /* of `count`, those of which nothing is left */
    int64_t last_id;
} wf_samples;

void wf_samples_init(wf_samples *samples, void *worker, uint64_t number);

/* The sampler may be gone before. */
void wf_samples_fini(wf_samples *samples);

/* Prepare `n` samples; `*id` counts from 1. `sampler` is the store's, the same
 * in each call; NULL is WEFT_ERR_INVALID: sampling was not set up. The window
 * is that of the intent. Samples that were used up are forgotten here. */
weft_status wf_sample_prepare(wf_samples *samples, wf_sampler *sampler,
                              uint64_t n, int64_t start, int64_t end,
                              int64_t *id);

/* How many of a sample are not used yet. WEFT_ERR_INVALID names an id that is
 * unknown. */
weft_status wf_sample_left(const wf_samples *samples, int64_t id,
                           uint64_t *out);

/* The next `n` keys. WEFT_ERR_INVALID if there are not so many left, and then
 * none was used. */
weft_status wf_sample_next(wf_samples *samples, int64_t id, uint64_t n,
                           int64_t *keys);

/* Take back the last wf_sample_next of this id, which succeeded: its keys count
 * as not used. Of LOCAL the next ones are others, for which see `here` again;
 * else they are the same. */
void wf_sample_undo(wf_samples *samples, int64_t id);

/* Forget what is left of a sample. WEFT_ERR_INVALID for an id that no
 * wf_sample_prepare gave. */
weft_status wf_sample_finish(wf_samples *samples, int64_t id);

#endif
