/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what the caller has of an operation that is pending; and public
 * calls that may return one. */
#ifndef WF_COMM_REQUEST_H
#define WF_COMM_REQUEST_H

#include <weft/request.h>

#include "comm/comm.h"
#include "comm/drive.h"
#include "comm/op.h"
#include "comm/wait.h"

struct weft_request {
    weft_request *next;
    weft_comm *comm;
    _Atomic uint32_t users; /* the caller, and the queue while it is pending */
    _Atomic uint32_t done;
    weft_status status;
    char *text;           /* the detail, if it failed */
    pthread_mutex_t lock; /* of the callback */
    bool has_fn;          /* one was set, be it called already */
    weft_request_fn *fn;
    void *ctx;
    _Atomic uint32_t waiters; /* threads in weft_request_wait */
    wf_stall stall;
    bool ordered;
    /* What was called: whoever drives may change that of the operation. */
    wf_call call;
    wf_op *op; /* behind this struct, in one allocation */
};

/* A request with room for an operation of `op_bytes`, all zero. */
weft_status wf_request_create(weft_comm *comm, size_t op_bytes,
                              weft_request **out);

/* Both forms of a public call: weft_NAME returns when it is complete,
 * weft_iNAME returns a request. PARAMS are its parameters behind `comm`; RUN is
 * the expression that runs it, with `out`, which is NULL in the first form. */
#define WF_FORMS(name, params, run)                                            \
    weft_status weft_##name(weft_comm *comm, WF_LIST params)                   \
    {                                                                          \
        weft_request **out = NULL;                                             \
                                                                               \
        return run;                                                            \
    }                                                                          \
    weft_status weft_i##name(weft_comm *comm, WF_LIST params,                  \
                             weft_request **out)                               \
    {                                                                          \
        return out != NULL ? run : wf_fail(WEFT_ERR_INVALID, "out is NULL");   \
    }
#define WF_LIST(...) __VA_ARGS__

#endif
