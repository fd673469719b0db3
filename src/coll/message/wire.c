/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/wire.h"

#include "base/status.h"
#include "comm/receive.h"

/* Odd ids are for collectives, see comm/message.c. */
static uint64_t tag_of(const wf_coll_op *op)
{
    return (uint64_t)(op->op.comm->id | 1u) << 32 | op->op.sequence;
}

weft_status wf_wire_send(const wf_coll_op *op, uint32_t to, const void *buf,
                         size_t n, wf_wire *wire)
{
    weft_comm *comm = op->op.comm;
    uint32_t rank = comm->member[to];
    const wf_route *r = wf_world_route(comm->world, rank);
    weft_status st =
        r->transport->send(r->port, rank, tag_of(op), buf, n, &wire->msg);

    wire->open = st == WEFT_OK;
    wire->member = to;
    return st == WEFT_ERR_PEER ? wf_peer_lost(comm, to) : st;
}

weft_status wf_wire_recv(const wf_coll_op *op, uint32_t from, void *buf,
                         size_t n, wf_wire *wire)
{
    weft_comm *comm = op->op.comm;
    uint32_t rank = comm->member[from];
    const wf_route *r = wf_world_route(comm->world, rank);
    weft_status st = r->transport->recv(r->port, rank, tag_of(op), WF_TAG_EXACT,
                                        buf, n, &wire->msg);

    wire->open = st == WEFT_OK;
    wire->member = from;
    return st == WEFT_ERR_PEER ? wf_peer_lost(comm, from) : st;
}

weft_status wf_wire_status(const wf_coll_op *op, const wf_wire *wire)
{
    if (!wire->open) {
        return WEFT_OK;
    }
    if (!wire->msg.done) {
        return WF_PENDING;
    }
    switch (wire->msg.status) {
    case WEFT_ERR_TRUNCATED:
        return WEFT_OK;
    case WEFT_ERR_PEER:
        return wf_peer_lost(op->op.comm, wire->member);
    default:
        return wire->msg.status;
    }
}

void wf_wire_drop(const wf_coll_op *op, wf_wire *wire)
{
    weft_comm *comm = op->op.comm;
    const wf_route *r = wf_world_route(comm->world, comm->member[wire->member]);

    if (wire->open && !wire->msg.done && r->port != NULL) {
        r->transport->drop(r->port, &wire->msg);
    }
    wire->open = false;
}
