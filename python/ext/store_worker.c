/* SPDX-License-Identifier: Apache-2.0 */
/* The type WorkerHandle: a clock and an order of operations. */
#include "args.h"
#include "store.h"

static PyTypeObject *worker_type;

/* --- its life ------------------------------------------------------------- */

/* A thread that comes back in, from a signal handler say, is told so. */
static void worker_init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

PyObject *wfp_worker_new(PyObject *object, PyObject *unused)
{
    wfp_store *store = (wfp_store *)object;
    weft_worker *worker = NULL;
    wfp_worker *self;
    weft_status status;

    (void)unused;
    if (wfp_store_enter(store) < 0) {
        return NULL;
    }
    status = weft_worker_create(store->store, &worker);
    wfp_store_leave(store);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    self = PyObject_GC_New(wfp_worker, worker_type);
    if (self == NULL) {
        weft_worker_destroy(worker);
        return NULL;
    }
    self->worker = worker;
    self->store = (wfp_store *)Py_NewRef(object);
    self->busy = 0;
    worker_init_mutex(&self->mutex);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int worker_check(const wfp_worker *self)
{
    const wfp_world *world = self->store->comm->world;

    if (world->world == NULL) {
        return wfp_world_unusable(world);
    }
    if (self->store->store == NULL) {
        return wfp_store_over(self->store);
    }
    if (self->worker == NULL) {
        wfp_fail(WEFT_ERR_CLOSED, "this worker was closed");
        return -1;
    }
    return 0;
}

int wfp_worker_enter(wfp_worker *self)
{
    if (worker_check(self) < 0) {
        return -1;
    }
    self->busy++;
    self->store->busy++;
    self->store->comm->world->busy++;
    return 0;
}

void wfp_worker_leave(wfp_worker *self)
{
    self->busy--;
    self->store->busy--;
    self->store->comm->world->busy--;
}

weft_status wfp_worker_lock(wfp_worker *self)
{
    return pthread_mutex_lock(&self->mutex) == 0
               ? WEFT_OK
               : weft_boot_fail(WEFT_ERR_INVALID,
                                "this thread is inside an operation of this "
                                "worker already");
}

void wfp_worker_unlock(wfp_worker *self)
{
    pthread_mutex_unlock(&self->mutex);
}

static void worker_end(wfp_worker *self)
{
    weft_worker *worker = self->worker;

    self->worker = NULL;
    if (worker != NULL && !self->store->comm->world->forked) {
        Py_BEGIN_ALLOW_THREADS
        weft_worker_destroy(worker);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *worker_close(PyObject *object, PyObject *unused)
{
    wfp_worker *self = (wfp_worker *)object;

    (void)unused;
    if (self->busy != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "a thread is inside an operation of this worker; it "
                        "can be closed when that is done");
    }
    worker_end(self);
    Py_RETURN_NONE;
}

static int worker_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((wfp_worker *)object)->store);
    return 0;
}

/* The store is needed to the last; a cycle is broken by the store. */
static void worker_dealloc(PyObject *object)
{
    wfp_worker *self = (wfp_worker *)object;

    PyObject_GC_UnTrack(object);
    worker_end(self);
    pthread_mutex_destroy(&self->mutex);
    Py_DECREF(self->store);
    wfp_object_free(object);
}

/* --- clock and intents ---------------------------------------------------- */

static PyObject *worker_advance(PyObject *object, PyObject *unused)
{
    wfp_worker *self = (wfp_worker *)object;

    (void)unused;
    return worker_check(self) < 0
               ? NULL
               : PyLong_FromLongLong(weft_worker_advance(self->worker));
}

static PyObject *worker_clock(PyObject *object, PyObject *unused)
{
    wfp_worker *self = (wfp_worker *)object;

    (void)unused;
    return worker_check(self) < 0
               ? NULL
               : PyLong_FromLongLong(weft_worker_clock(self->worker));
}

