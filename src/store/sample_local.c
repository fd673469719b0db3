/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sample_local.h"

#include "base/status.h"

typedef long long ll;

/* A search for one key. */
typedef struct search {
    const wf_samples *samples;
    const wf_sample_env *env;
    wf_keymap *taken; /* NULL: keys may be used again */
    /* Follow the links of keys that were used, and shorten them, so that no
     * run of them is walked through twice. Links also pass by keys that were
     * on other hosts; these may have come meanwhile, so that only a search
     * without links finds out that there is none. */
    bool links;
} search;

static int64_t key_after(int64_t key)
{
    return key < INT64_MAX ? key + 1 : key;
}

/* The first suitable key of [first, last]. */
static bool search_range(const search *s, int64_t first, int64_t last,
                         int64_t *out)
{
    int64_t *before = NULL; /* the link of the used key that was passed last */

    while (first <= last) {
        int64_t key;
        int64_t next;
        int64_t *link;

        if (!s->env->here(s->samples->worker, first, last, &key)) {
            return false;
        }
        link = s->taken != NULL ? wf_keymap_find(s->taken, key) : NULL;
        if (link == NULL && wf_draw_possible(&s->samples->draw, key)) {
            *out = key;
            return true;
        }
        if (key == last) {
            return false;
        }
        next = link != NULL && s->links ? *link : key_after(key);
        if (before != NULL) {
            *before = next;
        }
        before = link != NULL && s->links ? link : before;
        first = next;
    }
    return false;
}

/* From `key` on to the end of the range, then from its beginning. */
static bool search_around(const search *s, int64_t key, int64_t *out)
{
    const wf_draw *draw = &s->samples->draw;
    int64_t first = draw->span > 0 ? draw->min : INT64_MIN;
    int64_t last = draw->span > 0
                       ? (int64_t)((uint64_t)draw->min + draw->span - 1)
                       : INT64_MAX;

    return search_range(s, key, last, out) ||
           (key > first && search_range(s, first, key - 1, out));
}

static weft_status local_key(search *s, int64_t id, wf_generator *random,
                             int64_t *out)
{
    const wf_draw *draw = &s->samples->draw;
    int64_t key;
    weft_status st = wf_draw_key(draw, random, &key);

    if (st != WEFT_OK) {
        return st;
    }
    s->links = s->taken != NULL;
    if (search_around(s, key, out)) {
        return WEFT_OK;
    }
    s->links = false;
    if (s->taken != NULL && search_around(s, key, out)) {
        return WEFT_OK;
    }
    if (draw->span == 0) {
        return wf_fail(WEFT_ERR_INVALID, "sample %lld: no key on this host%s",
                       (ll)id, s->taken != NULL ? " is left to draw" : "");
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "sample %lld: no key that can be drawn from %lld to %lld is "
                   "on this host%s",
                   (ll)id, (ll)draw->min,
                   (ll)((uint64_t)draw->min + draw->span - 1),
                   s->taken != NULL ? " and not used yet" : "");
}

weft_status wf_sample_local(wf_samples *samples, wf_sample *sample,
                            const wf_sample_env *env, uint64_t n, int64_t *keys)
{
    bool distinct = sample->keys != NULL;
    search s = {samples, env, distinct ? &sample->taken : NULL, false};

    for (uint64_t i = 0; i < n; i++) {
        weft_status st = local_key(&s, sample->id, &samples->random, &keys[i]);

        if (st != WEFT_OK) {
            wf_sample_local_undo(sample);
            return st;
        }
        if (distinct) {
            wf_keymap_add(&sample->taken, keys[i], key_after(keys[i]));
            sample->keys[sample->used + i] = keys[i];
        }
    }
    return WEFT_OK;
}

void wf_sample_local_undo(wf_sample *sample)
{
    if (sample->taken.entries == NULL) {
        return;
    }
    wf_keymap_clear(&sample->taken);
    for (uint64_t i = 0; i < sample->used; i++) {
        wf_keymap_add(&sample->taken, sample->keys[i],
                      key_after(sample->keys[i]));
    }
}
