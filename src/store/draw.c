/* SPDX-License-Identifier: Apache-2.0 */
#include "store/draw.h"

#include <math.h>

#include "base/alloc.h"
#include "base/status.h"

typedef unsigned long long ull;
typedef long long ll;

/* --- the options ---------------------------------------------------------- */

static weft_status draw_check_kind(const weft_sample_options *o)
{
    if ((unsigned)o->distribution > WEFT_DRAW_GIVEN) {
        return wf_fail(WEFT_ERR_INVALID,
                       "distribution %d is unknown: they are 0 (uniform), 1 "
                       "(log-uniform), 2 (weighted) and 3 (given)",
                       (int)o->distribution);
    }
    if ((o->weights != NULL) != (o->distribution == WEFT_DRAW_WEIGHTED)) {
        return wf_fail(WEFT_ERR_INVALID, "weights are %s",
                       o->weights == NULL
                           ? "missing: the distribution is WEIGHTED"
                           : "given, but the distribution is not WEIGHTED");
    }
    if ((o->draw != NULL) != (o->distribution == WEFT_DRAW_GIVEN)) {
        return wf_fail(WEFT_ERR_INVALID, "a draw function is %s",
                       o->draw == NULL
                           ? "missing: the distribution is GIVEN"
                           : "given, but the distribution is not GIVEN");
    }
    return WEFT_OK;
}

static weft_status draw_check_order(int64_t min, int64_t max)
{
    if (min >= max) {
        return wf_fail(WEFT_ERR_INVALID,
                       "min is %lld and max is %lld: there is no key to draw",
                       (ll)min, (ll)max);
    }
    return WEFT_OK;
}

/* A hashed store has no last key, so max 0 is "below 0" if min is less, and
 * else that there is no bound, which only GIVEN can do with. */
static weft_status draw_range_hashed(wf_draw *draw, int64_t max)
{
    weft_status st;

    if (max == 0 && draw->min == 0 && draw->kind == WEFT_DRAW_GIVEN) {
        return WEFT_OK;
    }
    if (max == 0 && draw->min >= 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "max is missing: keys of a hashed store are any "
                       "numbers, so say which ones are drawn");
    }
    st = draw_check_order(draw->min, max);
    draw->span = (uint64_t)max - (uint64_t)draw->min;
    return st;
}

static weft_status draw_range(wf_draw *draw, int64_t max, uint64_t keys)
{
    weft_status st;

    if (draw->hashed) {
        return draw_range_hashed(draw, max);
    }
    draw->all = max == 0;
    if (draw->min < 0) {
        return wf_fail(WEFT_ERR_INVALID, "min is %lld: keys begin at 0",
                       (ll)draw->min);
    }
    st = draw_check_order(draw->min, draw->all ? (int64_t)keys : max);
    draw->span = (draw->all ? keys : (uint64_t)max) - (uint64_t)draw->min;
    return st == WEFT_OK ? wf_draw_fit(draw, keys) : st;
}

weft_status wf_draw_fit(wf_draw *draw, uint64_t keys)
{
    uint64_t min = (uint64_t)draw->min;

    if (draw->hashed || (draw->all && min + draw->span == keys)) {
        return WEFT_OK;
    }
    if (draw->all && draw->kind != WEFT_DRAW_WEIGHTED && min < keys) {
        draw->span = keys - min;
        draw->possible = draw->span;
        draw->scale = log1p((double)draw->span);
        return WEFT_OK;
    }
    if (draw->all || min + draw->span > keys) {
        return wf_fail(WEFT_ERR_INVALID,
                       "samples are drawn from keys %llu to %llu, but the "
                       "store has %llu keys",
                       (ull)min, (ull)(min + draw->span - 1), (ull)keys);
    }
    return WEFT_OK;
}

/* --- weights -------------------------------------------------------------- */

/* Copy and check the weights; `*heaviest` is the number of the largest one. */
static weft_status weights_copy(wf_draw *draw, const double *weights,
                                uint64_t *heaviest)
{
    *heaviest = 0;
    draw->possible = 0;
    for (uint64_t i = 0; i < draw->span; i++) {
        double w = weights[i];

        if (!(w >= 0) || isinf(w)) {
            return wf_fail(WEFT_ERR_INVALID,
                           "the weight of key %lld is %g: weights are finite "
                           "and not negative",
                           (ll)(draw->min + (int64_t)i), w);
        }
        draw->weights[i] = w;
        draw->possible += w > 0;
        *heaviest = w > draw->weights[*heaviest] ? i : *heaviest;
    }
    if (draw->possible == 0) {
        return wf_fail(WEFT_ERR_INVALID, "all %llu weights are 0",
                       (ull)draw->span);
    }
    return WEFT_OK;
}

/* What is left in `work` when either kind of column has run out is full, but
 * for rounding. A key of weight 0 must not become one that is drawn. */
static void alias_finish(wf_draw *draw, const uint64_t *work, uint64_t n,
                         uint64_t heaviest)
{
    for (uint64_t i = 0; i < n; i++) {
        bool drawn = draw->weights[work[i]] > 0;

        draw->columns[work[i]] =
            (wf_alias){drawn ? 1 : 0, drawn ? work[i] : heaviest};
    }
}

/* Vose's method: a column that is less than full is filled up by one that is
 * more than full. Those of less than 1 are a stack at the beginning of `work`,
 * the others one at its end. */
