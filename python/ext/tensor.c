/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include "lazy.h"

enum { TYPES = 2 }; /* Tensor and Parameter */

static struct {
    PyTypeObject *type; /* a strong reference */
    const wfp_dl_api *api;
} known[TYPES];

const wfp_dl_api *wfp_tensor_api(const PyTypeObject *type)
{
    return type == known[0].type   ? known[0].api
           : type == known[1].type ? known[1].api
                                   : NULL;
}

/* Is `type` what torch calls Tensor or Parameter? */
static bool tensor_is_torch_type(PyTypeObject *type)
{
    PyObject *name = PyUnicode_FromString("torch");
    PyObject *torch = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *tensor = NULL;
    PyObject *nn = NULL;
    PyObject *parameter = NULL;
    bool found;

    if (torch != NULL) {
        tensor = PyObject_GetAttrString(torch, "Tensor");
        nn = PyObject_GetAttrString(torch, "nn");
    }
    if (nn != NULL) {
        parameter = PyObject_GetAttrString(nn, "Parameter");
    }
    PyErr_Clear(); /* torch may be half imported: then it is not known yet */
    found = (PyObject *)type == tensor || (PyObject *)type == parameter;
    Py_XDECREF(parameter);
    Py_XDECREF(nn);
    Py_XDECREF(tensor);
    Py_XDECREF(torch);
    Py_XDECREF(name);
    return found;
}

static const wfp_dl_api *tensor_find_table(PyTypeObject *type)
{
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)type, WFP_DL_ATTRIBUTE);
    const wfp_dl_header *header = NULL;

    if (capsule != NULL) {
        header = PyCapsule_GetPointer(capsule, WFP_DL_CAPSULE);
        /* The table is static in the framework; the capsule only names it. */
        Py_DECREF(capsule);
    }
    PyErr_Clear();
    while (header != NULL && header->version.major != WFP_DL_MAJOR) {
        header = header->prev_api;
    }
    return (const wfp_dl_api *)header;
}

const wfp_dl_api *wfp_tensor_learn(PyTypeObject *type)
{
    const wfp_dl_api *api;
    int slot = known[0].type == NULL ? 0 : 1;

    if (known[slot].type != NULL || !tensor_is_torch_type(type)) {
        return NULL;
    }
    api = tensor_find_table(type);
    if (api == NULL || api->borrow_from_object == NULL) {
        return NULL;
    }
    wfp_lazy_learn(type);
    known[slot].type = (PyTypeObject *)Py_NewRef((PyObject *)type);
    known[slot].api = api;
    return api;
}

int wfp_tensor_dtype(const wfp_dl_tensor *t)
{
    const int type = t->code << 8 | t->bits;

#define TYPE(name, number, bytes, text, kind, part, array, code, dlpack)       \
    if (type == (WFP_DL_##dlpack << 8 | 8 * (bytes))) {                        \
        return WEFT_##name;                                                    \
    }
    WEFT_DTYPE_TABLE(TYPE)
#undef TYPE
    return WFP_NO_DTYPE;
}

/* Compact, the last index fastest? Also counts the elements. */
static bool tensor_is_compact(const wfp_dl_tensor *t, size_t *count)
{
    bool compact = true;

    *count = 1;
    for (int32_t i = t->ndim; i-- > 0;) {
        if (t->strides != NULL && t->shape[i] != 1 &&
            t->strides[i] != (int64_t)*count) {
            compact = false;
        }
        *count *= (size_t)t->shape[i];
    }
    return compact || *count == 0;
}

static bool tensor_describe(wfp_array *a, const wfp_dl_tensor *t)
{
    if (t->device_type != WFP_DL_CPU && t->device_type != WFP_DL_CUDA_HOST &&
        t->device_type != WFP_DL_ROCM_HOST) {
        return false;
    }
    if (!tensor_is_compact(t, &a->count) || t->bits % 8 != 0 ||
        (t->data == NULL && a->count != 0)) {
        return false;
    }
    a->data = (char *)t->data + t->byte_offset;
    a->item = (size_t)t->bits / 8 * t->lanes;
    a->dtype = t->lanes == 1 ? wfp_tensor_dtype(t) : WFP_NO_DTYPE;
    return true;
}

/* Who holds the memory: the tensor itself during a call. For longer, a tensor
 * of our own on the same storage, since the caller can give his another one
 * (x.data = ...), or resize it, at any time. */
static PyObject *tensor_holder(PyObject *tensor, unsigned access)
{
    return (access & WFP_KEEP) == 0
               ? Py_NewRef(tensor)
               : PyObject_CallMethod(tensor, "detach", NULL);
}

wfp_opened wfp_tensor_open(wfp_array *a, PyObject *tensor,
                           const wfp_dl_api *api, unsigned access)
{
    PyObject *holder = tensor_holder(tensor, access);
    wfp_opened opened = WFP_RARE;
    wfp_dl_tensor t;

    if (holder == NULL) {
        return WFP_RAISED;
    }
    if (api->borrow_from_object(holder, &t) != 0) {
        PyErr_Clear(); /* weft._arrays knows a better text, or a way */
    } else if (tensor_describe(a, &t)) {
        int rare = wfp_lazy_is_rare(tensor, t.code, a->data,
                                    (access & WFP_WRITE) != 0);

        opened = rare < 0 ? WFP_RAISED : rare ? WFP_RARE : WFP_OPENED;
    }
    if (opened != WFP_OPENED) {
        Py_DECREF(holder);
        return opened;
    }
    a->owner = holder;
    return WFP_OPENED;
}
