/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops over floats, which compilers turn into vectors; the build allows
 * them to (src/CMakeLists.txt). */
#include <math.h>

#include "region/rows/update.h"

static void step_sgd(const wf_rule *r, float *restrict w,
                     const float *restrict g, float *restrict s0,
                     float *restrict s1, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;

    (void)s0;
    (void)s1;
    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * (g[i] + decay * w[i]);
    }
}

static void step_adagrad(const wf_rule *r, float *restrict w,
                         const float *restrict g, float *restrict s0,
                         float *restrict s1, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float eps = r->eps;

    (void)s1;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        s0[i] += x * x;
        w[i] -= lr * (x / (sqrtf(s0[i]) + eps));
    }
}

static void step_rowwise_adagrad(const wf_rule *r, float *restrict w,
                                 const float *restrict g, float *restrict s0,
                                 float *restrict s1, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float scale = sqrtf(*s0) + r->eps;

    (void)s1;
    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * ((g[i] + decay * w[i]) / scale);
    }
}

static void step_rmsprop(const wf_rule *r, float *restrict w,
                         const float *restrict g, float *restrict s0,
                         float *restrict s1, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float eps = r->eps;
    float alpha = r->alpha;
    float one_alpha = r->one_alpha;

    (void)s1;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        s0[i] = alpha * s0[i] + one_alpha * x * x;
        w[i] -= lr * (x / (sqrtf(s0[i]) + eps));
    }
}

static void step_adam(const wf_rule *r, float *restrict w,
                      const float *restrict g, float *restrict s0,
                      float *restrict s1, size_t n)
{
    float decay = r->decay;
    float keep = r->keep;
    float eps = r->eps;
    float alpha = r->alpha;
    float one_alpha = r->one_alpha;
    float one_beta1 = r->one_beta1;
    float step_size = r->step_size;
    float v_scale = r->v_scale;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        s0[i] += one_beta1 * (x - s0[i]);
        s1[i] = alpha * s1[i] + one_alpha * x * x;
        w[i] =
            keep * w[i] - step_size * (s0[i] / (sqrtf(s1[i]) * v_scale + eps));
    }
}

#define step_lazy_adam step_adam

static const wf_optimizer optimizers[] = {
#define ROW(name, text, wide, traits, ...)                                     \
    [WEFT_##name] = {#text, step_##text, {__VA_ARGS__}},
    WF_OPTIMIZER_TABLE(ROW)
#undef ROW
};

const wf_optimizer *wf_optimizer_of(weft_optimizer kind)
{
    return (size_t)kind < sizeof(optimizers) / sizeof(optimizers[0])
               ? &optimizers[kind]
               : NULL;
}

const char *weft_optimizer_name(weft_optimizer kind)
{
    const wf_optimizer *o = wf_optimizer_of(kind);

    return o != NULL ? o->name : NULL;
}

float wf_step_squares(const wf_rule *rule, const float *w, const float *g,
                      size_t n)
{
    float decay = rule->decay;
    float sum = 0;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        sum += x * x;
    }
    return sum;
}

void wf_step_add(float *restrict sum, const float *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += g[i];
    }
}
