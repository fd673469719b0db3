/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <time.h>

#include "args.h"

/* A wait gives the interpreter a chance to see Ctrl-C this often. */
static const double slice_seconds = 0.1;

typedef struct request_object {
    PyObject_HEAD
    wfp_operation *operation;
    PyObject *callbacks; /* a list, once there is one */
    bool told;           /* somebody was told the error that it ended with */
    bool watched;        /* the library will call request_over */
    bool called;         /* and has done so */
} request_object;

static PyTypeObject *request_type;

PyObject *wfp_request_started(wfp_operation *operation, weft_status status)
{
    request_object *self;

    if (status != WEFT_OK) {
        wfp_raise(status);
        wfp_operation_free(operation);
        return NULL;
    }
    self = PyObject_GC_New(request_object, request_type);
    if (self == NULL) {
        wfp_operation_drop(operation);
        return NULL;
    }
    self->operation = operation;
    self->callbacks = NULL;
    self->told = false;
    self->watched = false;
    self->called = operation->request == NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Once the world is gone, only what was seen to end before can be asked. */
static wfp_operation *request_check(PyObject *self)
{
    wfp_operation *operation = ((request_object *)self)->operation;
    wfp_world *world = operation->comm->world;

    if (world->forked || (world->world == NULL && !operation->settled)) {
        wfp_world_unusable(world);
        return NULL;
    }
    return operation;
}

static weft_status request_wait_for(wfp_operation *operation, double seconds)
{
    weft_status status;

    operation->comm->world->busy++;
    Py_BEGIN_ALLOW_THREADS
    status = weft_request_wait(operation->request, seconds);
    Py_END_ALLOW_THREADS
    operation->comm->world->busy--;
    return status;
}

static double request_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Wait in slices until the operation is over (1) or `seconds` have passed (0);
 * 0 seconds: for as long as it takes. -1 when a signal handler raised. */
static int request_wait_over(wfp_operation *operation, double seconds,
                             weft_status *status)
{
    double end = request_now() + seconds;
    double slice = slice_seconds;

    if (operation->request == NULL) {
        *status = WEFT_OK;
        return 1;
    }
    for (;;) {
        int done = 1;

        if (seconds > 0) {
            double left = end - request_now();

            slice = left < slice_seconds ? left : slice_seconds;
        }
        if (slice > 0) {
            *status = request_wait_for(operation, slice);
            if (*status != WEFT_ERR_TIMEOUT) {
                return 1;
            }
        }
        /* The slice or the operation itself may have run out of time. */
        *status = weft_request_test(operation->request, &done);
        if (done || slice <= 0) {
            return done;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
}

static PyObject *request_wait(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {"wait", 0, {"timeout", NULL}};
    wfp_operation *operation = request_check(self);
    PyObject *timeout;
    double seconds;
    weft_status status;
    int over;

    if (operation == NULL ||
        wfp_args_sort(&signature, args, nargs, kwnames, &timeout) < 0 ||
        wfp_args_seconds(timeout, "timeout", &seconds) < 0) {
        return NULL;
    }
    over = request_wait_over(operation, seconds, &status);
    if (over < 0) {
        return NULL;
    }
    if (over == 0) {
        return wfp_fail(WEFT_ERR_TIMEOUT,
                        "the operation did not complete within %R seconds; it "
                        "goes on, and can be waited for again",
                        timeout);
    }
    if (wfp_operation_settle(operation, status) < 0) {
        return NULL;
    }
    if (status != WEFT_OK) {
        ((request_object *)self)->told = true;
        return wfp_raise(status);
    }
    return Py_NewRef(operation->result == NULL ? Py_None : operation->result);
}

/* Is it over? Lets go of the memory if so, and raises the error that it ended
 * with, if asked to. */
static PyObject *request_poll(PyObject *self, bool raises)
{
    wfp_operation *operation = request_check(self);
    weft_status status;
    int done = 0;

    if (operation == NULL) {
        return NULL;
    }
    if (operation->request == NULL) {
        return Py_NewRef(Py_True);
    }
    operation->comm->world->busy++;
    Py_BEGIN_ALLOW_THREADS
    status = weft_request_test(operation->request, &done);
    Py_END_ALLOW_THREADS
    operation->comm->world->busy--;
    if (done && wfp_operation_settle(operation, status) < 0) {
        return NULL;
    }
    if (done && raises && status != WEFT_OK) {
        ((request_object *)self)->told = true;
        return wfp_raise(status);
    }
    return PyBool_FromLong(done);
}

static PyObject *request_test(PyObject *self, PyObject *unused)
{
    (void)unused;
    return request_poll(self, true);
}

static PyObject *request_get_done(PyObject *self, void *unused)
{
    (void)unused;
    return request_poll(self, false);
}

static PyObject *request_get_told(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((request_object *)self)->told);
}

static void request_call(PyObject *self, PyObject *function)
{
    PyObject *result = PyObject_CallFunctionObjArgs(function, self, NULL);

    if (result == NULL) {
        PyErr_WriteUnraisable(function);
    }
    Py_XDECREF(result);
}

/* The library's callback, on whichever thread completed the operation. */
static void request_over(weft_request *request, weft_status status, void *ctx)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    request_object *self = ctx;
    PyObject *callbacks;

    (void)request;
    if (wfp_operation_settle(self->operation, status) < 0) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    callbacks = self->callbacks;
    self->callbacks = NULL;
    self->called = true;
    for (Py_ssize_t i = 0; i < PyList_Size(callbacks); i++) {
        request_call((PyObject *)self, PyList_GetItem(callbacks, i));
    }
    Py_DECREF(callbacks);
    Py_DECREF(self);
    PyGILState_Release(gil);
}

/* The first callback: from now on the library holds a reference. */
static int request_watch(request_object *self)
{
    weft_status status;

    self->watched = true;
    Py_INCREF((PyObject *)self);
    Py_BEGIN_ALLOW_THREADS
    status = weft_request_on_done(self->operation->request, request_over, self);
    Py_END_ALLOW_THREADS
    if (status != WEFT_OK) {
        self->watched = false;
        Py_DECREF(self);
        wfp_raise(status);
        return -1;
    }
    return 0;
}

static PyObject *request_add_done_callback(PyObject *object, PyObject *function)
{
    request_object *self = (request_object *)object;

    if (request_check(object) == NULL) {
        return NULL;
    }
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "a callback must be callable, not %R",
                     function);
        return NULL;
    }
    if (self->called) {
        request_call(object, function);
        Py_RETURN_NONE;
    }
    if (self->callbacks == NULL && (self->callbacks = PyList_New(0)) == NULL) {
        return NULL;
    }
    if (PyList_Append(self->callbacks, function) < 0 ||
        (!self->watched && request_watch(self) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *request_repr(PyObject *object)
{
    wfp_operation *operation = ((request_object *)object)->operation;
    const char *state = "over";
    int done = 0;

    if (!operation->settled && operation->request != NULL) {
        if (operation->comm->world->world == NULL) {
            state = "closed";
        } else if (weft_request_test(operation->request, &done) == WEFT_OK) {
            state = done ? "over" : "under way";
        } else {
            state = "failed";
        }
    }
    return PyUnicode_FromFormat("<weft.Request %s, %s>", operation->name,
                                state);
}

static int request_traverse(PyObject *object, visitproc visit, void *arg)
{
    request_object *self = (request_object *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->callbacks);
    Py_VISIT(self->operation->result);
    Py_VISIT(self->operation->holds);
    Py_VISIT(self->operation->comm);
    return 0;
}

static int request_clear(PyObject *object)
{
    Py_CLEAR(((request_object *)object)->callbacks);
    return 0;
}

static void request_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    request_clear(object);
    wfp_operation_drop(((request_object *)object)->operation);
    wfp_object_free(object);
}

static PyMethodDef request_methods[] = {
    WFP_METHOD("wait", request_wait,
               "wait($self, /, timeout=None)\n--\n\n"
               "Wait until it is over; return what the blocking call would."),
    {"test", request_test, METH_NOARGS,
     "test($self, /)\n--\n\nIs it over? Raises the error it ended with."},
    {"add_done_callback", request_add_done_callback, METH_O,
     "add_done_callback($self, function, /)\n--\n\n"
     "Call function(request) once it is over, on the thread that ends it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_getset[] = {
    {"done", request_get_done, NULL, "Is it over, well or not?", NULL},
    {"told", request_get_told, NULL,
     "Was the error that it ended with raised by wait() or test()?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_doc, (void *)"One operation under way. It keeps its arrays alive."},
    WFP_SLOT(Py_tp_dealloc, request_dealloc),
    WFP_SLOT(Py_tp_traverse, request_traverse),
    WFP_SLOT(Py_tp_clear, request_clear),
    WFP_SLOT(Py_tp_repr, request_repr),
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_getset},
    {0, NULL},
};

int wfp_request_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.Request", sizeof(request_object),
                        Py_TPFLAGS_HAVE_GC, request_slots, &request_type);
}
