/* SPDX-License-Identifier: Apache-2.0 */
/* Comm.empty, and the type Buffer, which holds its memory: arrays are made on a
 * Buffer by weft._memory and keep it alive.
 *
 * A Buffer keeps its Comm alive, too, because memory is given back through it.
 * Where the communicator was closed by hand, views of it are still good. */
#include "memory.h"

#include "args.h"

typedef struct buffer_object {
    PyObject_HEAD
    wfp_comm *comm;
    wfp_shared *shared;
    size_t bytes;
} buffer_object;

static PyTypeObject *buffer_type;

void wfp_shared_sweep(wfp_comm *comm)
{
    while (comm->unused != NULL) {
        wfp_shared *shared = comm->unused;

        comm->unused = shared->next;
        if (comm->comm != NULL && comm->world->world != NULL) {
            weft_free(comm->comm, shared->at);
        } else if (weft_arena_holds(shared->at)) {
            weft_arena_free(shared->at);
        }
        PyMem_Free(shared);
    }
}

static void buffer_dealloc(PyObject *object)
{
    buffer_object *self = (buffer_object *)object;
    wfp_comm *comm = self->comm;

    self->shared->next = comm->unused;
    comm->unused = self->shared;
    if (comm->busy == 0) {
        wfp_shared_sweep(comm);
    }
    Py_DECREF(comm);
    wfp_object_free(object);
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    const buffer_object *self = (buffer_object *)object;

    return PyBuffer_FillInfo(view, object, self->shared->at,
                             (Py_ssize_t)self->bytes, 0, flags);
}

static PyObject *buffer_repr(PyObject *object)
{
    const buffer_object *self = (buffer_object *)object;

    return PyUnicode_FromFormat("<weft.Buffer of %zu bytes>", self->bytes);
}

/* An empty Buffer, so that nothing can fail once there is memory. */
static buffer_object *buffer_new(wfp_comm *comm, size_t bytes)
{
    wfp_shared *shared = PyMem_Malloc(sizeof(*shared));
    buffer_object *self;

    if (shared == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self = PyObject_New(buffer_object, buffer_type);
    if (self == NULL) {
        PyMem_Free(shared);
        return NULL;
    }
    shared->at = NULL;
    self->comm = (wfp_comm *)Py_NewRef((PyObject *)comm);
    self->shared = shared;
    self->bytes = bytes;
    return self;
}

PyObject *wfp_comm_alloc(PyObject *object, PyObject *number)
{
    wfp_comm *comm = (wfp_comm *)object;
    buffer_object *self;
    uint64_t bytes = 0;
    weft_status status;

    if (wfp_args_u64(number, "bytes", &bytes) < 0) {
        return NULL;
    }
    self = buffer_new(comm, (size_t)bytes);
    if (self == NULL || wfp_comm_enter(comm) < 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_alloc(comm->comm, self->bytes, &self->shared->at);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(comm);
    if (status != WEFT_OK) {
        wfp_raise(status);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *wfp_comm_empty(PyObject *object, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "empty", 1, {"shape", "dtype", "like", NULL}};
    PyObject *given[3];
    PyObject *module;
    PyObject *result;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_comm_check((wfp_comm *)object) < 0) {
        return NULL;
    }
    module = PyImport_ImportModule("weft._memory");
    if (module == NULL) {
        return NULL;
    }
    result = PyObject_CallMethod(module, "empty", "OOOO", object, given[0],
                                 given[1] == NULL ? Py_None : given[1],
                                 given[2] == NULL ? Py_None : given[2]);
    Py_DECREF(module);
    return result;
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, (void *)"Memory that all ranks of a communicator map."},
    WFP_SLOT(Py_tp_dealloc, buffer_dealloc),
    WFP_SLOT(Py_tp_repr, buffer_repr),
    WFP_SLOT(Py_bf_getbuffer, buffer_get),
    {0, NULL},
};

int wfp_memory_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.Buffer", sizeof(buffer_object), 0,
                        buffer_slots, &buffer_type);
}
