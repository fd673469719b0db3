/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: how a store draws keys, and the rows of what was drawn. */
#include "args.h"
#include "request.h"
#include "store.h"
#include "store_access.h"

/* --- how keys are drawn --------------------------------------------------- */

/* The library wants a key, on the thread that called it without the GIL. An
 * exception stays with that thread; -1 is no key, so the library fails. */
static int64_t sample_draw(void *ctx)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *number = NULL;
    int64_t key = -1;

    if (!PyErr_Occurred()) {
        number = PyObject_CallNoArgs(ctx);
    }
    if (number != NULL && wfp_args_i64(number, "the key drawn", &key) < 0) {
        key = -1;
    }
    Py_XDECREF(number);
    PyGILState_Release(gil);
    return key;
}

/* A double for each key from min on; `weights` is open on success, and if there
 * are any. */
static int sample_weights(PyObject *object, wfp_array *weights,
                          weft_sample_options *options)
{
    /* Unless the library refuses min and max. */
    uint64_t keys = (uint64_t)options->max - (uint64_t)options->min;

    weights->owner = NULL;
    if (object == Py_None) {
        return 0;
    }
    if (wfp_array_open(weights, object, WFP_READ) < 0) {
        return -1;
    }
    if (weights->dtype != WEFT_F64 ||
        (options->min < options->max && weights->count != keys)) {
        wfp_invalid("there are %zu weights; there must be one for each of the "
                    "%llu keys from min (%lld) to below max (%lld)",
                    weights->count, (unsigned long long)keys,
                    (long long)options->min, (long long)options->max);
        wfp_array_close(weights);
        return -1;
    }
    options->weights = weights->data;
    return 0;
}

static int sample_set_draw(wfp_store *self, PyObject *draw,
                           weft_sample_options *options)
{
    if (draw == Py_None) {
        return 0;
    }
    if (!PyCallable_Check(draw)) {
        PyErr_Format(PyExc_TypeError,
                     "draw must be a function that returns a key, not %R",
                     draw);
        return -1;
    }
    if (self->draw != NULL) {
        return wfp_invalid("sampling of this store was enabled already");
    }
    self->draw = Py_NewRef(draw); /* for as long as the store may call it */
    options->draw = sample_draw;
    options->ctx = draw;
    return 0;
}

PyObject *wfp_store_sampling(PyObject *object, PyObject *args,
                             PyObject *keywords)
{
    static const char *const names[] = {
        "scheme",  "distribution", "min",  "max",   "distinct",
        "weights", "draw",         "pool", "reuse", NULL};
    wfp_store *self = (wfp_store *)object;
    weft_sample_options options = {.size = sizeof(options)};
    PyObject *number[4];
    PyObject *given;
    PyObject *draw;
    wfp_array weights;
    int scheme;
    int distribution;
    weft_status status;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iiOOpOOOO",
                                     (char **)names, &scheme, &distribution,
                                     &number[0], &number[1], &options.distinct,
                                     &given, &draw, &number[2], &number[3]) ||
        wfp_args_i64(number[0], "min", &options.min) < 0 ||
        wfp_args_i64(number[1], "max", &options.max) < 0 ||
        wfp_args_u64(number[2], "pool", &options.pool) < 0 ||
        wfp_args_u64(number[3], "reuse", &options.reuse) < 0 ||
        wfp_store_enter(self) < 0) {
        return NULL;
    }
    options.scheme = (weft_sample_scheme)scheme;
    options.distribution = (weft_distribution)distribution;
    if (sample_weights(given, &weights, &options) < 0) {
        wfp_store_leave(self);
        return NULL;
    }
    status = sample_set_draw(self, draw, &options) < 0
                 ? WEFT_ERR_INVALID
                 : weft_store_sampling(self->store, &options);
    wfp_array_close(&weights);
    wfp_store_leave(self);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

/* --- samples -------------------------------------------------------------- */

