/* SPDX-License-Identifier: Apache-2.0 */
/* Pull, push and set: keys and values become the weft_pairs of <weft/store.h>.
 * Values may have any shape, their elements are what counts. */
#include "store_access.h"

#include "tensor.h"

/* --- keys ----------------------------------------------------------------- */

static PyObject *as_keys; /* weft._store.as_keys, once it was needed */

static int keys_load(void)
{
    PyObject *module;

    if (as_keys != NULL) {
        return 0;
    }
    module = PyImport_ImportModule("weft._store");
    if (module == NULL) {
        return -1;
    }
    as_keys = PyObject_GetAttrString(module, "as_keys");
    Py_DECREF(module);
    return as_keys == NULL ? -1 : 0;
}

static bool keys_fit(const wfp_array *keys)
{
    return keys->dtype == WEFT_I64 || keys->dtype == WEFT_I32;
}

static bool keys_are_array(PyObject *object)
{
    return wfp_tensor_api(Py_TYPE(object)) != NULL ||
           PyObject_CheckBuffer(object) ||
           wfp_tensor_learn(Py_TYPE(object)) != NULL;
}

int wfp_keys_open(wfp_array *keys, PyObject *object, unsigned access)
{
    PyObject *converted;
    int opened;

    if (keys_are_array(object)) {
        if (wfp_array_open(keys, object, access) < 0) {
            return -1;
        }
        if (keys_fit(keys)) {
            return 0;
        }
        wfp_array_close(keys);
    }
    if (keys_load() < 0) {
        return -1;
    }
    converted = PyObject_CallFunctionObjArgs(as_keys, object, NULL);
    if (converted == NULL) {
        return -1;
    }
    opened = wfp_array_open(keys, converted, access);
    Py_DECREF(converted);
    return opened;
}

/* --- values --------------------------------------------------------------- */

/* What torch and NumPy call it. */
static const char *type_name(weft_dtype type)
{
    switch (type) {
#define NAME(word, number, bytes, text, kind, part, array, ...)                \
    case WEFT_##word:                                                          \
        return (const char *){array};
        WEFT_DTYPE_TABLE(NAME)
#undef NAME
    }
    return weft_dtype_name(type);
}

/* NumPy has no bfloat16: any buffer with elements of its size is taken. */
static bool values_fit(const wfp_array *values, weft_dtype type)
{
    return values->dtype == (int)type ||
           (type == WEFT_BF16 && values->has_view &&
            values->dtype == WFP_NO_DTYPE && values->item == 2);
}

int wfp_values_open(wfp_array *values, PyObject *object, const char *name,
                    weft_dtype type, unsigned access)
{
    PyObject *found;

    if (wfp_array_open(values, object, access) < 0) {
        return -1;
    }
    if (values_fit(values, type)) {
        return 0;
    }
    wfp_array_close(values);
    found = wfp_side_type_name(object);
    if (found != NULL) {
        wfp_fail(WEFT_ERR_INVALID,
                 "the type of %s is %S, but that of the store is %s", name,
                 found, type_name(type));
        Py_DECREF(found);
    }
    return -1;
}

/* --- one operation -------------------------------------------------------- */

typedef weft_status access_function(weft_worker *worker,
                                    const weft_pairs *pairs,
                                    weft_request **request);

typedef struct access_kind {
    const char *name;
    access_function *run;
    bool pulls; /* values are written, and borrowed while it is under way */
} access_kind;

static const access_kind access_pull = {"pull", weft_store_pull, true};
static const access_kind access_push = {"push", weft_store_push, false};
static const access_kind access_set = {"set", weft_store_set, false};

static int access_open(const wfp_worker *self, const access_kind *kind,
                       wfp_array *keys, wfp_array *values,
                       PyObject *const *args, unsigned keep, weft_pairs *pairs)
{
    if (wfp_keys_open(keys, args[0], WFP_READ | keep) < 0) {
        return -1;
    }
    if (wfp_values_open(values, args[1], kind->pulls ? "out" : "values",
                        self->store->info.type,
                        (kind->pulls ? WFP_WRITE : WFP_READ) | keep) < 0) {
        wfp_array_close(keys);
        return -1;
    }
    *pairs = (weft_pairs){.keys = wfp_keys_ids(keys),
                          .values = values->data,
                          .length = values->count};
    return 0;
}

/* The library calls rows that are pulled values. Here they are `out`. */
static void access_raise(const wfp_worker *self, const access_kind *kind,
                         const weft_pairs *pairs, weft_status status)
{
    uint64_t wanted = 0;

    wfp_raise(status);
    if (kind->pulls && status == WEFT_ERR_INVALID &&
        wfp_store_sum(self->store, &pairs->keys, &wanted) == WEFT_OK &&
        wanted != pairs->length) {
        PyErr_Clear();
        wfp_invalid("out has %llu elements, but the rows of the %llu keys have "
                    "%llu",
                    (unsigned long long)pairs->length,
                    (unsigned long long)pairs->keys.n,
                    (unsigned long long)wanted);
    }
}

