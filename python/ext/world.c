/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "args.h"
#include "boot.h"
#include "comm.h"
#include "request.h"
#include "view.h"

static PyTypeObject *world_type;
static PyTypeObject *peer_type;

int wfp_world_unusable(const wfp_world *world)
{
    wfp_fail(WEFT_ERR_CLOSED, "%s",
             world->forked
                 ? "this process was forked from a rank of the job and is not "
                   "a rank itself: it can use shared tensors that were made "
                   "before the fork, and nothing that involves other ranks"
                 : "this world is closed; weft.init makes a new one");
    return -1;
}

static wfp_world *world_check(PyObject *self)
{
    wfp_world *world = (wfp_world *)self;

    if (world->world == NULL) {
        wfp_world_unusable(world);
        return NULL;
    }
    return world;
}

static PyObject *world_wrap(weft_world *world)
{
    wfp_world *self = PyObject_GC_New(wfp_world, world_type);

    if (self == NULL) {
        weft_world_destroy(world);
        return NULL;
    }
    self->world = world;
    self->number = wfp_arena_enter(world);
    self->comm = NULL;
    self->busy = 0;
    self->lent = 0;
    self->kept = NULL;
    self->forked = false;
    PyObject_GC_Track(self);
    self->comm = wfp_comm_wrap(self, weft_world_comm(world), false);
    if (self->comm == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* A call that waits asks this now and then. Python runs its handlers on the
 * main thread only, so the others need not fight for the GIL; an exception that
 * a handler raised stays with the thread until the call returns. */
static int world_interrupted(void *ctx)
{
    PyGILState_STATE gil;
    int raised;

    (void)ctx;
    if (gettid() != getpid()) {
        return 0;
    }
    gil = PyGILState_Ensure();
    raised = PyErr_CheckSignals() < 0;
    PyGILState_Release(gil);
    return raised;
}

/* Make the world, over a table of this host if `named` is (name, rank, size)
 * and not NULL. */
static weft_status world_make(PyObject *named, weft_world_options *options,
                              weft_world **out)
{
    weft_boot *boot = NULL;
    const char *name = NULL;
    unsigned rank = 0;
    unsigned size = 0;
    weft_status status = WEFT_OK;

    if (named != NULL && !PyArg_ParseTuple(named, "sII", &name, &rank, &size)) {
        PyErr_Clear();
        return weft_boot_fail(WEFT_ERR_INVALID,
                              "boot must be a tuple (name, rank, size)");
    }
    Py_BEGIN_ALLOW_THREADS
    if (named != NULL) {
        status = weft_boot_open_local(name, rank, size, &boot);
        options->boot = boot;
    }
    if (status == WEFT_OK) {
        status = weft_world_create(options, out);
    }
    weft_boot_close(boot);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *world_create(PyObject *module, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "create", 0, {"boot", "settings", NULL}};
    PyObject *given[2];
    wfp_boot boot;
    weft_world_options options = {.size = sizeof(options),
                                  .interrupted = world_interrupted};
    weft_world *world = NULL;
    weft_status status;
    PyObject *result = NULL;
    bool by_name;
    bool with_boot;

    (void)module;
    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0) {
        return NULL;
    }
    by_name = given[0] != NULL && PyTuple_Check(given[0]);
    with_boot = given[0] != NULL && given[0] != Py_None && !by_name;
    if (with_boot && wfp_boot_init(&boot, given[0]) < 0) {
        return NULL;
    }
    options.boot = with_boot ? &boot.table : NULL;
    if (given[1] != NULL && given[1] != Py_None) {
        options.settings = PyUnicode_AsUTF8AndSize(given[1], NULL);
        if (options.settings == NULL) {
            return NULL;
        }
    }
    status = world_make(by_name ? given[0] : NULL, &options, &world);
    if (status == WEFT_OK) {
        result = world_wrap(world);
    } else if (with_boot) {
        wfp_boot_raise(&boot, status);
    } else {
        wfp_raise(status);
    }
    if (with_boot) {
        wfp_boot_fini(&boot);
    }
    return result;
}

void wfp_world_keep(wfp_world *world, weft_store *store)
{
    wfp_kept *kept = malloc(sizeof(*kept));

    if (kept != NULL) { /* else it lasts as long as the process */
        *kept = (wfp_kept){.next = world->kept, .store = store};
        world->kept = kept;
    }
}

/* Without a world they wait for nobody. */
static void destroy_kept(wfp_kept *kept)
{
    while (kept != NULL) {
        wfp_kept *next = kept->next;

        weft_store_destroy(kept->store);
        free(kept);
        kept = next;
    }
}

static void world_end(wfp_world *self)
{
    weft_world *world = self->world;
    wfp_kept *kept = self->kept;

    self->world = NULL;
    self->kept = NULL;
    if (world != NULL) {
        Py_BEGIN_ALLOW_THREADS
        wfp_arena_leave(world);
        weft_world_destroy(world);
        destroy_kept(kept);
        Py_END_ALLOW_THREADS
    }
    /* Every request is over now, so none of them borrows memory any more. */
    wfp_request_sweep();
}

static PyObject *world_close(PyObject *object, PyObject *unused)
{
    wfp_world *self = (wfp_world *)object;

    (void)unused;
    if (self->busy != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "%u threads are inside operations of this world; it "
                        "can be closed when they are done",
                        self->busy);
    }
    if (self->lent != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "%u torch process groups, or graphs of weft.mpi, use "
                        "this world; it can be closed when they are gone",
                        self->lent);
    }
    world_end(self);
    Py_RETURN_NONE;
}

