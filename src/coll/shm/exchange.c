/* SPDX-License-Identifier: Apache-2.0 */
/* Large data through slots: broadcast, allgather, gather, scatter, alltoall and
 * reduce_scatter.
 *
 *   bring   copy the next chunk of our blocks into our slot
 *   take    when a member has brought its chunk: copy our part of it out, or,
 *           in reduce_scatter, fold our part of everybody's
 *
 * If each taker gets a block of its own, a slot is divided into subslots, one
 * for each other member; otherwise all takers read the same chunk. A member is
 * at most two chunks ahead of its slowest taker, and completes when its last
 * chunks are in its slots, which it lends (C4).
 *
 * Blocks that lie in their owner's arena are not brought: the takers read them
 * there. Nor are large ones that the takers read through the kernel (pull.c),
 * unless one of them cannot. */
#include <string.h>

#include "base/stream.h"
#include "coll/shm/area.h"

/* Of an own block that is not copied chunk by chunk, one a step. */
#define OWN_SLICE ((size_t)256 << 10)

bool shm_brings(const wf_coll_op *op, uint32_t member)
{
    const wf_call *call = &op->op.call;
    bool root = member == call->root;

    if (wf_call_is(call->kind, WF_ROOT_SENDS)) {
        return root;
    }
    /* The root of a gather reads its own block directly. */
    return !(wf_call_is(call->kind, WF_ROOT_RECEIVES) &&
             wf_call_is(call->kind, WF_DST_BLOCKS) && root);
}

bool shm_takes(const wf_coll_op *op, uint32_t member)
{
    const wf_call *call = &op->op.call;
    bool root = member == call->root;

    return wf_call_is(call->kind, WF_ROOT_RECEIVES)
               ? root
               : !(wf_call_is(call->kind, WF_ROOT_SENDS) && root);
}

uint32_t shm_subslots(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) ? op->op.comm->size - 1
                                                       : 1;
}

size_t shm_length(const wf_coll_op *op, uint32_t from, uint32_t to)
{
    const wf_call *call = &op->op.call;
    uint32_t rank = op->op.comm->rank;

    if (from == rank) {
        return wf_call_blocks_at(call, WF_SRC_BLOCKS, rank)
                   ? wf_coll_src(op, to).bytes
                   : op->bytes;
    }
    return wf_call_blocks_at(call, WF_DST_BLOCKS, rank)
               ? wf_coll_dst(op, from).bytes
               : op->bytes;
}

const unsigned char *shm_source(const wf_coll_op *op, uint32_t to)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) ? wf_coll_src(op, to).at
                                                       : op->src;
}

unsigned char *shm_target(const wf_coll_op *op, uint32_t from)
{
    return wf_call_is(op->op.call.kind, WF_DST_BLOCKS)
               ? wf_coll_dst(op, from).at
               : op->dst;
}

/* Bytes of chunk number `chunk` of a block. */
static size_t piece_bytes(const wf_coll_op *op, size_t length, uint64_t chunk)
{
    size_t piece = shm_of(op)->chunk;
    size_t at = chunk * piece;

    if (at >= length) {
        return 0;
    }
    return length - at < piece ? length - at : piece;
}

/* The offset of the subslot of `to` in the slot of `from`. */
static size_t subslot_at(const wf_coll_op *op, uint32_t from, uint32_t to)
{
    uint32_t size = op->op.comm->size;

    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
               ? (to + size - from - 1) % size * shm_of(op)->chunk
               : 0;
}

