/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <math.h>
#include <string.h>

static int args_wrong_count(const wfp_signature *s, Py_ssize_t given)
{
    PyErr_Format(PyExc_TypeError, "%s() was called with %zd arguments",
                 s->function, given);
    return -1;
}

static int args_place(const wfp_signature *s, PyObject *name, PyObject *value,
                      PyObject **out)
{
    for (int i = 0; s->names[i] != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(name, s->names[i]) != 0) {
            continue;
        }
        if (out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got the argument '%U' twice",
                         s->function, name);
            return -1;
        }
        out[i] = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected argument '%U'",
                 s->function, name);
    return -1;
}

int wfp_args_sort(const wfp_signature *s, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    Py_ssize_t names = 0;
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);

    while (s->names[names] != NULL) {
        out[names] = names < nargs ? args[names] : NULL;
        names++;
    }
    if (nargs > names) {
        return args_wrong_count(s, nargs);
    }
    for (Py_ssize_t i = 0; i < keywords; i++) {
        if (args_place(s, PyTuple_GetItem(kwnames, i), args[nargs + i], out) <
            0) {
            return -1;
        }
    }
    for (int i = 0; i < s->required; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%s'",
                         s->function, s->names[i]);
            return -1;
        }
    }
    return 0;
}

int wfp_args_i64(PyObject *object, const char *name, int64_t *out)
{
    PyObject *index;
    long long value;

    if (object == NULL) {
        return 0;
    }
    index = PyNumber_Index(object);
    if (index == NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be a whole number, not %R", name,
                     object);
        return -1;
    }
    value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return wfp_invalid("%s is %R, which does not fit in 64 bits", name,
                           object);
    }
    *out = value;
    return 0;
}

int wfp_args_u32(PyObject *object, const char *name, uint32_t *out)
{
    int64_t value = 0;

    if (object == NULL) {
        return 0;
    }
    if (wfp_args_i64(object, name, &value) < 0) {
        return -1;
    }
    if (value < 0 || value > UINT32_MAX) {
        return wfp_invalid("%s is %R; it must be 0 to 4294967295", name,
                           object);
    }
    *out = (uint32_t)value;
    return 0;
}

int wfp_args_u64(PyObject *object, const char *name, uint64_t *out)
{
    int64_t value = 0;

    if (object == NULL) {
        return 0;
    }
    if (wfp_args_i64(object, name, &value) < 0) {
        return -1;
    }
    if (value < 0) {
        return wfp_invalid("%s is %R; it must not be negative", name, object);
    }
    *out = (uint64_t)value;
    return 0;
}

int wfp_args_seconds(PyObject *object, const char *name, double *out)
{
    double value;

    if (object == NULL || object == Py_None) {
        *out = 0;
        return 0;
    }
    value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s must be seconds or None, not %R",
                     name, object);
        return -1;
    }
    if (!isfinite(value) || value <= 0) {
        return wfp_invalid("%s is %R; it must be greater than 0", name, object);
    }
    *out = value;
    return 0;
}

int wfp_args_type(const char *name, weft_dtype *out)
{
#define NAME(word, number, bytes, text, ...)                                   \
    if (strcmp(name, text) == 0) {                                             \
        *out = WEFT_##word;                                                    \
        return 0;                                                              \
    }
    WEFT_DTYPE_TABLE(NAME)
#undef NAME
    return wfp_invalid("'%s' is not a type of weft", name);
}