static void alias_fill(wf_draw *draw, uint64_t *work, uint64_t heaviest)
{
    wf_alias *columns = draw->columns;
    double most = draw->weights[heaviest];
    double sum = 0;
    uint64_t less = 0;
    uint64_t more = draw->span;

    for (uint64_t i = 0; i < draw->span; i++) {
        sum += draw->weights[i] / most; /* the sum of large ones is finite */
    }
    for (uint64_t i = 0; i < draw->span; i++) {
        columns[i].own = draw->weights[i] / most * ((double)draw->span / sum);
        work[columns[i].own < 1 ? less++ : --more] = i;
    }
    while (less > 0 && more < draw->span) {
        wf_alias *poor = &columns[work[--less]];
        wf_alias *rich = &columns[work[more]];

        poor->other = work[more];
        rich->own -= 1 - poor->own;
        if (rich->own < 1) {
            work[less++] = work[more++];
        }
    }
    alias_finish(draw, work, less, heaviest);
    alias_finish(draw, work + more, draw->span - more, heaviest);
}

static weft_status draw_weights(wf_draw *draw, const double *weights)
{
    weft_status st;
    uint64_t heaviest = 0;
    uint64_t *work = NULL;

    if (draw->span <= SIZE_MAX / sizeof(*draw->columns)) {
        draw->weights = wf_alloc(draw->span * sizeof(*draw->weights));
        draw->columns = wf_alloc(draw->span * sizeof(*draw->columns));
        work = wf_alloc(draw->span * sizeof(*work));
    }
    if (draw->weights == NULL || draw->columns == NULL || work == NULL) {
        st = wf_fail_nomem("the weights of %llu keys", (ull)draw->span);
    } else {
        st = weights_copy(draw, weights, &heaviest);
    }
    if (st == WEFT_OK) {
        alias_fill(draw, work, heaviest);
    }
    wf_free(work);
    return st;
}

weft_status wf_draw_init(wf_draw *draw, const weft_sample_options *options,
                         uint64_t keys, bool hashed)
{
    weft_status st = draw_check_kind(options);

    *draw = (wf_draw){.kind = options->distribution,
                      .hashed = hashed,
                      .min = options->min,
                      .given = options->draw,
                      .ctx = options->ctx};
    if (st == WEFT_OK) {
        st = draw_range(draw, options->max, keys);
    }
    draw->possible = draw->span > 0 ? draw->span : UINT64_MAX;
    draw->scale = log1p((double)draw->span);
    if (st == WEFT_OK && draw->kind == WEFT_DRAW_WEIGHTED) {
        st = draw_weights(draw, options->weights);
    }
    if (st != WEFT_OK) {
        wf_draw_fini(draw);
    }
    return st;
}

void wf_draw_fini(wf_draw *draw)
{
    wf_free(draw->weights);
    wf_free(draw->columns);
    *draw = (wf_draw){0};
}

/* --- drawing -------------------------------------------------------------- */

bool wf_draw_possible(const wf_draw *draw, int64_t key)
{
    uint64_t i = (uint64_t)key - (uint64_t)draw->min;

    if (draw->span == 0) {
        return true;
    }
    return key >= draw->min && i < draw->span &&
           (draw->weights == NULL || draw->weights[i] > 0);
}

/* exp(u * log(n + 1)) - 1 with u in [0, 1), rounded down: k comes up if
 * exp(...) is in [k + 1, k + 2), a share of log((k + 2) / (k + 1)). Rounding
 * may give n itself, once in about 2^53 times. */
static uint64_t draw_log_uniform(const wf_draw *draw, wf_generator *random)
{
    double at = expm1(wf_random_unit(random) * draw->scale);

    return at < (double)draw->span ? (uint64_t)at : draw->span - 1;
}

static uint64_t draw_weighted(const wf_draw *draw, wf_generator *random)
{
    uint64_t i = wf_random_below(random, draw->span);
    const wf_alias *column = &draw->columns[i];

    return wf_random_unit(random) < column->own ? i : column->other;
}

static weft_status draw_given(const wf_draw *draw, int64_t *out)
{
    int64_t key = draw->given(draw->ctx);

    if (!wf_draw_possible(draw, key)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the draw function gave key %lld, which is not in "
                       "[%lld, %lld)",
                       (ll)key, (ll)draw->min,
                       (ll)((uint64_t)draw->min + draw->span));
    }
    *out = key;
    return WEFT_OK;
}

weft_status wf_draw_key(const wf_draw *draw, wf_generator *random, int64_t *out)
{
    uint64_t i = 0;

    switch (draw->kind) {
    case WEFT_DRAW_UNIFORM:
        i = wf_random_below(random, draw->span);
        break;
    case WEFT_DRAW_LOG_UNIFORM:
        i = draw_log_uniform(draw, random);
        break;
    case WEFT_DRAW_WEIGHTED:
        i = draw_weighted(draw, random);
        break;
    case WEFT_DRAW_GIVEN:
        return draw_given(draw, out);
    }
    *out = (int64_t)((uint64_t)draw->min + i);
    return WEFT_OK;
}

weft_status wf_draw_keys(const wf_draw *draw, wf_generator *random, uint64_t n,
                         int64_t *out)
{
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; i < n && st == WEFT_OK; i++) {
        st = wf_draw_key(draw, random, &out[i]);
    }
    return st;
}

void wf_draw_shuffle(wf_generator *random, int64_t *keys, uint64_t n)
{
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = wf_random_below(random, i);
        int64_t key = keys[i - 1];

        keys[i - 1] = keys[j];
        keys[j] = key;
    }
}
