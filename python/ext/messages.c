/* SPDX-License-Identifier: Apache-2.0 */
/* send, recv, isend and irecv of Comm. Messages are bytes: any element type
 * can travel. */
#include "args.h"
#include "array.h"
#include "comm.h"
#include "request.h"

typedef struct message {
    uint32_t peer;
    uint32_t tag;
} message;

static int message_open(const wfp_signature *signature, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames, unsigned access,
                        wfp_array *array, message *out)
{
    PyObject *given[3];

    out->tag = 0;
    if (wfp_args_sort(signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u32(given[1], "peer", &out->peer) < 0 ||
        wfp_args_u32(given[2], "tag", &out->tag) < 0) {
        return -1;
    }
    return wfp_array_open(array, given[0], access);
}

PyObject *wfp_comm_send(PyObject *object, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "send", 2, {"x", "peer", "tag", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_array array;
    message m;
    weft_status status = WEFT_OK;
    bool entered;

    if (message_open(&signature, args, nargs, kwnames, WFP_READ, &array, &m) <
        0) {
        return NULL;
    }
    entered = wfp_comm_enter(self) == 0;
    if (entered) {
        Py_BEGIN_ALLOW_THREADS
        status = weft_send(self->comm, array.data, wfp_array_bytes(&array),
                           m.peer, m.tag);
        Py_END_ALLOW_THREADS
        wfp_comm_leave(self);
    }
    if (status != WEFT_OK) {
        wfp_raise(status);
    }
    wfp_array_close(&array);
    return entered && status == WEFT_OK ? Py_NewRef(Py_None) : NULL;
}

PyObject *wfp_comm_recv(PyObject *object, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "recv", 2, {"x", "peer", "tag", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_array array;
    message m;
    weft_status status;
    size_t received = 0;
    PyObject *result = NULL;

    if (message_open(&signature, args, nargs, kwnames, WFP_WRITE, &array, &m) <
        0) {
        return NULL;
    }
    if (wfp_comm_enter(self) == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = weft_recv(self->comm, array.data, wfp_array_bytes(&array),
                           m.peer, m.tag, &received);
        Py_END_ALLOW_THREADS
        wfp_comm_leave(self);
        if (status != WEFT_OK) {
            wfp_raise(status);
        } else if (wfp_array_finish(&array) == 0) {
            result = wfp_request_elements(&array, received);
        }
    }
    wfp_array_close(&array);
    return result;
}

PyObject *wfp_comm_isend(PyObject *object, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "isend", 2, {"x", "peer", "tag", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self);
    weft_status status;
    message m;

    if (operation == NULL) {
        return NULL;
    }
    if (message_open(&signature, args, nargs, kwnames, WFP_KEEP,
                     &operation->array[0], &m) < 0 ||
        wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_isend(self->comm, operation->array[0].data,
                        wfp_array_bytes(&operation->array[0]), m.peer, m.tag,
                        &operation->request);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}

PyObject *wfp_comm_irecv(PyObject *object, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "irecv", 2, {"x", "peer", "tag", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self);
    weft_status status;
    message m;

    if (operation == NULL) {
        return NULL;
    }
    operation->is_receive = true;
    if (message_open(&signature, args, nargs, kwnames, WFP_KEEP | WFP_WRITE,
                     &operation->array[0], &m) < 0 ||
        wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_irecv(self->comm, operation->array[0].data,
                        wfp_array_bytes(&operation->array[0]), m.peer, m.tag,
                        &operation->received, &operation->request);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}
