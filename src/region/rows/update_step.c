/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops over floats, which compilers turn into vectors; the build allows
 * them to (src/CMakeLists.txt). */
#include <math.h>
#include <stdbool.h>

#include "region/rows/update.h"

void wf_rule_count(wf_rule *rule, uint64_t t)
{
    rule->step_size =
        (float)(rule->lr_exact / (1 - pow(rule->beta1, (double)t)));
    rule->v_scale = (float)(1 / sqrt(1 - pow(rule->beta2, (double)t)));
}

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

static void step_rowwise(const wf_rule *r, float *restrict w,
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

static const wf_optimizer optimizers[] = {
    [WEFT_SGD] = {.name = "sgd", .step = step_sgd},
    [WEFT_ADAGRAD] = {.name = "adagrad",
                      .step = step_adagrad,
                      .state = {{"sum", WEFT_F32, false}}},
    [WEFT_ROWWISE_ADAGRAD] = {.name = "rowwise_adagrad",
                              .step = step_rowwise,
                              .state = {{"sum", WEFT_F32, true}}},
    [WEFT_RMSPROP] = {.name = "rmsprop",
                      .step = step_rmsprop,
                      .state = {{"v", WEFT_F32, false}},
                      .average = true},
    [WEFT_ADAM] = {.name = "adam",
                   .step = step_adam,
                   .state = {{"m", WEFT_F32, false}, {"v", WEFT_F32, false}},
                   .moments = true},
    [WEFT_LAZY_ADAM] = {.name = "lazy_adam",
                        .step = step_adam,
                        .state = {{"m", WEFT_F32, false},
                                  {"v", WEFT_F32, false},
                                  {"steps", WEFT_I32, true}},
                        .moments = true},
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

void wf_rule_of(const weft_update *u, wf_rule *out)
{
    const wf_optimizer *o = wf_optimizer_of(u->kind);
    bool apart = o->moments && u->decoupled != 0;
    double alpha = o->moments ? u->beta2 : u->alpha;

    *out = (wf_rule){
        .optimizer = o,
        .lr = (float)u->lr,
        .decay = apart ? 0.0f : (float)u->weight_decay,
        .keep = apart ? (float)(1 - u->lr * u->weight_decay) : 1.0f,
        .eps = (float)u->eps,
        .alpha = (float)alpha,
        .one_alpha = (float)(1 - alpha),
        .one_beta1 = (float)(1 - u->beta1),
        .lr_exact = u->lr,
        .beta1 = u->beta1,
        .beta2 = u->beta2,
    };
    if (o->moments) {
        wf_rule_count(out, o->state[2].name == NULL ? u->step : 1);
    }
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
