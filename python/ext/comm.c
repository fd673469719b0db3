/* SPDX-License-Identifier: Apache-2.0 */
/* The type Comm: what it is, how it is made and ended. Its operations are in
 * collectives.c, blocks.c, messages.c, memory.c and groups.c. */
#include "comm.h"

#include "call.h"
#include "memory.h"
#include "request.h"

static PyTypeObject *comm_type;

PyObject *wfp_comm_wrap(wfp_world *world, weft_comm *comm, bool owned)
{
    wfp_comm *self = PyObject_GC_New(wfp_comm, comm_type);

    if (self == NULL) {
        if (owned) {
            weft_comm_destroy(comm);
        }
        return NULL;
    }
    self->world = (wfp_world *)Py_NewRef((PyObject *)world);
    self->comm = comm;
    self->owned = owned;
    self->busy = 0;
    self->lent = 0;
    self->unused = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

int wfp_comm_convert(PyObject *object, void *out)
{
    if (!Py_IS_TYPE(object, comm_type)) {
        PyErr_Format(PyExc_TypeError, "comm must be a weft.Comm, not %R",
                     object);
        return 0;
    }
    *(wfp_comm **)out = (wfp_comm *)object;
    return 1;
}

int wfp_comm_check(const wfp_comm *self)
{
    if (self->world->world == NULL) {
        return wfp_world_unusable(self->world);
    }
    if (self->comm == NULL) {
        wfp_fail(WEFT_ERR_CLOSED, "this communicator is closed");
        return -1;
    }
    return 0;
}

static wfp_comm *comm_check(PyObject *object)
{
    wfp_comm *self = (wfp_comm *)object;

    return wfp_comm_check(self) < 0 ? NULL : self;
}

int wfp_comm_enter(wfp_comm *self)
{
    if (wfp_comm_check(self) < 0) {
        return -1;
    }
    if (self->busy != 0 && self->thread != PyThread_get_thread_ident()) {
        return wfp_invalid(
            "another thread is inside an operation of this communicator; "
            "give each thread its own, with dup()");
    }
    self->thread = PyThread_get_thread_ident();
    self->busy++;
    self->world->busy++;
    return 0;
}

void wfp_comm_leave(wfp_comm *self)
{
    self->busy--;
    self->world->busy--;
    if (self->busy == 0 && self->unused != NULL) {
        wfp_shared_sweep(self);
    }
}

static PyObject *comm_abort(PyObject *object, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {"abort", 0, {"why", NULL}};
    wfp_comm *self = comm_check(object);
    PyObject *given;
    const char *why = "aborted by the program";

    if (self == NULL ||
        wfp_args_sort(&signature, args, nargs, kwnames, &given) < 0) {
        return NULL;
    }
    if (given != NULL && (why = PyUnicode_AsUTF8AndSize(given, NULL)) == NULL) {
        return NULL;
    }
    weft_comm_abort(self->comm, why);
    Py_RETURN_NONE;
}

static void comm_end(wfp_comm *self)
{
    weft_comm *comm = self->comm;

    wfp_shared_sweep(self);
    self->comm = NULL;
    if (comm != NULL && self->owned && !self->world->forked) {
        Py_BEGIN_ALLOW_THREADS
        weft_comm_destroy(comm);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *comm_close(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;

    (void)unused;
    if (self->busy != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "a thread is inside an operation of this communicator; "
                        "it can be closed when that is done");
    }
    if (self->lent != 0 && self->owned) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "a torch process group uses this communicator; it can "
                        "be closed when that is destroyed");
    }
    if (self->owned) {
        comm_end(self);
        wfp_request_sweep();
    }
    Py_RETURN_NONE;
}

static PyObject *comm_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_XNewRef((PyObject *)comm_check(object));
}

static PyObject *comm_exit(PyObject *object, PyObject *const *args,
                           Py_ssize_t nargs)
{
    (void)args;
    (void)nargs;
    return comm_close(object, NULL);
}

