/* SPDX-License-Identifier: Apache-2.0 */
/* The board of another process's job, for `weft top`. */
#include "view.h"

PyObject *wfp_text_of(size_t (*fn)(void *ctx, char *text, size_t room),
                      void *ctx)
{
    PyObject *result = NULL;
    size_t room = 4096;
    char *text = NULL;

    while (result == NULL) {
        char *more = PyMem_Realloc(text, room);
        size_t length;

        if (more == NULL) {
            PyErr_NoMemory();
            break;
        }
        text = more;
        length = fn(ctx, text, room);
        if (length < room) {
            result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
            break;
        }
        room = length + 1024; /* others change it between two calls */
    }
    PyMem_Free(text);
    return result;
}

static size_t view_text(void *ctx, char *text, size_t room)
{
    return weft_view_json(ctx, text, room);
}

static PyObject *view_json(PyObject *module, PyObject *number)
{
    int fd = PyObject_AsFileDescriptor(number);
    weft_view *view = NULL;
    PyObject *text;
    weft_status status;

    (void)module;
    if (fd < 0) {
        return NULL;
    }
    status = weft_view_open(fd, &view);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    text = wfp_text_of(view_text, view);
    weft_view_close(view);
    return text;
}

PyMethodDef wfp_view_functions[] = {
    {"view_json", view_json, METH_O,
     "view_json(fd, /)\n--\n\n"
     "What the board of a job behind a descriptor shows now, as JSON."},
    {NULL, NULL, 0, NULL},
};