static weft_status worker_intend(wfp_worker *self, const weft_ids *keys,
                                 int64_t start, int64_t end)
{
    weft_status status;

    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_store_intent(self->worker, keys, start, end);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *worker_intent(PyObject *object, PyObject *const *args,
                               Py_ssize_t nargs)
{
    wfp_worker *self = (wfp_worker *)object;
    int64_t start = 0;
    int64_t end = 0;
    wfp_array keys;
    weft_ids ids;
    weft_status status;

    if (wfp_fast_count("intent", nargs, 3) < 0 ||
        wfp_args_i64(args[1], "start", &start) < 0 ||
        wfp_args_i64(args[2], "end", &end) < 0 ||
        wfp_keys_open(&keys, args[0], WFP_READ) < 0) {
        return NULL;
    }
    if (wfp_worker_enter(self) < 0) {
        wfp_array_close(&keys);
        return NULL;
    }
    ids = wfp_keys_ids(&keys);
    status = worker_intend(self, &ids, start, end);
    wfp_worker_leave(self);
    wfp_array_close(&keys);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyObject *worker_wait_sync(PyObject *object, PyObject *unused)
{
    wfp_worker *self = (wfp_worker *)object;
    weft_status status;

    (void)unused;
    if (wfp_worker_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = wfp_worker_lock(self);
    if (status == WEFT_OK) {
        status = weft_store_wait_sync(self->worker);
        wfp_worker_unlock(self);
    }
    Py_END_ALLOW_THREADS
    wfp_worker_leave(self);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

static PyMethodDef worker_methods[] = {
    WFP_FAST_METHOD("pull", wfp_worker_pull,
                    "pull($self, keys, out, /)\n--\n\nCopy rows to out."),
    WFP_FAST_METHOD("push", wfp_worker_push,
                    "push($self, keys, values, /)\n--\n\nAdd to rows."),
    WFP_FAST_METHOD("set", wfp_worker_set,
                    "set($self, keys, values, /)\n--\n\nOverwrite rows."),
    WFP_FAST_METHOD("pull_local", wfp_worker_pull_local,
                    "pull_local($self, keys, out, /)\n--\n\n"
                    "Copy rows to out if all are here; were they?"),
    WFP_FAST_METHOD("ipull", wfp_worker_ipull,
                    "ipull($self, keys, out, /)\n--\n\n"
                    "A Request for pull(), whose wait() returns out."),
    WFP_FAST_METHOD("ipush", wfp_worker_ipush,
                    "ipush($self, keys, values, /)\n--\n\n"
                    "A Request for push()."),
    WFP_FAST_METHOD("iset", wfp_worker_iset,
                    "iset($self, keys, values, /)\n--\n\n"
                    "A Request for set()."),
    {"localize", wfp_worker_localize, METH_O,
     "localize($self, keys, /)\n--\n\nBring keys to this host."},
    {"ilocalize", wfp_worker_ilocalize, METH_O,
     "ilocalize($self, keys, /)\n--\n\nA Request for localize()."},
    WFP_FAST_METHOD("intent", worker_intent,
                    "intent($self, keys, start, end, /)\n--\n\n"
                    "Announce that the keys will be used."),
    {"advance", worker_advance, METH_NOARGS,
     "advance($self, /)\n--\n\nAdd one to the clock; the new value."},
    {"clock", worker_clock, METH_NOARGS, "clock($self, /)\n--\n\nThe clock."},
    {"wait_sync", worker_wait_sync, METH_NOARGS,
     "wait_sync($self, /)\n--\n\nweft_store_wait_sync."},
    WFP_FAST_METHOD("sample_prepare", wfp_worker_sample_prepare,
                    "sample_prepare($self, n, start, end, /)\n--\n\n"
                    "Announce samples; their id."),
    WFP_FAST_METHOD("sample_pull", wfp_worker_sample_pull,
                    "sample_pull($self, id, keys, out, /)\n--\n\n"
                    "The next samples and their rows."),
    WFP_FAST_METHOD("isample_pull", wfp_worker_isample_pull,
                    "isample_pull($self, id, keys, out, /)\n--\n\n"
                    "A Request for sample_pull()."),
    {"sample_finish", wfp_worker_sample_finish, METH_O,
     "sample_finish($self, id, /)\n--\n\nLet go of what is left."},
    {"close", worker_close, METH_NOARGS,
     "close($self, /)\n--\n\nweft_worker_destroy. Nothing, the second time."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot worker_slots[] = {
    {Py_tp_doc, (void *)"A worker of a store; Store.worker() is for use."},
    WFP_SLOT(Py_tp_dealloc, worker_dealloc),
    WFP_SLOT(Py_tp_traverse, worker_traverse),
    {Py_tp_methods, worker_methods},
    {0, NULL},
};

int wfp_worker_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.WorkerHandle", sizeof(wfp_worker),
                        Py_TPFLAGS_HAVE_GC, worker_slots, &worker_type);
}
