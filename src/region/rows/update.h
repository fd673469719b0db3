/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse optimizers inside the library.
 *
 *   update.c         arguments, and who does the work
 *   update_run.c     rows and threads on the CPU
 *   update_step.c    the arithmetic of one row
 *   update_unique.c  sums of equal ids on the CPU
 */
#ifndef WF_REGION_ROWS_UPDATE_H
#define WF_REGION_ROWS_UPDATE_H

#include <weft/update.h>

#include "region/rows/rows.h"

/* A step whose arguments have been checked. */
typedef struct wf_update_call {
    wf_rows_call rows; /* weights, ids and gradients */
    weft_table state[WEFT_UPDATE_STATES];
    const weft_table *has[WEFT_UPDATE_STATES]; /* into state; NULL: none */
    weft_update rule;
} wf_update_call;

/* Host memory; ids are in bounds or left out. */
void wf_update_run(const wf_update_call *call);

/* The parameters of a rule, as the arithmetic of a row uses them. */
typedef struct wf_rule {
    weft_optimizer kind;
    float lr;
    float decay; /* of the weight, added to the gradient */
    float keep;  /* w is multiplied by this first: decoupled decay */
    float eps;
    float alpha;     /* RMSPROP: of v; Adam: beta2 */
    float one_alpha; /* 1 - alpha, which a float alpha would round away */
    float one_beta1;
    float step_size; /* Adam: lr / (1 - beta1^t) */
    float v_scale;   /* Adam: 1 / sqrt(1 - beta2^t) */
    double lr_exact; /* LAZY_ADAM has these two for each row */
    double beta1;
    double beta2;
} wf_rule;

void wf_rule_of(const weft_update *update, wf_rule *out);
/* Adjust the rule to a row whose own step count is `t`. */
void wf_rule_count(wf_rule *rule, uint64_t t);

/* One piece of a row: `n` weights w with gradients g; s0 and s1 are the state
 * that the kind has, s0 of ROWWISE_ADAGRAD a number for the row, which is ready
 * (wf_step_squares). */
void wf_step(const wf_rule *rule, float *w, const float *g, float *s0,
             float *s1, size_t n);
/* The sum of squares of a piece's gradients, weight decay included. */
float wf_step_squares(const wf_rule *rule, const float *w, const float *g,
                      size_t n);
/* sum[i] += g[i] */
void wf_step_add(float *sum, const float *g, size_t n);

/* weft_rows_unique in host memory; the arguments have been checked. */
weft_status wf_unique_run(const weft_ids *ids, const weft_rows *grads,
                          uint64_t width, uint64_t rows, void *out_ids,
                          const weft_rows *out_grads, uint64_t *out_count,
                          uint32_t threads);

#endif
