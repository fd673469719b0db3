/* SPDX-License-Identifier: Apache-2.0 */
/* Regions to files and back. */
#include <weft/file.h>

#include "args.h"
#include "region.h"

/* One call: who, which files, how. */
typedef struct files_call {
    wfp_hold *hold;
    wfp_comm *comm;
    const char **paths;
    size_t count;
    weft_file_options options;
} files_call;

typedef weft_status files_function(const files_call *call);

/* The library reports what it has done, from any thread. */
static void files_progress(void *ctx, uint64_t done, uint64_t bytes)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(
        ctx, "KK", (unsigned long long)done, (unsigned long long)bytes);

    if (result == NULL) {
        PyErr_WriteUnraisable(ctx);
    }
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

static int files_true(PyObject *object, bool otherwise)
{
    return object == NULL ? otherwise : PyObject_IsTrue(object);
}

static int files_open(files_call *call, PyObject *self, PyObject *comm,
                      PyObject *threads, PyObject *direct)
{
    int past_cache = files_true(direct, false);

    call->hold = ((wfp_region *)self)->hold;
    call->options.size = sizeof(call->options);
    call->options.direct = past_cache > 0;
    return !wfp_comm_convert(comm, &call->comm) || past_cache < 0 ||
                   wfp_args_u32(threads, "threads", &call->options.threads) < 0
               ? -1
               : 0;
}

static int files_set_progress(files_call *call, PyObject *function)
{
    if (function == NULL || function == Py_None) {
        return 0;
    }
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError,
                     "progress must be a function of two numbers, the bytes "
                     "done and their total, not %R",
                     function);
        return -1;
    }
    call->options.progress = files_progress;
    call->options.progress_ctx = function;
    return 0;
}

static PyObject *files_run(files_call *call, files_function *function)
{
    weft_status status;

    if (wfp_hold_enter(call->hold) < 0) {
        return NULL;
    }
    if (wfp_comm_enter(call->comm) < 0) {
        wfp_hold_leave(call->hold);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = function(call);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(call->comm);
    wfp_hold_leave(call->hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static weft_status files_save(const files_call *call)
{
    return weft_region_save(call->hold->region, call->comm->comm,
                            call->paths[0], &call->options);
}

static weft_status files_load(const files_call *call)
{
    return weft_region_load(call->hold->region, call->comm->comm,
                            call->paths[0], &call->options);
}

static weft_status files_load_raw(const files_call *call)
{
    return weft_region_load_raw(call->hold->region, call->comm->comm,
                                call->paths, call->count, &call->options);
}

/* Each path of a tuple as bytes, in a tuple that keeps them. */
static PyObject *files_encode(PyObject *paths)
{
    Py_ssize_t n = PyTuple_Check(paths) ? PyTuple_Size(paths) : -1;
    PyObject *encoded = n < 0 ? NULL : PyTuple_New(n);

    if (n < 0) {
        PyErr_SetString(PyExc_TypeError, "paths must be a tuple");
    }
    for (Py_ssize_t i = 0; encoded != NULL && i < n; i++) {
        PyObject *bytes = NULL;

        if (!PyUnicode_FSConverter(PyTuple_GetItem(paths, i), &bytes) ||
            PyTuple_SetItem(encoded, i, bytes) < 0) {
            Py_CLEAR(encoded);
        }
    }
    return encoded;
}

static PyObject *files_with_paths(files_call *call, PyObject *paths,
                                  files_function *function)
{
    PyObject *encoded = files_encode(paths);
    size_t n = encoded == NULL ? 0 : (size_t)PyTuple_Size(encoded);
    PyObject *result = NULL;

    if (encoded == NULL) {
        return NULL;
    }
    call->paths = PyMem_Malloc((n + 1) * sizeof(*call->paths));
    call->count = n;
    if (call->paths == NULL) {
        PyErr_NoMemory();
    } else {
        for (size_t i = 0; i < n; i++) {
            call->paths[i] =
                PyBytes_AsString(PyTuple_GetItem(encoded, (Py_ssize_t)i));
        }
        result = files_run(call, function);
    }
    PyMem_Free(call->paths);
    Py_DECREF(encoded);
    return result;
}

static PyObject *files_with_path(files_call *call, PyObject *path,
                                 files_function *function)
{
    PyObject *paths = PyTuple_Pack(1, path);
    PyObject *result =
        paths == NULL ? NULL : files_with_paths(call, paths, function);

    Py_XDECREF(paths);
    return result;
}

PyObject *wfp_region_save(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "save", 2, {"comm", "path", "threads", "direct", "progress", NULL}};
    files_call call = {0};
    PyObject *given[5];

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        files_open(&call, self, given[0], given[2], given[3]) < 0 ||
        files_set_progress(&call, given[4]) < 0) {
        return NULL;
    }
    return files_with_path(&call, given[1], files_save);
}

PyObject *wfp_region_load(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "load",
        2,
        {"comm", "path", "threads", "direct", "verify", "progress", NULL}};
    files_call call = {0};
    PyObject *given[6];
    int verify;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        files_open(&call, self, given[0], given[2], given[3]) < 0) {
        return NULL;
    }
    verify = files_true(given[4], true);
    if (verify < 0 || files_set_progress(&call, given[5]) < 0) {
        return NULL;
    }
    call.options.no_verify = !verify;
    return files_with_path(&call, given[1], files_load);
}

