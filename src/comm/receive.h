/* SPDX-License-Identifier: Apache-2.0 */
/* Which receive gets which message, where a message can come through several
 * ports.
 *
 * A port matches the receives posted on it in the order posted. A receive from
 * any rank can be served by every port, so it is posted on none: it waits in
 * its communicator's receive queue and peeks at all of them. A receive that
 * names its sender is posted, unless a receive in the queue matches some of the
 * same messages: then it is queued, too. Three rules keep the order:
 *
 * 1. A message that a peek finds matches no receive that is posted, since it
 *    would have gone there. So a queued receive takes nothing from those who
 *    were posted before.
 * 2. A posted receive and those queued before it have no message in common. So
 *    it takes nothing from them.
 * 3. The queue is served from its head, and no port makes progress meanwhile. A
 *    receive that finds a message takes it; if it finds none there is none for
 *    it, so that whatever those behind it find is theirs.
 *
 * A receive stays in the queue until it is served. The queue is served when
 * there is news: something came in through a port, or this rank sent itself a
 * message (world->news).
 *
 * All calls are made under world->drive. */
#ifndef WF_COMM_RECEIVE_H
#define WF_COMM_RECEIVE_H

#include <weft/message.h>

#include "comm/comm.h"

/* The messages that a receive or a probe matches. */
typedef struct wf_want {
    uint32_t from; /* rank here, or WEFT_ANY_SOURCE */
    uint64_t tag;  /* on the port */
    uint64_t mask;
} wf_want;

typedef struct wf_receive {
    struct wf_receive *next; /* in the queue */
    wf_want want;
    void *buf;
    size_t room;
    bool queued;
    const wf_route *route; /* NULL until it is posted */
    wf_msg msg;            /* once it is posted */
} wf_receive;

/* Tags on a port: the communicator's id in the upper half, the caller's tag in
 * the lower. Ids are even; the odd one after an id is for collectives. */
static inline uint64_t wf_port_tag(const weft_comm *comm, uint32_t tag)
{
    return (uint64_t)comm->id << 32 | tag;
}

wf_want wf_want_of(const weft_comm *comm, uint32_t from, uint32_t tag);

/* Fail because `member` is gone, in the words of the board. */
weft_status wf_peer_lost(const weft_comm *comm, uint32_t member);

/* Is a member of another node lost, or about to be, and not known yet to have
 * died or left? That takes a second at most. Under world->drive. */
bool wf_loss_is_open(const weft_comm *comm, uint32_t member);

/* Does a message that failed with `st` leave the communicator whole? A member
 * that left in good order has done its part in all that the others still wait
 * for, so that only what concerns it fails; a death is everybody's. */
bool wf_loss_is_private(const weft_comm *comm, weft_status st);

/* WEFT_OK, or WEFT_ERR_PEER if no message that is wanted can come any more. */
weft_status wf_want_check(const weft_comm *comm, const wf_want *want);

/* Could `member` be the one who sends it? Needs no lock. */
bool wf_want_awaits(const weft_comm *comm, const wf_want *want,
                    uint32_t member);

/* Begin a receive whose want, buf and room are filled in. */
weft_status wf_receive_begin(weft_comm *comm, wf_receive *r);

/* Is it complete? Serves the queue if there is news. */
bool wf_receive_over(weft_comm *comm, wf_receive *r);

/* Take it back, whatever its state. */
void wf_receive_drop(weft_comm *comm, wf_receive *r);

/* Has a wanted message arrived that no queued receive matches? `found` gets its
 * sender (in the job), tag and length. */
bool wf_want_peek(weft_comm *comm, const wf_want *want, wf_msg *found);

/* Describe a wanted message that arrived. WEFT_ERR_PROTOCOL if its sender is
 * not a member. */
weft_status wf_message_describe(const weft_comm *comm, const wf_want *want,
                                const wf_msg *msg, weft_message_info *out);

#endif
