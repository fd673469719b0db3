/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse training: sum the gradients of equal rows, then take one step of an
 * optimizer on the rows that were touched, in one pass over them.
 *
 * The formulas are those of torch's own optimizers, so that rows end as a dense
 * step would leave them; rows that are not named keep weights and state. */
#ifndef WEFT_UPDATE_H
#define WEFT_UPDATE_H

#include <weft/rows.h>

WEFT_BEGIN_DECLS

/** g is the gradient, w the weight, s and m and v the state, t the step; unless
 * `decoupled`, g += weight_decay * w comes first. */
typedef enum weft_optimizer {
    /** w -= lr * g. No state. */
    WEFT_SGD = 0,
    /** s += g * g; w -= lr * g / (sqrt(s) + eps). State 0: s. */
    WEFT_ADAGRAD = 1,
    /** s += mean of g * g over the row; w as ADAGRAD. State 0: s, width 1. */
    WEFT_ROWWISE_ADAGRAD = 2,
    /** v = alpha * v + (1 - alpha) * g * g; w -= lr * g / (sqrt(v) + eps).
     * State 0: v. */
    WEFT_RMSPROP = 3,
    /** m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g;
     * w -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps). State 0:
     * m, state 1: v. */
    WEFT_ADAM = 4,
    /** ADAM with a step t for each row, which counts its own updates. State 2:
     * t, width 1, type WEFT_I32. */
    WEFT_LAZY_ADAM = 5
} weft_optimizer;

/** "sgd", "rowwise_adagrad", ...; NULL past the last one. */
WEFT_API const char *weft_optimizer_name(weft_optimizer kind);

#define WEFT_UPDATE_STATES 3

/** Which step to take. A zero is a zero here, not a default. */
typedef struct weft_update {
    size_t size; /* of this struct */
    weft_optimizer kind;
    int32_t decoupled; /* ADAM, LAZY_ADAM: w -= lr * weight_decay * w first,
                        * as AdamW does, and g stays */
    double lr;
    double weight_decay;
    double eps;
    double alpha;
    double beta1;
    double beta2;
    uint64_t step; /* ADAM: t, 1 for the first */
} weft_update;

/**
 * One step on the rows `ids` of `weights`, with a row of gradients for each.
 *
 * No two of `ids` may be equal (weft_rows_unique sees to that). A negative one
 * is passed over. Weights are f32, f16 or bf16; gradients and state are f32,
 * calculated in f32, and weights are rounded once. `state` holds the tables
 * that the kind names, each with as many rows as `weights`, and as wide; NULL
 * where there are none. A table that is a region must be flat: an owner updates
 * its own part.
 *
 * Host memory: done on return, by options->threads. On a GPU all is there, and
 * the call returns when the work is on the stream. WEFT_ERR_INVALID names what
 * is wrong, and then nothing was written.
 */
WEFT_API weft_status weft_rows_update(const weft_table *weights,
                                      const weft_table *const *state,
                                      const weft_ids *ids,
                                      const weft_rows *grads,
                                      const weft_update *update,
                                      const weft_rows_options *options);

/**
 * Sum the gradients of equal ids.
 *
 * `out_ids` (of the type of `ids`, as many) gets each number once, in rising
 * order, then -1 up to its end; `out_grads` (f32, as many rows) the sums, and
 * `*out_count` how many there are. Negative ids fall away. All three are where
 * `ids` is, so that on a GPU nothing has to wait: the next step passes over
 * -1. `grads` is f32, f16 or bf16, `width` elements a row; sums are f32, in an
 * order that depends on `ids` only.
 *
 * `rows` is a bound on the numbers that saves time, or 0: a number that is not
 * below it is WEFT_ERR_INVALID on the host, and falls away on a GPU.
 */
WEFT_API weft_status weft_rows_unique(const weft_ids *ids,
                                      const weft_rows *grads, uint64_t width,
                                      uint64_t rows, void *out_ids,
                                      const weft_rows *out_grads,
                                      uint64_t *out_count,
                                      const weft_rows_options *options);

WEFT_END_DECLS

#endif
