/* SPDX-License-Identifier: Apache-2.0 */
/* Distributions of keys, as weft_sample_options describe them: uniform,
 * log-uniform, by weights, or by a function of the user.
 *
 * A wf_draw is a small value. A copy of it is as good as the original and
 * shares its tables, which are read only: so each worker has its own, and
 * adapts it to the number of keys without asking others. */
#ifndef WF_STORE_DRAW_H
#define WF_STORE_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/store.h>

#include "store/random.h"

/* A column of an alias table: it stands for its own number with a probability
 * of `own`, else for `other`. */
typedef struct wf_alias {
    double own;
    uint64_t other;
} wf_alias;

typedef struct wf_draw {
    weft_distribution kind;
    bool all;    /* the range ends where the keys of the store end */
    bool hashed; /* keys of the store are any numbers */
    int64_t min;
    uint64_t span;     /* keys from min; 0: any number (GIVEN only) */
    uint64_t possible; /* as many different keys can be drawn at most */
    double scale;      /* LOG_UNIFORM: log(span + 1) */
    /* WEIGHTED, owned by whoever called wf_draw_init */
    double *weights;
    wf_alias *columns;
    int64_t (*given)(void *ctx);
    void *ctx;
} wf_draw;

/* Check the options that concern distributions, for a store of `keys` keys, and
 * make the tables. WEFT_ERR_INVALID names the option that does not fit. */
weft_status wf_draw_init(wf_draw *draw, const weft_sample_options *options,
                         uint64_t keys, bool hashed);

/* Only for the one that wf_draw_init made, when no copy is used any more. */
void wf_draw_fini(wf_draw *draw);

/* Adapt to a store that has `keys` keys now. WEFT_ERR_INVALID if the options
 * name keys that it does not have any more. */
weft_status wf_draw_fit(wf_draw *draw, uint64_t keys);

/* Is this a key that can be drawn? Of GIVEN: is it in the range? */
bool wf_draw_possible(const wf_draw *draw, int64_t key);

/* One key. Fails only if the user's function gave a key that is out of range,
 * with WEFT_ERR_INVALID. */
weft_status wf_draw_key(const wf_draw *draw, wf_generator *random,
                        int64_t *out);

/* `n` keys. */
weft_status wf_draw_keys(const wf_draw *draw, wf_generator *random, uint64_t n,
                         int64_t *out);

/* WEFT_ERR_INVALID if there are not `n` different keys to draw. */
weft_status wf_draw_check_distinct(const wf_draw *draw, uint64_t n);

/* `n` different keys, each with the probability that it has among those that
 * are left. WEFT_ERR_INVALID if there are not so many, or if the user's
 * function gives the same ones again and again. WEFT_ERR_NOMEM. */
weft_status wf_draw_distinct(const wf_draw *draw, wf_generator *random,
                             uint64_t n, int64_t *out);

/* Bring keys into a random order. */
void wf_draw_shuffle(wf_generator *random, int64_t *keys, uint64_t n);

#endif
