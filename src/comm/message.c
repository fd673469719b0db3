/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving: thin, since the transports do the matching, and the
 * receive queue (receive.h) what they cannot. An operation has a part that
 * sends, one that receives, or both. */
#include <weft/message.h>

#include "comm/receive.h"
#include "comm/request.h"
#include "comm/wait.h"

typedef struct message_send {
    const wf_route *route;
    uint32_t to; /* rank here */
    uint64_t tag;
    const void *buf;
    size_t n;
    bool posted;
    wf_msg msg;
} message_send;

typedef struct message_op {
    wf_op op;
    bool begun;
    /* Which parts are not over; read by those who tell of a timeout. */
    _Atomic bool sends;
    _Atomic bool receives;
    message_send out;
    wf_receive in;
    weft_message_info got;
    weft_message_info *info;
    size_t moved; /* bytes of both parts, at the last look */
} message_op;

/* --- the two parts ------------------------------------------------------- */

/* A message failed with its peer; but did that die, or leave? Whom the failure
 * concerns, and its text, depend on it. */
static bool undecided(const weft_comm *comm, uint32_t peer, weft_status st)
{
    return st == WEFT_ERR_PEER && wf_loss_is_open(comm, peer);
}

static weft_status send_begin(weft_comm *comm, message_send *s)
{
    weft_world *world = comm->world;
    uint32_t rank = comm->member[s->to];
    weft_status st = s->route->transport->send(s->route->port, rank, s->tag,
                                               s->buf, s->n, &s->msg);

    if (undecided(comm, s->to, st)) {
        s->msg = (wf_msg){.done = true, .status = st};
        return WEFT_OK;
    }
    if (st != WEFT_OK) {
        return st == WEFT_ERR_PEER ? wf_peer_lost(comm, s->to) : st;
    }
    s->posted = true;
    if (rank == world->host->rank) {
        /* It has arrived; another thread of ours may sleep until it does. */
        world->news++;
        wf_board_ring(comm->own);
    }
    return WEFT_OK;
}

/* The status of a message between this rank and `peer` that is over. */
static weft_status ended(const weft_comm *comm, uint32_t peer, weft_status st)
{
    if (st == WEFT_OK) {
        return WEFT_OK;
    }
    if (st == WEFT_ERR_PEER) {
        return wf_peer_lost(comm, peer);
    }
    return wf_fail(st, "a message between rank %u and rank %u: %s", comm->rank,
                   peer, weft_status_text(st));
}

static weft_status send_step(message_op *m)
{
    if (!m->out.msg.done ||
        undecided(m->op.comm, m->out.to, m->out.msg.status)) {
        return WF_PENDING;
    }
    atomic_store_explicit(&m->sends, false, memory_order_relaxed);
    return ended(m->op.comm, m->out.to, m->out.msg.status);
}

/* A message that is too long is told of when the whole operation is over. */
static weft_status received(message_op *m)
{
    weft_comm *comm = m->op.comm;
    const wf_msg *msg = &m->in.msg;
    weft_status st = wf_message_describe(comm, &m->in.want, msg, &m->got);

    if (st == WEFT_OK && undecided(comm, m->got.from, msg->status)) {
        return WF_PENDING;
    }
    atomic_store_explicit(&m->receives, false, memory_order_relaxed);
    if (st == WEFT_OK && msg->status != WEFT_ERR_TRUNCATED) {
        st = ended(comm, m->got.from, msg->status);
    }
    if (st == WEFT_OK && m->info != NULL) {
        *m->info = m->got;
    }
    return st;
}

static weft_status receive_step(message_op *m)
{
    weft_comm *comm = m->op.comm;

    if (wf_receive_over(comm, &m->in)) {
        return received(m);
    }
    if (m->in.queued) {
        weft_status st = wf_want_check(comm, &m->in.want);

        return st == WEFT_OK ? WF_PENDING : st;
    }
    return WF_PENDING;
}

/* --- the operation ------------------------------------------------------- */

