/* SPDX-License-Identifier: Apache-2.0 */
/* Large broadcast: the root puts chunks into its slots, the others copy them
 * out; the root stays at most two chunks ahead of the slowest. */
#include <string.h>

#include "coll/shm/area.h"

/* Claim lines while they are still in the first cache. */
#define BLOCK 4096u

/* Chunks that all others have taken. */
static uint64_t taken_by_all(const wf_coll_op *op, const shm_state *s)
{
    const wf_shm_progress *p = &op->state.shm;
    uint64_t least = p->chunks;

    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        uint64_t out = atomic_load_explicit(&shm_head_of(s, r)->out.value,
                                            memory_order_acquire);
        /* One that has not ended the operation before is still below base. */
        uint64_t taken = out > p->base ? out - p->base : 0;

        if (r != op->op.comm->rank && taken < least) {
            least = taken;
        }
    }
    return least;
}

static bool root_step(wf_coll_op *op, shm_state *s)
{
    wf_shm_progress *p = &op->state.shm;
    weft_comm *comm = op->op.comm;

    if (p->out < p->chunks) {
        uint64_t out = taken_by_all(op, s);

        op->op.moved += out - p->out;
        p->out = out;
    }
    if (p->in < p->chunks && p->in < p->out + SHM_SLOTS) {
        memcpy(shm_slot_of(s, comm->rank, p->base + p->in),
               (const unsigned char *)op->src + p->in * p->chunk,
               shm_chunk_bytes(op, p->in));
        p->in++;
        /* Publishes the chunk; pairs with the acquire in leaf_step. */
        atomic_store_explicit(&shm_head_of(s, comm->rank)->in.value,
                              p->base + p->in, memory_order_release);
        wf_comm_ring(comm);
        op->op.moved++;
    }
    return p->out == p->chunks;
}

static void take(unsigned char *to, unsigned char *from, size_t bytes,
                 bool alone)
{
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;

        memcpy(to + at, from + at, n);
        if (alone) {
            shm_claim(from + at, n);
        }
    }
}

static bool leaf_step(wf_coll_op *op, shm_state *s)
{
    wf_shm_progress *p = &op->state.shm;
    weft_comm *comm = op->op.comm;
    uint32_t root = op->op.call.root;

    if (p->out < p->chunks &&
        atomic_load_explicit(&shm_head_of(s, root)->in.value,
                             memory_order_acquire) > p->base + p->out) {
        take((unsigned char *)op->dst + p->out * p->chunk,
             shm_slot_of(s, root, p->base + p->out),
             shm_chunk_bytes(op, p->out), comm->size == 2);
        p->out++;
        /* Gives the slot back; pairs with the acquire in taken_by_all. */
        atomic_store_explicit(&shm_head_of(s, comm->rank)->out.value,
                              p->base + p->out, memory_order_release);
        wf_board_ring(comm->entry[root]);
        op->op.moved++;
    }
    return p->out == p->chunks;
}

weft_status shm_broadcast_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    wf_shm_progress *p = &op->state.shm;
    shm_state *s = wf_coll_state(base->comm);
    shm_head *own = shm_head_of(s, base->comm->rank);
    weft_status st;

    if (!p->posted && !shm_post(op, NULL, 0)) {
        return WF_PENDING;
    }
    if (!p->checked) {
        st = shm_check(op);
        if (st != WEFT_OK) {
            return st;
        }
    }
    if (!(base->call.root == base->comm->rank ? root_step(op, s)
                                              : leaf_step(op, s))) {
        return WF_PENDING;
    }
    /* C3 */
    atomic_store_explicit(&own->in.value, p->base + p->chunks,
                          memory_order_relaxed);
    atomic_store_explicit(&own->red.value, p->base + p->chunks,
                          memory_order_relaxed);
    atomic_store_explicit(&own->out.value, p->base + p->chunks,
                          memory_order_relaxed);
    return WEFT_OK;
}
