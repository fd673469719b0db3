/* SPDX-License-Identifier: Apache-2.0 */
/* The type StoreHandle: a store as all its ranks see it. */
#include "store.h"

#include <stddef.h>

#include "args.h"

static PyTypeObject *store_type;

PyObject *wfp_store_wrap(wfp_comm *comm, weft_store *store)
{
    wfp_store *self = PyObject_GC_New(wfp_store, store_type);

    if (self == NULL) {
        weft_store_destroy(store);
        return NULL;
    }
    self->store = store;
    self->comm = (wfp_comm *)Py_NewRef((PyObject *)comm);
    weft_store_describe(store, &self->info);
    self->draw = NULL;
    self->busy = 0;
    self->finalized = false;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

int wfp_store_over(const wfp_store *self)
{
    wfp_fail(WEFT_ERR_CLOSED, "this store was %s",
             self->finalized ? "finalized" : "closed");
    return -1;
}

static int store_check(const wfp_store *self)
{
    if (self->comm->world->world == NULL) {
        return wfp_world_unusable(self->comm->world);
    }
    return self->store == NULL ? wfp_store_over(self) : 0;
}

int wfp_store_enter(wfp_store *self)
{
    if (store_check(self) < 0) {
        return -1;
    }
    self->busy++;
    self->comm->world->busy++;
    return 0;
}

void wfp_store_leave(wfp_store *self)
{
    self->busy--;
    self->comm->world->busy--;
}

int wfp_fast_count(const char *function, Py_ssize_t nargs, Py_ssize_t n)
{
    if (nargs != n) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd",
                     function, n, nargs);
        return -1;
    }
    return 0;
}

/* --- its life ------------------------------------------------------------- */

/* Nothing of a parent's store may be touched in a forked child. */
static void store_end(wfp_store *self)
{
    weft_store *store = self->store;

    self->store = NULL;
    if (store != NULL && !self->comm->world->forked) {
        Py_BEGIN_ALLOW_THREADS
        weft_store_destroy(store);
        Py_END_ALLOW_THREADS
    }
}

/* With several hosts weft_store_destroy is collective. The garbage collector
 * comes at another time on each rank, and so does an exception: then the store
 * stays, for others that need rows of this host, until the job ends. */
static void store_end_alone(wfp_store *self)
{
    wfp_world *world = self->comm->world;

    if (self->store != NULL && self->info.hosts > 1 && world->world != NULL &&
        !world->forked) {
        wfp_world_keep(world, self->store);
        self->store = NULL;
    } else {
        store_end(self);
    }
}

static PyObject *store_close(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;

    (void)unused;
    if (self->busy != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "a thread is inside an operation of this store; it can "
                        "be closed when that is done");
    }
    store_end(self);
    Py_RETURN_NONE;
}

static PyObject *store_finalize(PyObject *object, PyObject *unused)
{
    PyObject *closed = store_close(object, unused);

    ((wfp_store *)object)->finalized = closed != NULL;
    return closed;
}

static PyObject *store_abandon(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;

    if (self->info.hosts == 1) {
        return store_close(object, unused);
    }
    store_end_alone(self);
    Py_RETURN_NONE;
}

static int store_traverse(PyObject *object, visitproc visit, void *arg)
{
    wfp_store *self = (wfp_store *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->comm);
    Py_VISIT(self->draw);
    return 0;
}

/* The user's function may hold the store. Without it the store draws nothing
 * any more, so the store goes first. */
static int store_clear(PyObject *object)
{
    store_end_alone((wfp_store *)object);
    Py_CLEAR(((wfp_store *)object)->draw);
    return 0;
}

static void store_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    store_clear(object);
    Py_DECREF(((wfp_store *)object)->comm);
    wfp_object_free(object);
}

/* --- what it is ----------------------------------------------------------- */

static PyObject *store_describe(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;
    weft_store_info info;

    (void)unused;
    if (store_check(self) < 0) {
        return NULL;
    }
    weft_store_describe(self->store, &info);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:s,s:I,s:I,s:O}", "keys", (unsigned long long)info.keys,
        "max_keys", (unsigned long long)info.max_keys, "length",
        (unsigned long long)info.length, "type", weft_dtype_name(info.type),
        "hosts", info.hosts, "host", info.host, "hashed",
        info.hashed ? Py_True : Py_False);
}

