/* SPDX-License-Identifier: Apache-2.0 */
/* split, dup, subset and shrink of Comm: new communicators out of one. */
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

/* weft_comm_subset or weft_comm_shrink. */
typedef weft_status make_of_ranks(weft_comm *comm, const uint32_t *ranks,
                                  size_t n, weft_comm **out);

static PyObject *group_make(wfp_comm *self, make_of_ranks *make,
                            const uint32_t *ranks, size_t n)
{
    weft_comm *made = NULL;
    weft_status status;

    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = make(self->comm, ranks, n, &made);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return group_made(self, status, made);
}

static PyObject *group_of_ranks(PyObject *object, make_of_ranks *make,
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
        made = group_make((wfp_comm *)object, make, ranks, (size_t)n);
    }
    PyMem_Free(ranks);
    Py_XDECREF(list);
    return made;
}

PyObject *wfp_comm_subset(PyObject *object, PyObject *ranks)
{
    return group_of_ranks(object, weft_comm_subset, ranks);
}

PyObject *wfp_comm_shrink(PyObject *object, PyObject *exclude)
{
    return group_of_ranks(object, weft_comm_shrink, exclude);
}
