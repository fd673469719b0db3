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
    const wf_optimizer *optimizer;
    wf_rule rule;
    const wf_row_kernels *kernels;
    uint64_t limit;
    uint64_t span;
} update_job;

static char *row_at(const weft_table *t, uint64_t row)
{
    return (char *)t->at + (t->first + row) * t->pitch + t->skip;
}

/* Weights as f32: where they are, or copied to `room`. */
static float *weights_load(const update_job *job, char *at, size_t n,
                           float *room)
{
    weft_dtype type = job->call->rows.table.type;

    if (type == WEFT_F32) {
        return (float *)(void *)at;
    }
    job->kernels->widen[type](room, at, n);
    return room;
}

static void weights_store(const update_job *job, char *at, const float *w,
                          size_t n)
{
    weft_dtype type = job->call->rows.table.type;

    if (type != WEFT_F32) {
        job->kernels->narrow[type](at, w, n);
    }
}

/* ROWWISE_ADAGRAD: the row's state after this step. */
static void count_squares(const update_job *job, char *weights, const float *g,
                          float *state)
{
    const weft_table *t = &job->call->rows.table;
    size_t element = wf_dtype_bytes(t->type);
    float room[PIECE];
    float sum = 0;

    for (uint64_t at = 0; at < t->width; at += PIECE) {
        size_t n = wf_least(t->width - at, PIECE);
        const float *w = weights_load(job, weights + at * element, n, room);

        sum += wf_step_squares(&job->rule, w, g + at, n);
    }
    *state += sum / (float)t->width;
}

static void update_row(const update_job *job, wf_rule *rule, uint64_t row,
                       const float *g)
{
    const wf_update_call *call = job->call;
    const weft_table *t = &call->rows.table;
    size_t element = wf_dtype_bytes(t->type);
    bool rowwise = job->optimizer->state[0].narrow;
    char *weights = row_at(t, row);
    float *s[2] = {NULL, NULL};
    float room[PIECE];

    for (int i = 0; i < 2; i++) {
        if (call->has[i] != NULL) {
            s[i] = (float *)(void *)row_at(call->has[i], row);
        }
    }
    if (call->has[2] != NULL) {
        int32_t *steps = (int32_t *)(void *)row_at(call->has[2], row);

        *steps += 1;
        wf_rule_count(rule, (uint64_t)*steps);
    }
    if (rowwise) {
        assert(s[0] != NULL);
        count_squares(job, weights, g, s[0]);
    }
    for (uint64_t at = 0; at < t->width; at += PIECE) {
        size_t n = wf_least(t->width - at, PIECE);
        float *w = weights_load(job, weights + at * element, n, room);

        job->optimizer->step(rule, w, g + at,
                             s[0] == NULL || rowwise ? s[0] : s[0] + at,
                             s[1] == NULL ? NULL : s[1] + at, n);
        weights_store(job, weights + at * element, w, n);
    }
}

static void update_span(void *ctx, uint32_t part)
{
    const update_job *job = ctx;
    const weft_ids *ids = &job->call->rows.ids;
    const weft_rows *grads = &job->call->rows.rows;
    uint64_t at = part * job->span;
    uint64_t end = at + job->span < ids->n ? at + job->span : ids->n;
    wf_rule rule = job->rule; /* changes row by row where rows count */

    for (; at < end; at++) {
        int64_t id = wf_id_at(ids, at);

        if (id >= 0 && (uint64_t)id < job->limit) {
            update_row(
                job, &rule, (uint64_t)id,
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
        .optimizer = wf_optimizer_of(call->rule.kind),
        .kernels = wf_row_kernels_of(wf_cpu_level_used()),
        .limit = rows->options.bounds == WEFT_BOUNDS_UNCHECKED ? 1ull << 63
                                                               : rows->limit,
    };

    if (n == 0 || rows->far_bytes == 0) {
        return;
    }
    wf_rule_of(&call->rule, &job.rule);
    job.span = SPAN_BYTES / (rows->near_bytes * 4) + 16;
    if (job.span < n >> 24) {
        job.span = n >> 24;
    }
    wf_pool_run(threads, (uint32_t)((n + job.span - 1) / job.span), update_span,
                &job);
}