static PyObject *store_length(PyObject *object, PyObject *number)
{
    wfp_store *self = (wfp_store *)object;
    int64_t key = 0;
    uint64_t length = 0;
    weft_status status;

    if (wfp_args_i64(number, "key", &key) < 0 || store_check(self) < 0) {
        return NULL;
    }
    status = weft_store_length(self->store, key, &length);
    return status == WEFT_OK ? PyLong_FromUnsignedLongLong(length)
                             : wfp_raise(status);
}

weft_status wfp_store_sum(const wfp_store *self, const weft_ids *keys,
                          uint64_t *out)
{
    const int32_t *narrow = keys->at;
    const int64_t *wide = keys->at;
    weft_status status = WEFT_OK;

    *out = 0;
    for (uint64_t i = 0; i < keys->n && status == WEFT_OK; i++) {
        uint64_t length = 0;

        status = weft_store_length(
            self->store, keys->type == WEFT_I32 ? narrow[i] : wide[i], &length);
        *out += length;
    }
    return status;
}

static PyObject *store_elements(PyObject *object, PyObject *given)
{
    wfp_store *self = (wfp_store *)object;
    wfp_array keys;
    weft_ids ids;
    uint64_t sum = 0;
    weft_status status;

    if (store_check(self) < 0 || wfp_keys_open(&keys, given, WFP_READ) < 0) {
        return NULL;
    }
    ids = wfp_keys_ids(&keys);
    status = wfp_store_sum(self, &ids, &sum);
    wfp_array_close(&keys);
    return status == WEFT_OK ? PyLong_FromUnsignedLongLong(sum)
                             : wfp_raise(status);
}

/* --- counting ------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t at; /* a uint64_t of weft_store_stats */
} counts[] = {
#define COUNT(name)                                                            \
    {                                                                          \
#name, offsetof(weft_store_stats, name)                                \
    }
    COUNT(pulls),        COUNT(pushes),     COUNT(local_pulls),
    COUNT(local_pushes), COUNT(copy_pulls), COUNT(copy_pushes),
    COUNT(owned),        COUNT(copies),     COUNT(moved_in),
    COUNT(moved_out),    COUNT(copied_in),  COUNT(expired),
    COUNT(parked),       COUNT(forwarded),  COUNT(refused),
    COUNT(repaired),     COUNT(rounds),     COUNT(messages),
    COUNT(bytes),
#undef COUNT
};

/* Put a new number, which it takes over, into a dict. */
static int store_put(PyObject *dict, const char *name, PyObject *number)
{
    int failed = number == NULL || PyDict_SetItemString(dict, name, number) < 0;

    Py_XDECREF(number);
    return failed ? -1 : 0;
}

