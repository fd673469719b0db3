/* SPDX-License-Identifier: Apache-2.0 */
#include "boot.h"

#include <string.h>

#include "args.h"

/* Keep what was raised, if it is the first: the library may call once more, to
 * tell the others. Tell it the text, and pick a status. */
static weft_status boot_caught(wfp_boot *boot)
{
    weft_status status = PyErr_ExceptionMatches(PyExc_TimeoutError)
                             ? WEFT_ERR_TIMEOUT
                             : WEFT_ERR_SYSTEM;
    PyObject *type;
    PyObject *value;
    PyObject *trace;
    PyObject *text;
    const char *utf8;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    text = PyObject_Str(value);
    utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    if (utf8 == NULL || utf8[0] == '\0') {
        utf8 = "the meeting object failed";
    }
    status = weft_boot_fail(status, utf8);
    Py_XDECREF(text);
    PyErr_Clear();
    if (boot->value == NULL) {
        boot->type = type;
        boot->value = value;
        boot->trace = trace;
    } else {
        Py_DECREF(type);
        Py_DECREF(value);
        Py_XDECREF(trace);
    }
    return status;
}

static void boot_forget(wfp_boot *boot)
{
    Py_CLEAR(boot->type);
    Py_CLEAR(boot->value);
    Py_CLEAR(boot->trace);
}

/* Before a method is called: what a signal handler raised meanwhile would be in
 * its way, and is kept; a timeout after which the library tries again is none.
 */
static void boot_clear_way(wfp_boot *boot)
{
    if (boot->type != NULL &&
        PyErr_GivenExceptionMatches(boot->type, PyExc_TimeoutError)) {
        boot_forget(boot);
    }
    if (PyErr_Occurred()) {
        (void)boot_caught(boot);
    }
}

static weft_status boot_set(void *ctx, const char *key, const void *value,
                            size_t n)
{
    wfp_boot *boot = ctx;
    PyGILState_STATE gil = PyGILState_Ensure();
    weft_status status = WEFT_OK;
    PyObject *result;

    boot_clear_way(boot);
    result = PyObject_CallMethod(boot->object, "set", "sy#", key,
                                 (const char *)value, (Py_ssize_t)n);
    if (result == NULL) {
        status = boot_caught(boot);
    }
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return status;
}

static weft_status boot_copy(wfp_boot *boot, PyObject *result, void *value,
                             size_t *n)
{
    char *bytes;
    Py_ssize_t length;

    if (PyBytes_AsStringAndSize(result, &bytes, &length) < 0) {
        return boot_caught(boot);
    }
    if ((size_t)length > *n) {
        return weft_boot_fail(WEFT_ERR_PROTOCOL,
                              "the store returned more bytes than were set");
    }
    memcpy(value, bytes, (size_t)length);
    *n = (size_t)length;
    return WEFT_OK;
}

static weft_status boot_get(void *ctx, const char *key, void *value, size_t *n,
                            uint32_t timeout_ms)
{
    wfp_boot *boot = ctx;
    PyGILState_STATE gil = PyGILState_Ensure();
    weft_status status;
    PyObject *result;

    boot_clear_way(boot);
    result = PyObject_CallMethod(boot->object, "get", "sd", key,
                                 (double)timeout_ms / 1000);
    status =
        result == NULL ? boot_caught(boot) : boot_copy(boot, result, value, n);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return status;
}

static int boot_number(PyObject *object, const char *name, uint32_t *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    int result = value == NULL ? -1 : wfp_args_u32(value, name, out);

    Py_XDECREF(value);
    return result;
}

/* Tables of others need not say it. */
static int boot_is_one_host(PyObject *object)
{
    PyObject *value = PyObject_GetAttrString(object, "one_host");
    int is;

    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return 0;
    }
    is = value != NULL && PyObject_IsTrue(value) > 0;
    Py_XDECREF(value);
    return is;
}

int wfp_boot_init(wfp_boot *boot, PyObject *object)
{
    memset(boot, 0, sizeof(*boot));
    boot->object = object;
    boot->table.size = sizeof(boot->table);
    boot->table.ctx = boot;
    boot->table.set = boot_set;
    boot->table.get = boot_get;
    if (boot_number(object, "rank", &boot->table.rank) < 0 ||
        boot_number(object, "size", &boot->table.ranks) < 0) {
        return -1;
    }
    boot->table.one_host = boot_is_one_host(object);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *wfp_boot_raise(wfp_boot *boot, weft_status status)
{
    PyObject *type;
    PyObject *value;
    PyObject *trace;

    if (PyErr_Occurred() || boot->value == NULL) {
        return wfp_raise(status); /* or by a signal handler, already */
    }
    if (!PyErr_GivenExceptionMatches(boot->type, PyExc_Exception)) {
        PyErr_Restore(boot->type, boot->value, boot->trace);
        boot->type = boot->value = boot->trace = NULL;
        return NULL;
    }
    wfp_raise(status);
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (boot->trace != NULL) {
        PyException_SetTraceback(boot->value, boot->trace);
    }
    PyException_SetCause(value, boot->value); /* takes the reference */
    boot->value = NULL;
    PyErr_Restore(type, value, trace);
    return NULL;
}

void wfp_boot_fini(wfp_boot *boot)
{
    boot_forget(boot);
}
