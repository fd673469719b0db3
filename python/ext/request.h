/* SPDX-License-Identifier: Apache-2.0 */
/* weft.Request: one operation under way.
 *
 * The operation itself is a struct of its own, because it can outlive the
 * Request: a caller that drops one leaves memory borrowed by the library, so
 * the operation waits in a list until it is over, and only then lets go. */
#ifndef WFP_REQUEST_H
#define WFP_REQUEST_H

#include "call.h"
#include "comm.h"

typedef struct wfp_operation {
    weft_request *request; /* NULL: it was over, and settled, at once */
    wfp_comm *comm;   /* a reference, so that it is not closed underneath */
    const char *name; /* "allreduce" */
    wfp_call call;
    PyObject *holds;  /* the reference that call.result borrows */
    PyObject *result; /* what wait() returns, once settled */
    bool settled;     /* over, results copied back, memory let go */
    struct wfp_operation *next;
} wfp_operation;

/* A new operation on `comm` with no array open; NULL on failure. */
wfp_operation *wfp_operation_new(wfp_comm *comm, const char *name);

/* Give up an operation that the library never accepted. */
void wfp_operation_free(wfp_operation *operation);

/* The operation is over with `status`: copy its result back, once, and let go
 * of the memory. 0, or -1 with an exception set. */
int wfp_operation_settle(wfp_operation *operation, weft_status status);

/* Its Request is gone; free it as soon as it is over. */
void wfp_operation_drop(wfp_operation *operation);

/* The library was asked to start the operation and said `status`: its Request,
 * or NULL with the reason raised. Takes the operation over in any case. */
PyObject *wfp_request_started(wfp_operation *operation, weft_status status);

/* Let go of dropped operations that are over. */
void wfp_request_sweep(void);

#endif
