/* SPDX-License-Identifier: Apache-2.0 */
/* Driving what is pending: ports, and the operations behind requests.
 *
 * Whoever waits drives everything that is pending in this world, under one
 * lock (world->drive), so that a wait on one communicator never starves
 * another. A thread does it when something is pending that needs it and
 * nobody waits (progress.c). */
#ifndef WF_COMM_DRIVE_H
#define WF_COMM_DRIVE_H

#include <weft/request.h>

#include "comm/world.h"

/* Requests in the order in which they came. */
typedef struct wf_request_queue {
    weft_request *first;
    weft_request **end;
} wf_request_queue;

void wf_requests_init(wf_request_queue *queue);

/* Queue it: in order with the communicator's other collectives, or loose. It is
 * stepped once right away. The queue takes a reference of its own. */
void wf_request_submit(weft_request *request, bool ordered);

/* Fail everything that is pending on `comm`; true if that included a
 * collective. */
bool wf_requests_fail(weft_comm *comm, weft_status status, const char *text);

/* In a forked child: what is pending on `comm` is over here, as closed. The
 * callbacks are its parent's, and the ports have let go of the messages. */
void wf_requests_orphan(weft_comm *comm);

/* Step everything that is pending, if no other thread is doing so. Returns
 * whether something happened. */
bool wf_world_drive(weft_world *world);
/* Like wf_world_drive, by the thread that took the watch of the ports
 * (mem/watch.h): it gives that back while it runs callbacks. */
bool wf_world_drive_minding(weft_world *world);
/* Like wf_world_drive, but waits for the lock: what had come when this was
 * called is seen. */
bool wf_world_drive_now(weft_world *world);

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
