/* SPDX-License-Identifier: Apache-2.0 */
/* One exception for each weft_status, made from the library's own table.
 *
 * All derive from weft.Error, which is a RuntimeError; where Python has a word
 * for the same thing, the exception is that too, so that "except TimeoutError"
 * works. */
#include "core.h"

#include <ctype.h>
#include <string.h>

static PyObject *error_base;

typedef struct kind {
    weft_status status;
    const char *name; /* as in WEFT_STATUS_TABLE: "ERR_PEER" */
    const char *text;
    PyObject *type;
} kind;

static kind kinds[] = {
#define KIND(name, number, text) {WEFT_##name, #name, text, NULL},
    WEFT_STATUS_TABLE(KIND)
#undef KIND
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static PyObject *status_builtin(weft_status status)
{
    switch (status) {
    case WEFT_ERR_INVALID:
        return PyExc_ValueError;
    case WEFT_ERR_NOMEM:
        return PyExc_MemoryError;
    case WEFT_ERR_SYSTEM:
        return PyExc_OSError;
    case WEFT_ERR_TIMEOUT:
        return PyExc_TimeoutError;
    case WEFT_ERR_PEER:
        return PyExc_ConnectionError;
    case WEFT_ERR_UNSUPPORTED:
        return PyExc_NotImplementedError;
    case WEFT_ERR_DENIED:
        return PyExc_PermissionError;
    default:
        return NULL;
    }
}

static PyObject *status_type(weft_status status)
{
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].status == status && kinds[i].type != NULL) {
            return kinds[i].type;
        }
    }
    return error_base;
}

PyObject *wfp_raise(weft_status status)
{
    const char *detail = weft_error_detail();
    PyObject *text;

    if (PyErr_Occurred()) { /* by a signal handler, which ended the call */
        return NULL;
    }
    if (detail[0] == '\0') {
        detail = weft_status_text(status);
    }
    /* A peer's words may be in it, so the bytes need not be good UTF-8. */
    text = PyUnicode_DecodeUTF8(detail, (Py_ssize_t)strlen(detail), "replace");
    if (text != NULL) {
        PyErr_SetObject(status_type(status), text);
        Py_DECREF(text);
    }
    return NULL;
}

PyObject *wfp_fail(weft_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyErr_FormatV(status_type(status), format, args);
    va_end(args);
    return NULL;
}

int wfp_invalid(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyErr_FormatV(status_type(WEFT_ERR_INVALID), format, args);
    va_end(args);
    return -1;
}

/* ERR_PEER becomes PeerError. */
static void status_class_name(const kind *k, char *out, size_t room)
{
    const char *word = k->name + strlen("ERR_");

    if (k->status == WEFT_ERR_NOMEM) {
        PyOS_snprintf(out, room, "NoMemError"); /* two words in one */
        return;
    }
    PyOS_snprintf(out, room, "%sError", word);
    for (size_t i = 1; word[i] != '\0'; i++) {
        out[i] = (char)tolower((unsigned char)word[i]);
    }
}

static PyObject *status_make(const kind *k, const char *name)
{
    char full[64];
    PyObject *builtin = status_builtin(k->status);
    PyObject *bases = builtin == NULL ? PyTuple_Pack(1, error_base)
                                      : PyTuple_Pack(2, error_base, builtin);
    PyObject *members = Py_BuildValue("{s:i}", "status", (int)k->status);
    PyObject *type = NULL;

    PyOS_snprintf(full, sizeof(full), "weft.%s", name);
    if (bases != NULL && members != NULL) {
        type = PyErr_NewExceptionWithDoc(full, k->text, bases, members);
    }
    Py_XDECREF(bases);
    Py_XDECREF(members);
    return type;
}

int wfp_status_setup(PyObject *module)
{
    PyObject *members = Py_BuildValue("{s:i}", "status", 0);

    if (members == NULL) {
        return -1;
    }
    error_base = PyErr_NewExceptionWithDoc(
        "weft.Error", "Something weft did failed; the base of all its errors.",
        PyExc_RuntimeError, members);
    Py_DECREF(members);
    if (error_base == NULL ||
        PyModule_AddObjectRef(module, "Error", error_base) < 0) {
        return -1;
    }
    for (int i = 0; i < KINDS; i++) {
        char name[32];

        if (kinds[i].status == WEFT_OK) {
            continue;
        }
        status_class_name(&kinds[i], name, sizeof(name));
        kinds[i].type = status_make(&kinds[i], name);
        if (kinds[i].type == NULL ||
            PyModule_AddObjectRef(module, name, kinds[i].type) < 0) {
            return -1;
        }
    }
    return 0;
}
