/* SPDX-License-Identifier: Apache-2.0 */
#include "observe.h"

#include <time.h>

PyObject *wfp_observer;

static uint64_t observe_now(void)
{
    struct timespec now;

    /* Not the monotonic clock: the traces of torch's profiler, beside which
     * these times are shown, count from the epoch. */
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t wfp_observe_begin(void)
{
    return wfp_observer == NULL ? 0 : observe_now();
}

static bool side_is_open(const wfp_side *side)
{
    return side->one.owner != NULL || side->many != NULL;
}

/* What this rank passes; where that is nothing, what it gets. */
static size_t observe_bytes(const wfp_call *call)
{
    const wfp_side *side = side_is_open(&call->x) ? &call->x : &call->out;

    return side_is_open(side) ? side->count * side->item : 0;
}

void wfp_observe_end(const char *name, const wfp_comm *comm,
                     const wfp_call *call, uint64_t since)
{
    PyObject *observer = Py_XNewRef(wfp_observer);
    PyObject *result;

    if (observer == NULL || since == 0) {
        Py_XDECREF(observer);
        return;
    }
    result = PyObject_CallFunction(
        observer, "sKIIKK", name,
        (unsigned long long)(call == NULL ? 0 : observe_bytes(call)),
        weft_comm_rank(comm->comm), weft_comm_size(comm->comm),
        (unsigned long long)since, (unsigned long long)observe_now());
    if (result == NULL) {
        PyErr_WriteUnraisable(observer);
    }
    Py_XDECREF(result);
    Py_DECREF(observer);
}

static PyObject *observe_set(PyObject *module, PyObject *observer)
{
    PyObject *before = wfp_observer;

    (void)module;
    if (observer != Py_None && !PyCallable_Check(observer)) {
        PyErr_SetString(PyExc_TypeError, "observer is not callable");
        return NULL;
    }
    wfp_observer = observer == Py_None ? NULL : Py_NewRef(observer);
    return before == NULL ? Py_NewRef(Py_None) : before;
}

PyMethodDef wfp_observe_functions[] = {
    {"observe", observe_set, METH_O,
     "observe(observer, /)\n--\n\n"
     "Call observer(name, bytes, rank, size, begin, end) after each operation\n"
     "of a Comm; the times are nanoseconds since the epoch. None: nobody.\n"
     "Returns the observer before."},
    {NULL, NULL, 0, NULL},
};