/* Without the GIL; `request` as of weft_store_pull. */
static weft_status access_make(wfp_worker *self, access_function *run,
                               const weft_pairs *pairs, weft_request **request)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = run(self->worker, pairs, request);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *access_run(PyObject *object, const access_kind *kind,
                            PyObject *const *args, Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_array keys;
    wfp_array values;
    weft_pairs pairs;
    weft_status status;
    PyObject *result = NULL;

    if (wfp_fast_count(kind->name, nargs, 2) < 0 ||
        access_open(self, kind, &keys, &values, args, 0, &pairs) < 0) {
        return NULL;
    }
    if (wfp_worker_enter(self) == 0) {
        status = access_make(self, kind->run, &pairs, NULL);
        if (status != WEFT_OK) {
            access_raise(self, kind, &pairs, status);
        }
        wfp_worker_leave(self);
        if (status == WEFT_OK && wfp_array_finish(&values) == 0) {
            result = Py_NewRef(Py_None);
        }
    }
    wfp_array_close(&values);
    wfp_array_close(&keys);
    return result;
}

PyObject *wfp_access_started(wfp_operation *operation, weft_status status)
{
    if (status == WEFT_OK && operation->request == NULL &&
        wfp_operation_settle(operation, WEFT_OK) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    return wfp_request_started(operation, status);
}

static PyObject *access_start(PyObject *object, const access_kind *kind,
                              PyObject *const *args, Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_operation *operation;
    weft_pairs pairs;
    weft_status status;

    if (wfp_fast_count(kind->name, nargs, 2) < 0) {
        return NULL;
    }
    operation = wfp_operation_new(self->store->comm, kind->name);
    if (operation == NULL) {
        return NULL;
    }
    if (access_open(self, kind, &operation->call.x.one,
                    &operation->call.out.one, args, kind->pulls ? WFP_KEEP : 0,
                    &pairs) < 0 ||
        wfp_worker_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    operation->call.result = kind->pulls ? args[1] : Py_None;
    operation->holds = Py_NewRef(operation->call.result);
    status = access_make(self, kind->run, &pairs, &operation->request);
    if (status != WEFT_OK) {
        access_raise(self, kind, &pairs, status);
        wfp_worker_leave(self);
        wfp_operation_free(operation);
        return NULL;
    }
    wfp_worker_leave(self);
    if (!kind->pulls) { /* what is pushed was copied */
        wfp_call_close(&operation->call);
    }
    return wfp_access_started(operation, status);
}

PyObject *wfp_worker_pull(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs)
{
    return access_run(self, &access_pull, args, nargs);
}

PyObject *wfp_worker_push(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs)
{
    return access_run(self, &access_push, args, nargs);
}

PyObject *wfp_worker_set(PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs)
{
    return access_run(self, &access_set, args, nargs);
}

PyObject *wfp_worker_ipull(PyObject *self, PyObject *const *args,
                           Py_ssize_t nargs)
{
    return access_start(self, &access_pull, args, nargs);
}

PyObject *wfp_worker_ipush(PyObject *self, PyObject *const *args,
                           Py_ssize_t nargs)
{
    return access_start(self, &access_push, args, nargs);
}

PyObject *wfp_worker_iset(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs)
{
    return access_start(self, &access_set, args, nargs);
}

/* --- only what is here ---------------------------------------------------- */

static weft_status local_make(wfp_worker *self, const weft_pairs *pairs,
                              int *local)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_store_pull_local(self->worker, pairs, local);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    return status;
}

PyObject *wfp_worker_pull_local(PyObject *object, PyObject *const *args,
                                Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_array keys;
    wfp_array values;
    weft_pairs pairs;
    weft_status status;
    int local = 0;
    PyObject *result = NULL;

    if (wfp_fast_count("pull_local", nargs, 2) < 0 ||
        access_open(self, &access_pull, &keys, &values, args, 0, &pairs) < 0) {
        return NULL;
    }
    if (wfp_worker_enter(self) == 0) {
        status = local_make(self, &pairs, &local);
        if (status != WEFT_OK) {
            access_raise(self, &access_pull, &pairs, status);
        }
        wfp_worker_leave(self);
        if (status == WEFT_OK && (!local || wfp_array_finish(&values) == 0)) {
            result = PyBool_FromLong(local);
        }
    }
    wfp_array_close(&values);
    wfp_array_close(&keys);
    return result;
}

/* --- localize ------------------------------------------------------------- */

static weft_status localize_run(weft_worker *worker, const weft_pairs *pairs,
                                weft_request **request)
{
    return weft_store_localize(worker, &pairs->keys, request);
}

PyObject *wfp_worker_localize(PyObject *object, PyObject *given)
{
    wfp_worker *self = (wfp_worker *)object;
    weft_pairs pairs = {0};
    wfp_array keys;
    weft_status status = WEFT_ERR_CLOSED;
    int entered;

    if (wfp_keys_open(&keys, given, WFP_READ) < 0) {
        return NULL;
    }
    entered = wfp_worker_enter(self) == 0;
    if (entered) {
        pairs.keys = wfp_keys_ids(&keys);
        status = access_make(self, localize_run, &pairs, NULL);
        wfp_worker_leave(self);
    }
    wfp_array_close(&keys);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyObject *wfp_worker_ilocalize(PyObject *object, PyObject *given)
{
    wfp_worker *self = (wfp_worker *)object;
    wfp_operation *operation = wfp_operation_new(self->store->comm, "localize");
    weft_pairs pairs = {0};
    weft_status status;

    if (operation == NULL) {
        return NULL;
    }
    if (wfp_keys_open(&operation->call.x.one, given, WFP_KEEP) < 0 ||
        wfp_worker_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    pairs.keys = wfp_keys_ids(&operation->call.x.one);
    status = access_make(self, localize_run, &pairs, &operation->request);
    wfp_worker_leave(self);
    return wfp_access_started(operation, status);
}
