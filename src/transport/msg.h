/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport does with messages: copies them, finishes them, keeps
 * them in first-in, first-out lists that are linked through them. */
#ifndef WF_TRANSPORT_MSG_H
#define WF_TRANSPORT_MSG_H

#include <string.h>

#include "transport/transport.h"

/* memcpy that allows NULL where there is nothing to copy. */
static inline void wf_copy(void *to, const void *from, size_t n)
{
    if (n > 0) {
        memcpy(to, from, n);
    }
}

typedef struct wf_queue {
    wf_msg *head;
    wf_msg *last; /* valid while head is not NULL */
} wf_queue;

static inline void wf_queue_push(wf_queue *q, wf_msg *msg)
{
    msg->next = NULL;
    if (q->head == NULL) {
        q->head = msg;
    } else {
        q->last->next = msg;
    }
    q->last = msg;
}

static inline wf_msg *wf_queue_pop(wf_queue *q)
{
    wf_msg *msg = q->head;

    if (msg != NULL) {
        q->head = msg->next;
    }
    return msg;
}

/* Take `msg`, which `before` points to (NULL for the head), out of the list. */
static inline void wf_queue_cut(wf_queue *q, wf_msg *before, wf_msg *msg)
{
    if (before == NULL) {
        q->head = msg->next;
    } else {
        before->next = msg->next;
    }
    if (q->last == msg) {
        q->last = before;
    }
}

/* Take `msg` out of the list if it is there. */
static inline bool wf_queue_remove(wf_queue *q, wf_msg *msg)
{
    wf_msg *before = NULL;

    for (wf_msg *m = q->head; m != NULL; before = m, m = m->next) {
        if (m == msg) {
            wf_queue_cut(q, before, msg);
            return true;
        }
    }
    return false;
}

/* The message is over; the caller may free it from here on. */
static inline void wf_msg_finish(wf_msg *msg, weft_status status)
{
    msg->status = status;
    msg->done = true;
}

#endif
