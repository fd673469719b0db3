/* SPDX-License-Identifier: Apache-2.0 */
/* Large reductions of one block into one: allreduce, reduce, scan, exscan. The
 * data goes through in chunks; of each chunk every member reduces a share.
 *
 *   in    copy our chunk into our slot, all but our own share of it
 *   red   when all have: fold everybody's data in our share; results go into
 *         our buffer and into the slots of those who get one
 *   out   when all have: copy our slot, all but our own share, to our buffer
 *
 * A source that lies in its owner's arena is not copied: it is folded where it
 * lies; and results go straight to a destination that lies there. The steps are
 * the same.
 *
 * Each member has two slots, so that it brings the next chunk while it waits
 * for the last one. The fold is always in the order of ranks. */
#include <string.h>

#include "coll/shm/area.h"

shm_share shm_share_of(size_t bytes, uint32_t rank, uint32_t size)
{
    size_t lines = (bytes + 63) / 64;
    shm_share s = {lines * rank / size * 64, lines * (rank + 1) / size * 64};

    s.from = s.from < bytes ? s.from : bytes;
    s.until = s.until < bytes ? s.until : bytes;
    return s;
}

/* Our share of a chunk of `bytes`, cached because it takes divisions and only
 * the last chunk of an operation has another length. */
static shm_share own_share(wf_coll_op *op, size_t bytes)
{
    shm_progress *p = shm_of(op);

    if (bytes != p->share_of) {
        p->share_of = bytes;
        p->share = shm_share_of(bytes, op->op.comm->rank, op->op.comm->size);
    }
    return p->share;
}

/* Copy a chunk except one share. */
static void copy_around(unsigned char *to, const unsigned char *from,
                        shm_share own, size_t bytes)
{
    if (own.from > 0) {
        memcpy(to, from, own.from);
    }
    if (own.until < bytes) {
        memcpy(to + own.until, from + own.until, bytes - own.until);
    }
}

