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

#include "region/rows/rows.h"
#include "region/rows/rule.h"

/* A step whose arguments have been checked. */
typedef struct wf_update_call {
    wf_rows_call rows; /* weights, ids and gradients */
    weft_table state[WEFT_UPDATE_STATES];
    const weft_table *has[WEFT_UPDATE_STATES]; /* into state; NULL: none */
    weft_update rule;
} wf_update_call;

/* Host memory; ids are in bounds or left out. */
void wf_update_run(const wf_update_call *call);

/* One piece of a row: `n` weights w with gradients g; s0 and s1 are the state
 * that the optimizer has, a narrow s0 a number for the row, which is ready
 * (wf_step_squares). */
typedef void wf_row_step_fn(const wf_rule *rule, float *restrict w,
                            const float *restrict g, float *restrict s0,
                            float *restrict s1, size_t n);

/* A row of WF_OPTIMIZER_TABLE, and its arithmetic. */
typedef struct wf_optimizer {
    const char *name;
    wf_row_step_fn *step;
    struct wf_state_need {
        const char *name;
        weft_dtype type;
        bool narrow; /* one element a row, else as wide as the weights */
    } state[WEFT_UPDATE_STATES]; /* the third, if any, counts a row's steps */
} wf_optimizer;

/* NULL: there is no such number. */
const wf_optimizer *wf_optimizer_of(weft_optimizer kind);

/* What a step of one row needs to know. */
typedef struct wf_stepper {
    const wf_optimizer *optimizer;
    const struct wf_row_kernels *kernels;
    weft_dtype type; /* of the weights */
    wf_rule rule;    /* changes row by row where rows count their steps */
} wf_stepper;

void wf_stepper_init(wf_stepper *stepper, const weft_update *rule,
                     weft_dtype type);
/* A step of the `width` weights at `weights`, by the gradients `g`. `state` has
 * where each of the optimizer's states is; NULL: it has none. */
void wf_stepper_run(wf_stepper *stepper, char *weights,
                    char *const state[WEFT_UPDATE_STATES], const float *g,
                    uint64_t width);

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