static void copy(void *to, const void *from, size_t bytes, bool stream)
{
    if (stream) {
        wf_copy_stream(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

/* Does this member have a block for itself that must be copied? */
static bool has_own(const wf_coll_op *op)
{
    const wf_call *call = &op->op.call;

    return !wf_call_is(call->kind, WF_REDUCES) && !wf_call_cuts(call->kind) &&
           (!wf_call_has_root(call->kind) || op->op.comm->rank == call->root);
}

void shm_copy_own(const wf_coll_op *op, size_t at, size_t most)
{
    uint32_t rank = op->op.comm->rank;
    unsigned char *to;
    const unsigned char *from;
    size_t length;

    if (!has_own(op)) {
        return;
    }
    to = shm_target(op, rank);
    from = shm_source(op, rank);
    length = shm_length(op, rank, rank);
    if (at < length && to != from) {
        copy(to + at, from + at, length - at < most ? length - at : most,
             shm_of(op)->stream);
    }
}

/* Where others read our memory, or we bring nothing, we copy our own block
 * while we wait for them; and our own may be longer than all chunks where each
 * member knows its own lengths. */
static bool copies_own_apart(const wf_coll_op *op)
{
    return shm_of(op)->pulls || shm_of(op)->direct_src ||
           wf_call_is(op->op.call.kind, WF_OWN_LENGTHS) ||
           !shm_brings(op, op->op.comm->rank);
}

static bool own_is_copied(const wf_coll_op *op)
{
    return !has_own(op) ||
           shm_of(op)->own_at >=
               shm_length(op, op->op.comm->rank, op->op.comm->rank);
}

static void copy_own_until(wf_coll_op *op, size_t until)
{
    shm_progress *p = shm_of(op);

    if (p->own_at < until && !own_is_copied(op)) {
        shm_copy_own(op, p->own_at, until - p->own_at);
        p->own_at = until;
        op->op.moved++;
    }
}

static void copy_own_slice(wf_coll_op *op)
{
    if (copies_own_apart(op)) {
        copy_own_until(op, shm_of(op)->own_at + OWN_SLICE);
    }
}

/* Our own block as far as we have brought the others': these have their chunk
 * meanwhile, and where all get the same, the source is still in our cache. In
 * turns with the chunk, piece by piece, it would take longer: each piece would
 * wait anew for the lines of the slot (0004-shared-memory.md). */
static void copy_own_brought(wf_coll_op *op)
{
    if (!copies_own_apart(op)) {
        copy_own_until(op, shm_of(op)->in * shm_of(op)->chunk);
    }
}

/* All takers get the same chunk. */
static void bring_one(const wf_coll_op *op, shm_state *s, uint64_t chunk)
{
    const shm_progress *p = shm_of(op);
    size_t bytes = piece_bytes(op, op->bytes, chunk);

    if (bytes > 0) {
        memcpy(shm_slot_of(s, op->op.comm->rank, p->base + chunk),
               (const unsigned char *)op->src + chunk * p->chunk, bytes);
    }
}

static void bring_subslots(const wf_coll_op *op, shm_state *s, uint64_t chunk)
{
    const shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    unsigned char *slot = shm_slot_of(s, comm->rank, p->base + chunk);

    for (uint32_t i = 1; i < comm->size; i++) {
        uint32_t to = (comm->rank + i) % comm->size;
        size_t bytes = piece_bytes(op, shm_length(op, comm->rank, to), chunk);

        if (bytes > 0) {
            memcpy(slot + subslot_at(op, comm->rank, to),
                   shm_source(op, to) + chunk * p->chunk, bytes);
        }
    }
}

static void ring(const wf_coll_op *op,
                 bool (*whom)(const wf_coll_op *op, uint32_t member))
{
    weft_comm *comm = op->op.comm;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank && whom(op, r)) {
            wf_board_ring(comm->entry[r]);
        }
    }
}

static void publish_in(wf_coll_op *op, shm_state *s, uint64_t in)
{
    shm_progress *p = shm_of(op);

    p->in = in;
    /* Publishes the chunk; pairs with the acquire in shm_reached. */
    atomic_store_explicit(&shm_head_of(s, op->op.comm->rank)->in.value,
                          p->base + p->in, memory_order_release);
    op->op.moved++;
}

/* Bring the next chunk; what lies where all can read it, all at once. */
static void bring(wf_coll_op *op, shm_state *s)
{
    if (shm_of(op)->direct_src) {
        publish_in(op, s, shm_of(op)->chunks);
        return;
    }
    if (wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)) {
        bring_subslots(op, s, shm_of(op)->in);
    } else {
        bring_one(op, s, shm_of(op)->in);
    }
    publish_in(op, s, shm_of(op)->in + 1);
}