/* Has a piece of either message moved since the last look? */
static bool pieces_moved(message_op *m)
{
    size_t before = m->moved;

    m->moved = m->out.msg.moved + m->in.msg.moved;
    return m->moved != before;
}

/* The receive is there before the message that this rank may send itself. */
static weft_status message_begin(message_op *m)
{
    weft_status st = WEFT_OK;

    m->begun = true;
    if (m->receives) {
        st = wf_receive_begin(m->op.comm, &m->in);
    }
    if (st == WEFT_OK && m->sends) {
        st = send_begin(m->op.comm, &m->out);
    }
    return st;
}

static weft_status message_step(wf_op *op)
{
    message_op *m = (message_op *)(void *)op;
    weft_status st = m->begun ? WEFT_OK : message_begin(m);

    if (st == WEFT_OK && m->sends) {
        st = send_step(m);
    }
    if ((st == WEFT_OK || st == WF_PENDING) && m->receives) {
        weft_status in = receive_step(m);

        st = in == WEFT_OK ? st : in;
    }
    if (st == WEFT_OK && m->got.n > m->in.room) {
        op->private_failure = true;
        st = wf_fail(WEFT_ERR_TRUNCATED,
                     "the message from rank %u has %zu bytes, the buffer %zu",
                     m->got.from, m->got.n, m->in.room);
    } else if (st != WEFT_OK && st != WF_PENDING) {
        op->private_failure = wf_loss_is_private(op->comm, st);
    }
    op->moved += st == WF_PENDING && pieces_moved(m);
    return st;
}

static bool message_awaits(const wf_op *op, uint32_t member)
{
    const message_op *m = (const message_op *)(const void *)op;

    if (atomic_load_explicit(&m->sends, memory_order_relaxed) &&
        member == m->out.to) {
        return true;
    }
    return atomic_load_explicit(&m->receives, memory_order_relaxed) &&
           wf_want_awaits(op->comm, &m->in.want, member);
}

static void message_drop(wf_op *op)
{
    message_op *m = (message_op *)(void *)op;

    wf_receive_drop(op->comm, &m->in);
    if (m->out.posted && !m->out.msg.done) {
        m->out.route->transport->drop(m->out.route->port, &m->out.msg);
    }
}

/* --- the calls ----------------------------------------------------------- */

static weft_status check_buffer(const void *buf, size_t n)
{
    if (buf == NULL && n > 0) {
        return wf_fail(WEFT_ERR_INVALID, "a buffer of %zu bytes is NULL", n);
    }
    return WEFT_OK;
}

static weft_status message_init(message_op *m, weft_comm *comm,
                                wf_call_kind kind, uint32_t peer, size_t n)
{
    *m = (message_op){
        .op = {.comm = comm,
               .step = message_step,
               .awaits = message_awaits,
               .drop = message_drop,
               .driven = true,
               .call = {.kind = (uint8_t)kind, .root = peer, .count = n}}};
    return comm != NULL ? WEFT_OK : wf_fail(WEFT_ERR_INVALID, "comm is NULL");
}

static weft_status message_to(message_op *m, const void *buf, size_t n,
                              uint32_t to, uint32_t tag)
{
    weft_comm *comm = m->op.comm;
    weft_status st = wf_comm_check_rank(comm, to);

    if (st == WEFT_OK) {
        st = check_buffer(buf, n);
    }
    if (st == WEFT_OK && tag == WEFT_ANY_TAG) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "a message cannot be sent with WEFT_ANY_TAG (%u)", tag);
    }
    if (st != WEFT_OK) {
        return st;
    }
    m->sends = true;
    m->op.sequence = tag;
    m->out =
        (message_send){.route = wf_world_route(comm->world, comm->member[to]),
                       .to = to,
                       .tag = wf_port_tag(comm, tag),
                       .buf = buf,
                       .n = n};
    return WEFT_OK;
}

