/* SPDX-License-Identifier: Apache-2.0 */
/* The fast path of pipeline.c: an allreduce of one chunk between two members
 * that are both prompt, whose buffers lie in no arena, in as few instructions
 * as possible. What it does to cells, slots and counters is what the pipeline
 * does, which takes over as soon as the other member makes us wait. */
#include <string.h>

#include "coll/shm/quick.h"

bool shm_pairs(const wf_coll_op *op, const shm_state *s)
{
    return op->bytes <= s->pair_bytes && s->populated &&
           op->op.call.kind == WF_CALL_ALLREDUCE &&
           (int32_t)(op->op.sequence - s->free_until) < 0 &&
           wf_arena_place(s->arena, op->src, op->bytes) == 0 &&
           wf_arena_place(s->arena, op->dst, op->bytes) == 0 &&
           shm_slot_free(op, s->chunks);
}

/* The pipeline goes on: our chunk and our call are there and, if `reduced`, our
 * share is folded. */
static weft_status go_on(wf_coll_op *op, shm_state *s, bool reduced)
{
    shm_progress *p = shm_of(op);

    wf_op_init(&op->op);
    shm_begin(op);
    op->op.step = shm_reduce_step;
    op->reducer = shm_quick_reducer(op, s);
    p->posted = true;
    p->checked = reduced;
    p->chunk = shm_chunk_for(op, op->bytes);
    p->chunks = 1;
    p->base = s->chunks - 1;
    p->in = 1;
    atomic_store_explicit(&shm_head_of(s, op->op.comm->rank)->in.value,
                          s->chunks, memory_order_release); /* C3 */
    p->red = reduced ? 1 : 0;
    return WF_PENDING;
}

/* Copy the other one's share of our source into our slot, and post our call. */
static void bring(wf_coll_op *op, shm_state *s, shm_share theirs)
{
    weft_comm *comm = op->op.comm;
    shm_cell *cell = shm_cell_of(s, comm->rank, op->op.sequence);

    memcpy(shm_slot_of(s, comm->rank, s->chunks) + theirs.from,
           (const unsigned char *)op->src + theirs.from,
           theirs.until - theirs.from);
    s->chunks++;
    if (s->arena != NULL) {
        memset(cell->payload, 0, sizeof(shm_where));
    }
    shm_cell_publish(op, cell, op->op.sequence);
    wf_comm_ring(comm);
}

/* Has the other member posted the same call, and its chunk with it? */
static bool met(const wf_coll_op *op, shm_state *s, uint32_t other)
{
    const shm_cell *cell = shm_cell_of(s, other, op->op.sequence);
    shm_where w;

    if (!shm_has(cell, op->op.sequence + 1) ||
        !wf_call_equal(&cell->call, &op->op.call)) {
        return false;
    }
    w = shm_where_of(op, other);
    if ((w.src | w.dst) != 0) {
        return false;
    }
    shm_learn_finished(s, cell->finished);
    return true;
}

/* Fold our share of both sources, into our result and into their slot. */
static void reduce(wf_coll_op *op, shm_state *s, shm_share own)
{
    weft_comm *comm = op->op.comm;
    uint32_t rank = comm->rank;
    wf_reducer r = shm_quick_reducer(op, s);
    unsigned char *slot = shm_slot_of(s, 1 - rank, s->chunks - 1) + own.from;
    void *dst[2] = {(unsigned char *)op->dst + own.from, slot};
    const void *src[2];

    src[rank] = (const unsigned char *)op->src + own.from;
    src[1 - rank] = slot;
    r.fold(&r, dst, 2, src, 2,
           (own.until - own.from) >> __builtin_ctzll(r.elem));
    /* Publishes our share; pairs with the acquire in shm_reached. */
    atomic_store_explicit(&shm_head_of(s, rank)->red.value, s->chunks,
                          memory_order_release);
    wf_comm_ring(comm);
}

weft_status shm_pair(wf_coll_op *op)
{
    shm_state *s = op->state;
    uint32_t rank = op->op.comm->rank;
    size_t middle = (op->bytes + 63) / 64 / 2 * 64; /* as in shm_share_of */
    shm_share half[2] = {{0, middle}, {middle, op->bytes}};
    shm_share theirs = half[1 - rank];
    shm_head *head = shm_head_of(s, rank);

    bring(op, s, theirs);
    if (!met(op, s, 1 - rank)) {
        return go_on(op, s, false);
    }
    reduce(op, s, half[rank]);
    if (!shm_reached(&shm_head_of(s, 1 - rank)->red, s->chunks)) {
        return go_on(op, s, true);
    }
    memcpy((unsigned char *)op->dst + theirs.from,
           shm_slot_of(s, rank, s->chunks - 1) + theirs.from,
           theirs.until - theirs.from);
    atomic_store_explicit(&head->in.value, s->chunks, memory_order_relaxed);
    atomic_store_explicit(&head->out.value, s->chunks,
                          memory_order_relaxed); /* C3 */
    return WEFT_OK;
}