/* Is the slot of the next chunk free, if it needs one? Of those that this
 * operation has used p->freed tells. */
static bool may_bring(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    return p->direct_src || p->in >= SHM_SLOTS ||
           shm_slot_free(op, p->base + p->in);
}

/* The number of chunks that all takers have taken. */
static uint64_t taken_by_all(const wf_coll_op *op, const shm_state *s)
{
    const shm_progress *p = shm_of(op);
    uint64_t least = p->chunks;

    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        uint64_t out;
        uint64_t taken;

        if (r == op->op.comm->rank || !shm_takes(op, r)) {
            continue;
        }
        out = atomic_load_explicit(&shm_head_of(s, r)->out.value,
                                   memory_order_acquire);
        /* A member that is still in the previous operation is below base. */
        taken = out > p->base ? out - p->base : 0;
        least = taken < least ? taken : least;
    }
    return least;
}

bool shm_by_chunks(const wf_coll_op *op, uint32_t member)
{
    return shm_brings(op, member) &&
           !(wf_call_is(op->op.call.kind, WF_OWN_LENGTHS) &&
             shm_ragged_inlined(op, member));
}

/* Our part of a chunk that a member has brought. */
typedef struct piece {
    unsigned char *at; /* NULL: not where that member says */
    bool in_slot;      /* else in its owner's buffer, which is not claimed */
} piece;

unsigned char *shm_arena_block(const wf_coll_op *op, uint32_t from,
                               uint64_t place)
{
    const shm_state *s = op->state;

    shm_of(op)->read_direct = true;
    return wf_arena_find(s->arena, s->range[from], place,
                         shm_length(op, from, op->op.comm->rank));
}

static piece piece_of(const wf_coll_op *op, const shm_state *s, uint32_t from,
                      uint64_t chunk)
{
    const shm_progress *p = shm_of(op);
    uint64_t place = shm_place_of(op, from);
    unsigned char *at;

    if (place == 0) {
        return (piece){shm_slot_of(s, from, p->base + chunk) +
                           subslot_at(op, from, op->op.comm->rank),
                       true};
    }
    at = shm_arena_block(op, from, place);
    return (piece){at == NULL ? NULL : at + chunk * p->chunk, false};
}

/* Claiming pays between two members, where lines go back and forth. Among more
 * members another one mostly reads the line after us. */
static bool claims(const wf_coll_op *op)
{
    return op->op.comm->size == 2;
}

static weft_status take_from(const wf_coll_op *op, const shm_state *s,
                             uint32_t from, size_t bytes)
{
    const shm_progress *p = shm_of(op);
    unsigned char *to = shm_target(op, from) + p->out * p->chunk;
    piece from_them = piece_of(op, s, from, p->out);

    if (from_them.at == NULL) {
        return shm_misplaced(op, from);
    }
    if (claims(op) && from_them.in_slot) {
        shm_take(s, to, from_them.at, bytes, p->stream);
    } else {
        copy(to, from_them.at, bytes, p->stream);
    }
    return WEFT_OK;
}