static weft_status message_from(message_op *m, void *buf, size_t room,
                                uint32_t from, uint32_t tag,
                                weft_message_info *info)
{
    weft_comm *comm = m->op.comm;
    weft_status st =
        from == WEFT_ANY_SOURCE ? WEFT_OK : wf_comm_check_rank(comm, from);

    if (st == WEFT_OK) {
        st = check_buffer(buf, room);
    }
    if (st != WEFT_OK) {
        return st;
    }
    m->receives = true;
    m->op.sequence = tag;
    m->in = (wf_receive){
        .want = wf_want_of(comm, from, tag), .buf = buf, .room = room};
    m->info = info;
    return WEFT_OK;
}

/* What it sends; what it has room for is not what comes. */
static uint64_t message_bytes(const message_op *m)
{
    return m->sends ? m->out.n : 0;
}

static weft_status message_run(message_op *m)
{
    weft_comm *comm = m->op.comm;
    weft_status st = wf_comm_check(comm);

    if (st != WEFT_OK) {
        return st;
    }
    wf_comm_show(comm, &m->op);
    wf_comm_count(comm, message_bytes(m));
    return wf_op_run(&m->op);
}

static weft_status message_submit(const message_op *m, weft_request **out)
{
    weft_request *r = NULL;
    weft_status st = wf_comm_check(m->op.comm);

    if (st == WEFT_OK) {
        st = wf_request_create(m->op.comm, sizeof(*m), &r);
    }
    if (st != WEFT_OK) {
        return st;
    }
    *(message_op *)(void *)r->op = *m;
    wf_comm_count(m->op.comm, message_bytes(m));
    wf_request_submit(r, false);
    *out = r;
    return WEFT_OK;
}

/* To its end if `out` is NULL, else behind a request. */
static weft_status message_finish(message_op *m, weft_request **out)
{
    return out == NULL ? message_run(m) : message_submit(m, out);
}

static weft_status send_one(weft_comm *comm, const void *buf, size_t n,
                            uint32_t to, uint32_t tag, weft_request **out)
{
    message_op m;
    weft_status st = message_init(&m, comm, WF_CALL_SEND, to, n);

    if (st == WEFT_OK) {
        st = message_to(&m, buf, n, to, tag);
    }
    return st == WEFT_OK ? message_finish(&m, out) : st;
}

WF_FORMS(send, (const void *buf, size_t n, uint32_t to, uint32_t tag),
         send_one(comm, buf, n, to, tag, out))

static weft_status receive_one(weft_comm *comm, void *buf, size_t room,
                               uint32_t from, uint32_t tag,
                               weft_message_info *info, weft_request **out)
{
    message_op m;
    weft_status st = message_init(&m, comm, WF_CALL_RECV, from, room);

    if (st == WEFT_OK) {
        st = message_from(&m, buf, room, from, tag, info);
    }
    return st == WEFT_OK ? message_finish(&m, out) : st;
}

WF_FORMS(recv,
         (void *buf, size_t room, uint32_t from, uint32_t tag,
          weft_message_info *info),
         receive_one(comm, buf, room, from, tag, info, out))

static weft_status send_and_receive(weft_comm *comm, const void *src, size_t n,
                                    uint32_t to, uint32_t send_tag, void *dst,
                                    size_t room, uint32_t from,
                                    uint32_t recv_tag, weft_message_info *info,
                                    weft_request **out)
{
    message_op m;
    weft_status st = message_init(&m, comm, WF_CALL_SENDRECV, from, n);

    if (st == WEFT_OK) {
        st = message_to(&m, src, n, to, send_tag);
    }
    if (st == WEFT_OK) {
        st = message_from(&m, dst, room, from, recv_tag, info);
    }
    return st == WEFT_OK ? message_finish(&m, out) : st;
}

WF_FORMS(sendrecv,
         (const void *src, size_t n, uint32_t to, uint32_t send_tag, void *dst,
          size_t room, uint32_t from, uint32_t recv_tag,
          weft_message_info *info),
         send_and_receive(comm, src, n, to, send_tag, dst, room, from, recv_tag,
                          info, out))
