/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops over floats, which compilers turn into vectors; the build allows
 * them to (src/CMakeLists.txt). */
#include <math.h>
#include <stdbool.h>

#include "region/rows/update.h"

void wf_rule_of(const weft_update *u, wf_rule *out)
{
    bool adam = u->kind == WEFT_ADAM || u->kind == WEFT_LAZY_ADAM;
    bool apart = adam && u->decoupled != 0;
    double alpha = adam ? u->beta2 : u->alpha;

    *out = (wf_rule){
        .kind = u->kind,
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
    if (adam) {
        wf_rule_count(out, u->kind == WEFT_ADAM ? u->step : 1);
    }
}

void wf_rule_count(wf_rule *rule, uint64_t t)
{
    rule->step_size =
        (float)(rule->lr_exact / (1 - pow(rule->beta1, (double)t)));
    rule->v_scale = (float)(1 / sqrt(1 - pow(rule->beta2, (double)t)));
}

static void step_sgd(const wf_rule *r, float *restrict w,
                     const float *restrict g, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;

    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * (g[i] + decay * w[i]);
    }
}

static void step_adagrad(const wf_rule *r, float *restrict w,
                         const float *restrict g, float *restrict s, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float eps = r->eps;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        s[i] += x * x;
        w[i] -= lr * (x / (sqrtf(s[i]) + eps));
    }
}

static void step_rowwise(const wf_rule *r, float *restrict w,
                         const float *restrict g, float s, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float scale = sqrtf(s) + r->eps;

    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * ((g[i] + decay * w[i]) / scale);
    }
}

static void step_rmsprop(const wf_rule *r, float *restrict w,
                         const float *restrict g, float *restrict v, size_t n)
{
    float lr = r->lr;
    float decay = r->decay;
    float eps = r->eps;
    float alpha = r->alpha;
    float one_alpha = r->one_alpha;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] + decay * w[i];

        v[i] = alpha * v[i] + one_alpha * x * x;
        w[i] -= lr * (x / (sqrtf(v[i]) + eps));
    }
}

static void step_adam(const wf_rule *r, float *restrict w,
                      const float *restrict g, float *restrict m,
                      float *restrict v, size_t n)
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

        m[i] += one_beta1 * (x - m[i]);
        v[i] = alpha * v[i] + one_alpha * x * x;
        w[i] = keep * w[i] - step_size * (m[i] / (sqrtf(v[i]) * v_scale + eps));
    }
}

void wf_step(const wf_rule *rule, float *w, const float *g, float *s0,
             float *s1, size_t n)
{
    switch (rule->kind) {
    case WEFT_SGD:
        step_sgd(rule, w, g, n);
        break;
    case WEFT_ADAGRAD:
        step_adagrad(rule, w, g, s0, n);
        break;
    case WEFT_ROWWISE_ADAGRAD:
        step_rowwise(rule, w, g, *s0, n);
        break;
    case WEFT_RMSPROP:
        step_rmsprop(rule, w, g, s0, n);
        break;
    case WEFT_ADAM:
    case WEFT_LAZY_ADAM:
        step_adam(rule, w, g, s0, s1, n);
        break;
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
