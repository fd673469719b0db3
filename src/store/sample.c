/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sample.h"

#include <string.h>

#include "base/alloc.h"
#include "base/options.h"
#include "base/status.h"
#include "store/sample_local.h"
#include "store/sample_pool.h"

typedef unsigned long long ull;
typedef long long ll;

struct wf_sampler {
    weft_sample_scheme scheme;
    bool distinct;
    wf_draw draw;
    wf_sample_pool pool; /* POOL only */
    wf_sampler_store store;
};

/* The stream of random numbers of a rank's pool; workers have the numbers from
 * 0. */
#define POOL_STREAM UINT64_MAX

/* --- a store's sampler ---------------------------------------------------- */

static weft_status sampler_init(wf_sampler *sampler,
                                const weft_sample_options *options)
{
    const wf_sampler_store *store = &sampler->store;
    weft_status st;

    if ((unsigned)options->scheme > WEFT_SAMPLE_LOCAL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "sampling scheme %d is unknown: they are 0 (naive), 1 "
                       "(preloc), 2 (pool) and 3 (local)",
                       (int)options->scheme);
    }
    sampler->scheme = options->scheme;
    sampler->distinct = options->distinct != 0;
    st = wf_draw_init(&sampler->draw, options, store->keys, store->hashed);
    if (st != WEFT_OK || options->scheme != WEFT_SAMPLE_POOL) {
        return st;
    }
    st = wf_sample_pool_init(&sampler->pool, &sampler->draw, options);
    if (st != WEFT_OK) {
        wf_draw_fini(&sampler->draw);
        return st;
    }
    wf_random_seed(&sampler->pool.random, store->seed, store->rank,
                   POOL_STREAM);
    return WEFT_OK;
}

weft_status wf_sampler_create(const weft_sample_options *options,
                              const wf_sampler_store *store, wf_sampler **out)
{
    weft_sample_options read;
    wf_sampler *sampler;
    weft_status st =
        wf_options_read(options, "weft_sample_options", &read, sizeof(read));

    if (st != WEFT_OK) {
        return st;
    }
    sampler = wf_zalloc(sizeof(*sampler));
    if (sampler == NULL) {
        return wf_fail_nomem("a sampler");
    }
    sampler->store = *store;
    st = sampler_init(sampler, &read);
    if (st != WEFT_OK) {
        wf_free(sampler);
        return st;
    }
    *out = sampler;
    return WEFT_OK;
}

void wf_sampler_destroy(wf_sampler *sampler)
{
    if (sampler == NULL) {
        return;
    }
    wf_sample_pool_fini(&sampler->pool);
    wf_draw_fini(&sampler->draw);
    wf_free(sampler);
}

weft_sample_scheme wf_sampler_scheme(const wf_sampler *sampler)
{
    return sampler->scheme;
}

/* --- the samples of a worker ---------------------------------------------- */

void wf_samples_init(wf_samples *samples, void *worker, uint64_t number)
{
    *samples = (wf_samples){.worker = worker, .number = number};
}

static void sample_free(wf_sample *sample)
{
    wf_free(sample->keys);
    wf_keymap_fini(&sample->taken);
    wf_free(sample);
}

void wf_samples_fini(wf_samples *samples)
{
    for (uint64_t i = 0; i < samples->count; i++) {
        sample_free(samples->list[i]);
    }
    wf_free(samples->list);
    *samples = (wf_samples){0};
}