static PyObject *world_forget(PyObject *object, PyObject *unused)
{
    wfp_world *self = (wfp_world *)object;

    (void)unused;
    self->world = NULL;
    self->forked = true;
    Py_RETURN_NONE;
}

static size_t dump_text(void *ctx, char *text, size_t room)
{
    return weft_dump(ctx, text, room);
}

static PyObject *world_dump(PyObject *object, PyObject *unused)
{
    wfp_world *self = world_check(object);

    (void)unused;
    return self == NULL ? NULL : wfp_text_of(dump_text, self->world);
}

static PyObject *world_peer(const wfp_world *self, uint32_t rank)
{
    weft_peer peer;
    weft_status status = weft_world_peer(self->world, rank, &peer);
    PyObject *row;

    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    row = PyStructSequence_New(peer_type);
    if (row == NULL) {
        return NULL;
    }
    PyStructSequence_SetItem(row, 0, PyLong_FromUnsignedLong(peer.rank));
    PyStructSequence_SetItem(row, 1, PyLong_FromUnsignedLong(peer.node));
    PyStructSequence_SetItem(row, 2, PyLong_FromLong(peer.pid));
    PyStructSequence_SetItem(row, 3, PyBool_FromLong(peer.shares_memory));
    PyStructSequence_SetItem(row, 4,
                             PyUnicode_DecodeUTF8(peer.host,
                                                  (Py_ssize_t)strlen(peer.host),
                                                  "replace"));
    PyStructSequence_SetItem(
        row, 5, PyUnicode_FromString(weft_world_transport(self->world, rank)));
    if (PyErr_Occurred()) {
        Py_CLEAR(row);
    }
    return row;
}

static PyObject *world_get_peers(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);
    uint32_t size;
    PyObject *list;

    (void)unused;
    if (self == NULL) {
        return NULL;
    }
    size = weft_world_size(self->world);
    list = PyList_New(size);
    for (uint32_t rank = 0; list != NULL && rank < size; rank++) {
        PyObject *row = world_peer(self, rank);

        if (row == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, rank, row);
        }
    }
    return list;
}

static PyObject *world_get_rank(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);

    (void)unused;
    return self == NULL ? NULL
                        : PyLong_FromUnsignedLong(weft_world_rank(self->world));
}

static PyObject *world_get_size(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);

    (void)unused;
    return self == NULL ? NULL
                        : PyLong_FromUnsignedLong(weft_world_size(self->world));
}

static PyObject *world_get_node(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);
    weft_peer peer;
    weft_status status;

    (void)unused;
    if (self == NULL) {
        return NULL;
    }
    status = weft_world_peer(self->world, weft_world_rank(self->world), &peer);
    return status == WEFT_OK ? PyLong_FromUnsignedLong(peer.node)
                             : wfp_raise(status);
}