PyObject *wfp_worker_sample_prepare(PyObject *object, PyObject *const *args,
                                    Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    uint64_t n = 0;
    int64_t start = 0;
    int64_t end = 0;
    int64_t id = 0;
    weft_status status;

    if (wfp_fast_count("sample_prepare", nargs, 3) < 0 ||
        wfp_args_u64(args[0], "n", &n) < 0 ||
        wfp_args_i64(args[1], "start", &start) < 0 ||
        wfp_args_i64(args[2], "end", &end) < 0 || wfp_worker_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_sample_prepare(self->worker, n, start, end, &id);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    wfp_worker_leave(self);
    return status == WEFT_OK ? PyLong_FromLongLong(id) : wfp_raise(status);
}

PyObject *wfp_worker_sample_finish(PyObject *object, PyObject *number)
{
    wfp_worker *self = (wfp_worker *)object;
    int64_t id = 0;
    weft_status status;

    if (wfp_args_i64(number, "id", &id) < 0 || wfp_worker_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_sample_finish(self->worker, id);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    wfp_worker_leave(self);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

/* Open args: an id, int64 keys to be written, values to be written. */
static int sample_open(const wfp_worker *self, wfp_call *call,
                       PyObject *const *args, Py_ssize_t nargs, unsigned keep,
                       int64_t *id, weft_pairs *pairs)
{
    wfp_array *keys = &call->x.one;
    wfp_array *values = &call->out.one;

    if (wfp_fast_count("sample_pull", nargs, 3) < 0 ||
        wfp_args_i64(args[0], "id", id) < 0 ||
        wfp_array_open(keys, args[1], WFP_WRITE | keep) < 0) {
        return -1;
    }
    if (keys->dtype != WEFT_I64) {
        return wfp_invalid("the keys of samples must be int64");
    }
    if (wfp_values_open(values, args[2], "out", self->store->info.type,
                        WFP_WRITE | keep) < 0) {
        return -1;
    }
    if (self->store->info.length > 0 &&
        values->count != keys->count * self->store->info.length) {
        return wfp_invalid("out has %zu elements, but %zu rows have %llu",
                           values->count, keys->count,
                           (unsigned long long)keys->count *
                               self->store->info.length);
    }
    *pairs = (weft_pairs){.keys = wfp_keys_ids(keys),
                          .values = values->data,
                          .length = values->count};
    return 0;
}

static weft_status sample_make(wfp_worker *self, int64_t id,
                               const weft_pairs *pairs, weft_request **request)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_sample_pull(self->worker, id, pairs, request);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    return status;
}

PyObject *wfp_worker_sample_pull(PyObject *object, PyObject *const *args,
                                 Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_call call;
    weft_pairs pairs;
    int64_t id = 0;
    weft_status status;
    PyObject *result = NULL;

    wfp_call_init(&call);
    if (sample_open(self, &call, args, nargs, 0, &id, &pairs) == 0 &&
        wfp_worker_enter(self) == 0) {
        status = sample_make(self, id, &pairs, NULL);
        wfp_worker_leave(self);
        result = status == WEFT_OK ? wfp_call_finish(&call) : wfp_raise(status);
    }
    wfp_call_close(&call);
    return result;
}

PyObject *wfp_worker_isample_pull(PyObject *object, PyObject *const *args,
                                  Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_operation *operation =
        wfp_operation_new(self->store->comm, "pull_sample");
    weft_pairs pairs;
    int64_t id = 0;
    weft_status status;

    if (operation == NULL) {
        return NULL;
    }
    if (sample_open(self, &operation->call, args, nargs, WFP_KEEP, &id,
                    &pairs) < 0 ||
        wfp_worker_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    operation->call.result = PyTuple_Pack(2, args[1], args[2]);
    operation->holds = operation->call.result;
    status = operation->holds == NULL
                 ? WEFT_ERR_NOMEM
                 : sample_make(self, id, &pairs, &operation->request);
    wfp_worker_leave(self);
    return wfp_access_started(operation, status);
}