/* Where a sample is in the list, or where it would be. */
static uint64_t samples_place(const wf_samples *samples, int64_t id)
{
    uint64_t low = 0;
    uint64_t high = samples->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (samples->list[middle]->id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static wf_sample *samples_find(const wf_samples *samples, int64_t id)
{
    uint64_t i = samples_place(samples, id);

    return i < samples->count && samples->list[i]->id == id ? samples->list[i]
                                                            : NULL;
}

static bool samples_known(const wf_samples *samples, int64_t id)
{
    return id >= 1 && id <= samples->last_id;
}

static weft_status samples_unknown(const wf_samples *samples, int64_t id)
{
    if (samples_known(samples, id)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "sample %lld was used up or finished before", (ll)id);
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "sample %lld is unknown: this worker has prepared %lld",
                   (ll)id, (ll)samples->last_id);
}

/* Forget those that were used up, when they are more than half: then the time
 * that it takes is that of preparing them. */
static void samples_sweep(wf_samples *samples)
{
    uint64_t kept = 0;

    if (samples->spent <= samples->count / 2) {
        return;
    }
    for (uint64_t i = 0; i < samples->count; i++) {
        wf_sample *sample = samples->list[i];

        if (sample->used == sample->n) {
            sample_free(sample);
        } else {
            samples->list[kept++] = sample;
        }
    }
    samples->count = kept;
    samples->spent = 0;
}

static weft_status samples_reserve(wf_samples *samples)
{
    uint64_t room = samples->room > 0 ? 2 * samples->room : 16;
    wf_sample **list;

    if (samples->count < samples->room) {
        return WEFT_OK;
    }
    list = wf_realloc(samples->list, room * sizeof(wf_sample *));
    if (list == NULL) {
        return wf_fail_nomem("%llu samples", (ull)room);
    }
    samples->list = list;
    samples->room = room;
    return WEFT_OK;
}

/* --- preparing ------------------------------------------------------------ */

static weft_status samples_bind(wf_samples *samples, wf_sampler *sampler)
{
    if (sampler == NULL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "this store has not been told how to sample: enable "
                       "sampling first (enable_sampling)");
    }
    if (samples->sampler == NULL) {
        samples->sampler = sampler;
        samples->draw = sampler->draw;
        wf_random_seed(&samples->random, sampler->store.seed,
                       sampler->store.rank, samples->number);
    }
    return wf_draw_fit(&samples->draw,
                       sampler->store.env->keys(samples->worker));
}

/* Draw the keys, unless that is done when they are asked for. */
static weft_status sample_draw(wf_samples *samples, wf_sample *sample)
{
    wf_sampler *sampler = samples->sampler;
    uint64_t n = sample->n;

    if (sampler->scheme == WEFT_SAMPLE_LOCAL) {
        return sampler->distinct ? wf_draw_check_distinct(&samples->draw, n)
                                 : WEFT_OK;
    }
    if (sampler->scheme == WEFT_SAMPLE_POOL) {
        return wf_sample_pool_take(&sampler->pool,
                                   sampler->store.env->keys(samples->worker), n,
                                   sample->keys);
    }
    return sampler->distinct
               ? wf_draw_distinct(&samples->draw, &samples->random, n,
                                  sample->keys)
               : wf_draw_keys(&samples->draw, &samples->random, n,
                              sample->keys);
}

/* LOCAL keeps its keys only to tell which ones it has used. */
static weft_status sample_reserve(wf_samples *samples, wf_sample *sample)
{
    const wf_sampler *sampler = samples->sampler;
    bool local = sampler->scheme == WEFT_SAMPLE_LOCAL;

    if (local && !sampler->distinct) {
        return WEFT_OK;
    }
    if (sample->n <= SIZE_MAX / sizeof(*sample->keys)) {
        sample->keys = wf_alloc(sample->n * sizeof(*sample->keys));
    }
    if (sample->keys == NULL) {
        return wf_fail_nomem("%llu samples", (ull)sample->n);
    }
    return local ? wf_keymap_init(&sample->taken, sample->n) : WEFT_OK;
}

static weft_status sample_announce(wf_samples *samples, const wf_sample *sample,
                                   int64_t start, int64_t end)
{
    const wf_sampler *sampler = samples->sampler;

    if (sample->n == 0 || (sampler->scheme != WEFT_SAMPLE_PRELOC &&
                           sampler->scheme != WEFT_SAMPLE_POOL)) {
        return WEFT_OK;
    }
    return sampler->store.env->intent(samples->worker, sample->keys, sample->n,
                                      start, end);
}

