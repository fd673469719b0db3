/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing without replacement: each next key with the probability that it has
 * among those that are left.
 *
 * Drawing again what was drawn before gives just that distribution, and is fast
 * while most of the probability is left. When it has failed as often as there
 * are keys, the rest is drawn by a pass over all keys, which takes about as
 * long: so no case takes more than a small multiple of the better way. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/status.h"
#include "store/draw.h"
#include "store/keymap.h"

typedef unsigned long long ull;

/* As often in a row may a function of the user give keys that it gave before.
 */
#define TRIES_MAX 10000

weft_status wf_draw_check_distinct(const wf_draw *draw, uint64_t n)
{
    if (n > draw->possible) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%llu distinct samples are wanted, but there are only "
                       "%llu keys to draw",
                       (ull)n, (ull)draw->possible);
    }
    return WEFT_OK;
}

/* A key that competes for the rest, the smallest `at` first. */
typedef struct rival {
    double at;
    int64_t key;
} rival;

static int rival_compare(const void *a, const void *b)
{
    double x = ((const rival *)a)->at;
    double y = ((const rival *)b)->at;

    return (x > y) - (x < y);
}

static double rival_weight(const wf_draw *draw, uint64_t i)
{
    switch (draw->kind) {
    case WEFT_DRAW_LOG_UNIFORM:
        return log1p(1 / ((double)i + 1));
    case WEFT_DRAW_WEIGHTED:
        return draw->weights[i];
    default:
        return 1;
    }
}

/* Each key waits for a time that is exponentially distributed with its weight
 * as the rate; the order in which they come is that of drawing without
 * replacement (Efraimidis and Spirakis, 2006). As logarithms, so that no weight
 * is too small. */
static uint64_t rivals_fill(const wf_draw *draw, wf_generator *random,
                            const wf_keymap *seen, rival *rivals)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < draw->span; i++) {
        int64_t key = (int64_t)((uint64_t)draw->min + i);
        double weight = rival_weight(draw, i);

        if (weight > 0 && wf_keymap_find(seen, key) == NULL) {
            double wait = -log1p(-wf_random_unit(random));

            rivals[n++] = (rival){log(wait) - log(weight), key};
        }
    }
    return n;
}

static weft_status distinct_rest(const wf_draw *draw, wf_generator *random,
                                 const wf_keymap *seen, uint64_t got,
                                 uint64_t n, int64_t *out)
{
    uint64_t left = draw->possible - got;
    rival *rivals = NULL;

    if (left <= SIZE_MAX / sizeof(*rivals)) {
        rivals = wf_alloc(left * sizeof(*rivals));
    }
    if (rivals == NULL) {
        return wf_fail_nomem("%llu distinct samples of %llu keys", (ull)n,
                             (ull)draw->possible);
    }
    left = rivals_fill(draw, random, seen, rivals);
    qsort(rivals, left, sizeof(*rivals), rival_compare);
    for (uint64_t i = 0; got < n; i++) {
        out[got++] = rivals[i].key;
    }
    wf_free(rivals);
    return WEFT_OK;
}

static weft_status distinct_by_rejection(const wf_draw *draw,
                                         wf_generator *random, wf_keymap *seen,
                                         uint64_t n, int64_t *out)
{
    uint64_t wasted = 0;
    uint64_t got = 0;

    while (got < n && wasted <= draw->span) {
        weft_status st = wf_draw_key(draw, random, &out[got]);

        if (st != WEFT_OK) {
            return st;
        }
        if (wf_keymap_add(seen, out[got], 0)) {
            got++;
        } else {
            wasted++;
        }
    }
    return got == n ? WEFT_OK : distinct_rest(draw, random, seen, got, n, out);
}

static weft_status distinct_given(const wf_draw *draw, wf_generator *random,
                                  wf_keymap *seen, uint64_t n, int64_t *out)
{
    for (uint64_t got = 0; got < n; got++) {
        weft_status st;
        int tries = 0;

        do {
            if (tries++ == TRIES_MAX) {
                return wf_fail(WEFT_ERR_INVALID,
                               "the draw function gave no new key in %d "
                               "calls, with %llu of %llu distinct samples "
                               "drawn",
                               TRIES_MAX, (ull)got, (ull)n);
            }
            st = wf_draw_key(draw, random, &out[got]);
            if (st != WEFT_OK) {
                return st;
            }
        } while (!wf_keymap_add(seen, out[got], 0));
    }
    return WEFT_OK;
}

/* More than half of all keys: the first n of a shuffle of all. */
static weft_status distinct_by_shuffle(const wf_draw *draw,
                                       wf_generator *random, uint64_t n,
                                       int64_t *out)
{
    int64_t *all = NULL;

    if (draw->span <= SIZE_MAX / sizeof(*all)) {
        all = wf_alloc(draw->span * sizeof(*all));
    }
    if (all == NULL) {
        return wf_fail_nomem("%llu distinct samples of %llu keys", (ull)n,
                             (ull)draw->span);
    }
    for (uint64_t i = 0; i < draw->span; i++) {
        all[i] = (int64_t)((uint64_t)draw->min + i);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t j = i + wf_random_below(random, draw->span - i);

        out[i] = all[j];
        all[j] = all[i];
    }
    wf_free(all);
    return WEFT_OK;
}

weft_status wf_draw_distinct(const wf_draw *draw, wf_generator *random,
                             uint64_t n, int64_t *out)
{
    wf_keymap seen;
    weft_status st = wf_draw_check_distinct(draw, n);

    if (st != WEFT_OK || n == 0) {
        return st;
    }
    if (draw->kind == WEFT_DRAW_UNIFORM && n > draw->span / 2) {
        return distinct_by_shuffle(draw, random, n, out);
    }
    st = wf_keymap_init(&seen, n);
    if (st != WEFT_OK) {
        return st;
    }
    st = draw->kind == WEFT_DRAW_GIVEN
             ? distinct_given(draw, random, &seen, n, out)
             : distinct_by_rejection(draw, random, &seen, n, out);
    wf_keymap_fini(&seen);
    return st;
}
