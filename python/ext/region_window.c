/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays are made on a Window in two ways: by DLPack (torch, and every device),
 * or by the buffer protocol (NumPy). Either way each array counts on the hold
 * of the memory, the Window itself may go. */
#include "region_window.h"

#include <stdlib.h>

#include "args.h"

typedef struct window_object {
    PyObject_HEAD
    wfp_hold *hold;
    void *at;
    size_t bytes;
    bool readonly;
    int32_t device_type;
    int32_t device_id;
} window_object;

/* A tensor on its way to another library. */
typedef struct window_export {
    wfp_dl_managed managed;
    int64_t shape;
    wfp_hold *hold;
} window_export;

static PyTypeObject *window_type;

PyObject *wfp_window_new(wfp_hold *hold, void *at, size_t bytes, bool readonly,
                         int32_t device_type, int32_t device_id)
{
    window_object *self = PyObject_New(window_object, window_type);

    if (self == NULL) {
        return NULL;
    }
    wfp_hold_retain(hold);
    self->hold = hold;
    self->at = at;
    self->bytes = bytes;
    self->readonly = readonly;
    self->device_type = device_type;
    self->device_id = device_id;
    return (PyObject *)self;
}

static void window_dealloc(PyObject *object)
{
    wfp_hold_release(((window_object *)object)->hold);
    wfp_object_free(object);
}

static int window_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    const window_object *self = (window_object *)object;

    if (self->device_type != WFP_DL_CPU) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the memory is on a GPU");
        return -1;
    }
    return PyBuffer_FillInfo(view, object, self->at, (Py_ssize_t)self->bytes,
                             self->readonly, flags);
}

/* Called by whoever took the tensor, on any thread, with or without the GIL. */
static void window_export_end(wfp_dl_managed *managed)
{
    window_export *export = managed->manager;

    wfp_hold_release(export->hold);
    free(export);
}

static wfp_dl_managed *window_export_new(const window_object *self)
{
    window_export *export = malloc(sizeof(*export));

    if (export == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    wfp_hold_retain(self->hold);
    export->hold = self->hold;
    export->shape = (int64_t)self->bytes;
    export->managed = (wfp_dl_managed){
        .version = {WFP_DL_MAJOR, 0},
        .manager = export,
        .deleter = window_export_end,
        .flags = self->readonly ? WFP_DL_READ_ONLY : 0,
        .tensor = {.data = self->at,
                   .device_type = self->device_type,
                   .device_id = self->device_id,
                   .ndim = 1,
                   .code = WFP_DL_UINT,
                   .bits = 8,
                   .lanes = 1,
                   .shape = &export->shape},
    };
    return &export->managed;
}

/* Nobody took it. */
static void window_capsule_end(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, WFP_DL_TENSOR)) {
        wfp_dl_managed *managed = PyCapsule_GetPointer(capsule, WFP_DL_TENSOR);

        managed->deleter(managed);
    }
}

/* Can the caller read version 1? Without that it would not see that memory is
 * read-only. */
static int window_check_version(PyObject *version)
{
    long major = 0;

    if (version != NULL && version != Py_None &&
        !PyArg_ParseTuple(version, "ll", &major, &(long){0})) {
        return -1;
    }
    if (major < WFP_DL_MAJOR) {
        PyErr_SetString(PyExc_BufferError,
                        "ask for DLPack 1.0 or later, by max_version");
        return -1;
    }
    return 0;
}

static PyObject *window_dlpack(PyObject *object, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    /* Memory is ready when it is made: there is no work to wait for on any
     * stream. */
    static const wfp_signature signature = {
        "__dlpack__", 0, {"stream", "max_version", "dl_device", "copy", NULL}};
    PyObject *given[4];
    wfp_dl_managed *managed;
    PyObject *capsule;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        window_check_version(given[1]) < 0) {
        return NULL;
    }
    if (given[3] == Py_True) {
        PyErr_SetString(PyExc_BufferError, "shared memory is not copied");
        return NULL;
    }
    managed = window_export_new((window_object *)object);
    if (managed == NULL) {
        return NULL;
    }
    capsule = PyCapsule_New(managed, WFP_DL_TENSOR, window_capsule_end);
    if (capsule == NULL) {
        managed->deleter(managed);
    }
    return capsule;
}

static PyObject *window_dlpack_device(PyObject *object, PyObject *unused)
{
    const window_object *self = (window_object *)object;

    (void)unused;
    return Py_BuildValue("(ii)", self->device_type, self->device_id);
}

static PyObject *window_repr(PyObject *object)
{
    const window_object *self = (window_object *)object;

    return PyUnicode_FromFormat("<weft.Window of %zu bytes>", self->bytes);
}

static PyMethodDef window_methods[] = {
    WFP_METHOD("__dlpack__", window_dlpack,
               "__dlpack__($self, /, stream=None, max_version=None, "
               "dl_device=None, copy=None)\n--\n\nThe bytes, for DLPack."),
    {"__dlpack_device__", window_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nWhere they are, for DLPack."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot window_slots[] = {
    {Py_tp_doc, (void *)"Bytes of shared memory, for other libraries."},
    WFP_SLOT(Py_tp_dealloc, window_dealloc),
    WFP_SLOT(Py_tp_repr, window_repr),
    WFP_SLOT(Py_bf_getbuffer, window_get_buffer),
    {Py_tp_methods, window_methods},
    {0, NULL},
};

int wfp_window_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.Window", sizeof(window_object), 0,
                        window_slots, &window_type);
}