static weft_status sample_create(wf_samples *samples, uint64_t n, int64_t start,
                                 int64_t end, wf_sample **out)
{
    weft_status st;
    wf_sample *sample = wf_zalloc(sizeof(*sample));

    if (sample == NULL) {
        return wf_fail_nomem("a sample");
    }
    sample->n = n;
    sample->id = samples->last_id + 1;
    st = sample_reserve(samples, sample);
    if (st == WEFT_OK) {
        st = sample_draw(samples, sample);
    }
    if (st == WEFT_OK) {
        st = sample_announce(samples, sample, start, end);
    }
    if (st != WEFT_OK) {
        sample_free(sample);
        return st;
    }
    *out = sample;
    return WEFT_OK;
}

weft_status wf_sample_prepare(wf_samples *samples, wf_sampler *sampler,
                              uint64_t n, int64_t start, int64_t end,
                              int64_t *id)
{
    wf_sample *sample = NULL;
    weft_status st = samples_bind(samples, sampler);

    if (st != WEFT_OK) {
        return st;
    }
    samples_sweep(samples);
    st = samples_reserve(samples);
    if (st != WEFT_OK) {
        return st;
    }
    st = sample_create(samples, n, start, end, &sample);
    if (st != WEFT_OK) {
        return st;
    }
    samples->list[samples->count++] = sample;
    samples->spent += n == 0;
    samples->last_id = sample->id;
    *id = sample->id;
    return WEFT_OK;
}

/* --- using ---------------------------------------------------------------- */

weft_status wf_sample_left(const wf_samples *samples, int64_t id, uint64_t *out)
{
    const wf_sample *sample = samples_find(samples, id);

    if (sample == NULL) {
        return samples_unknown(samples, id);
    }
    *out = sample->n - sample->used;
    return WEFT_OK;
}

static weft_status sample_take(wf_samples *samples, wf_sample *sample,
                               uint64_t n, int64_t *keys)
{
    const wf_sample_env *env = samples->sampler->store.env;
    weft_status st;

    if (samples->sampler->scheme != WEFT_SAMPLE_LOCAL) {
        if (n > 0) {
            memcpy(keys, sample->keys + sample->used, n * sizeof(*keys));
        }
        return WEFT_OK;
    }
    st = wf_draw_fit(&samples->draw, env->keys(samples->worker));
    return st == WEFT_OK ? wf_sample_local(samples, sample, env, n, keys) : st;
}

weft_status wf_sample_next(wf_samples *samples, int64_t id, uint64_t n,
                           int64_t *keys)
{
    wf_sample *sample = samples_find(samples, id);
    weft_status st;

    if (sample == NULL) {
        return samples_unknown(samples, id);
    }
    if (n > sample->n - sample->used) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%llu samples are asked for, but sample %lld has %llu "
                       "left of the %llu that were prepared",
                       (ull)n, (ll)id, (ull)(sample->n - sample->used),
                       (ull)sample->n);
    }
    st = sample_take(samples, sample, n, keys);
    if (st != WEFT_OK) {
        return st;
    }
    sample->used += n;
    sample->last = n;
    samples->spent += n > 0 && sample->used == sample->n;
    return WEFT_OK;
}

void wf_sample_undo(wf_samples *samples, int64_t id)
{
    wf_sample *sample = samples_find(samples, id);

    if (sample == NULL || sample->last == 0) {
        return;
    }
    samples->spent -= sample->used == sample->n;
    sample->used -= sample->last;
    sample->last = 0;
    wf_sample_local_undo(sample);
}

weft_status wf_sample_finish(wf_samples *samples, int64_t id)
{
    uint64_t i = samples_place(samples, id);
    wf_sample *sample = samples_find(samples, id);

    if (sample == NULL) {
        return samples_known(samples, id) ? WEFT_OK
                                          : samples_unknown(samples, id);
    }
    samples->spent -= sample->used == sample->n;
    sample_free(sample);
    samples->count--;
    memmove(samples->list + i, samples->list + i + 1,
            (samples->count - i) * sizeof(wf_sample *));
    return WEFT_OK;
}
