/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and the progress of what is behind them.
 *
 * Whoever waits drives everything that is pending in this world, under one
 * lock (world->drive), so that a wait on one communicator never starves
 * another. A thread does it when something is pending that needs it and
 * nobody waits. */
#ifndef WF_COMM_REQUEST_H
#define WF_COMM_REQUEST_H

#include <weft/request.h>

#include "comm/comm.h"
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
    wf_op *op; /* behind this struct, in one allocation */
};

/* A request with room for an operation of `op_bytes`, all zero. */
weft_status wf_request_create(weft_comm *comm, size_t op_bytes,
                              weft_request **out);

/* Queue it: in order with the communicator's other collectives, or loose.
 * It is stepped once right away. The queue's use of the request is counted
 * here; the caller's is its own. */
void wf_request_submit(weft_request *request, bool ordered);

/* Step everything that is pending, if no other thread is doing so. Returns
 * whether something happened. */
bool wf_world_drive(weft_world *world);
/* Like wf_world_drive, but waits for the lock: what had come when this was
 * called is seen. */
bool wf_world_drive_now(weft_world *world);

/* Fail everything that is pending on `comm`. Was there a collective? */
bool wf_requests_fail(weft_comm *comm, weft_status status, const char *text);

/* In a forked child: what is pending on `comm` is over here, as closed. The
 * callbacks are its parent's, and the ports have let go of the messages. */
void wf_requests_orphan(weft_comm *comm);

weft_status wf_progress_create(weft_world *world, wf_progress **out);
void wf_progress_destroy(wf_progress *progress);
/* In a forked child, which has no such thread. */
void wf_progress_orphan(wf_progress *progress);
/* Something is pending that must go on even if nobody waits. */
void wf_progress_kick(wf_progress *progress);
/* A caller begins or ends waiting. */
void wf_progress_wait_begin(wf_progress *progress);
void wf_progress_wait_end(wf_progress *progress);

#endif
