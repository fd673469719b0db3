/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two members: thin, since the transports do the matching.
 *
 * Tags on a port: the communicator's id in the upper half, the caller's tag in
 * the lower. Ids are even; the odd one after an id is for collectives. */
#include <weft/message.h>

#include "comm/request.h"
#include "comm/wait.h"

typedef struct message_op {
    wf_op op;
    wf_msg msg;
    bool posted;
    const wf_transport *transport;
    wf_port *port;
    uint32_t peer; /* in the job */
    uint64_t tag;
    void *buf;
    size_t n;
    size_t *received;
} message_op;

static weft_status message_post(message_op *m)
{
    m->posted = true;
    if (m->op.call.kind == WF_CALL_SEND) {
        return m->transport->send(m->port, m->peer, m->tag, m->buf, m->n,
                                  &m->msg);
    }
    return m->transport->recv(m->port, m->peer, m->tag, WF_TAG_EXACT, m->buf,
                              m->n, &m->msg);
}

static weft_status message_step(wf_op *op)
{
    message_op *m = (message_op *)(void *)op;
    weft_status st = m->posted ? WEFT_OK : message_post(m);

    if (st != WEFT_OK) {
        return st;
    }
    if (!m->msg.done) {
        return WF_PENDING;
    }
    if (m->op.call.kind == WF_CALL_RECV && m->received != NULL) {
        *m->received = m->msg.n;
    }
    if (m->msg.status == WEFT_ERR_TRUNCATED) {
        op->private_failure = true;
        return wf_fail(WEFT_ERR_TRUNCATED,
                       "the message from rank %u has %zu bytes, the buffer %zu",
                       op->call.root, m->msg.n, m->n);
    }
    if (m->msg.status == WEFT_ERR_PEER) {
        /* The transport knows that it went, the board how. */
        st = wf_host_check(op->comm->world->host, m->peer);
        return st != WEFT_OK
                   ? st
                   : wf_fail(WEFT_ERR_PEER, "rank %u went away", op->call.root);
    }
    return m->msg.status;
}

static bool message_awaits(const wf_op *op, uint32_t member)
{
    return member == op->call.root;
}

static void message_drop(wf_op *op)
{
    message_op *m = (message_op *)(void *)op;

    if (m->posted && !m->msg.done) {
        m->transport->drop(m->port, &m->msg);
    }
}

static weft_status message_init(message_op *m, weft_comm *comm,
                                wf_call_kind kind, void *buf, size_t n,
                                uint32_t peer, uint32_t tag, size_t *received)
{
    if (comm == NULL || (buf == NULL && n > 0)) {
        return wf_fail(WEFT_ERR_INVALID, "comm or buf is NULL");
    }
    if (peer >= comm->size) {
        return wf_fail(WEFT_ERR_INVALID, "there is no rank %u among %u", peer,
                       comm->size);
    }
    *m = (message_op){
        .op = {.comm = comm,
               .step = message_step,
               .awaits = message_awaits,
               .drop = message_drop,
               .driven = true,
               .call = {.kind = (uint8_t)kind, .root = peer, .count = n}},
        .peer = comm->member[peer],
        .tag = (uint64_t)comm->id << 32 | tag,
        .buf = buf,
        .n = n,
        .received = received};
    m->transport = wf_world_route(comm->world, m->peer, &m->port);
    return wf_comm_check(comm);
}

static weft_status message_run(weft_comm *comm, wf_call_kind kind, void *buf,
                               size_t n, uint32_t peer, uint32_t tag,
                               size_t *received)
{
    message_op m;
    weft_status st = message_init(&m, comm, kind, buf, n, peer, tag, received);

    if (st != WEFT_OK) {
        return st;
    }
    wf_comm_show(comm, &m.op);
    st = wf_op_run(&m.op);
    return st;
}

static weft_status message_submit(weft_comm *comm, wf_call_kind kind, void *buf,
                                  size_t n, uint32_t peer, uint32_t tag,
                                  size_t *received, weft_request **out)
{
    message_op m;
    weft_request *r;
    weft_status st;

    if (out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "out is NULL");
    }
    st = message_init(&m, comm, kind, buf, n, peer, tag, received);
    if (st == WEFT_OK) {
        st = wf_request_create(comm, sizeof(m), &r);
    }
    if (st != WEFT_OK) {
        return st;
    }
    *(message_op *)(void *)r->op = m;
    wf_request_submit(r, false);
    *out = r;
    return WEFT_OK;
}

/* A send only reads its buffer; the common code has one type for both. */
static void *unconst(const void *buf)
{
    return (void *)(uintptr_t)buf;
}

weft_status weft_send(weft_comm *comm, const void *buf, size_t n, uint32_t to,
                      uint32_t tag)
{
    return message_run(comm, WF_CALL_SEND, unconst(buf), n, to, tag, NULL);
}

weft_status weft_isend(weft_comm *comm, const void *buf, size_t n, uint32_t to,
                       uint32_t tag, weft_request **out)
{
    return message_submit(comm, WF_CALL_SEND, unconst(buf), n, to, tag, NULL,
                          out);
}

weft_status weft_recv(weft_comm *comm, void *buf, size_t room, uint32_t from,
                      uint32_t tag, size_t *n)
{
    return message_run(comm, WF_CALL_RECV, buf, room, from, tag, n);
}

weft_status weft_irecv(weft_comm *comm, void *buf, size_t room, uint32_t from,
                       uint32_t tag, size_t *n, weft_request **out)
{
    return message_submit(comm, WF_CALL_RECV, buf, room, from, tag, n, out);
}
