/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of one operation between members, over whatever transport leads
 * there. They all have the tag of the operation, so those between two members
 * are matched in their order. */
#ifndef WF_COLL_MESSAGE_WIRE_H
#define WF_COLL_MESSAGE_WIRE_H

#include "coll/engine.h"

/* Those who carry out a plan together, by their numbers in it. */
typedef struct wf_party {
    const uint32_t *member; /* number -> rank in the communicator; NULL: same */
    uint32_t size;
    uint32_t rank; /* our own number */
} wf_party;

/* All members of a communicator. */
static inline wf_party wf_party_all(const weft_comm *comm)
{
    return (wf_party){.size = comm->size, .rank = comm->rank};
}

static inline uint32_t wf_party_member(const wf_party *party, uint32_t number)
{
    return party->member != NULL ? party->member[number] : number;
}

/* A message that is under way, or none. */
typedef struct wf_wire {
    bool open; /* with the transport; it may be done */
    uint32_t member;
    wf_msg msg;
} wf_wire;

weft_status wf_wire_send(const wf_coll_op *op, uint32_t to, const void *buf,
                         size_t n, wf_wire *wire);
weft_status wf_wire_recv(const wf_coll_op *op, uint32_t from, void *buf,
                         size_t n, wf_wire *wire);

/* WF_PENDING, or how it ended. A receive of another length than expected is
 * not an error here: see msg.n. */
weft_status wf_wire_status(const wf_coll_op *op, const wf_wire *wire);

/* Forget it, whatever its state. */
void wf_wire_drop(const wf_coll_op *op, wf_wire *wire);

/* Changes whenever a piece of it has moved. */
static inline size_t wf_wire_moved(const wf_wire *wire)
{
    return wire->open ? wire->msg.moved : 0;
}

static inline bool wf_wire_awaits(const wf_wire *wire, uint32_t member)
{
    return wire->open && !wire->msg.done && wire->member == member;
}

#endif
