/* SPDX-License-Identifier: Apache-2.0 */
#include "op.h"

#include <ctype.h>

typedef struct op_object {
    PyObject_HEAD
    weft_op op;
} op_object;

static PyTypeObject *op_type;

/* Interned, so that a literal in the caller's program is the same object and
 * comparing pointers finds it. */
static PyObject *op_names[] = {
#define NO_NAME(name, number, text) NULL,
    WEFT_OP_TABLE(NO_NAME)
#undef NO_NAME
};

enum { OPS = sizeof(op_names) / sizeof(op_names[0]) };

static PyObject *op_make(weft_op op)
{
    op_object *self = PyObject_New(op_object, op_type);

    if (self != NULL) {
        self->op = op;
    }
    return (PyObject *)self;
}

static int op_find(PyObject *name)
{
    for (int i = 0; i < OPS; i++) {
        if (op_names[i] == name) {
            return i;
        }
    }
    for (int i = 0; i < OPS; i++) {
        if (PyUnicode_Compare(op_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static int op_from_name(PyObject *name, weft_op *out)
{
    int kind = op_find(name);

    if (kind == WEFT_OP_PREMUL_SUM) {
        return wfp_invalid(
            "op 'premul_sum' needs its factor: weft.premul_sum(factor)");
    }
    if (kind < 0) {
        return wfp_invalid(
            "op %R is not one of sum, prod, min, max, avg, band, bor, bxor, "
            "land, lor, lxor, minloc, maxloc",
            name);
    }
    *out = weft_op_of((weft_op_kind)kind);
    return 0;
}

int wfp_op_from(PyObject *object, weft_op *out)
{
    if (object == NULL || object == Py_None) {
        *out = WEFT_SUM;
        return 0;
    }
    if (Py_TYPE(object) == op_type) {
        *out = ((op_object *)object)->op;
        return 0;
    }
    if (PyUnicode_Check(object)) {
        return op_from_name(object, out);
    }
    PyErr_Format(PyExc_TypeError,
                 "op must be a name like 'sum' or an Op like weft.SUM, not %R",
                 object);
    return -1;
}

static PyObject *op_repr(PyObject *self)
{
    weft_op op = ((op_object *)self)->op;
    PyObject *factor;
    PyObject *text;

    if (op.kind != WEFT_OP_PREMUL_SUM) {
        return PyUnicode_FromFormat("<weft.Op %s>", weft_op_name(op.kind));
    }
    factor = PyFloat_FromDouble(op.factor);
    if (factor == NULL) {
        return NULL;
    }
    text = PyUnicode_FromFormat("<weft.Op premul_sum(%R)>", factor);
    Py_DECREF(factor);
    return text;
}

static PyObject *op_compare(PyObject *self, PyObject *other, int how)
{
    weft_op a = ((op_object *)self)->op;
    weft_op b;
    bool same;

    if (Py_TYPE(other) != op_type || (how != Py_EQ && how != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    b = ((op_object *)other)->op;
    same = a.kind == b.kind && a.factor == b.factor;
    return PyBool_FromLong(same == (how == Py_EQ));
}

static Py_hash_t op_hash(PyObject *self)
{
    weft_op op = ((op_object *)self)->op;

    return (Py_hash_t)op.kind * 1000003 + (Py_hash_t)op.factor;
}

static PyObject *op_get_name(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(weft_op_name(((op_object *)self)->op.kind));
}

static PyObject *op_get_factor(PyObject *self, void *unused)
{
    (void)unused;
    return PyFloat_FromDouble(((op_object *)self)->op.factor);
}

static PyObject *op_premul_sum(PyObject *module, PyObject *factor)
{
    double value = PyFloat_AsDouble(factor);

    (void)module;
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return op_make(weft_premul_sum(value));
}

static PyGetSetDef op_getset[] = {
    {"name", op_get_name, NULL, "The name that stands for it.", NULL},
    {"factor", op_get_factor, NULL, "What premul_sum multiplies by.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_doc, (void *)"A reduction, such as weft.SUM."},
    WFP_SLOT(Py_tp_dealloc, wfp_object_free),
    WFP_SLOT(Py_tp_repr, op_repr),
    WFP_SLOT(Py_tp_richcompare, op_compare),
    WFP_SLOT(Py_tp_hash, op_hash),
    {Py_tp_getset, op_getset},
    {0, NULL},
};

PyMethodDef wfp_op_functions[] = {
    {"premul_sum", op_premul_sum, METH_O,
     "premul_sum(factor, /)\n--\n\n"
     "The sum of each rank's elements times factor."},
    {NULL, NULL, 0, NULL},
};

static int op_add_constant(PyObject *module, int kind)
{
    char name[16];
    const char *text = weft_op_name((weft_op_kind)kind);
    PyObject *op = op_make(weft_op_of((weft_op_kind)kind));
    size_t i = 0;
    int result;

    if (op == NULL) {
        return -1;
    }
    for (; i < sizeof(name) - 1 && text[i] != '\0'; i++) {
        name[i] = (char)toupper((unsigned char)text[i]);
    }
    name[i] = '\0';
    result = PyModule_AddObjectRef(module, name, op);
    Py_DECREF(op);
    return result;
}

int wfp_op_setup(PyObject *module)
{
    if (wfp_type_add(module, "weft.Op", sizeof(op_object), 0, op_slots,
                     &op_type) < 0) {
        return -1;
    }
    for (int kind = 0; kind < OPS; kind++) {
        op_names[kind] =
            PyUnicode_InternFromString(weft_op_name((weft_op_kind)kind));
        if (op_names[kind] == NULL) {
            return -1;
        }
        /* PREMUL_SUM without its factor would be a plain sum under a wrong
         * name. */
        if (kind != WEFT_OP_PREMUL_SUM && op_add_constant(module, kind) < 0) {
            return -1;
        }
    }
    return 0;
}
