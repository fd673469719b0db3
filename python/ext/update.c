/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse optimizers: arrays become the descriptions of <weft/update.h>.
 * weft.optim has made the arrays plain before, and gives each rank's own part
 * as memory of this process. */
#include "update.h"

#include <string.h>

#include "args.h"
#include "region_grid.h"

typedef struct update_call {
    wfp_grid weights;
    wfp_grid ids;
    wfp_grid grads;
    wfp_grid states[WEFT_UPDATE_STATES];
    weft_table table[1 + WEFT_UPDATE_STATES];
    const weft_table *state[WEFT_UPDATE_STATES];
    weft_update rule;
    weft_rows_options options;
} update_call;

static int update_open(wfp_grid *grid, PyObject *object, const char *name,
                       bool writable)
{
    int opened = wfp_grid_open(grid, object, name, writable);

    if (opened < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "weft cannot read the memory of %s",
                     name);
    }
    return opened;
}

/* Two dimensions, with rows that are each in one piece. */
static int update_open_rows(wfp_grid *grid, PyObject *object, const char *name,
                            bool writable, weft_rows *out)
{
    int64_t pitch;

    if (update_open(grid, object, name, writable) < 0) {
        return -1;
    }
    pitch = grid->dims == 2 ? wfp_grid_pitch(grid, 1) : -1;
    if (pitch < 0 || !wfp_grid_is_compact(grid, 1) ||
        grid->dtype == WFP_NO_DTYPE) {
        return wfp_invalid(
            "%s must have two dimensions, contiguous rows, and a type that "
            "weft calculates with",
            name);
    }
    *out = (weft_rows){.at = grid->at,
                       .pitch = (uint64_t)pitch,
                       .type = (weft_dtype)grid->dtype,
                       .place = grid->place};
    return 0;
}

static int update_open_table(wfp_grid *grid, PyObject *object, const char *name,
                             weft_table *out)
{
    weft_rows rows;

    if (update_open_rows(grid, object, name, true, &rows) < 0) {
        return -1;
    }
    *out = (weft_table){.at = rows.at,
                        .rows = (uint64_t)grid->shape[0],
                        .pitch = rows.pitch,
                        .place = rows.place,
                        .width = (uint64_t)grid->shape[1],
                        .type = rows.type};
    return 0;
}

/* One number for each row of `rows`. */
static int update_open_ids(wfp_grid *grid, PyObject *object,
                           const wfp_grid *rows, bool writable, weft_ids *out)
{
    if (update_open(grid, object, writable ? "out_ids" : "ids", writable) < 0) {
        return -1;
    }
    if (grid->dims != 1 || grid->shape[0] != rows->shape[0] ||
        (grid->dtype != WEFT_I32 && grid->dtype != WEFT_I64) ||
        !wfp_grid_is_compact(grid, 0)) {
        return wfp_invalid(
            "%s must be int32 or int64 in one dimension, a number for "
            "each row of %s",
            grid->name, rows->name);
    }
    *out = (weft_ids){.at = grid->at,
                      .type = (weft_dtype)grid->dtype,
                      .n = (uint64_t)grid->shape[0],
                      .place = grid->place};
    return 0;
}

/* On a GPU the work goes to torch's current stream. */
static int update_set_stream(const wfp_grid *ids, PyObject *threads,
                             weft_rows_options *options)
{
    options->size = sizeof(*options);
    if (wfp_args_u32(threads, "threads", &options->threads) < 0) {
        return -1;
    }
    if (ids->place == WEFT_HOST || ids->api == NULL ||
        ids->api->current_work_stream == NULL) {
        return 0;
    }
    return ids->api->current_work_stream(WFP_DL_CUDA, ids->device,
                                         &options->stream);
}

static int update_read_kind(const char *name, weft_optimizer *kind)
{
    const char *known;

    for (int i = 0; (known = weft_optimizer_name((weft_optimizer)i)) != NULL;
         i++) {
        if (strcmp(known, name) == 0) {
            *kind = (weft_optimizer)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no optimizer %s", name);
    return -1;
}

int wfp_update_read_rule(PyObject *tuple, weft_update *rule)
{
    const char *name;
    unsigned long long step = 0;

    rule->size = sizeof(*rule);
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "rule must be a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "siddddddK", &name, &rule->decoupled,
                          &rule->lr, &rule->weight_decay, &rule->eps,
                          &rule->alpha, &rule->beta1, &rule->beta2, &step)) {
        return -1;
    }
    rule->step = step;
    return update_read_kind(name, &rule->kind);
}

static int update_open_states(update_call *call, PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;

    if (n < 0 || n > WEFT_UPDATE_STATES) {
        PyErr_SetString(PyExc_TypeError,
                        "states must be a tuple of at most 3 tables");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (update_open_table(&call->states[i], PyTuple_GetItem(tuple, i),
                              "state", &call->table[1 + i]) < 0) {
            return -1;
        }
        call->state[i] = &call->table[1 + i];
    }
    return 0;
}

