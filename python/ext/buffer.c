/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <string.h>

/* Leave out the mark of this machine's byte order. */
static const char *buffer_skip_order(const char *format)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const char marks[] = "@=<";
#else
    static const char marks[] = "@=>!";
#endif

    return format[0] != '\0' && strchr(marks, format[0]) != NULL ? format + 1
                                                                 : format;
}

/* The element type of a format that is one native code, such as "f" or "<i4"
 * in NumPy's words. The width comes from the item, because 'l' has 4 or 8
 * bytes, depending on the prefix. False if weft._arrays must look at it. */
static bool buffer_integer(char code, Py_ssize_t item, int *dtype)
{
    *dtype = WFP_NO_DTYPE;
    if (strchr("bhilqn", code) != NULL) {
        *dtype = item == 1   ? WEFT_I8
                 : item == 2 ? WEFT_I16
                 : item == 4 ? WEFT_I32
                             : WEFT_I64;
        return true;
    }
    if (code == 'B') {
        *dtype = WEFT_U8;
        return true;
    }
    return strchr("HILQN", code) != NULL;
}

/* One field of a structure, such as "f:value:": its code, and what follows. */
static const char *buffer_field(const char *format, char *code)
{
    const char *end;

    format = buffer_skip_order(format);
    *code = format[0];
    if (format[0] == '\0' || format[1] != ':') {
        return NULL;
    }
    end = strchr(format + 2, ':');
    return end == NULL ? NULL : end + 1;
}

/* A value and an index, such as "T{f:value:i:index:}". Two fields that fill the
 * item without a gap, which would be another field, have half of it each. */
static bool buffer_pair(const char *format, Py_ssize_t item, int *dtype)
{
    char value = '\0';
    char index = '\0';
    bool wide = item == 2 * (Py_ssize_t)sizeof(int64_t);

    if (strncmp(format, "T{", 2) != 0 ||
        (!wide && item != 2 * (Py_ssize_t)sizeof(int32_t))) {
        return false;
    }
    format = buffer_field(format + 2, &value);
    format = format == NULL ? NULL : buffer_field(format, &index);
    if (format == NULL || strcmp(format, "}") != 0 ||
        strchr("ilqn", index) == NULL) {
        return false;
    }
    if (value == (wide ? 'd' : 'f')) {
        *dtype = wide ? WEFT_PAIR_F64 : WEFT_PAIR_F32;
        return true;
    }
    *dtype = wide ? WEFT_PAIR_I64 : WEFT_PAIR_I32;
    return strchr("ilqn", value) != NULL;
}

bool wfp_buffer_dtype(const char *format, Py_ssize_t item, int *dtype)
{
    static const struct {
        const char *format;
        int dtype;
    } others[] = {
        {"?", WEFT_BOOL}, {"e", WEFT_F16},  {"f", WEFT_F32},
        {"d", WEFT_F64},  {"Zf", WEFT_C64}, {"Zd", WEFT_C128},
    };

    if (format == NULL) { /* by definition unsigned bytes */
        *dtype = WEFT_U8;
        return item == 1;
    }
    format = buffer_skip_order(format);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(format, others[i].format) == 0) {
            *dtype = others[i].dtype;
            return true;
        }
    }
    if (format[0] != '\0' && format[1] == '\0') {
        return buffer_integer(format[0], item, dtype);
    }
    return buffer_pair(format, item, dtype);
}

/* The exporter refused. An array that can be read but not written is told so
 * here; what has no buffer format at all, weft._arrays may still know. */
static wfp_opened buffer_refused(PyObject *object, unsigned access)
{
    Py_buffer view;

    PyErr_Clear();
    if ((access & WFP_WRITE) == 0) {
        return WFP_RARE;
    }
    if (PyObject_GetBuffer(object, &view, PyBUF_RECORDS_RO) < 0) {
        PyErr_Clear();
        return WFP_RARE;
    }
    if (view.readonly) {
        wfp_fail(WEFT_ERR_INVALID,
                 "the array is read-only, and the result would be written to "
                 "it; pass a writable one");
    }
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? WFP_RAISED : WFP_RARE;
}

wfp_opened wfp_buffer_open(wfp_array *a, PyObject *object, unsigned access)
{
    Py_buffer *view = &a->view;

    if (PyObject_GetBuffer(object, view,
                           access & WFP_WRITE ? PyBUF_RECORDS
                                              : PyBUF_RECORDS_RO) < 0) {
        return buffer_refused(object, access);
    }
    if (view->itemsize < 1 ||
        !wfp_buffer_dtype(view->format, view->itemsize, &a->dtype) ||
        !PyBuffer_IsContiguous(view, 'C')) {
        PyBuffer_Release(view);
        return WFP_RARE;
    }
    a->has_view = true;
    a->data = view->buf;
    a->item = (size_t)view->itemsize;
    a->count = (size_t)(view->len / view->itemsize);
    Py_INCREF(object);
    a->owner = object;
    return WFP_OPENED;
}
