/* SPDX-License-Identifier: Apache-2.0 */
/* New communicators out of one: split, dup, subset, shrink, create_group. */
#include "args.h"
#include "comm.h"

/* Wrap what one of them made, or raise. */
static PyObject *group_made(wfp_comm *parent, weft_status status,
                            weft_comm *made)
{
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    if (made == NULL) {
        Py_RETURN_NONE;
    }
    return wfp_comm_wrap(parent->world, made, true);
}

PyObject *wfp_comm_split(PyObject *object, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "split", 1, {"colour", "key", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    PyObject *given[2];
    int64_t colour = -1;
    int64_t key = 0;
    weft_comm *made = NULL;
    weft_status status;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_i64(given[1], "key", &key) < 0) {
        return NULL;
    }
    if (given[0] != Py_None && wfp_args_i64(given[0], "colour", &colour) < 0) {
        return NULL;
    }
    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_comm_split(self->comm, colour, key, &made);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return group_made(self, status, made);
}

PyObject *wfp_comm_dup(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;
    weft_comm *made = NULL;
    weft_status status;

    (void)unused;
    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_comm_dup(self->comm, &made);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return group_made(self, status, made);
}

static int group_read_ranks(PyObject *list, Py_ssize_t n, uint32_t *ranks)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (wfp_args_u32(PyList_GetItem(list, i), "a rank", &ranks[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* A call with a list of ranks. */
typedef struct ranks_call {
    PyObject *(*make)(wfp_comm *self, const struct ranks_call *call,
                      const uint32_t *ranks, size_t n);
    /* weft_comm_subset or weft_comm_shrink, if it is one of these, */
    weft_status (*function)(weft_comm *comm, const uint32_t *ranks, size_t n,
                            weft_comm **out);
    uint64_t tag; /* and of weft_comm_create_group */
    double timeout;
} ranks_call;

static PyObject *make_of_ranks(wfp_comm *self, const ranks_call *call,
                               const uint32_t *ranks, size_t n)
{
    weft_comm *made = NULL;
    weft_status status;

    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = call->function(self->comm, ranks, n, &made);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return group_made(self, status, made);
}

/* Other threads may be inside operations of the communicator, and may begin
 * some; it must only not be closed meanwhile. */
static PyObject *make_of_tag(wfp_comm *self, const ranks_call *call,
                             const uint32_t *ranks, size_t n)
{
    weft_comm *made = NULL;
    weft_status status;

    if (wfp_comm_check(self) < 0) {
        return NULL;
    }
    self->lent++;
    self->world->busy++;
    Py_BEGIN_ALLOW_THREADS
    status = weft_comm_create_group(self->comm, ranks, n, call->tag,
                                    call->timeout, &made);
    Py_END_ALLOW_THREADS
    self->world->busy--;
    self->lent--;
    return group_made(self, status, made);
}

static PyObject *group_of_ranks(PyObject *object, const ranks_call *call,
                                PyObject *sequence)
{
    PyObject *list = PySequence_List(sequence);
    Py_ssize_t n = list == NULL ? 0 : PyList_Size(list);
    uint32_t *ranks =
        list == NULL ? NULL : PyMem_Malloc((size_t)(n + 1) * sizeof(*ranks));
    PyObject *made = NULL;

    if (list != NULL && ranks == NULL) {
        PyErr_NoMemory();
    }
    if (ranks != NULL && group_read_ranks(list, n, ranks) == 0) {
        made = call->make((wfp_comm *)object, call, ranks, (size_t)n);
    }
    PyMem_Free(ranks);
    Py_XDECREF(list);
    return made;
}

PyObject *wfp_comm_subset(PyObject *object, PyObject *ranks)
{
    ranks_call call = {make_of_ranks, .function = weft_comm_subset};

    return group_of_ranks(object, &call, ranks);
}

PyObject *wfp_comm_shrink(PyObject *object, PyObject *exclude)
{
    ranks_call call = {make_of_ranks, .function = weft_comm_shrink};

    return group_of_ranks(object, &call, exclude);
}

PyObject *wfp_comm_create_group(PyObject *object, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "create_group", 1, {"ranks", "tag", "timeout", NULL}};
    ranks_call call = {.make = make_of_tag};
    PyObject *given[3];

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u64(given[1], "tag", &call.tag) < 0 ||
        wfp_args_seconds(given[2], "timeout", &call.timeout) < 0) {
        return NULL;
    }
    return group_of_ranks(object, &call, given[0]);
}
