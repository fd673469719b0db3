/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <string.h>

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

static bool buffer_dtype(const char *format, Py_ssize_t item, int *dtype)
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
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    format += strchr("@=<", format[0]) != NULL && format[0] != '\0';
#else
    format += strchr("@=>!", format[0]) != NULL && format[0] != '\0';
#endif
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(format, others[i].format) == 0) {
            *dtype = others[i].dtype;
            return true;
        }
    }
    return format[0] != '\0' && format[1] == '\0' &&
           buffer_integer(format[0], item, dtype);
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
                 "it; pass a writable one, or out=");
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
        !buffer_dtype(view->format, view->itemsize, &a->dtype) ||
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
