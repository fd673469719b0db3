/* SPDX-License-Identifier: Apache-2.0 */
/* Rows differ, so threads take spans of ids and never meet. Weights of 16 bits
 * pass through a piece of f32 on the stack. */
#include "base/num.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/pool.h"
#include "region/rows/update.h"
#include <assert.h>

#define PIECE 512u /* elements */
#define SPAN_BYTES (128u << 10)

typedef struct update_job {
    const wf_update_call *call;
    wf_stepper stepper;
    uint64_t limit;
    uint64_t span;
} update_job;

static char *row_at(const weft_table *t, uint64_t row)
{
    return (char *)t->at + (t->first + row) * t->pitch + t->skip;
}

void wf_stepper_init(wf_stepper *stepper, const weft_update *rule,
                     weft_dtype type)
{
    stepper->optimizer = wf_optimizer_of(rule->kind);
    stepper->kernels = wf_row_kernels_of(wf_cpu_level_used());
    stepper->type = type;
    wf_rule_of(rule, &stepper->rule);
}

/* Weights as f32: where they are, or copied to `room`. */
static float *weights_load(const wf_stepper *stepper, char *at, size_t n,
                           float *room)
{
    if (stepper->type == WEFT_F32) {
        return (float *)(void *)at;
    }
    stepper->kernels->widen[stepper->type](room, at, n);
    return room;
}

static void weights_store(const wf_stepper *stepper, char *at, const float *w,
                          size_t n)
{
    if (stepper->type != WEFT_F32) {
        stepper->kernels->narrow[stepper->type](at, w, n);
    }
}

/* ROWWISE_ADAGRAD: the row's state after this step. */
static void count_squares(const wf_stepper *stepper, char *weights,
                          const float *g, uint64_t width, float *state)
{
    size_t element = wf_dtype_bytes(stepper->type);
    float room[PIECE];
    float sum = 0;

    for (uint64_t at = 0; at < width; at += PIECE) {
        size_t n = wf_least(width - at, PIECE);
        const float *w = weights_load(stepper, weights + at * element, n, room);

        sum += wf_step_squares(&stepper->rule, w, g + at, n);
    }
    *state += sum / (float)width;
}

void wf_stepper_run(wf_stepper *stepper, char *weights,
                    char *const state[WEFT_UPDATE_STATES], const float *g,
                    uint64_t width)
{
    size_t element = wf_dtype_bytes(stepper->type);
    bool rowwise = stepper->optimizer->state[0].narrow;
    float *s0 = (float *)(void *)state[0];
    float *s1 = (float *)(void *)state[1];
    int32_t *steps = (int32_t *)(void *)state[2];
    float room[PIECE];

    if (steps != NULL) {
        *steps += 1;
        wf_rule_count(&stepper->rule, (uint64_t)*steps);
    }
    if (rowwise) {
        assert(s0 != NULL);
        count_squares(stepper, weights, g, width, s0);
    }
    for (uint64_t at = 0; at < width; at += PIECE) {
        size_t n = wf_least(width - at, PIECE);
        float *w = weights_load(stepper, weights + at * element, n, room);

        stepper->optimizer->step(&stepper->rule, w, g + at,
                                 s0 == NULL || rowwise ? s0 : s0 + at,
                                 s1 == NULL ? NULL : s1 + at, n);
        weights_store(stepper, weights + at * element, w, n);
    }
}

static void update_row(const wf_update_call *call, wf_stepper *stepper,
                       uint64_t row, const float *g)
{
    const weft_table *t = &call->rows.table;
    char *state[WEFT_UPDATE_STATES] = {NULL};

    for (int i = 0; i < WEFT_UPDATE_STATES; i++) {
        if (call->has[i] != NULL) {
            state[i] = row_at(call->has[i], row);
        }
    }
    wf_stepper_run(stepper, row_at(t, row), state, g, t->width);
}

static void update_span(void *ctx, uint32_t part)
{
    const update_job *job = ctx;
    const weft_ids *ids = &job->call->rows.ids;
    const weft_rows *grads = &job->call->rows.rows;
    uint64_t at = part * job->span;
    uint64_t end = at + job->span < ids->n ? at + job->span : ids->n;
    wf_stepper stepper = job->stepper;

    for (; at < end; at++) {
        int64_t id = wf_id_at(ids, at);

        if (id >= 0 && (uint64_t)id < job->limit) {
            update_row(
                job->call, &stepper, (uint64_t)id,
                (const float *)(void *)((char *)grads->at + at * grads->pitch));
        }
    }
}

void wf_update_run(const wf_update_call *call)
{
    const wf_rows_call *rows = &call->rows;
    uint64_t n = rows->ids.n;
    uint32_t threads = wf_rows_threads(rows);
    update_job job = {
        .call = call,
        .limit = rows->options.bounds == WEFT_BOUNDS_UNCHECKED ? 1ull << 63
                                                               : rows->limit,
    };

    if (n == 0 || rows->far_bytes == 0) {
        return;
    }
    wf_stepper_init(&job.stepper, &call->rule, rows->table.type);
    job.span = SPAN_BYTES / (rows->near_bytes * 4) + 16;
    if (job.span < n >> 24) {
        job.span = n >> 24;
    }
    wf_pool_run(threads, (uint32_t)((n + job.span - 1) / job.span), update_span,
                &job);
}
