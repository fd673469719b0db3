/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: members publish their calls in them and compare those of others. */
#include <string.h>

#include "coll/shm/area.h"

/* Ask how far the slowest member is; rare, since calls carry it. */
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

shm_cell *shm_cell_begin(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = op->state;

    if ((int32_t)(op->op.sequence - s->free_until) >= 0 &&
        !cell_is_free(op, s)) {
        return NULL;
    }
    return shm_cell_of(s, comm->rank, op->op.sequence);
}

void shm_cell_post(wf_coll_op *op, shm_cell *cell)
{
    weft_comm *comm = op->op.comm;

    shm_cell_publish(op, cell,
                     atomic_load_explicit(&comm->done[comm->rank].count,
                                          memory_order_relaxed));
    wf_comm_ring(comm);
    op->op.moved++;
    shm_of(op)->posted = true;
}

bool shm_post(wf_coll_op *op, const void *data, size_t bytes)
{
    shm_cell *cell = shm_cell_begin(op);

    if (cell == NULL) {
        return false;
    }
    if (bytes > 0) {
        memcpy(cell->payload, data, bytes);
    }
    shm_cell_post(op, cell);
    return true;
}

weft_status shm_check(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = op->state;
    shm_progress *p = shm_of(op);

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
    shm_learn_finished(s, p->finished);
    p->checked = true;
    return WEFT_OK;
}

bool shm_root_agrees(wf_coll_op *op)
{
    shm_progress *p = shm_of(op);
    const wf_call *call = &op->op.call;

    if (!p->agreed && wf_call_is(call->kind, WF_ROOT_SENDS)) {
        const shm_cell *cell =
            shm_cell_of(op->state, call->root, op->op.sequence);

        p->agreed = shm_has(cell, op->op.sequence + 1) &&
                    wf_call_equal(&cell->call, call);
    }
    return p->agreed;
}

/* Are slots lent that its next chunk needs? */
static bool waits_for_slot(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    if (p->chunks == 0 || p->in >= p->chunks || p->in >= SHM_SLOTS ||
        p->direct_src || p->invites || !shm_by_chunks(op, op->op.comm->rank)) {
        return false;
    }
    return op->op.step == shm_scatter_step
               ? p->in == 0 && !shm_all_slots_free(op)
               : !shm_slot_free(op, p->base + p->in);
}

bool shm_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const shm_progress *p = shm_of(op);
    const shm_state *s = op->state;
    const shm_head *h = shm_head_of(s, member);

    if (waits_for_slot(op)) {
        bool keeps = shm_keeps_slot(op, member);

        /* Before its first chunk it waits for nobody else. */
        if (keeps || p->in == 0) {
            return keeps;
        }
    }
    if (!p->checked &&
        atomic_load(&shm_cell_of(s, member, base->sequence)->sequence) !=
            base->sequence + 1) {
        return true;
    }
    if (!p->checked && !p->agreed) {
        return false;
    }
    if (base->step == shm_exchange_step) {
        return shm_exchange_awaits(op, member);
    }
    if (base->step == shm_scatter_step) {
        return shm_scatter_awaits(op, member);
    }
    if (base->step == shm_joint_step) {
        return shm_joint_awaits(op, member);
    }
    return (int64_t)(atomic_load(&h->in.value) - p->base - p->red - 1) < 0 ||
           (int64_t)(atomic_load(&h->red.value) - p->base - p->out - 1) < 0;
}