static weft_status update_run(const update_call *call, const weft_ids *ids,
                              const weft_rows *grads)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status = weft_rows_update(&call->table[0], call->state, ids, grads,
                              &call->rule, &call->options);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *rows_update(PyObject *module, PyObject *const *args,
                             Py_ssize_t nargs)
{
    update_call call = {0};
    weft_ids ids;
    weft_rows grads;
    PyObject *result = NULL;

    (void)module;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "6 arguments are needed");
        return NULL;
    }
    if (update_open_table(&call.weights, args[0], "weights", &call.table[0]) ==
            0 &&
        update_open_states(&call, args[1]) == 0 &&
        update_open_rows(&call.grads, args[3], "grads", false, &grads) == 0 &&
        update_open_ids(&call.ids, args[2], &call.grads, false, &ids) == 0 &&
        wfp_update_read_rule(args[4], &call.rule) == 0 &&
        update_set_stream(&call.ids, args[5], &call.options) == 0) {
        weft_status status = update_run(&call, &ids, &grads);

        result = status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
    }
    for (int i = 0; i < WEFT_UPDATE_STATES; i++) {
        wfp_grid_close(&call.states[i]);
    }
    wfp_grid_close(&call.grads);
    wfp_grid_close(&call.ids);
    wfp_grid_close(&call.weights);
    return result;
}

typedef struct unique_call {
    wfp_grid ids;
    wfp_grid grads;
    wfp_grid out_ids;
    wfp_grid sums;
    wfp_grid count;
    weft_ids i;
    weft_ids out_i;
    weft_rows g;
    weft_rows s;
    uint64_t rows;
    weft_rows_options options;
} unique_call;

static int unique_check_results(const unique_call *call)
{
    if (call->out_ids.dtype != call->ids.dtype ||
        call->out_ids.place != call->ids.place ||
        call->out_ids.shape[0] != call->ids.shape[0] ||
        call->sums.shape[1] != call->grads.shape[1]) {
        return wfp_invalid(
            "out_ids and out_grads must have the length and the device of "
            "ids and grads");
    }
    if (call->count.dtype != WEFT_I64 || wfp_grid_count(&call->count, 0) != 1 ||
        call->count.place != call->ids.place) {
        return wfp_invalid(
            "out_count must be one int64 on the device of the ids");
    }
    return 0;
}

static int unique_open(unique_call *call, PyObject *const *args)
{
    int64_t rows = 0;

    if (update_open_rows(&call->grads, args[1], "grads", false, &call->g) < 0 ||
        update_open_ids(&call->ids, args[0], &call->grads, false, &call->i) <
            0 ||
        wfp_args_i64(args[2], "rows", &rows) < 0 ||
        update_open_rows(&call->sums, args[4], "out_grads", true, &call->s) <
            0 ||
        update_open_ids(&call->out_ids, args[3], &call->sums, true,
                        &call->out_i) < 0 ||
        update_open(&call->count, args[5], "out_count", true) < 0 ||
        unique_check_results(call) < 0) {
        return -1;
    }
    call->rows = rows < 0 ? 0 : (uint64_t)rows;
    return update_set_stream(&call->ids, args[6], &call->options);
}

static weft_status unique_run(const unique_call *call)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status =
        weft_rows_unique(&call->i, &call->g, (uint64_t)call->grads.shape[1],
                         call->rows, call->out_ids.at, &call->s,
                         (uint64_t *)(void *)call->count.at, &call->options);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *rows_unique(PyObject *module, PyObject *const *args,
                             Py_ssize_t nargs)
{
    unique_call call = {0};
    PyObject *result = NULL;

    (void)module;
    if (nargs != 7) {
        PyErr_SetString(PyExc_TypeError, "7 arguments are needed");
        return NULL;
    }
    if (unique_open(&call, args) == 0) {
        weft_status status = unique_run(&call);

        result = status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
    }
    wfp_grid_close(&call.count);
    wfp_grid_close(&call.sums);
    wfp_grid_close(&call.out_ids);
    wfp_grid_close(&call.grads);
    wfp_grid_close(&call.ids);
    return result;
}

PyMethodDef wfp_update_functions[] = {
    {"rows_update", (PyCFunction)(void (*)(void))rows_update, METH_FASTCALL,
     "rows_update($module, weights, states, ids, grads, rule, threads, /)\n"
     "--\n\nweft_rows_update; rule is (kind, decoupled, lr, weight_decay, eps, "
     "alpha, beta1, beta2, step)."},
    {"rows_unique", (PyCFunction)(void (*)(void))rows_unique, METH_FASTCALL,
     "rows_unique($module, ids, grads, rows, out_ids, out_grads, out_count, "
     "threads, /)\n--\n\nweft_rows_unique."},
    {NULL, NULL, 0, NULL},
};
