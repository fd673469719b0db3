/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that works by messages, for members that do not all share
 * memory. Every operation goes through phases:
 *
 *   check   all compare their calls, in rounds: in round k with the ranks 2^k
 *           away on either side; after the last, everybody has heard of
 *           everybody, so a barrier is over
 *   up      allreduce: partial results are folded along a binomial tree to
 *           rank 0; a rank's result covers the ranks from itself on, so the
 *           fold is in the order of ranks
 *   down    allreduce, broadcast: the result goes down such a tree
 *
 * Messages of one operation between two ranks are matched in their order. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "coll/engine.h"
#include "coll/message/tree.h"

enum { PHASE_CHECK, PHASE_UP, PHASE_FINISH, PHASE_DOWN_RECV, PHASE_DOWN_SEND };

/* Odd ids are for collectives, see comm/message.c. */
static uint64_t tag_of(const wf_coll_op *op)
{
    return (uint64_t)(op->op.comm->id | 1u) << 32 | op->op.sequence;
}

static int message_score(const weft_comm *comm)
{
    return comm->size > 1 ? 10 : 0;
}

static weft_status explain(const wf_coll_op *op, const wf_msg *msg,
                           uint32_t member)
{
    weft_comm *comm = op->op.comm;
    weft_status st;

    switch (msg->status) {
    case WEFT_ERR_PEER:
        st = wf_host_check(comm->world->host, comm->member[member]);
        return st != WEFT_OK
                   ? st
                   : wf_fail(WEFT_ERR_PEER, "rank %u went away", member);
    case WEFT_ERR_TRUNCATED:
        return wf_fail(WEFT_ERR_MISMATCH,
                       "operation number %u on communicator %u: rank %u sent "
                       "more than rank %u expects",
                       op->op.sequence, comm->id, member, comm->rank);
    default:
        return msg->status;
    }
}

/* Send, if not yet sent; WEFT_OK once the buffer is free again. */
static weft_status send_to(wf_coll_op *op, uint32_t member, const void *buf,
                           size_t bytes)
{
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = op->op.comm;
    weft_status st = WEFT_OK;

    if (!p->sent) {
        wf_port *port;
        const wf_transport *t =
            wf_world_route(comm->world, comm->member[member], &port);

        p->sent = true;
        p->to = member;
        st = t->send(port, comm->member[member], tag_of(op), buf, bytes,
                     &p->send);
        if (st != WEFT_OK) {
            p->sent = false;
            return st;
        }
    }
    if (!p->send.done) {
        return WF_PENDING;
    }
    return p->send.status == WEFT_OK ? WEFT_OK : explain(op, &p->send, member);
}

static weft_status recv_from(wf_coll_op *op, uint32_t member, void *buf,
                             size_t bytes)
{
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = op->op.comm;
    weft_status st = WEFT_OK;

    if (!p->received) {
        wf_port *port;
        const wf_transport *t =
            wf_world_route(comm->world, comm->member[member], &port);

        p->received = true;
        p->from = member;
        st = t->recv(port, comm->member[member], tag_of(op), WF_TAG_EXACT, buf,
                     bytes, &p->recv);
        if (st != WEFT_OK) {
            p->received = false;
            return st;
        }
    }
    if (!p->recv.done) {
        return WF_PENDING;
    }
    return p->recv.status == WEFT_OK ? WEFT_OK : explain(op, &p->recv, member);
}

/* The messages of this round are through. */
static void next_round(wf_coll_op *op)
{
    op->state.message.sent = false;
    op->state.message.received = false;
    op->op.moved++;
}

static void enter(wf_coll_op *op, uint32_t phase, uint32_t mask)
{
    op->state.message.phase = phase;
    op->state.message.mask = mask;
    next_round(op);
}

static void start_down(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    uint32_t number = tree_number(comm->rank, op->op.call.root, comm->size);

    enter(op, number == 0 ? PHASE_DOWN_SEND : PHASE_DOWN_RECV,
          tree_span(number, comm->size) >> (number == 0));
}

/* What the result starts from: our own data, scaled if it must be. */
static weft_status start_up(wf_coll_op *op)
{
    wf_message_progress *p = &op->state.message;
    weft_op sum = {WEFT_OP_SUM, 1.0};
    weft_op own = {(weft_op_kind)op->op.call.op, op->op.call.factor};
    weft_dtype type = (weft_dtype)op->op.call.type;
    wf_reducer first;
    bool scales = own.kind == WEFT_OP_AVG || own.kind == WEFT_OP_PREMUL_SUM;

    if (op->bytes > 0) {
        p->scratch = wf_alloc(op->bytes);
        if (p->scratch == NULL) {
            return wf_fail(WEFT_ERR_NOMEM, "%zu bytes for a partial result",
                           op->bytes);
        }
    }
    (void)wf_reducer_init(&p->partial, type, scales ? sum : own, 1);
    (void)wf_reducer_init(&first, type, own.kind == WEFT_OP_AVG ? sum : own, 1);
    if (op->bytes > 0) {
        first.fold(&first, &op->dst, 1, &op->src, 1, op->op.call.count);
    }
    enter(op, PHASE_UP, 1);
    return WEFT_OK;
}

