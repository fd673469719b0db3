/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that are lent: an operation is over on a member that brought chunks
 * while others still take them, and whoever wants the slots next waits (C4).
 *
 * That wait comes before this member's call, unless that was there early
 * (ragged.c). Likewise a member whose call is seen may still take what an
 * earlier operation lent it; so an operation that is over here leaves a slot
 * that it has not used as it was. */
#include "coll/shm/area.h"

/* Has everybody finished the operation that lent it? What calls carry says so,
 * mostly, and takes no further line. */
static bool known_back(const shm_state *s, const shm_lent *lent)
{
    return (int32_t)(s->free_until - SHM_CELLS - lent->by) > 0;
}

/* Does it still take what was lent? */
static bool keeps(const wf_coll_op *op, const shm_lent *lent, uint32_t member)
{
    /* Pairs with the release of those who take. */
    return member != op->op.comm->rank &&
           (lent->to == SHM_ALL || lent->to == member) &&
           atomic_load_explicit(&shm_head_of(op->state, member)->out.value,
                                memory_order_acquire) < lent->until;
}

bool shm_slot_free(const wf_coll_op *op, uint64_t chunk)
{
    shm_state *s = op->state;
    shm_lent *lent = &s->lent[chunk % SHM_SLOTS];

    if (lent->until != 0 && !known_back(s, lent)) {
        for (uint32_t r = 0; r < op->op.comm->size; r++) {
            if (keeps(op, lent, r)) {
                return false;
            }
        }
    }
    lent->until = 0;
    return true;
}

bool shm_all_slots_free(const wf_coll_op *op)
{
    for (uint64_t slot = 0; slot < SHM_SLOTS; slot++) {
        if (!shm_slot_free(op, slot)) {
            return false;
        }
    }
    return true;
}

/* Lend the slot of a chunk, until those who take have counted so far. */
static void lend(const wf_coll_op *op, uint64_t chunk, uint64_t until)
{
    shm_state *s = op->state;
    bool to_root = wf_call_is(op->op.call.kind, WF_ROOT_RECEIVES);

    s->lent[chunk % SHM_SLOTS] =
        (shm_lent){.until = until,
                   .by = op->op.sequence,
                   .to = to_root ? op->op.call.root : SHM_ALL};
}

/* Where data goes one way, each slot is free as soon as it is empty, so that
 * the next operation may bring its first chunk while the last one of this is
 * taken. Where all bring and take, a rank that is ahead by a chunk gains
 * nothing (docs/design/0004-shared-memory.md), and both are free when all is
 * taken. */
void shm_lend_chunks(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);
    uint64_t end = p->base + p->chunks;

    if (!wf_call_has_root(op->op.call.kind)) {
        shm_lend_all(op);
        return;
    }
    lend(op, end - 1, end);
    if (p->chunks > 1) {
        lend(op, end - 2, end - 1);
    }
}

void shm_lend_all(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    for (uint64_t slot = 0; slot < SHM_SLOTS; slot++) {
        lend(op, slot, p->base + p->chunks);
    }
}

bool shm_keeps_slot(const wf_coll_op *op, uint32_t member)
{
    const shm_state *s = op->state;
    uint64_t next = shm_of(op)->base + shm_of(op)->in;
    bool both = op->op.step == shm_scatter_step;

    return keeps(op, &s->lent[next % SHM_SLOTS], member) ||
           (both && keeps(op, &s->lent[(next + 1) % SHM_SLOTS], member));
}
