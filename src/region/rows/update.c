/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of sparse optimizers, and who does the work. */
#include "region/rows/update.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "base/types.h"
#include "region/cuda/rows.h"
#include "region/region.h"

static weft_status check_rule(const weft_update *update, weft_update *out)
{
    const weft_update *u = out;
    const wf_optimizer *o;
    weft_status st;
    bool moments;

    if (update == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "weft_update is NULL");
    }
    st = wf_options_read(update, "weft_update", out, sizeof(*out));
    if (st != WEFT_OK) {
        return st;
    }
    o = wf_optimizer_of(u->kind);
    if (o == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "unknown optimizer %d", (int)u->kind);
    }
    moments = wf_optimizer_is(u->kind, WF_HAS_MOMENTS);
    if (!isfinite(u->lr) || !isfinite(u->weight_decay) || !(u->eps >= 0)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: lr %g, weight_decay %g and eps %g must be finite, "
                       "and eps not negative",
                       o->name, u->lr, u->weight_decay, u->eps);
    }
    if (wf_optimizer_is(u->kind, WF_READS_ALPHA) &&
        !(u->alpha >= 0 && u->alpha <= 1)) {
        return wf_fail(WEFT_ERR_INVALID, "%s: alpha is %g; it must be 0 to 1",
                       o->name, u->alpha);
    }
    if (moments &&
        !(u->beta1 >= 0 && u->beta1 < 1 && u->beta2 >= 0 && u->beta2 < 1)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: beta1 %g and beta2 %g must be at least 0 and below "
                       "1",
                       o->name, u->beta1, u->beta2);
    }
    if (moments && !wf_optimizer_is(u->kind, WF_COUNTS_STEPS) && u->step == 0) {
        return wf_fail(WEFT_ERR_INVALID, "%s: step must be at least 1",
                       o->name);
    }
    return WEFT_OK;
}

/* Row r lies at `at` + r * pitch, in elements of its type. */
static weft_status check_place(const weft_table *t, const char *what)
{
    uint64_t bits = (uint64_t)(uintptr_t)t->at | t->pitch | t->skip;

    if (t->region != NULL && (!wf_region_maps_all(t->region) ||
                              !wf_partition_is_flat(&t->region->part))) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "rows_update: %s is a region that is not flat and "
                       "mapped here; update the part of each rank there",
                       what);
    }
    assert(wf_dtype_bytes(t->type) > 0);
    if (bits % wf_dtype_bytes(t->type) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows_update: elements of %s must be aligned to their "
                       "size",
                       what);
    }
    return WEFT_OK;
}

static weft_status check_weights(const weft_table *weights, const weft_ids *ids,
                                 const weft_rows *grads,
                                 const weft_rows_options *options,
                                 wf_rows_call *out)
{
    weft_status st =
        wf_rows_check(WF_ROWS_SCATTER, weights, ids, grads, options, out);

    if (st != WEFT_OK) {
        return st;
    }
    if (!wf_dtype_trains(weights->type)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows_update: weights must be f32, f16 or bf16, not %s",
                       weft_dtype_name(weights->type));
    }
    if (grads->type != WEFT_F32 || (uintptr_t)grads->at % sizeof(float) != 0 ||
        out->rows.pitch % sizeof(float) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows_update: gradients must be f32 and aligned");
    }
    return check_place(&out->table, "weights");
}

static weft_status check_state(const wf_rows_call *rows, const weft_table *t,
                               const struct wf_state_need *need,
                               weft_table *out)
{
    weft_rows like = rows->rows;
    wf_rows_call checked;
    weft_status st;

    if (t == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "rows_update: state %s is missing",
                       need->name);
    }
    if (t->type != need->type ||
        t->width != (need->narrow ? 1 : rows->table.width)) {
        return wf_fail(
            WEFT_ERR_INVALID,
            "rows_update: state %s has %llu elements of %s a row, "
            "but needs %llu of %s",
            need->name, (unsigned long long)t->width, weft_dtype_name(t->type),
            need->narrow ? 1ull : (unsigned long long)rows->table.width,
            weft_dtype_name(need->type));
    }
    like.type = t->type;
    like.pitch = 0;
    st = wf_rows_check(WF_ROWS_SCATTER, t, &rows->ids, &like, &rows->options,
                       &checked);
    if (st == WEFT_OK) {
        st = check_place(&checked.table, need->name);
    }
    if (st == WEFT_OK && checked.limit != rows->limit) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "rows_update: state %s has %llu rows, the weights have "
                     "%llu",
                     need->name, (unsigned long long)checked.limit,
                     (unsigned long long)rows->limit);
    }
    *out = checked.table;
    return st;
}

