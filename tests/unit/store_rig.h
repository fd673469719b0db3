/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of sampling: distributions and a test of them, and a worker
 * of a store that does not exist. A table of functions in its place says which
 * keys are on this host and counts intents. */
#ifndef STORE_RIG_H
#define STORE_RIG_H

#include "store/sample.h"
#include "wt_cmocka.h"

enum { KEYS = 100 };

typedef struct fake_worker {
    uint64_t keys;
    bool here[KEYS]; /* the keys that are on this host */
    uint64_t asked;  /* keys that were looked at to find one */
    uint64_t intents;
    uint64_t intended[KEYS]; /* how often each key was */
    int64_t start;
    int64_t end;
    weft_status refuse; /* what an intent fails with */
} fake_worker;

extern const wf_sample_env fake_env;

/* A worker of a rank, with the sampler of its store. */
typedef struct rig {
    fake_worker fake;
    wf_sampler *sampler;
    wf_samples samples;
} rig;

/* `size` of the options is set here. */
void rig_init(rig *r, const weft_sample_options *options, uint64_t seed);
void rig_fini(rig *r);
void rig_all_here(rig *r);

/* These succeed. */
int64_t rig_prepare(rig *r, uint64_t n);
void rig_next(rig *r, int64_t id, uint64_t n, int64_t *keys);
uint64_t rig_left(const rig *r, int64_t id);

/* wf_sample_next fails with WEFT_ERR_INVALID and this in its text. */
void rig_refuses(rig *r, int64_t id, uint64_t n, const char *says);

/* Keys of the store, none twice. */
void rig_check_distinct(const int64_t *keys, uint64_t n);

wf_generator rig_random(uint64_t seed);
wf_draw rig_draw(const weft_sample_options *options, uint64_t keys);

/* The share of each of `n` keys; if WEIGHTED some that differ, some of them 0.
 */
void rig_shares(weft_distribution kind, unsigned n, double *share);

/* Pearson's chi-square test: could `total` draws with the probabilities of
 * `share`, whose sum may be anything, have given these counts? A right
 * distribution fails with one seed of about 10000; seeds are fixed, so that
 * what passes once always does. A count where the share is 0 fails. The limit
 * is Wilson and Hilferty's. */
bool rig_fits(const uint64_t *counts, const double *share, unsigned n,
              uint64_t total);

#endif