static weft_status check_step(wf_coll_op *op)
{
    wf_message_progress *p = &op->state.message;
    uint32_t size = op->op.comm->size;
    uint32_t rank = op->op.comm->rank;
    uint32_t from = (rank + size - p->mask) % size;
    weft_status st =
        send_to(op, (rank + p->mask) % size, &op->op.call, sizeof(wf_call));
    weft_status got;

    if (st != WEFT_OK && st != WF_PENDING) {
        return st;
    }
    got = recv_from(op, from, &p->theirs, sizeof(p->theirs));
    if (got != WEFT_OK) {
        return got;
    }
    if (p->recv.n != sizeof(p->theirs) ||
        !wf_call_equal(&p->theirs, &op->op.call)) {
        return wf_coll_mismatch(op, from, &p->theirs);
    }
    if (st == WF_PENDING) {
        return st;
    }
    p->mask <<= 1;
    next_round(op);
    if (p->mask < size) {
        return WEFT_OK;
    }
    if (op->op.call.kind == WF_CALL_ALLREDUCE) {
        return start_up(op);
    }
    if (op->op.call.kind == WF_CALL_BROADCAST) {
        start_down(op);
    } else {
        enter(op, PHASE_DOWN_SEND, 0); /* nothing to send: it is over */
    }
    return WEFT_OK;
}

static weft_status up_step(wf_coll_op *op)
{
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = op->op.comm;
    weft_status st = WEFT_OK;

    if (p->mask >= comm->size) {
        enter(op, PHASE_FINISH, 0);
        return WEFT_OK;
    }
    if ((comm->rank & p->mask) != 0) {
        st = send_to(op, comm->rank - p->mask, op->dst, op->bytes);
        if (st == WEFT_OK) {
            enter(op, PHASE_FINISH, 0);
        }
        return st;
    }
    if (comm->rank + p->mask < comm->size) {
        st = recv_from(op, comm->rank + p->mask, p->scratch, op->bytes);
        if (st == WEFT_OK && op->bytes > 0) {
            const void *both[2] = {op->dst, p->scratch};

            p->partial.fold(&p->partial, &op->dst, 1, both, 2,
                            op->op.call.count);
        }
    }
    if (st == WEFT_OK) {
        p->mask <<= 1;
        next_round(op);
    }
    return st;
}

/* Rank 0 has everything; what is left of an average is to divide. */
static weft_status finish_step(wf_coll_op *op)
{
    if (op->op.comm->rank == 0 && op->op.call.op == WEFT_OP_AVG &&
        op->bytes > 0) {
        const void *sum = op->dst;

        op->reducer.fold(&op->reducer, &op->dst, 1, &sum, 1, op->op.call.count);
    }
    start_down(op);
    return WEFT_OK;
}

static weft_status down_recv_step(wf_coll_op *op)
{
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = op->op.comm;
    uint32_t root = op->op.call.root;
    uint32_t number = tree_number(comm->rank, root, comm->size);
    weft_status st = recv_from(
        op, tree_rank(number - p->mask, root, comm->size), op->dst, op->bytes);

    if (st == WEFT_OK) {
        enter(op, PHASE_DOWN_SEND, p->mask >> 1);
    }
    return st;
}

static weft_status down_send_step(wf_coll_op *op, bool *over)
{
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = op->op.comm;
    uint32_t root = op->op.call.root;
    uint32_t number = tree_number(comm->rank, root, comm->size);
    weft_status st = WEFT_OK;

    if (p->mask == 0) {
        *over = true;
        return WEFT_OK;
    }
    if (number + p->mask < comm->size) {
        st = send_to(op, tree_rank(number + p->mask, root, comm->size), op->dst,
                     op->bytes);
    }
    if (st == WEFT_OK) {
        p->mask >>= 1;
        next_round(op);
    }
    return st;
}

static weft_status message_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    wf_message_progress *p = &op->state.message;
    weft_status st = WEFT_OK;
    bool over = false;

    while (st == WEFT_OK && !over) {
        switch (p->phase) {
        case PHASE_CHECK:
            st = check_step(op);
            break;
        case PHASE_UP:
            st = up_step(op);
            break;
        case PHASE_FINISH:
            st = finish_step(op);
            break;
        case PHASE_DOWN_RECV:
            st = down_recv_step(op);
            break;
        default:
            st = down_send_step(op, &over);
            break;
        }
    }
    if (over && st == WEFT_OK) {
        wf_free(p->scratch);
        p->scratch = NULL;
    }
    return st;
}

static void message_drop(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    wf_message_progress *p = &op->state.message;
    weft_comm *comm = base->comm;

    if (p->sent && !p->send.done && comm->world->shm_port != NULL) {
        wf_transport_shm.drop(comm->world->shm_port, &p->send);
    }
    if (p->received && !p->recv.done && comm->world->shm_port != NULL) {
        wf_transport_shm.drop(comm->world->shm_port, &p->recv);
    }
    wf_free(p->scratch);
    p->scratch = NULL;
}

static bool message_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const wf_message_progress *p = &op->state.message;

    return (p->sent && !p->send.done && p->to == member) ||
           (p->received && !p->recv.done && p->from == member);
}

static void message_begin(wf_coll_op *op)
{
    memset(&op->state.message, 0, sizeof(op->state.message));
    op->state.message.mask = 1;
    op->op.step = message_step;
    op->op.drop = message_drop;
    op->op.awaits = message_awaits;
    op->op.driven = true;
}

const wf_engine wf_engine_message = {
    .name = "message",
    .what = "messages along trees",
    .score = message_score,
    .begin = message_begin,
};
