/* SPDX-License-Identifier: Apache-2.0 */
/* Small operations in one exchange: each member publishes its call and data in
 * a cell, and reads those of the others. */
#include <string.h>

#include "coll/shm/area.h"

static unsigned char *payload_of(const wf_coll_op *op, uint32_t rank)
{
    return shm_cell_of(op->state, rank, op->op.sequence)->payload;
}

/* The offset of the block for `to` in the data of a member. */
static size_t offset_of(const wf_coll_op *op, uint32_t to)
{
    size_t at = 0;

    if (op->src_part == NULL) {
        return to * op->bytes;
    }
    for (uint32_t r = 0; r < to; r++) {
        at += wf_coll_src(op, r).bytes;
    }
    return at;
}

/* Copy our blocks for all members, one after the other. */
static void put_blocks(const wf_coll_op *op, unsigned char *to)
{
    if (op->src_part == NULL) {
        memcpy(to, op->src, op->bytes * op->op.comm->size);
        return;
    }
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        wf_block b = wf_coll_src(op, r);

        if (b.bytes > 0) {
            memcpy(to, b.at, b.bytes);
            to += b.bytes;
        }
    }
}

static void put(const wf_coll_op *op, unsigned char *to)
{
    uint8_t kind = op->op.call.kind;

    if (wf_call_is(kind, WF_REDUCES) && !wf_call_is(kind, WF_SRC_BLOCKS)) {
        memcpy(to, op->src, op->bytes);
    } else if (!shm_brings(op, op->op.comm->rank)) {
        return;
    } else if (wf_call_is(kind, WF_SRC_BLOCKS)) {
        put_blocks(op, to);
    } else if (op->bytes > 0) { /* it may be 0 in allgatherv */
        memcpy(to, op->src, op->bytes);
    }
}

/* Does any member bring data? All members get the same answer. */
static bool has_data(const wf_coll_op *op)
{
    return op->op.call.count > 0 && wf_coll_moves(op);
}

void shm_flat_early(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_cell *cell = shm_cell_begin(op);

    base->lazy = cell != NULL;
    if (cell != NULL) {
        if (has_data(op)) {
            put(op, cell->payload);
        }
        shm_cell_post(op, cell);
    }
}

/* Reductions of one block into one. */
static void flat_reduce(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    const wf_call *call = &op->op.call;
    uint32_t nsrc = wf_call_folded(call->kind, comm->rank, comm->size);

    if (!wf_call_gives(call, comm->rank)) {
        return;
    }
    for (uint32_t r = 0; r < nsrc; r++) {
        s->src[r] = r == comm->rank ? op->src : payload_of(op, r);
    }
    op->reducer.fold(&op->reducer, &op->dst, 1, s->src, nsrc, call->count);
    if (comm->size == 2 &&
        !wf_call_is(call->kind, WF_PREFIX | WF_ROOT_RECEIVES)) {
        shm_claim(payload_of(op, 1 - comm->rank), op->bytes);
    }
}

static void flat_reduce_scatter(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    size_t at = offset_of(op, comm->rank);

    for (uint32_t r = 0; r < comm->size; r++) {
        s->src[r] =
            r == comm->rank ? wf_coll_src(op, r).at : payload_of(op, r) + at;
    }
    if (op->bytes > 0) {
        op->reducer.fold(&op->reducer, &op->dst, 1, s->src, comm->size,
                         op->bytes / op->reducer.elem);
    }
}

static void flat_move(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    bool blocks = wf_call_is(op->op.call.kind, WF_SRC_BLOCKS);
    size_t at = blocks ? offset_of(op, comm->rank) : 0;

    shm_copy_own(op, 0, SIZE_MAX);
    if (!shm_takes(op, comm->rank)) {
        return;
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        size_t bytes = r != comm->rank && shm_brings(op, r)
                           ? shm_length(op, r, comm->rank)
                           : 0;

        if (bytes == 0) {
            continue;
        }
        memcpy(shm_target(op, r), payload_of(op, r) + at, bytes);
        if (comm->size == 2) {
            shm_claim(payload_of(op, r) + at, bytes);
        }
    }
}

weft_status shm_flat_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_state *s = op->state;
    uint8_t kind = base->call.kind;
    weft_status st;

    if (!shm_of(op)->posted) {
        shm_flat_early(base);
        if (!shm_of(op)->posted) {
            return WF_PENDING;
        }
    }
    st = shm_check(op);
    if (st != WEFT_OK || !has_data(op)) {
        return st;
    }
    if (!wf_call_is(kind, WF_REDUCES)) {
        flat_move(op);
    } else if (wf_call_is(kind, WF_SRC_BLOCKS)) {
        flat_reduce_scatter(op, s);
    } else {
        flat_reduce(op, s);
    }
    return WEFT_OK;
}