static PyObject *comm_get_rank(PyObject *object, void *unused)
{
    wfp_comm *self = comm_check(object);

    (void)unused;
    return self == NULL ? NULL
                        : PyLong_FromUnsignedLong(weft_comm_rank(self->comm));
}

static PyObject *comm_get_size(PyObject *object, void *unused)
{
    wfp_comm *self = comm_check(object);

    (void)unused;
    return self == NULL ? NULL
                        : PyLong_FromUnsignedLong(weft_comm_size(self->comm));
}

static PyObject *comm_get_members(PyObject *object, void *unused)
{
    wfp_comm *self = comm_check(object);
    uint32_t size;
    PyObject *members;

    (void)unused;
    if (self == NULL) {
        return NULL;
    }
    size = weft_comm_size(self->comm);
    members = PyTuple_New(size);
    for (uint32_t i = 0; members != NULL && i < size; i++) {
        PyObject *rank =
            PyLong_FromUnsignedLong(weft_comm_world_rank(self->comm, i));

        if (rank == NULL || PyTuple_SetItem(members, i, rank) < 0) {
            Py_CLEAR(members);
        }
    }
    return members;
}

static PyObject *comm_get_world(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((wfp_comm *)object)->world);
}

static PyObject *comm_get_closed(PyObject *object, void *unused)
{
    wfp_comm *self = (wfp_comm *)object;

    (void)unused;
    return PyBool_FromLong(self->comm == NULL || self->world->world == NULL);
}

static PyObject *comm_get_broken(PyObject *object, void *unused)
{
    wfp_comm *self = comm_check(object);

    (void)unused;
    return self == NULL
               ? NULL
               : PyBool_FromLong(weft_comm_error(self->comm) != WEFT_OK);
}

static PyObject *comm_get_timeout(PyObject *object, void *unused)
{
    wfp_comm *self = comm_check(object);

    (void)unused;
    return self == NULL ? NULL
                        : PyFloat_FromDouble(weft_comm_timeout(self->comm));
}

static int comm_set_timeout(PyObject *object, PyObject *value, void *unused)
{
    wfp_comm *self = comm_check(object);
    double seconds;

    (void)unused;
    if (self == NULL || wfp_args_seconds(value, "timeout", &seconds) < 0) {
        return -1;
    }
    weft_comm_set_timeout(self->comm, seconds);
    return 0;
}

static PyObject *comm_repr(PyObject *object)
{
    wfp_comm *self = (wfp_comm *)object;

    if (self->comm == NULL || self->world->world == NULL) {
        return PyUnicode_FromString("<weft.Comm closed>");
    }
    return PyUnicode_FromFormat("<weft.Comm rank %u of %u>",
                                weft_comm_rank(self->comm),
                                weft_comm_size(self->comm));
}

static int comm_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((wfp_comm *)object)->world);
    return 0;
}

/* The world is needed to the last, so the cycle is broken at its other end. */
static void comm_dealloc(PyObject *object)
{
    wfp_comm *self = (wfp_comm *)object;

    PyObject_GC_UnTrack(object);
    comm_end(self);
    Py_DECREF(self->world);
    wfp_object_free(object);
}

/* The two methods of a kind of operation, see call.h. */
#define KIND_FUNCTIONS(kind)                                                   \
    static PyObject *comm_##kind(PyObject *self, PyObject *const *args,        \
                                 Py_ssize_t nargs, PyObject *kwnames)          \
    {                                                                          \
        return wfp_kind_run(&wfp_##kind, self, args, nargs, kwnames);          \
    }                                                                          \
    static PyObject *comm_i##kind(PyObject *self, PyObject *const *args,       \
                                  Py_ssize_t nargs, PyObject *kwnames)         \
    {                                                                          \
        return wfp_kind_start(&wfp_##kind, "i" #kind, self, args, nargs,       \
                              kwnames);                                        \
    }

