/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizers are, and the parameters of their steps. In C and in CUDA
 * C++, so that both sides of a kind agree. */
#ifndef WF_REGION_ROWS_RULE_H
#define WF_REGION_ROWS_RULE_H

#include <math.h>
#include <stdbool.h>
#include <weft/update.h>

typedef enum wf_optimizer_trait {
    WF_READS_ALPHA = 1 << 0,
    WF_HAS_MOMENTS = 1 << 1,  /* reads beta1, beta2 and decoupled */
    WF_COUNTS_STEPS = 1 << 2, /* state 2 has the steps of each row */
} wf_optimizer_trait;

/* X(name, text, wide, traits, states...): the states that a row keeps, each a
 * name, a type, and whether it is one element a row; `wide` of them are as wide
 * as the weights. A new optimizer is a row here, step_`text` in update_step.c
 * and its step in cuda/update.cu. */
#define WF_OPTIMIZER_TABLE(X)                                                  \
    X(SGD, sgd, 0, 0, {NULL, WEFT_F32, false})                                 \
    X(ADAGRAD, adagrad, 1, 0, {"sum", WEFT_F32, false})                        \
    X(ROWWISE_ADAGRAD, rowwise_adagrad, 0, 0, {"sum", WEFT_F32, true})         \
    X(RMSPROP, rmsprop, 1, WF_READS_ALPHA, {"v", WEFT_F32, false})             \
    X(ADAM, adam, 2, WF_HAS_MOMENTS, {"m", WEFT_F32, false},                   \
      {"v", WEFT_F32, false})                                                  \
    X(LAZY_ADAM, lazy_adam, 2, WF_HAS_MOMENTS | WF_COUNTS_STEPS,               \
      {"m", WEFT_F32, false}, {"v", WEFT_F32, false},                          \
      {"steps", WEFT_I32, true})

static inline bool wf_optimizer_is(weft_optimizer kind, unsigned traits)
{
    switch (kind) {
#define WF_ROW(name, text, wide, own, ...)                                     \
    case WEFT_##name:                                                          \
        return ((own)&traits) != 0;
        WF_OPTIMIZER_TABLE(WF_ROW)
#undef WF_ROW
    }
    return false;
}

/* The parameters of a rule, as the arithmetic of a row uses them. */
typedef struct wf_rule {
    float lr;
    float decay; /* of the weight, added to the gradient */
    float keep;  /* w is multiplied by this first: decoupled decay */
    float eps;
    float alpha;     /* of v; with moments: beta2 */
    float one_alpha; /* 1 - alpha, which a float alpha would round away */
    float one_beta1;
    float step_size; /* moments: lr / (1 - beta1^t) */
    float v_scale;   /* moments: 1 / sqrt(1 - beta2^t) */
    /* Where rows count their steps, each has the two above. */
    float log_beta1;
    float log_beta2;
    double lr_exact;
    double beta1;
    double beta2;
} wf_rule;

/* Adjust the rule to a row whose own step count is `t`. */
static inline void wf_rule_count(wf_rule *rule, uint64_t t)
{
    rule->step_size =
        (float)(rule->lr_exact / (1 - pow(rule->beta1, (double)t)));
    rule->v_scale = (float)(1 / sqrt(1 - pow(rule->beta2, (double)t)));
}

static inline void wf_rule_of(const weft_update *u, wf_rule *out)
{
    bool moments = wf_optimizer_is(u->kind, WF_HAS_MOMENTS);
    bool apart = moments && u->decoupled != 0;
    double alpha = moments ? u->beta2 : u->alpha;

    out->lr = (float)u->lr;
    out->decay = apart ? 0.0f : (float)u->weight_decay;
    out->keep = apart ? (float)(1 - u->lr * u->weight_decay) : 1.0f;
    out->eps = (float)u->eps;
    out->alpha = (float)alpha;
    out->one_alpha = (float)(1 - alpha);
    out->one_beta1 = (float)(1 - u->beta1);
    out->log_beta1 = (float)log(u->beta1);
    out->log_beta2 = (float)log(u->beta2);
    out->lr_exact = u->lr;
    out->beta1 = u->beta1;
    out->beta2 = u->beta2;
    out->step_size = out->v_scale = 0;
    if (moments) {
        wf_rule_count(out,
                      wf_optimizer_is(u->kind, WF_COUNTS_STEPS) ? 1 : u->step);
    }
}

#endif
