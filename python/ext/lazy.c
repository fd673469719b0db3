/* SPDX-License-Identifier: Apache-2.0 */
#include "lazy.h"

#include "dlpack.h"

enum { SEEN = 64 }; /* a power of two */

static struct {
    PyObject *weak; /* NULL: nothing is remembered here */
    const void *data;
} seen[SEEN];

static PyObject *name_requires_grad;
static PyObject *name_is_neg;
static PyObject *name_is_conj;

/* The property requires_grad and the function that reads a property, or NULL.
 * Going there directly saves the look-up by name. */
static PyObject *grad_property;
static descrgetfunc grad_get;

void wfp_lazy_learn(PyTypeObject *type)
{
    if (grad_property != NULL) {
        return;
    }
    grad_property = PyObject_GetAttr((PyObject *)type, name_requires_grad);
    if (grad_property == NULL) {
        PyErr_Clear();
        return;
    }
    grad_get = __extension__(descrgetfunc)
        PyType_GetSlot(Py_TYPE(grad_property), Py_tp_descr_get);
}

/* Objects lie at multiples of 16 bytes, and tensors are larger than 64. */
static size_t lazy_slot(const PyObject *tensor)
{
    uintptr_t address = (uintptr_t)tensor;

    return (address >> 4 ^ address >> 10) % SEEN;
}

static void lazy_remember(size_t slot, PyObject *tensor, const void *data)
{
    PyObject *weak = PyWeakref_NewRef(tensor, NULL);

    if (weak == NULL) {
        PyErr_Clear(); /* then it is asked again the next time */
        return;
    }
    Py_XDECREF(seen[slot].weak);
    seen[slot].weak = weak;
    seen[slot].data = data;
}

/* Is this the tensor that is remembered here? Python 3.13 deprecates the call
 * because what it returns is borrowed; it is only compared here, and its
 * successor is not in the limited API of 3.11. */
static bool lazy_is_seen(size_t slot, const PyObject *tensor, const void *data)
{
    if (seen[slot].weak == NULL || seen[slot].data != data) {
        return false;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return PyWeakref_GetObject(seen[slot].weak) == tensor;
#pragma GCC diagnostic pop
}

/* Does this method without arguments return True? -1 with an exception. */
static int lazy_ask(PyObject *tensor, PyObject *method)
{
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, method, NULL);
    int yes = answer == NULL ? -1 : answer == Py_True;

    Py_XDECREF(answer);
    return yes;
}

/* Is the negative or the conjugate of its values what lies at `data`? */
static int lazy_bits(PyObject *tensor, const void *data, bool is_complex)
{
    size_t slot = lazy_slot(tensor);
    int bits;

    if (lazy_is_seen(slot, tensor, data)) {
        return 0;
    }
    bits = lazy_ask(tensor, name_is_neg);
    if (bits == 0 && is_complex) {
        bits = lazy_ask(tensor, name_is_conj);
    }
    if (bits == 0) {
        lazy_remember(slot, tensor, data);
    }
    return bits;
}

static int lazy_requires_grad(PyObject *tensor)
{
    PyObject *answer =
        grad_get != NULL
            ? grad_get(grad_property, tensor, (PyObject *)Py_TYPE(tensor))
            : PyObject_GetAttr(tensor, name_requires_grad);
    int yes = answer == NULL ? -1 : answer == Py_True;

    Py_XDECREF(answer);
    return yes;
}

int wfp_lazy_is_rare(PyObject *tensor, uint8_t code, const void *data,
                     bool writable)
{
    int rare;

    if (wfp_dl_is_whole(code)) {
        return 0; /* whole numbers are never lazy */
    }
    rare = lazy_bits(tensor, data, code == WFP_DL_COMPLEX);
    return rare == 0 && writable ? lazy_requires_grad(tensor) : rare;
}

int wfp_lazy_setup(PyObject *module)
{
    (void)module;
    name_requires_grad = PyUnicode_InternFromString("requires_grad");
    name_is_neg = PyUnicode_InternFromString("is_neg");
    name_is_conj = PyUnicode_InternFromString("is_conj");
    return name_requires_grad == NULL || name_is_neg == NULL ||
                   name_is_conj == NULL
               ? -1
               : 0;
}