KIND_FUNCTIONS(broadcast)
KIND_FUNCTIONS(allreduce)
KIND_FUNCTIONS(reduce)
KIND_FUNCTIONS(scan)
KIND_FUNCTIONS(exscan)
KIND_FUNCTIONS(allgather)
KIND_FUNCTIONS(gather)
KIND_FUNCTIONS(scatter)
KIND_FUNCTIONS(reduce_scatter)
KIND_FUNCTIONS(alltoall)
KIND_FUNCTIONS(send)
KIND_FUNCTIONS(recv)
KIND_FUNCTIONS(sendrecv)

#define KIND_METHODS(kind, arguments, doc)                                     \
    WFP_METHOD(#kind, comm_##kind,                                             \
               #kind "($self, /, " arguments ")\n--\n\n" doc),                 \
        WFP_METHOD("i" #kind, comm_i##kind,                                    \
                   "i" #kind "($self, /, " arguments                           \
                   ")\n--\n\nA Request for " #kind "().")

static PyMethodDef comm_methods[] = {
    {"barrier", wfp_comm_barrier, METH_NOARGS,
     "barrier($self, /)\n--\n\nReturn when all ranks have called it."},
    {"ibarrier", wfp_comm_ibarrier, METH_NOARGS,
     "ibarrier($self, /)\n--\n\nA Request for barrier()."},
    KIND_METHODS(broadcast, "x, root=0",
                 "Copy x of rank root to x of all others; returns x."),
    KIND_METHODS(allreduce, "x, op='sum', out=None",
                 "Reduce x over all ranks, into out or else into x itself; "
                 "returns the array with the result."),
    KIND_METHODS(
        reduce, "x, op='sum', root=0, out=None",
        "Reduce x over all ranks, on rank root into out or else into x itself; "
        "returns that array there, and None elsewhere."),
    KIND_METHODS(
        scan, "x, op='sum', out=None",
        "Reduce x over ranks 0 to this one, into out or else into x itself; "
        "returns the array with the result."),
    KIND_METHODS(
        exscan, "x, op='sum', out=None",
        "Reduce x over the ranks before this one, into out or else into x "
        "itself, which rank 0 leaves as it is; returns that array."),
    KIND_METHODS(
        allgather, "x, out, counts=None",
        "Put the x of every rank into out, in the order of ranks; returns "
        "out. It may be a list with an array for each rank, or be divided "
        "by counts."),
    KIND_METHODS(
        gather, "x, out=None, root=0, counts=None",
        "Put the x of every rank into out of rank root, in the order of "
        "ranks; returns out there, and None elsewhere. It may be a list "
        "with an array for each rank, or be divided by counts."),
    KIND_METHODS(scatter, "x, out, root=0, counts=None",
                 "Give each rank its part of rank root's x, in out, which is "
                 "returned. x may be a list with an array for each rank, or be "
                 "divided by counts; elsewhere it is not looked at."),
    KIND_METHODS(
        reduce_scatter, "x, out, op='sum', counts=None",
        "Reduce x over all ranks and give each rank its part of the result, "
        "in out, which is returned. x may be a list with an array for each "
        "rank, or be divided by counts."),
    KIND_METHODS(
        alltoall, "x, out, counts=None, out_counts=None",
        "Give each rank its part of x, and put what comes from each into "
        "out, which is returned. Both may be lists with an array for each "
        "rank, or be divided by counts."),
    KIND_METHODS(send, "x, peer, tag=0",
                 "Send x to rank peer; returns when x may be changed again."),
    KIND_METHODS(
        recv, "x, peer, tag=0",
        "Receive from rank peer, or weft.ANY_SOURCE, into x; returns a "
        "Message: the peer and tag it came with, and its length in "
        "elements."),
    KIND_METHODS(
        sendrecv, "x, peer, out, source=None, tag=0, source_tag=None",
        "Send x to rank peer and receive into out from rank source, at "
        "once; source is peer, and source_tag tag, unless given. "
        "Returns the Message received."),
    WFP_METHOD("probe", wfp_comm_probe,
               "probe($self, /, peer, tag=0)\n--\n\n"
               "Wait until a message has come that recv() would take; returns "
               "its Message, with the length in bytes, and leaves it there."),
    WFP_METHOD("iprobe", wfp_comm_iprobe,
               "iprobe($self, /, peer, tag=0)\n--\n\n"
               "The Message that probe() would return, or None if there is "
               "none yet."),
    WFP_METHOD("empty", wfp_comm_empty,
               "empty($self, /, shape, dtype=None, like=None)\n--\n\n"
               "An array of zeros, like a torch or a numpy one, in memory that "
               "all ranks map, so that collectives on it copy nothing. All "
               "ranks call it with the same size."),
    {"_alloc", wfp_comm_alloc, METH_O,
     "_alloc($self, bytes, /)\n--\n\nThe memory of empty(), as a Buffer."},
    WFP_METHOD("split", wfp_comm_split,
               "split($self, /, colour, key=0)\n--\n\n"
               "One communicator for each colour, ordered by key; None for a "
               "colour of None or below 0."),
    {"dup", wfp_comm_dup, METH_NOARGS,
     "dup($self, /)\n--\n\nThe same ranks, with an order of their own."},
    {"subset", wfp_comm_subset, METH_O,
     "subset($self, ranks, /)\n--\n\n"
     "A communicator of these ranks; only they call it."},
    WFP_METHOD("create_group", wfp_comm_create_group,
               "create_group($self, /, ranks, tag=0, timeout=None)\n--\n\n"
               "A communicator of these ranks that stands on its own: this "
               "one may be broken or in use, and stays as it is. Only they "
               "call it, with the same tag; groups of different tags may be "
               "made at once. timeout: seconds, for this and for the new "
               "communicator."),
    {"shrink", wfp_comm_shrink, METH_O,
     "shrink($self, exclude, /)\n--\n\n"
     "A communicator of all ranks but these, which may be dead or stuck; only "
     "those who stay call it. This one is over then, whatever state it was "
     "in."},
    WFP_METHOD("abort", comm_abort,
               "abort($self, /, why='aborted by the program')\n--\n\n"
               "Fail every pending and later operation, on all ranks."),
    {"close", comm_close, METH_NOARGS,
     "close($self, /)\n--\n\nEnd this rank's use of it."},
    {"_lend", wfp_comm_lend, METH_NOARGS,
     "_lend($self, /)\n--\n\n"
     "A capsule with the C communicator, which keeps it open."},
    {"__enter__", comm_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))comm_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef comm_getset[] = {
    {"rank", comm_get_rank, NULL, "This process's rank in it.", NULL},
    {"size", comm_get_size, NULL, "The number of its ranks.", NULL},
    {"members", comm_get_members, NULL, "Its ranks' ranks in the world.", NULL},
    {"world", comm_get_world, NULL, "The World it belongs to.", NULL},
    {"closed", comm_get_closed, NULL, "True once it was closed.", NULL},
    {"broken", comm_get_broken, NULL, "True once an operation broke it.", NULL},
    {"timeout", comm_get_timeout, comm_set_timeout,
     "Seconds an operation may wait for peers; None restores the default.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot comm_slots[] = {
    {Py_tp_doc, (void *)"An ordered group of ranks."},
    WFP_SLOT(Py_tp_dealloc, comm_dealloc),
    WFP_SLOT(Py_tp_traverse, comm_traverse),
    WFP_SLOT(Py_tp_repr, comm_repr),
    {Py_tp_methods, comm_methods},
    {Py_tp_getset, comm_getset},
    {0, NULL},
};

int wfp_comm_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.Comm", sizeof(wfp_comm),
                        Py_TPFLAGS_HAVE_GC, comm_slots, &comm_type);
}