static PyObject *store_count(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;
    weft_store_stats stats;
    PyObject *dict;
    int failed;

    (void)unused;
    if (store_check(self) < 0 || (dict = PyDict_New()) == NULL) {
        return NULL;
    }
    weft_store_count(self->store, &stats);
    failed =
        store_put(dict, "staleness", PyFloat_FromDouble(stats.staleness)) < 0;
    for (size_t i = 0; !failed && i < sizeof(counts) / sizeof(counts[0]); i++) {
        const char *at = (const char *)&stats + counts[i].at;

        failed = store_put(dict, counts[i].name,
                           PyLong_FromUnsignedLongLong(
                               *(const uint64_t *)(const void *)at)) < 0;
    }
    if (failed) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *store_reset_count(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;

    (void)unused;
    if (store_check(self) < 0) {
        return NULL;
    }
    weft_store_reset_count(self->store);
    Py_RETURN_NONE;
}

/* --- with other ranks, and files ------------------------------------------ */

static PyObject *store_barrier(PyObject *object, PyObject *unused)
{
    wfp_store *self = (wfp_store *)object;
    weft_status status;

    (void)unused;
    if (wfp_store_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_store_barrier(self->store);
    Py_END_ALLOW_THREADS
    wfp_store_leave(self);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *store_with_file(PyObject *object, PyObject *path,
                                 weft_status (*function)(weft_store *,
                                                         const char *))
{
    wfp_store *self = (wfp_store *)object;
    PyObject *bytes = NULL;
    const char *text;
    weft_status status;

    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    if (wfp_store_enter(self) < 0) {
        Py_DECREF(bytes);
        return NULL;
    }
    text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
    status = function(self->store, text);
    Py_END_ALLOW_THREADS
    wfp_store_leave(self);
    Py_DECREF(bytes);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *store_save(PyObject *self, PyObject *path)
{
    return store_with_file(self, path, weft_store_save);
}

static PyObject *store_load(PyObject *self, PyObject *path)
{
    return store_with_file(self, path, weft_store_load);
}

static PyObject *store_resize(PyObject *object, PyObject *number)
{
    wfp_store *self = (wfp_store *)object;
    uint64_t keys = 0;
    weft_status status;

    if (wfp_args_u64(number, "num_keys", &keys) < 0 ||
        wfp_store_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_store_resize(self->store, keys);
    Py_END_ALLOW_THREADS
    wfp_store_leave(self);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *store_trace(PyObject *object, PyObject *const *args,
                             Py_ssize_t nargs)
{
    wfp_store *self = (wfp_store *)object;
    PyObject *path = NULL;
    wfp_array keys;
    weft_ids ids;
    weft_status status;

    if (wfp_fast_count("trace", nargs, 2) < 0 ||
        !PyUnicode_FSConverter(args[1], &path)) {
        return NULL;
    }
    if (store_check(self) < 0 || wfp_keys_open(&keys, args[0], WFP_READ) < 0) {
        Py_DECREF(path);
        return NULL;
    }
    ids = wfp_keys_ids(&keys);
    status = weft_store_trace(self->store, &ids, PyBytes_AsString(path));
    wfp_array_close(&keys);
    Py_DECREF(path);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *store_get_closed(PyObject *object, void *unused)
{
    wfp_store *self = (wfp_store *)object;

    (void)unused;
    return PyBool_FromLong(self->store == NULL ||
                           self->comm->world->world == NULL);
}

static PyObject *store_get_finalized(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((wfp_store *)object)->finalized);
}

static PyMethodDef store_methods[] = {
    {"worker", wfp_worker_new, METH_NOARGS,
     "worker($self, /)\n--\n\nA new WorkerHandle."},
    {"describe", store_describe, METH_NOARGS,
     "describe($self, /)\n--\n\nWhat there is to know of it, by name."},
    {"length", store_length, METH_O,
     "length($self, key, /)\n--\n\nElements of a key's row."},
    {"elements", store_elements, METH_O,
     "elements($self, keys, /)\n--\n\nElements of the rows of all keys."},
    {"barrier", store_barrier, METH_NOARGS,
     "barrier($self, /)\n--\n\nReturn when all ranks have called it."},
    {"sampling", (PyCFunction)(void (*)(void))wfp_store_sampling,
     METH_VARARGS | METH_KEYWORDS,
     "sampling($self, /, scheme, distribution, min, max, distinct, weights, "
     "draw, pool, reuse)\n--\n\nSay how samples are drawn."},
    {"save", store_save, METH_O,
     "save($self, path, /)\n--\n\nWrite all rows to a file."},
    {"load", store_load, METH_O,
     "load($self, path, /)\n--\n\nFill it from a file."},
    {"resize", store_resize, METH_O,
     "resize($self, num_keys, /)\n--\n\nChange the number of keys."},
    {"count", store_count, METH_NOARGS,
     "count($self, /)\n--\n\nWhat this rank has counted, by name."},
    {"reset_count", store_reset_count, METH_NOARGS,
     "reset_count($self, /)\n--\n\nCount from zero again."},
    WFP_FAST_METHOD("trace", store_trace,
                    "trace($self, keys, path, /)\n--\n\nweft_store_trace."),
    {"close", store_close, METH_NOARGS,
     "close($self, /)\n--\n\nweft_store_destroy. Nothing, the second time."},
    {"finalize", store_finalize, METH_NOARGS,
     "finalize($self, /)\n--\n\nclose() when all ranks have met: errors call "
     "it finalized."},
    {"abandon", store_abandon, METH_NOARGS,
     "abandon($self, /)\n--\n\nClose it without waiting: with several hosts it "
     "serves others until the job ends."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef store_getset[] = {
    {"closed", store_get_closed, NULL, "True once it was closed.", NULL},
    {"finalized", store_get_finalized, NULL, "True once finalize() was called.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot store_slots[] = {
    {Py_tp_doc, (void *)"A store of the C library; weft.Store is for use."},
    WFP_SLOT(Py_tp_dealloc, store_dealloc),
    WFP_SLOT(Py_tp_traverse, store_traverse),
    WFP_SLOT(Py_tp_clear, store_clear),
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_getset},
    {0, NULL},
};

int wfp_store_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.StoreHandle", sizeof(wfp_store),
                        Py_TPFLAGS_HAVE_GC, store_slots, &store_type);
}