static weft_status fold_own(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    size_t bytes = piece_bytes(op, op->bytes, p->out);
    void *to;

    if (bytes == 0) {
        return WEFT_OK;
    }
    to = (unsigned char *)op->dst + p->out * p->chunk;
    for (uint32_t r = 0; r < comm->size; r++) {
        s->src[r] = r == comm->rank ? shm_source(op, r) + p->out * p->chunk
                                    : piece_of(op, s, r, p->out).at;
        if (s->src[r] == NULL) {
            return shm_misplaced(op, r);
        }
    }
    op->reducer.fold(&op->reducer, &to, 1, s->src, comm->size,
                     bytes / op->reducer.elem);
    if (claims(op)) {
        piece theirs = piece_of(op, s, 1 - comm->rank, p->out);

        if (theirs.in_slot) {
            shm_claim(theirs.at, bytes);
        }
    }
    return WEFT_OK;
}

static bool arrived(const wf_coll_op *op, const shm_state *s, uint32_t from)
{
    const shm_progress *p = shm_of(op);

    /* Calls are posted after the first chunk is in, so for that one there is
     * nothing more to look at: one line less that has to travel. */
    return (p->out == 0 && p->first_in) ||
           shm_reached(&shm_head_of(s, from)->in, p->base + p->out + 1);
}

/* The member that we take from as number `at`: members start at different
 * peers, to avoid contention. */
static uint32_t source_at(const weft_comm *comm, uint32_t at)
{
    return (comm->rank + 1 + at) % comm->size;
}

/* Do we read, or have we read, the memory of the member that we take from as
 * number `at`? */
static bool reads(const wf_coll_op *op, const shm_state *s, uint32_t at)
{
    const shm_progress *p = shm_of(op);

    return p->pulls && at < p->refused_at &&
           shm_invited(op, s, source_at(op->op.comm, at));
}

/* Take `bytes` of chunk `out` from the member at p->in_at, out of its slot or,
 * the whole block at once, out of its memory; WF_PENDING if that must go on. */
static weft_status take_one(wf_coll_op *op, shm_state *s, size_t bytes,
                            bool folds)
{
    shm_progress *p = shm_of(op);
    uint32_t from = source_at(op->op.comm, p->in_at);

    if (!reads(op, s, p->in_at) && !arrived(op, s, from)) {
        return WF_PENDING;
    }
    /* Who has brought a chunk has invited us before that, or does not. */
    if (reads(op, s, p->in_at)) {
        return p->out > 0 || shm_pull(op, s, from,
                                      shm_length(op, from, op->op.comm->rank))
                   ? WEFT_OK
                   : WF_PENDING;
    }
    p->by_slots = true;
    return folds ? WEFT_OK : take_from(op, s, from, bytes);
}

/* Take what has been brought of chunk `out`; WEFT_OK if that is all. */
static weft_status take(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_comm *comm = op->op.comm;
    weft_status st = WEFT_OK;
    bool folds = wf_call_is(op->op.call.kind, WF_REDUCES);

    for (; p->in_at < comm->size - 1; p->in_at++) {
        uint32_t from = source_at(comm, p->in_at);
        size_t bytes =
            shm_by_chunks(op, from)
                ? piece_bytes(op, shm_length(op, from, comm->rank), p->out)
                : 0;

        if (bytes == 0) {
            continue;
        }
        st = take_one(op, s, bytes, folds);
        if (st != WEFT_OK) {
            return st;
        }
        op->op.moved++;
    }
    if (folds) {
        st = fold_own(op, s);
    }
    return st;
}

static weft_status take_step(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    weft_status st = p->out == p->chunks ? WF_PENDING : take(op, s);

    if (st == WEFT_OK) {
        st = shm_was_whole(op);
    }
    if (st != WEFT_OK) {
        return st;
    }
    /* Whole blocks were read, unless one came through a slot. */
    p->out = p->pulls && !p->by_slots ? p->chunks : p->out + 1;
    p->in_at = 0;
    /* Gives the slots back; pairs with the acquire in taken_by_all. */
    atomic_store_explicit(&shm_head_of(s, op->op.comm->rank)->out.value,
                          p->base + p->out, memory_order_release);
    ring(op, shm_brings);
    op->op.moved++;
    return WEFT_OK;
}

