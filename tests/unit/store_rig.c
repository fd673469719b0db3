/* SPDX-License-Identifier: Apache-2.0 */
#include "store_rig.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static weft_status fake_intent(void *worker, const int64_t *keys, uint64_t n,
                               int64_t start, int64_t end)
{
    fake_worker *f = worker;

    if (f->refuse != WEFT_OK) {
        return wf_fail(f->refuse, "refused");
    }
    for (uint64_t i = 0; i < n; i++) {
        f->intended[keys[i] % KEYS]++;
    }
    f->intents++;
    f->start = start;
    f->end = end;
    return WEFT_OK;
}

static bool fake_here(void *worker, int64_t first, int64_t last, int64_t *out)
{
    fake_worker *f = worker;

    for (int64_t key = first; key <= last; key++) {
        f->asked++;
        if (f->here[key]) {
            *out = key;
            return true;
        }
    }
    return false;
}

static uint64_t fake_keys(void *worker)
{
    return ((fake_worker *)worker)->keys;
}

const wf_sample_env fake_env = {fake_intent, fake_here, fake_keys};

void rig_init(rig *r, const weft_sample_options *options, uint64_t seed)
{
    weft_sample_options o = *options;
    wf_sampler_store store = {.keys = KEYS, .seed = seed, .env = &fake_env};

    *r = (rig){.fake = {.keys = KEYS}};
    o.size = sizeof(o);
    assert_int_equal(wf_sampler_create(&o, &store, &r->sampler), WEFT_OK);
    wf_samples_init(&r->samples, &r->fake, 0);
}

void rig_all_here(rig *r)
{
    memset(r->fake.here, 1, sizeof(r->fake.here));
}

void rig_fini(rig *r)
{
    wf_samples_fini(&r->samples);
    wf_sampler_destroy(r->sampler);
}

int64_t rig_prepare(rig *r, uint64_t n)
{
    int64_t id = 0;

    assert_int_equal(wf_sample_prepare(&r->samples, r->sampler, n, 3, 5, &id),
                     WEFT_OK);
    return id;
}

void rig_next(rig *r, int64_t id, uint64_t n, int64_t *keys)
{
    assert_int_equal(wf_sample_next(&r->samples, id, n, keys), WEFT_OK);
}

void rig_refuses(rig *r, int64_t id, uint64_t n, const char *says)
{
    int64_t keys[KEYS];

    assert_int_equal(wf_sample_next(&r->samples, id, n, keys),
                     WEFT_ERR_INVALID);
    if (strstr(weft_error_detail(), says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", weft_error_detail(), says);
    }
}

uint64_t rig_left(const rig *r, int64_t id)
{
    uint64_t left = UINT64_MAX;

    assert_int_equal(wf_sample_left(&r->samples, id, &left), WEFT_OK);
    return left;
}

void rig_check_distinct(const int64_t *keys, uint64_t n)
{
    bool seen[KEYS] = {false};

    for (uint64_t i = 0; i < n; i++) {
        assert_true(keys[i] >= 0 && keys[i] < KEYS && !seen[keys[i]]);
        seen[keys[i]] = true;
    }
}

wf_generator rig_random(uint64_t seed)
{
    wf_generator r;

    wf_random_seed(&r, seed, 0, 0);
    return r;
}

wf_draw rig_draw(const weft_sample_options *options, uint64_t keys)
{
    wf_draw draw;

    assert_int_equal(wf_draw_init(&draw, options, keys, false), WEFT_OK);
    return draw;
}

static double weight_of(unsigned i)
{
    return i % 5 == 3 ? 0 : 1 + (double)(i * 7 % 11);
}

void rig_shares(weft_distribution kind, unsigned n, double *share)
{
    for (unsigned i = 0; i < n; i++) {
        share[i] = kind == WEFT_DRAW_LOG_UNIFORM ? log((i + 2.0) / (i + 1.0))
                   : kind == WEFT_DRAW_WEIGHTED  ? weight_of(i)
                                                 : 1;
    }
}

bool rig_fits(const uint64_t *counts, const double *share, unsigned n,
              uint64_t total)
{
    double sum = 0;
    double chi = 0;
    double df = -1;
    double root;

    for (unsigned i = 0; i < n; i++) {
        sum += share[i];
    }
    for (unsigned i = 0; i < n; i++) {
        double expected = (double)total * share[i] / sum;
        double off = (double)counts[i] - expected;

        if (share[i] == 0 && counts[i] > 0) {
            return false;
        }
        if (share[i] > 0) {
            chi += off * off / expected;
            df++;
        }
    }
    if (df < 1) {
        return true;
    }
    root = 1 - 2 / (9 * df) + 3.72 * sqrt(2 / (9 * df));
    return chi <= df * root * root * root;
}
