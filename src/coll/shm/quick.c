/* SPDX-License-Identifier: Apache-2.0 */
/* The fast path: flat.c without steps, for a blocking call whose peers are
 * prompt, in as few instructions as possible. Between the arrival of a peer's
 * line and the post of our next one every instruction delays both ranks. */
#include <string.h>

#include "coll/shm/quick.h"

#define QUICK_STEPS 16u

/* A call with any other trait takes the general path; this leaves allreduce,
 * broadcast, and calls without data. */
#define NOT_QUICK (~(unsigned)(WF_HAS_DATA | WF_ROOT_SENDS | WF_REDUCES))

/* The general path continues after `at` members. */
static weft_status give_up(wf_coll_op *op, bool posted, uint32_t at,
                           uint32_t finished)
{
    wf_op_init(&op->op);
    shm_begin(op);
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        op->reducer = shm_quick_reducer(op, op->state);
    }
    shm_of(op)->posted = posted;
    shm_of(op)->at = at;
    shm_of(op)->finished = finished;
    return WF_PENDING;
}

static void copy_small(void *to, const void *from, size_t bytes)
{
    switch (bytes) {
    case 0:
        return;
    case 4:
        memcpy(to, from, 4);
        return;
    case 8:
        memcpy(to, from, 8);
        return;
    default:
        memcpy(to, from, bytes);
        return;
    }
}

static void quick_reduce(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    wf_reducer r = shm_quick_reducer(op, s);

    for (uint32_t i = 0; i < comm->size; i++) {
        s->src[i] = shm_cell_of(s, i, op->op.sequence)->payload;
    }
    s->src[comm->rank] = op->src;
    r.fold(&r, &op->dst, 1, s->src, comm->size, op->op.call.count);
}

/* All calls are equal to ours: compute the result. */
static void quick_finish(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    uint32_t other = op->op.call.root;

    if (op->bytes == 0) {
        return;
    }
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        quick_reduce(op, s);
        other = 1 - comm->rank;
    } else if (other != comm->rank) {
        copy_small(op->dst, shm_cell_of(s, other, op->op.sequence)->payload,
                   op->bytes);
    } else {
        return;
    }
    if (comm->size == 2) {
        shm_claim(shm_cell_of(s, other, op->op.sequence)->payload, op->bytes);
    }
}

/* A call that does not fit into a cell, or is rare: only the usual steps. */
static weft_status quick_large(wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    shm_state *s = op->state;
    weft_status st = WF_PENDING;

    if (shm_pairs(op, s)) {
        return shm_pair(op);
    }
    wf_op_init(&op->op);
    shm_begin(op);
    if (wf_call_is(call->kind, WF_REDUCES)) {
        op->reducer = shm_quick_reducer(op, s);
    }
    for (unsigned i = 0; i < QUICK_STEPS && st == WF_PENDING; i++) {
        st = op->op.step(&op->op);
    }
    return st;
}

/* Tell the others, and then show the call on the board: whoever waits for our
 * line does not wait for that, too. */
static inline void quick_post(wf_coll_op *op, shm_cell *own)
{
    weft_comm *comm = op->op.comm;

    if (wf_call_is(op->op.call.kind, WF_REDUCES) ||
        op->op.call.root == comm->rank) {
        copy_small(own->payload, op->src, op->bytes);
    }
    shm_cell_publish(op, own, op->op.sequence);
    wf_comm_ring(comm);
    wf_comm_show(comm, &op->op);
    wf_comm_count(comm, op->bytes);
}

weft_status shm_quick(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = op->state;
    uint32_t sequence = op->op.sequence;
    shm_cell *own = shm_cell_of(s, comm->rank, sequence);
    uint32_t finished = sequence;

    if (op->bytes > s->flat || wf_call_is(op->op.call.kind, NOT_QUICK)) {
        wf_coll_show(op);
        return quick_large(op);
    }
    if ((int32_t)(sequence - s->free_until) >= 0) {
        wf_coll_show(op);
        return give_up(op, false, 0, sequence);
    }
    quick_post(op, own);
    for (uint32_t r = 0; r < comm->size; r++) {
        const shm_cell *cell = shm_cell_of(s, r, sequence);

        if (r == comm->rank) {
            continue;
        }
        if (!shm_has(cell, sequence + 1)) {
            return give_up(op, true, r, finished);
        }
        if (!wf_call_equal(&cell->call, &op->op.call)) {
            return wf_coll_mismatch(op, r, &cell->call);
        }
        if ((int32_t)(cell->finished - finished) < 0) {
            finished = cell->finished;
        }
    }
    shm_learn_finished(s, finished);
    quick_finish(op, s);
    return WEFT_OK;
}