PyObject *wfp_region_load_raw(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "load_raw",
        2,
        {"comm", "paths", "threads", "direct", "row_bytes", "skip", NULL}};
    files_call call = {0};
    PyObject *given[6];
    int64_t row_bytes = 0;
    int64_t skip = 0;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        files_open(&call, self, given[0], given[2], given[3]) < 0 ||
        wfp_args_i64(given[4], "row_bytes", &row_bytes) < 0 ||
        wfp_args_i64(given[5], "skip", &skip) < 0) {
        return NULL;
    }
    if (row_bytes < 0 || skip < 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "row_bytes and skip must not be negative");
    }
    call.options.file_row_bytes = (uint64_t)row_bytes;
    call.options.skip = (uint64_t)skip;
    return files_with_paths(&call, given[1], files_load_raw);
}

PyObject *wfp_region_sync(PyObject *self, PyObject *unused)
{
    wfp_hold *hold = ((wfp_region *)self)->hold;
    weft_status status;

    (void)unused;
    if (wfp_hold_enter(hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_region_sync(hold->region);
    Py_END_ALLOW_THREADS
    wfp_hold_leave(hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *file_describe(PyObject *module, PyObject *path)
{
    PyObject *bytes = NULL;
    weft_file_info info;
    weft_status status;

    (void)module;
    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    status = weft_file_describe(PyBytes_AsString(bytes), &info);
    Py_DECREF(bytes);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    return Py_BuildValue(
        "{s:N,s:s,s:i,s:K,s:I,s:K}", "shape",
        wfp_tuple_of(info.shape, info.dims), "type", weft_dtype_name(info.type),
        "partition", (int)info.partition, "run", (unsigned long long)info.run,
        "parts", (unsigned)info.parts, "bytes", (unsigned long long)info.bytes);
}

static PyObject *file_verify(PyObject *module, PyObject *path)
{
    PyObject *bytes = NULL;
    const char *text;
    weft_status status;

    (void)module;
    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
    status = weft_file_verify(text);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyMethodDef wfp_region_files_functions[] = {
    {"file_describe", file_describe, METH_O,
     "file_describe($module, path, /)\n--\n\n"
     "What a file of a region, or a .npy, holds."},
    {"file_verify", file_verify, METH_O,
     "file_verify($module, path, /)\n--\n\n"
     "Compare every block of a file with its checksum."},
    {NULL, NULL, 0, NULL},
};
