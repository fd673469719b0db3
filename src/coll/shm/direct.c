/* SPDX-License-Identifier: Apache-2.0 */
/* Data that lies in arenas, which all members map: where it is, and reductions
 * whose buffers all lie there. Of those each member folds its share of all
 * sources straight into the destinations. There are no copies, and one
 * synchronization before and one after.
 *
 * All members decide alike whether it is possible, from what their calls say.
 * The fold has the order of the pipeline, so the bits are the same. */
#include "base/status.h"
#include "coll/shm/area.h"

#define PIECE_BYTES (128u << 10) /* folded in one step */

static const void *told_by(const wf_coll_op *op, uint32_t rank)
{
    return shm_cell_of(op->state, rank, op->op.sequence)->payload;
}

shm_where shm_where_of(const wf_coll_op *op, uint32_t rank)
{
    const shm_state *s = op->state;

    return s->arena != NULL ? *(const shm_where *)told_by(op, rank)
                            : (shm_where){0};
}

/* Are the blocks of a source anywhere, so that each taker is told the place of
 * its own? In gatherv, scatterv and alltoallv ragged.c does that. */
static bool tells_each(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) &&
           wf_call_is(op->op.call.kind, WF_ALL_LENGTHS);
}

uint64_t shm_place_of(const wf_coll_op *op, uint32_t from)
{
    const shm_state *s = op->state;
    uint32_t rank = op->op.comm->rank;
    uint64_t place;

    if (s->arena == NULL) {
        return 0;
    }
    if (wf_call_is(op->op.call.kind, WF_OWN_LENGTHS)) {
        return shm_ragged_place(op, from);
    }
    if (tells_each(op)) {
        return ((const uint64_t *)told_by(op, from))[rank];
    }
    place = shm_where_of(op, from).src;
    return place != 0 && wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
               ? place + rank * shm_length(op, from, rank)
               : place;
}

uint64_t shm_own_place(const wf_coll_op *op, uint32_t to)
{
    const shm_state *s = op->state;

    return wf_arena_place(s->arena, shm_source(op, to),
                          shm_length(op, op->op.comm->rank, to));
}

/* Do all of our blocks for others lie in our arena? */
static bool all_lie_there(const wf_coll_op *op)
{
    uint32_t rank = op->op.comm->rank;
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        all = r == rank || shm_length(op, rank, r) == 0 ||
              shm_own_place(op, r) != 0;
    }
    return all;
}

weft_status shm_misplaced(const wf_coll_op *op, uint32_t rank)
{
    return wf_fail(WEFT_ERR_PROTOCOL,
                   "operation number %u on communicator %u, %s: the buffers of "
                   "rank %u do not lie in its arena, where it says they do",
                   op->op.sequence, op->op.comm->id,
                   wf_call_name(op->op.call.kind), rank);
}

/* Bytes of this member's source that others would read, if it is in one. */
static size_t source_bytes(const wf_coll_op *op)
{
    if (!shm_brings(op, op->op.comm->rank) || tells_each(op)) {
        return 0;
    }
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
               ? op->bytes * op->op.comm->size
               : op->bytes;
}

/* Does this member get a result that others would write where it lies? */
static bool others_write(const wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    uint32_t rank = op->op.comm->rank;

    return wf_call_is(call->kind, WF_REDUCES)
               ? !wf_call_is(call->kind, WF_SRC_BLOCKS) &&
                     wf_call_gives(call, rank)
               : call->kind == WF_CALL_BROADCAST && rank != call->root;
}

void shm_locate(wf_coll_op *op)
{
    const shm_state *s = op->state;
    shm_progress *p = shm_of(op);
    size_t bytes = source_bytes(op);

    p->where.src = bytes > 0 ? wf_arena_place(s->arena, op->src, bytes) : 0;
    p->where.dst =
        others_write(op) ? wf_arena_place(s->arena, op->dst, op->bytes) : 0;
    p->direct_src = tells_each(op) ? all_lie_there(op) : p->where.src != 0;
}

/* Post a place for each taker: all of them, or none. */
static bool post_places(wf_coll_op *op)
{
    shm_cell *cell = shm_cell_begin(op);
    uint64_t *place;

    if (cell == NULL) {
        return false;
    }
    place = (uint64_t *)(void *)cell->payload;
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        place[r] = shm_of(op)->direct_src ? shm_own_place(op, r) : 0;
    }
    shm_cell_post(op, cell);
    return true;
}

bool shm_post_where(wf_coll_op *op)
{
    const shm_state *s = op->state;
    const shm_progress *p = shm_of(op);

    if (s->arena != NULL && tells_each(op)) {
        return post_places(op);
    }
    return shm_post(op, &p->where, s->arena != NULL ? sizeof(p->where) : 0);
}

weft_status shm_was_whole(const wf_coll_op *op)
{
    if (!shm_of(op)->read_direct) {
        return WEFT_OK;
    }
    atomic_thread_fence(memory_order_acquire);
    return wf_comm_check(op->op.comm);
}

bool shm_all_direct(const wf_coll_op *op)
{
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        shm_where w = shm_where_of(op, r);

        all = w.src != 0 && (w.dst != 0 || !wf_call_gives(&op->op.call, r));
    }
    return all;
}

/* The buffers of a member, from `at` on. */
static bool find_buffers(const wf_coll_op *op, shm_state *s, uint32_t r,
                         size_t at)
{
    shm_where w = shm_where_of(op, r);
    unsigned char *src = wf_arena_find(s->arena, s->range[r], w.src, op->bytes);
    unsigned char *dst = NULL;

    if (src == NULL) {
        return false;
    }
    s->src[r] = src + at;
    s->dst[r] = NULL;
    if (wf_call_gives(&op->op.call, r)) {
        dst = wf_arena_find(s->arena, s->range[r], w.dst, op->bytes);
        if (dst == NULL) {
            return false;
        }
        s->dst[r] = dst + at;
    }
    return true;
}

static weft_status fold_piece(wf_coll_op *op, shm_state *s, size_t at,
                              size_t bytes)
{
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        if (!find_buffers(op, s, r, at)) {
            return shm_misplaced(op, r);
        }
    }
    shm_fold_ranks(op, s, bytes);
    return WEFT_OK;
}

weft_status shm_direct_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_progress *p = shm_of(op);
    shm_state *s = op->state;
    shm_head *own = shm_head_of(s, base->comm->rank);
    shm_share share =
        shm_share_of(op->bytes, base->comm->rank, base->comm->size);
    size_t at = share.from + p->direct_at;

    if (at < share.until) {
        size_t left = share.until - at;
        size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

        weft_status st = fold_piece(op, s, at, bytes);

        if (st != WEFT_OK) {
            return st;
        }
        p->direct_at += bytes;
        base->moved++;
        at += bytes;
    }
    if (at < share.until) {
        return WF_PENDING;
    }
    if (p->red < p->chunks) {
        weft_status st;

        p->read_direct = true;
        st = shm_was_whole(op);
        if (st != WEFT_OK) {
            return st;
        }
        p->red = p->chunks;
        /* Publishes our share everywhere; pairs with shm_reached below. */
        atomic_store_explicit(&own->red.value, p->base + p->chunks,
                              memory_order_release);
        wf_comm_ring(base->comm);
    }
    for (; p->red_at < base->comm->size; p->red_at++) {
        if (!shm_reached(&shm_head_of(s, p->red_at)->red,
                         p->base + p->chunks)) {
            return WF_PENDING;
        }
        base->moved++;
    }
    atomic_store_explicit(&own->out.value, p->base + p->chunks,
                          memory_order_relaxed); /* C3 */
    return WEFT_OK;
}
