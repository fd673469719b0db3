/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce on buffers that all members map (weft_alloc): each member folds
 * its share of everybody's source straight into everybody's destination. No
 * copies, one exchange before and one after.
 *
 * Whether it can be done is decided from what all members say with their
 * calls, so all decide alike. The order of the fold is that of the pipeline:
 * the bits are the same. */
#include "coll/shm/area.h"

#define PIECE_BYTES (128u << 10) /* folded in one step */

static const shm_where *where_of(const shm_state *s, uint32_t rank,
                                 uint32_t sequence)
{
    return (const shm_where *)(const void *)shm_cell_of(s, rank, sequence)
        ->payload;
}

void shm_locate(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    const shm_state *s = wf_coll_state(comm);
    const shm_shared *src =
        shm_shared_find(s->shared, comm->rank, op->src, op->bytes);
    const shm_shared *dst =
        shm_shared_find(s->shared, comm->rank, op->dst, op->bytes);
    shm_where *w = &op->state.shm.where;

    *w = (shm_where){0};
    if (src != NULL && dst != NULL) {
        w->src = src->id;
        w->dst = dst->id;
        w->src_at = (uint64_t)((const unsigned char *)op->src -
                               shm_shared_part(src, comm->rank));
        w->dst_at = (uint64_t)((unsigned char *)op->dst -
                               shm_shared_part(dst, comm->rank));
    }
}

static const shm_shared *shared_by_id(const shm_state *s, uint32_t id)
{
    const shm_shared *one = s->shared;

    while (one != NULL && one->id != id) {
        one = one->next;
    }
    return one;
}

static bool in_part(const shm_shared *s, uint64_t at, size_t bytes)
{
    return s != NULL && at <= s->bytes && bytes <= s->bytes - at;
}

bool shm_all_direct(wf_coll_op *op)
{
    const shm_state *s = wf_coll_state(op->op.comm);
    const shm_where *own = &op->state.shm.where;
    const shm_shared *src = shared_by_id(s, own->src);
    const shm_shared *dst = shared_by_id(s, own->dst);
    bool all = own->src != 0;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        const shm_where *w = where_of(s, r, op->op.sequence);

        all = w->src == own->src && w->dst == own->dst &&
              in_part(src, w->src_at, op->bytes) &&
              in_part(dst, w->dst_at, op->bytes);
    }
    return all;
}

bool shm_all_brought_first(const wf_coll_op *op)
{
    const shm_state *s = wf_coll_state(op->op.comm);
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        all = where_of(s, r, op->op.sequence)->brought != 0;
    }
    return all;
}

static void fold_piece(wf_coll_op *op, shm_state *s, size_t at, size_t bytes)
{
    weft_comm *comm = op->op.comm;
    const shm_where *own = &op->state.shm.where;
    const shm_shared *src = shared_by_id(s, own->src);
    const shm_shared *dst = shared_by_id(s, own->dst);

    for (uint32_t r = 0; r < comm->size; r++) {
        const shm_where *w = where_of(s, r, op->op.sequence);

        s->src[r] = shm_shared_part(src, r) + w->src_at + at;
        s->dst[r] = shm_shared_part(dst, r) + w->dst_at + at;
    }
    shm_fold_into_all(op, s, comm->size, bytes);
}

weft_status shm_direct_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    wf_shm_progress *p = &op->state.shm;
    shm_state *s = wf_coll_state(base->comm);
    shm_head *own = shm_head_of(s, base->comm->rank);
    shm_share share =
        shm_share_of(op->bytes, base->comm->rank, base->comm->size);
    size_t at = share.from + p->direct_at;

    if (at < share.until) {
        size_t left = share.until - at;
        size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

        fold_piece(op, s, at, bytes);
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