static weft_status check_states(const weft_table *const *state,
                                wf_update_call *call)
{
    const struct wf_state_need *needs = wf_optimizer_of(call->rule.kind)->state;
    weft_status st = WEFT_OK;

    for (int i = 0; i < WEFT_UPDATE_STATES && needs[i].name != NULL; i++) {
        if (st == WEFT_OK) {
            st = check_state(&call->rows, state == NULL ? NULL : state[i],
                             &needs[i], &call->state[i]);
            call->has[i] = &call->state[i];
        }
    }
    return st;
}

weft_status weft_rows_update(const weft_table *weights,
                             const weft_table *const *state,
                             const weft_ids *ids, const weft_rows *grads,
                             const weft_update *update,
                             const weft_rows_options *options)
{
    wf_update_call call;
    weft_status st;
    bool left_out;

    memset(&call, 0, sizeof(call));
    if ((st = check_rule(update, &call.rule)) != WEFT_OK ||
        (st = check_weights(weights, ids, grads, options, &call.rows)) !=
            WEFT_OK ||
        (st = check_states(state, &call)) != WEFT_OK) {
        return st;
    }
    if (ids->place == WEFT_CUDA) {
        return wf_cuda_update(&call.rows.table, call.has, ids, &call.rows.rows,
                              &call.rule, &call.rows.options);
    }
    st = wf_rows_survey(&call.rows, &left_out);
    if (st == WEFT_OK) {
        wf_update_run(&call);
    }
    return st;
}

static weft_status check_sums(const wf_rows_call *rows, const void *out_ids,
                              const weft_rows *out, const uint64_t *out_count)
{
    if (out->type != WEFT_F32 || out->place != rows->ids.place) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows_unique: out_grads must be f32, and on the host or "
                       "GPU that the ids are on");
    }
    if (out_count == NULL ||
        (rows->ids.n > 0 && (out_ids == NULL || out->at == NULL))) {
        return wf_fail(WEFT_ERR_INVALID, "rows_unique: %s is NULL",
                       out_count == NULL ? "out_count"
                       : out_ids == NULL ? "out_ids"
                                         : "out_grads");
    }
    assert(wf_dtype_bytes(rows->ids.type) > 0);
    if ((uintptr_t)out_ids % wf_dtype_bytes(rows->ids.type) != 0 ||
        (uintptr_t)out->at % sizeof(float) != 0 ||
        out->pitch % sizeof(float) != 0 ||
        (out->pitch > 0 && out->pitch < rows->table.width * sizeof(float))) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows_unique: out_ids and out_grads must be aligned to "
                       "their elements, and rows must not overlap");
    }
    return WEFT_OK;
}

weft_status weft_rows_unique(const weft_ids *ids, const weft_rows *grads,
                             uint64_t width, uint64_t rows, void *out_ids,
                             const weft_rows *out_grads, uint64_t *out_count,
                             const weft_rows_options *options)
{
    wf_rows_call call;
    weft_table table = {.width = width};
    weft_rows out;
    weft_status st;

    if (ids == NULL || grads == NULL || out_grads == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "rows_unique: an argument is NULL");
    }
    if (!wf_dtype_trains(grads->type)) {
        return wf_fail(
            WEFT_ERR_INVALID,
            "rows_unique: gradients must be f32, f16 or bf16, not %s",
            weft_dtype_name(grads->type));
    }
    /* A table of no rows: only ids and gradients are looked at. */
    table.type = grads->type;
    table.place = ids->place;
    st = wf_rows_check(WF_ROWS_GATHER, &table, ids, grads, options, &call);
    if (st == WEFT_OK) {
        st = check_sums(&call, out_ids, out_grads, out_count);
    }
    if (st != WEFT_OK) {
        return st;
    }
    out = *out_grads;
    out.pitch = out.pitch == 0 ? width * sizeof(float) : out.pitch;
    if (ids->place == WEFT_CUDA) {
        return wf_cuda_unique(ids, &call.rows, width, rows, out_ids, &out,
                              out_count, &call.options);
    }
    return wf_unique_run(ids, &call.rows, width, rows, out_ids, &out, out_count,
                         wf_rows_threads(&call));
}
