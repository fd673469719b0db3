/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions on buffers that all members map (weft_alloc): each member folds
 * its share of all sources straight into the destinations. There are no copies,
 * and one synchronization before and one after.
 *
 * All members decide alike whether it is possible, from what their calls say.
 * The fold has the order of the pipeline, so the bits are the same. */
#include "base/status.h"
#include "coll/shm/area.h"

#define PIECE_BYTES (128u << 10) /* folded in one step */

const shm_where *shm_where_of(const wf_coll_op *op, uint32_t rank)
{
    const shm_state *s = op->state;

    return s->has_shared && !wf_call_is(op->op.call.kind, WF_OWN_LENGTHS)
               ? (const shm_where *)(const void *)shm_cell_of(s, rank,
                                                              op->op.sequence)
                     ->payload
               : NULL;
}

/* Bytes of this member's source and destination that others would access. */
static size_t source_bytes(const wf_coll_op *op)
{
    if (!shm_brings(op, op->op.comm->rank) || op->src_part != NULL) {
        return 0;
    }
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
               ? op->bytes * op->op.comm->size
               : op->bytes;
}

void shm_locate(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    const shm_state *s = op->state;
    shm_where *w = &shm_of(op)->where;
    size_t bytes = source_bytes(op);
    const shm_shared *src =
        bytes > 0 ? shm_shared_find(s->shared, comm->rank, op->src, bytes)
                  : NULL;
    const shm_shared *dst =
        wf_call_is(op->op.call.kind, WF_REDUCES) &&
                wf_call_gives(&op->op.call, comm->rank)
            ? shm_shared_find(s->shared, comm->rank, op->dst, op->bytes)
            : NULL;

    *w = (shm_where){0};
    if (src != NULL) {
        w->src = src->id;
        w->src_at = (uint64_t)((const unsigned char *)op->src -
                               shm_shared_part(src, comm->rank));
    }
    if (dst != NULL) {
        w->dst = dst->id;
        w->dst_at = (uint64_t)((unsigned char *)op->dst -
                               shm_shared_part(dst, comm->rank));
    }
}

/* The buffers that a member announced, if we map them. The announcement is read
 * once, because that member can still write it. */
static bool find_buffers(const wf_coll_op *op, const shm_state *s, uint32_t r,
                         const void **src, void **dst)
{
    shm_where w = *shm_where_of(op, r);
    const shm_shared *from = shm_shared_by_id(s->shared, w.src);
    const shm_shared *to = shm_shared_by_id(s->shared, w.dst);

    if (!shm_shared_holds(from, w.src_at, op->bytes) ||
        (wf_call_gives(&op->op.call, r) &&
         !shm_shared_holds(to, w.dst_at, op->bytes))) {
        return false;
    }
    *src = shm_shared_part(from, r) + w.src_at;
    *dst = wf_call_gives(&op->op.call, r) ? shm_shared_part(to, r) + w.dst_at
                                          : NULL;
    return true;
}

bool shm_all_direct(wf_coll_op *op)
{
    const shm_state *s = op->state;
    const void *src;
    void *dst;
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        all = find_buffers(op, s, r, &src, &dst);
    }
    return all;
}

bool shm_all_brought_first(const wf_coll_op *op)
{
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        all = shm_where_of(op, r)->brought != 0;
    }
    return all;
}

static weft_status fold_piece(wf_coll_op *op, shm_state *s, size_t at,
                              size_t bytes)
{
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        if (!find_buffers(op, s, r, &s->src[r], &s->dst[r])) {
            return wf_fail(WEFT_ERR_PROTOCOL,
                           "rank %u changed the addresses of its buffers", r);
        }
        s->src[r] = (const unsigned char *)s->src[r] + at;
        s->dst[r] = wf_call_gives(&op->op.call, r)
                        ? (unsigned char *)s->dst[r] + at
                        : NULL;
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
