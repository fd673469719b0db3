/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include "message.h"
#include "observe.h"
#include "request.h"

PyObject *wfp_call_finish(wfp_call *call)
{
    if (wfp_side_finish(&call->x) < 0 || wfp_side_finish(&call->out) < 0) {
        return NULL;
    }
    return call->received != NULL
               ? wfp_message_new(&call->info, call->received->item)
               : Py_NewRef(call->result);
}

PyObject *wfp_kind_run(const wfp_kind *kind, PyObject *object,
                       PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames)
{
    wfp_comm *self = (wfp_comm *)object;
    PyObject *given[WFP_ARGS_MAX];
    wfp_call call;
    weft_status status;
    PyObject *result = NULL;
    uint64_t since;

    if (wfp_args_sort(&kind->signature, args, nargs, kwnames, given) < 0 ||
        wfp_comm_check(self) < 0) {
        return NULL;
    }
    wfp_call_init(&call);
    if (kind->open(&call, self, given, WFP_READ) == 0 &&
        wfp_comm_enter(self) == 0) {
        since = wfp_observe_begin();
        Py_BEGIN_ALLOW_THREADS
        status = kind->make(self->comm, &call, NULL);
        Py_END_ALLOW_THREADS
        if (since != 0) {
            wfp_observe_end(kind->signature.function, self, &call, since);
        }
        wfp_comm_leave(self);
        result = status == WEFT_OK ? wfp_call_finish(&call) : wfp_raise(status);
    }
    wfp_call_close(&call);
    return result;
}

PyObject *wfp_kind_start(const wfp_kind *kind, const char *i_name,
                         PyObject *object, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    wfp_comm *self = (wfp_comm *)object;
    wfp_signature signature = kind->signature;
    PyObject *given[WFP_ARGS_MAX];
    wfp_operation *operation;
    weft_status status;
    uint64_t since;

    signature.function = i_name;
    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_comm_check(self) < 0) {
        return NULL;
    }
    operation = wfp_operation_new(self, kind->signature.function);
    if (operation == NULL) {
        return NULL;
    }
    if (kind->open(&operation->call, self, given, WFP_KEEP) < 0 ||
        wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    operation->holds = Py_NewRef(operation->call.result);
    since = wfp_observe_begin();
    Py_BEGIN_ALLOW_THREADS
    status = kind->make(self->comm, &operation->call, &operation->request);
    Py_END_ALLOW_THREADS
    if (since != 0) {
        wfp_observe_end(i_name, self, &operation->call, since);
    }
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}