static void bring_in(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    size_t bytes = shm_chunk_bytes(op, p->in);

    if (!p->direct_src) {
        copy_around(shm_slot_of(s, comm->rank, p->base + p->in),
                    (const unsigned char *)op->src + p->in * p->chunk,
                    own_share(op, bytes), bytes);
    }
    p->in++;
    /* Publishes the chunk; pairs with the acquire in shm_reached. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->in.value,
                          p->base + p->in, memory_order_release);
    op->op.moved++;
}

static void fold_into_all(const wf_coll_op *op, const shm_state *s, size_t n)
{
    uint32_t size = op->op.comm->size;
    size_t now = size < WF_REDUCE_MAX_DST ? size : WF_REDUCE_MAX_DST;

    op->reducer.fold(&op->reducer, s->dst, now, s->src, size, n);
    for (size_t i = now; i < size; i++) {
        memcpy(s->dst[i], s->dst[0], n * op->reducer.elem);
    }
}

/* Fold from the last rank down, since a result may overwrite its source, which
 * only the results of higher ranks need. */
static void fold_prefixes(const wf_coll_op *op, const shm_state *s, size_t n)
{
    for (uint32_t r = op->op.comm->size; r-- > 0;) {
        uint32_t nsrc = wf_call_folded(op->op.call.kind, r, op->op.comm->size);

        if (nsrc > 0) {
            op->reducer.fold(&op->reducer, &s->dst[r], 1, s->src, nsrc, n);
        }
    }
}

void shm_fold_ranks(const wf_coll_op *op, const shm_state *s, size_t bytes)
{
    size_t n = bytes >> __builtin_ctzll(op->reducer.elem);

    if (wf_call_is(op->op.call.kind, WF_PREFIX)) {
        fold_prefixes(op, s, n);
    } else if (wf_call_is(op->op.call.kind, WF_ROOT_RECEIVES)) {
        op->reducer.fold(&op->reducer, &s->dst[op->op.call.root], 1, s->src,
                         op->op.comm->size, n);
    } else {
        fold_into_all(op, s, n);
    }
}

/* What to fold of `member`, and where its result goes: its slot, unless the
 * buffers lie in its arena. False: it says so, but they do not. */
static bool share_of(const wf_coll_op *op, shm_state *s, uint32_t member,
                     size_t from, size_t at)
{
    shm_progress *p = shm_of(op);
    unsigned char *slot = shm_slot_of(s, member, p->base + p->red) + from;
    shm_where w = shm_where_of(op, member);

    s->src[member] = slot;
    s->dst[member] = slot;
    if (w.src != 0) {
        const unsigned char *src =
            wf_arena_find(s->arena, s->range[member], w.src, op->bytes);

        p->read_direct = true;
        s->src[member] = src != NULL ? src + at : NULL;
    }
    if (w.dst != 0) {
        unsigned char *dst =
            wf_arena_find(s->arena, s->range[member], w.dst, op->bytes);

        s->dst[member] = dst != NULL ? dst + at : NULL;
    }
    return s->src[member] != NULL && s->dst[member] != NULL;
}

static weft_status reduce_share(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    shm_share own = own_share(op, shm_chunk_bytes(op, p->red));
    size_t at = p->red * p->chunk + own.from;
    weft_status st;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (!share_of(op, s, r, own.from, at)) {
            return shm_misplaced(op, r);
        }
    }
    s->src[comm->rank] = (const unsigned char *)op->src + at;
    s->dst[comm->rank] = (unsigned char *)op->dst + at;
    if (own.until > own.from) {
        shm_fold_ranks(op, s, own.until - own.from);
    }
    st = shm_was_whole(op);
    if (st != WEFT_OK) {
        return st;
    }
    p->red++;
    p->in_at = 0;
    /* Publishes our share in all slots; pairs with the acquire in
     * shm_reached. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->red.value,
                          p->base + p->red, memory_order_release);
    op->op.moved++;
    return WEFT_OK;
}

static void take_out(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    size_t bytes = shm_chunk_bytes(op, p->out);

    if (wf_call_gives(&op->op.call, comm->rank) && p->where.dst == 0) {
        copy_around((unsigned char *)op->dst + p->out * p->chunk,
                    shm_slot_of(s, comm->rank, p->base + p->out),
                    own_share(op, bytes), bytes);
    }
    p->out++;
    p->red_at = 0;
    op->op.moved++;
}

/* Have all members brought, or reduced, that many chunks? Those before `*at`
 * were seen to. */
static bool all_have(const wf_coll_op *op, bool reduced, uint64_t chunks,
                     uint32_t *at)
{
    for (; *at < op->op.comm->size; (*at)++) {
        const shm_head *h = shm_head_of(op->state, *at);

        if (!shm_reached(reduced ? &h->red : &h->in,
                         shm_of(op)->base + chunks)) {
            return false;
        }
    }
    return true;
}

/* Decide, once all calls are known: all at once, or in chunks? */
static bool choose_direct(const wf_coll_op *op, const shm_state *s)
{
    const shm_progress *p = shm_of(op);

    if (!p->direct_src || !shm_all_direct(op)) {
        return false;
    }
    atomic_store_explicit(&shm_head_of(s, op->op.comm->rank)->in.value,
                          p->base + p->chunks, memory_order_relaxed);
    return true;
}

static bool may_bring(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    return p->in < p->chunks && p->in < p->out + SHM_SLOTS &&
           (p->direct_src || p->in >= SHM_SLOTS ||
            shm_slot_free(op, p->base + p->in));
}

weft_status shm_reduce_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_progress *p = shm_of(op);
    shm_state *s = op->state;
    weft_status st;

    if (may_bring(op)) {
        bring_in(op, s);
        wf_comm_ring(base->comm);
    }
    if (!p->posted && (p->in == 0 || !shm_post_where(op))) {
        return WF_PENDING;
    }
    if (!p->checked) {
        st = shm_check(op);
        if (st != WEFT_OK) {
            return st;
        }
        if (choose_direct(op, s)) {
            base->step = shm_direct_step;
            return shm_direct_step(base);
        }
    }
    /* Calls are posted after the first chunk is in, so for that one there is
     * nothing more to look at: one line less that has to travel. */
    if (p->red < p->in && ((p->red == 0 && p->first_in) ||
                           all_have(op, false, p->red + 1, &p->in_at))) {
        st = reduce_share(op, s);
        if (st != WEFT_OK) {
            return st;
        }
        wf_comm_ring(base->comm);
    }
    if (p->out < p->red && all_have(op, true, p->out + 1, &p->red_at)) {
        take_out(op, s);
    }
    if (p->out < p->chunks) {
        return WF_PENDING;
    }
    atomic_store_explicit(&shm_head_of(s, base->comm->rank)->out.value,
                          p->base + p->chunks, memory_order_relaxed); /* C3 */
    return WEFT_OK;
}