/* Does it leave its last chunks to the takers? Only where they find them in its
 * slots and nowhere else: whoever was invited may be reading its memory even
 * after it has brought chunks, too. */
static bool lends(const wf_coll_op *op)
{
    return !shm_of(op)->pulls && !shm_of(op)->direct_src;
}

static bool bring_step(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);
    bool all_in = p->in == p->chunks;

    p->invites = p->invites && !shm_pull_refused(op, s);
    if (p->invites || (all_in && !lends(op)) ||
        (!all_in && p->in >= p->freed + SHM_SLOTS)) {
        uint64_t freed = taken_by_all(op, s);

        op->op.moved += freed - p->freed;
        p->freed = freed;
    }
    if (!p->invites && p->in < p->chunks && p->in < p->freed + SHM_SLOTS &&
        may_bring(op)) {
        bring(op, s);
        return true;
    }
    return false;
}

/* Publish our call with the first chunk or the position of our blocks; false if
 * the slot or the cell is in use. */
static bool post(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);

    if (p->in == 0 && !p->invites && shm_brings(op, op->op.comm->rank)) {
        if (!may_bring(op)) {
            return false;
        }
        bring(op, s);
    }
    if (!shm_post_where(op)) {
        return false;
    }
    copy_own_brought(op);
    return true;
}

/* Are our chunks where they are to be taken, and our memory our own again? */
static bool has_brought(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);

    return !shm_by_chunks(op, op->op.comm->rank) ||
           (lends(op) ? p->in : p->freed) == p->chunks;
}

static bool over(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);
    uint32_t rank = op->op.comm->rank;

    return p->checked && has_brought(op) &&
           (!shm_takes(op, rank) || p->out == p->chunks) && own_is_copied(op);
}

weft_status shm_exchange_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_progress *p = shm_of(op);
    shm_state *s = op->state;
    weft_status st;

    if (!p->posted && !post(op, s)) {
        return WF_PENDING;
    }
    if (!p->checked) {
        /* In this order: between two members the check succeeds if the root
         * agrees, so that joint.c never follows data that was taken early. */
        bool agrees = shm_root_agrees(op);

        st = shm_check(op);
        if (st != WEFT_OK && !(st == WF_PENDING && agrees)) {
            return st;
        }
        if (p->checked && shm_is_joint(op)) {
            base->step = shm_joint_step;
            return shm_joint_step(base);
        }
    }
    if (shm_by_chunks(op, base->comm->rank) && bring_step(op, s)) {
        ring(op, shm_takes);
        copy_own_brought(op);
    }
    if (shm_takes(op, base->comm->rank)) {
        st = take_step(op, s);
        if (st != WEFT_OK && st != WF_PENDING) {
            return st;
        }
    }
    copy_own_slice(op);
    if (!over(op)) {
        return WF_PENDING;
    }
    if (lends(op) && shm_by_chunks(op, base->comm->rank)) {
        shm_lend_chunks(op);
    }
    shm_end_chunks(op);
    return WEFT_OK;
}

bool shm_exchange_awaits(const wf_coll_op *op, uint32_t member)
{
    const shm_progress *p = shm_of(op);
    const shm_state *s = op->state;
    const weft_comm *comm = op->op.comm;
    const shm_head *h = shm_head_of(s, member);
    uint32_t at = (member + comm->size - comm->rank - 1) % comm->size;
    bool gives = shm_takes(op, comm->rank) && shm_brings(op, member) &&
                 !reads(op, s, at);
    bool gets =
        shm_brings(op, comm->rank) && shm_takes(op, member) && !has_brought(op);
    uint64_t brought = p->invites ? p->chunks : p->in;

    return (gives &&
            (int64_t)(atomic_load(&h->in.value) - p->base - p->out - 1) < 0) ||
           (gets &&
            (int64_t)(atomic_load(&h->out.value) - p->base - brought) < 0);
}
