/* SPDX-License-Identifier: Apache-2.0 */
/* A broadcast between two members whose buffers both lie in arenas: both copy,
 * chunk by chunk, from the root's buffer into the taker's.
 *
 *   claim   the next chunk: the taker's counter `red` says which
 *   copy    it; the root counts in its own `red` what it has copied
 *   over    for the taker when the root has copied all that it claimed, for
 *           the root when the taker says so by `out`
 *
 * Who is busy elsewhere claims nothing, and the other one copies everything:
 * the root of a non-blocking call holds nobody up. */
#include <string.h>

#include "base/stream.h"
#include "coll/shm/area.h"

/* Chosen by measurement, see docs/design/0004-shared-memory.md. */
#define JOINT_BYTES (512u << 10)

bool shm_is_joint(const wf_coll_op *op)
{
    uint32_t root = op->op.call.root;

    return op->op.call.kind == WF_CALL_BROADCAST && op->op.comm->size == 2 &&
           op->bytes >= JOINT_BYTES && shm_where_of(op, root).src != 0 &&
           shm_where_of(op, 1 - root).dst != 0;
}

/* Never beyond the last chunk, so that the counter ends where all of them do
 * (C3). */
static bool claim(const shm_progress *p, shm_head *taker, uint64_t *chunk)
{
    uint64_t next =
        atomic_load_explicit(&taker->red.value, memory_order_relaxed);

    do {
        if (next - p->base >= p->chunks) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &taker->red.value, &next, next + 1, memory_order_relaxed,
        memory_order_relaxed));
    *chunk = next - p->base;
    return true;
}

static weft_status copy_chunk(wf_coll_op *op, const shm_state *s,
                              uint64_t chunk)
{
    const shm_progress *p = shm_of(op);
    uint32_t root = op->op.call.root;
    const unsigned char *from = wf_arena_find(
        s->arena, s->range[root], shm_where_of(op, root).src, op->bytes);
    unsigned char *to =
        wf_arena_find(s->arena, s->range[1 - root],
                      shm_where_of(op, 1 - root).dst, op->bytes);
    size_t at = chunk * p->chunk;
    size_t bytes = shm_chunk_bytes(op, chunk);

    if (from == NULL || to == NULL) {
        return shm_misplaced(op, from == NULL ? root : 1 - root);
    }
    if (p->stream) {
        wf_copy_stream(to + at, from + at, bytes);
    } else {
        memcpy(to + at, from + at, bytes);
    }
    return WEFT_OK;
}

/* The root has copied a chunk. */
static void tell_taker(wf_coll_op *op, shm_head *own)
{
    weft_comm *comm = op->op.comm;
    const shm_progress *p = shm_of(op);

    /* Publishes it; pairs with the acquire in taker_step. */
    atomic_store_explicit(&own->red.value, p->base + p->red,
                          memory_order_release);
    wf_board_ring(comm->entry[1 - comm->rank]);
}

static weft_status root_step(wf_coll_op *op, const shm_head *taker)
{
    const shm_progress *p = shm_of(op);

    if (!shm_reached(&taker->out, p->base + p->chunks)) {
        return WF_PENDING;
    }
    shm_end_chunks(op);
    return WEFT_OK;
}

static weft_status taker_step(wf_coll_op *op, const shm_head *root)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    weft_status st;

    if (!shm_reached(&root->red, p->base + p->chunks - p->red)) {
        return WF_PENDING;
    }
    p->read_direct = true;
    st = shm_was_whole(op);
    if (st == WEFT_OK) {
        shm_end_chunks(op);
        wf_board_ring(comm->entry[1 - comm->rank]);
    }
    return st;
}

weft_status shm_joint_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_progress *p = shm_of(op);
    shm_state *s = op->state;
    uint32_t root = base->call.root;
    shm_head *taker = shm_head_of(s, 1 - root);
    bool is_root = base->comm->rank == root;
    uint64_t chunk;

    if (claim(p, taker, &chunk)) {
        weft_status st = copy_chunk(op, s, chunk);

        p->red++;
        base->moved++;
        if (st == WEFT_OK && is_root) {
            tell_taker(op, shm_head_of(s, root));
        }
        return st == WEFT_OK ? WF_PENDING : st;
    }
    return is_root ? root_step(op, taker)
                   : taker_step(op, shm_head_of(s, root));
}

bool shm_joint_awaits(const wf_coll_op *op, uint32_t member)
{
    const shm_progress *p = shm_of(op);
    const shm_head *h = shm_head_of(op->state, member);
    uint64_t all = p->base + p->chunks;

    return member == op->op.call.root
               ? (int64_t)(atomic_load(&h->red.value) + p->red - all) < 0
               : (int64_t)(atomic_load(&h->out.value) - all) < 0;
}