static PyObject *world_get_comm(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);

    (void)unused;
    return self == NULL ? NULL : Py_NewRef(self->comm);
}

static PyObject *world_get_arena(PyObject *object, void *unused)
{
    wfp_world *self = world_check(object);

    (void)unused;
    return self == NULL ? NULL : wfp_arena_describe(self->world);
}

static PyObject *world_get_number(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((wfp_world *)object)->number);
}

static PyObject *world_get_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((wfp_world *)object)->world == NULL);
}

static PyObject *world_repr(PyObject *object)
{
    const wfp_world *self = (wfp_world *)object;

    if (self->world == NULL) {
        return PyUnicode_FromString("<weft.World closed>");
    }
    return PyUnicode_FromFormat("<weft.World rank %u of %u>",
                                weft_world_rank(self->world),
                                weft_world_size(self->world));
}

static int world_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((wfp_world *)object)->comm);
    return 0;
}

static int world_clear(PyObject *object)
{
    Py_CLEAR(((wfp_world *)object)->comm);
    return 0;
}

static void world_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    world_clear(object);
    world_end((wfp_world *)object);
    wfp_object_free(object);
}

static PyMethodDef world_methods[] = {
    {"close", world_close, METH_NOARGS,
     "close($self, /)\n--\n\nLeave the job. Does nothing the second time."},
    {"_forget", world_forget, METH_NOARGS,
     "_forget($self, /)\n--\n\n"
     "In a forked child: this world is the parent's, leave it alone."},
    {"dump", world_dump, METH_NOARGS,
     "dump($self, /)\n--\n\n"
     "What each rank of this host is doing, one line each."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef world_getset[] = {
    {"rank", world_get_rank, NULL, "This process's rank, from 0.", NULL},
    {"size", world_get_size, NULL, "The number of ranks.", NULL},
    {"node", world_get_node, NULL,
     "The number of this rank's node; ranks of one node share memory.", NULL},
    {"peers", world_get_peers, NULL, "A Peer for each rank.", NULL},
    {"comm", world_get_comm, NULL, "The communicator of all ranks.", NULL},
    {"arena", world_get_arena, NULL,
     "What this rank's arena holds, see weft.Arena.", NULL},
    {"_number", world_get_number, NULL,
     "Its number in this process, for allocators.", NULL},
    {"closed", world_get_closed, NULL, "True once it was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot world_slots[] = {
    {Py_tp_doc,
     (void *)"This process as a rank of the job; weft.init makes it."},
    WFP_SLOT(Py_tp_dealloc, world_dealloc),
    WFP_SLOT(Py_tp_traverse, world_traverse),
    WFP_SLOT(Py_tp_clear, world_clear),
    WFP_SLOT(Py_tp_repr, world_repr),
    {Py_tp_methods, world_methods},
    {Py_tp_getset, world_getset},
    {0, NULL},
};

static PyStructSequence_Field peer_fields[] = {
    {"rank", "its rank in the world"},
    {"node", "ranks with the same number share memory"},
    {"pid", "its process, on its own host"},
    {"shares_memory", "with the caller"},
    {"host", "the name of its host"},
    {"transport", "which leads to it"},
    {NULL, NULL},
};

static PyStructSequence_Desc peer_desc = {
    .name = "weft.Peer",
    .doc = "What is known of a rank.",
    .fields = peer_fields,
    .n_in_sequence = 6,
};

PyMethodDef wfp_world_functions[] = {
    WFP_METHOD("create", world_create,
               "create($module, /, boot=None, settings=None)\n--\n\n"
               "Join the job; weft.init is the way to call it."),
    {NULL, NULL, 0, NULL},
};

int wfp_world_setup(PyObject *module)
{
    peer_type = PyStructSequence_NewType(&peer_desc);
    if (peer_type == NULL || PyModule_AddType(module, peer_type) < 0) {
        return -1;
    }
    return wfp_type_add(module, "weft.World", sizeof(wfp_world),
                        Py_TPFLAGS_HAVE_GC, world_slots, &world_type);
}
