/* SPDX-License-Identifier: Apache-2.0 */
/* Small operations in one exchange: everybody shows its call and its data,
 * everybody reads what it needs. */
#include <string.h>

#include "coll/shm/area.h"

/* Look up how far the slowest member is; rare, since calls carry it. */
static bool cell_is_free(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    uint32_t least = op->op.sequence;

    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t done =
            atomic_load_explicit(&comm->done[r].count, memory_order_acquire);

        if ((int32_t)(done - least) < 0) {
            least = done;
        }
    }
    s->free_until = least + SHM_CELLS;
    return (int32_t)(op->op.sequence - s->free_until) < 0;
}

bool shm_post(wf_coll_op *op, const void *data, size_t bytes)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = wf_coll_state(comm);
    shm_cell *cell = shm_cell_of(s, comm->rank, op->op.sequence);

    if ((int32_t)(op->op.sequence - s->free_until) >= 0 &&
        !cell_is_free(op, s)) {
        return false;
    }
    cell->finished = atomic_load_explicit(&comm->done[comm->rank].count,
                                          memory_order_relaxed);
    cell->call = op->op.call;
    if (bytes > 0) {
        memcpy(cell->payload, data, bytes);
    }
    /* Publishes call and data; pairs with the acquire in shm_check. */
    atomic_store_explicit(&cell->sequence, op->op.sequence + 1,
                          memory_order_release);
    wf_comm_ring(comm);
    op->op.moved++;
    op->state.shm.posted = true;
    return true;
}

weft_status shm_check(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = wf_coll_state(comm);
    wf_shm_progress *p = &op->state.shm;

    for (; p->at < comm->size; p->at++) {
        const shm_cell *cell = shm_cell_of(s, p->at, op->op.sequence);

        if (!shm_has(cell, op->op.sequence + 1)) {
            return WF_PENDING;
        }
        if (!wf_call_equal(&cell->call, &op->op.call)) {
            return wf_coll_mismatch(op, p->at, &cell->call);
        }
        if ((int32_t)(cell->finished - p->finished) < 0) {
            p->finished = cell->finished;
        }
        op->op.moved++;
    }
    /* C2: what everybody had finished was in the calls. */
    if ((int32_t)(p->finished + SHM_CELLS - s->free_until) > 0) {
        s->free_until = p->finished + SHM_CELLS;
    }
    p->checked = true;
    return WEFT_OK;
}

void shm_claim(unsigned char *at, size_t bytes)
{
    uintptr_t line = ((uintptr_t)at + 63) & ~(uintptr_t)63;
    uintptr_t end = (uintptr_t)at + bytes;

    for (; line < end; line += 64) {
        volatile uint64_t *word = (volatile uint64_t *)line;

        *word = *word;
    }
}

static void flat_reduce(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;

    for (uint32_t r = 0; r < comm->size; r++) {
        s->src[r] = shm_cell_of(s, r, op->op.sequence)->payload;
    }
    s->src[comm->rank] = op->src;
    op->reducer.fold(&op->reducer, &op->dst, 1, s->src, comm->size,
                     op->op.call.count);
    if (comm->size == 2) {
        shm_claim(shm_cell_of(s, 1 - comm->rank, op->op.sequence)->payload,
                  op->bytes);
    }
}

static void flat_take(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    uint32_t root = op->op.call.root;

    if (root != comm->rank) {
        memcpy(op->dst, shm_cell_of(s, root, op->op.sequence)->payload,
               op->bytes);
        if (comm->size == 2) {
            shm_claim(shm_cell_of(s, root, op->op.sequence)->payload,
                      op->bytes);
        }
    }
}

void shm_flat_early(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    uint8_t kind = base->call.kind;
    bool brings =
        kind == WF_CALL_ALLREDUCE ||
        (kind == WF_CALL_BROADCAST && base->call.root == base->comm->rank);

    base->lazy = shm_post(op, op->src, brings ? op->bytes : 0);
}

weft_status shm_flat_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    wf_shm_progress *p = &op->state.shm;
    shm_state *s = wf_coll_state(base->comm);
    uint8_t kind = base->call.kind;
    weft_status st;

    if (!p->posted) {
        shm_flat_early(base);
        if (!p->posted) {
            return WF_PENDING;
        }
    }
    st = shm_check(op);
    if (st != WEFT_OK) {
        return st;
    }
    if (kind == WF_CALL_ALLREDUCE && op->bytes > 0) {
        flat_reduce(op, s);
    } else if (kind == WF_CALL_BROADCAST && op->bytes > 0) {
        flat_take(op, s);
    }
    return WEFT_OK;
}

bool shm_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const wf_shm_progress *p = &op->state.shm;
    const shm_state *s = wf_coll_state(base->comm);
    const shm_head *h = shm_head_of(s, member);
    bool root = base->call.root == base->comm->rank;

    if (!p->checked) {
        return atomic_load(&shm_cell_of(s, member, base->sequence)->sequence) !=
               base->sequence + 1;
    }
    if (base->call.kind == WF_CALL_BROADCAST) {
        return root
                   ? (int64_t)(atomic_load(&h->out.value) - p->base - p->in) < 0
                   : member == base->call.root;
    }
    return (int64_t)(atomic_load(&h->in.value) - p->base - p->red - 1) < 0 ||
           (int64_t)(atomic_load(&h->red.value) - p->base - p->out - 1) < 0;
}
