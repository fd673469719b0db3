/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an array: the plain case here, every other one by weft._arrays. */
#include "array.h"

#include "buffer.h"
#include "tensor.h"

static PyObject *array_stage; /* weft._arrays.stage, once it was needed */

static int array_load_stage(void)
{
    PyObject *module;

    if (array_stage != NULL) {
        return 0;
    }
    module = PyImport_ImportModule("weft._arrays");
    if (module == NULL) {
        return -1;
    }
    array_stage = PyObject_GetAttrString(module, "stage");
    Py_DECREF(module);
    return array_stage == NULL ? -1 : 0;
}

/* Try the ways in C: WFP_OPENED, WFP_RARE or WFP_RAISED. */
static wfp_opened array_open_plain(wfp_array *a, PyObject *object,
                                   unsigned access)
{
    const wfp_dl_api *api = wfp_tensor_api(Py_TYPE(object));

    if (api != NULL) {
        return wfp_tensor_open(a, object, api, access);
    }
    if (PyObject_CheckBuffer(object)) {
        return wfp_buffer_open(a, object, access);
    }
    api = wfp_tensor_learn(Py_TYPE(object));
    return api == NULL ? WFP_RARE : wfp_tensor_open(a, object, api, access);
}

/* Open what stage() returned: the stand-in, the way back, and the width of the
 * elements that its raw bytes are. */
static int array_open_triple(wfp_array *a, PyObject *object, PyObject *triple,
                             unsigned access)
{
    PyObject *plain;
    PyObject *back;
    Py_ssize_t item;

    if (!PyArg_ParseTuple(triple, "OOn", &plain, &back, &item)) {
        return -1;
    }
    switch (array_open_plain(a, plain, access)) {
    case WFP_OPENED:
        break;
    case WFP_RARE:
        PyErr_Format(PyExc_TypeError, "weft cannot read the memory of a %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    default:
        return -1;
    }
    a->back = back == Py_None ? NULL : Py_NewRef(back);
    if (item > 0) {
        a->count = wfp_array_bytes(a) / (size_t)item;
        a->item = (size_t)item;
        a->dtype = WFP_NO_DTYPE;
    }
    return 0;
}

static int array_open_staged(wfp_array *a, PyObject *object, unsigned access)
{
    PyObject *triple;
    int result;

    if (array_load_stage() < 0) {
        return -1;
    }
    triple = PyObject_CallFunctionObjArgs(
        array_stage, object, access & WFP_WRITE ? Py_True : Py_False, NULL);
    if (triple == NULL) {
        return -1;
    }
    result = array_open_triple(a, object, triple, access);
    Py_DECREF(triple);
    return result;
}

int wfp_array_open(wfp_array *a, PyObject *object, unsigned access)
{
    a->owner = NULL;
    a->back = NULL;
    a->has_view = false;
    switch (array_open_plain(a, object, access)) {
    case WFP_OPENED:
        return 0;
    case WFP_RARE:
        return array_open_staged(a, object, access);
    default:
        return -1;
    }
}

int wfp_array_finish(wfp_array *a)
{
    PyObject *result;

    if (a->back == NULL) {
        return 0;
    }
    result = PyObject_CallNoArgs(a->back);
    Py_CLEAR(a->back);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

void wfp_array_close(wfp_array *a)
{
    if (a->owner == NULL) {
        return;
    }
    if (a->has_view) {
        PyBuffer_Release(&a->view);
        a->has_view = false;
    }
    Py_CLEAR(a->back);
    Py_CLEAR(a->owner);
}

/* What weft._elements knows of types. */
int wfp_array_setup(PyObject *module)
{
#define FORMAT(...) "(szzi)"
#define VALUES(name, number, bytes, text, kind, part, array, code, ...)        \
    , text, array, code, bytes
    PyObject *types = Py_BuildValue(
        "(" WEFT_DTYPE_TABLE(FORMAT) ")" WEFT_DTYPE_TABLE(VALUES));
#undef VALUES
#undef FORMAT
    int failed = types == NULL || PyModule_AddObjectRef(module, "TYPES", types);

    Py_XDECREF(types);
    return failed ? -1 : 0;
}
