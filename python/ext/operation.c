/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an operation, with or without its Request. */
#include <string.h>

#include "request.h"

static wfp_operation *dropped;
static bool sweeping; /* asking the library may call back, and so come here */

wfp_operation *wfp_operation_new(wfp_comm *comm, const char *name)
{
    wfp_operation *operation = PyMem_Malloc(sizeof(*operation));

    wfp_request_sweep();
    if (operation == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(operation, 0, sizeof(*operation)); /* calloc is slower in glibc */
    operation->comm = (wfp_comm *)Py_NewRef((PyObject *)comm);
    operation->name = name;
    wfp_call_init(&operation->call);
    return operation;
}

void wfp_operation_free(wfp_operation *operation)
{
    if (!operation->comm->world->forked) {
        weft_request_release(operation->request);
    }
    wfp_call_close(&operation->call);
    Py_XDECREF(operation->result);
    Py_XDECREF(operation->holds);
    Py_DECREF(operation->comm);
    PyMem_Free(operation);
}

int wfp_operation_settle(wfp_operation *operation, weft_status status)
{
    int result = 0;

    if (operation->settled) {
        return 0;
    }
    operation->settled = true;
    if (status == WEFT_OK) {
        operation->result = wfp_call_finish(&operation->call);
        result = operation->result == NULL ? -1 : 0;
    }
    wfp_call_close(&operation->call);
    return result;
}

void wfp_operation_drop(wfp_operation *operation)
{
    operation->next = dropped;
    dropped = operation;
    wfp_request_sweep();
}

/* Is it over? Nothing goes on once the world is closed, nor in a forked child,
 * whose operations are its parent's. */
static bool operation_is_over(wfp_operation *operation)
{
    int done = 1;

    if (!operation->settled && operation->comm->world->world != NULL) {
        (void)weft_request_test(operation->request, &done);
    }
    return done != 0;
}

void wfp_request_sweep(void)
{
    wfp_operation **link = &dropped;
    wfp_operation *over = NULL;

    if (sweeping) {
        return;
    }
    sweeping = true;
    while (*link != NULL) {
        wfp_operation *operation = *link;

        if (operation_is_over(operation)) {
            *link = operation->next;
            operation->next = over;
            over = operation;
        } else {
            link = &operation->next;
        }
    }
    sweeping = false;
    /* Freeing runs other people's destructors, which may come back here, so
     * the list is whole again before the first is called. */
    while (over != NULL) {
        wfp_operation *next = over->next;

        wfp_operation_free(over);
        over = next;
    }
}
