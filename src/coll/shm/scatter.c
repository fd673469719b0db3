/* SPDX-License-Identifier: Apache-2.0 */
/* A scatter whose blocks fit into the slots of the root, all of them at once:
 * the root copies one block after the other and tells after each, so that the
 * first takers have theirs, and may be in their next call, while it copies the
 * others'. Both slots are one buffer here. Chunks are blocks, in the order in
 * which the root copies them: the block of the member behind it is the first.
 *
 * In chunks of all blocks (exchange.c) nobody would have all of its block
 * before the root has copied nearly everything, and the root would wait for the
 * slowest taker of each chunk. */
#include <string.h>

#include "coll/shm/area.h"

/* Among fewer members a root and a taker that copy at the same time count for
 * more. */
#define LEAST_RANKS 4u

static size_t padded(size_t bytes)
{
    return wf_round_up(bytes, 64);
}

bool shm_scatter_fits(const wf_coll_op *op, size_t bytes)
{
    const shm_state *s = op->state;
    const weft_comm *comm = op->op.comm;
    uint8_t kind = op->op.call.kind;

    return wf_call_is(kind, WF_ROOT_SENDS) && wf_call_is(kind, WF_SRC_BLOCKS) &&
           !wf_call_is(kind, WF_OWN_LENGTHS) && comm->size >= LEAST_RANKS &&
           bytes <= s->slot &&
           padded(bytes) * (comm->size - 1) <= SHM_SLOTS * s->slot;
}

weft_status shm_scatter_start(wf_coll_op *op, size_t bytes)
{
    size_t block = padded(bytes);

    return shm_start_chunks(op, block, block * (op->op.comm->size - 1));
}

/* Which block, in the order of copying, is that of `member`? */
static uint32_t turn_of(const wf_coll_op *op, uint32_t member)
{
    uint32_t size = op->op.comm->size;

    return (member + size - op->op.call.root - 1) % size;
}

static unsigned char *subslot_of(const wf_coll_op *op, uint64_t turn)
{
    return shm_slot_of(op->state, op->op.call.root, 0) +
           turn * shm_of(op)->chunk;
}

static void publish_in(wf_coll_op *op, uint64_t in)
{
    shm_progress *p = shm_of(op);
    const weft_comm *comm = op->op.comm;

    p->in = in;
    /* Publishes the block; pairs with the acquire in shm_reached. */
    atomic_store_explicit(&shm_head_of(op->state, comm->rank)->in.value,
                          p->base + in, memory_order_release);
    op->op.moved++;
}

static void bring_next(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    uint64_t turn = shm_of(op)->in;
    uint32_t to = (uint32_t)((comm->rank + 1 + turn) % comm->size);

    memcpy(subslot_of(op, turn), shm_source(op, to),
           shm_length(op, comm->rank, to));
    publish_in(op, turn + 1);
    wf_board_ring(comm->entry[to]);
}

/* Publish our call, the root with its first block or with the position of all
 * of them; false if the slots or the cell are in use. */
static bool post(wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    if (op->op.comm->rank == op->op.call.root && p->in == 0) {
        if (p->direct_src) {
            publish_in(op, p->chunks);
        } else if (shm_all_slots_free(op)) {
            bring_next(op);
        } else {
            return false;
        }
    }
    return shm_post_where(op);
}

static bool has_taken(const wf_coll_op *op, uint32_t member)
{
    const shm_progress *p = shm_of(op);

    return atomic_load_explicit(&shm_head_of(op->state, member)->out.value,
                                memory_order_acquire) >= p->base + p->chunks;
}

/* The root: copy the next block, then its own, then lend the slots or, where
 * the takers read its buffer, wait. */
static weft_status give(wf_coll_op *op)
{
    shm_progress *p = shm_of(op);
    const weft_comm *comm = op->op.comm;

    if (p->in < p->chunks) {
        bring_next(op);
        return WF_PENDING;
    }
    if (p->own_at == 0) {
        shm_copy_own(op, 0, SIZE_MAX);
        p->own_at = 1;
    }
    if (!p->direct_src) {
        return WEFT_OK;
    }
    for (; p->freed < p->chunks; p->freed++) {
        if (!has_taken(op,
                       (uint32_t)((comm->rank + 1 + p->freed) % comm->size))) {
            return WF_PENDING;
        }
        op->op.moved++;
    }
    return WEFT_OK;
}

static weft_status take(wf_coll_op *op)
{
    shm_progress *p = shm_of(op);
    const weft_comm *comm = op->op.comm;
    shm_state *s = op->state;
    uint32_t root = op->op.call.root;
    uint32_t turn = turn_of(op, comm->rank);
    const unsigned char *from;
    uint64_t place;
    weft_status st;

    if (p->out == p->chunks) {
        return WEFT_OK;
    }
    if (!shm_root_agrees(op) ||
        !shm_reached(&shm_head_of(s, root)->in, p->base + turn + 1)) {
        return WF_PENDING;
    }
    place = shm_place_of(op, root);
    from = place == 0 ? subslot_of(op, turn) : shm_arena_block(op, root, place);
    if (from == NULL) {
        return shm_misplaced(op, root);
    }
    memcpy(shm_target(op, root), from, shm_length(op, root, comm->rank));
    st = shm_was_whole(op);
    if (st != WEFT_OK) {
        return st;
    }
    p->out = p->chunks;
    /* Gives the subslot back; pairs with the acquire in has_taken. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->out.value,
                          p->base + p->out, memory_order_release);
    wf_board_ring(comm->entry[root]);
    op->op.moved++;
    return WEFT_OK;
}

weft_status shm_scatter_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_progress *p = shm_of(op);
    weft_status st;

    if (!p->posted && !post(op)) {
        return WF_PENDING;
    }
    if (!p->checked) {
        st = shm_check(op);
        if (st != WEFT_OK && st != WF_PENDING) {
            return st;
        }
    }
    st = base->comm->rank == base->call.root ? give(op) : take(op);
    if (st != WEFT_OK) {
        return st;
    }
    if (!p->checked) {
        return WF_PENDING;
    }
    if (base->comm->rank == base->call.root && !p->direct_src) {
        shm_lend_all(op);
    }
    shm_end_chunks(op);
    return WEFT_OK;
}

bool shm_scatter_awaits(const wf_coll_op *op, uint32_t member)
{
    const shm_progress *p = shm_of(op);
    uint32_t rank = op->op.comm->rank;

    if (rank == op->op.call.root) {
        return member != rank && p->direct_src && !has_taken(op, member);
    }
    return member == op->op.call.root && p->out < p->chunks &&
           atomic_load(&shm_head_of(op->state, member)->in.value) <=
               p->base + turn_of(op, rank);
}
