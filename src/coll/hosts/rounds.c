/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hosts/rounds.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "coll/message/data.h"
#include "transport/msg.h"

#define PAGE 4096u

typedef struct counters {
    struct {
        alignas(64) _Atomic uint64_t value;
    } step[WF_ROUNDS_STEPS];
} counters;

static counters *counters_of(const wf_rounds_state *r, uint32_t member)
{
    return (counters *)(void *)r->area + member;
}

size_t wf_rounds_counters(uint32_t members)
{
    return wf_round_up(members * sizeof(counters), PAGE);
}

size_t wf_rounds_bytes(uint32_t members, size_t slot)
{
    return wf_rounds_counters(members) +
           (members * WF_ROUNDS_SLOTS + WF_ROUNDS_WORKS) * slot;
}

/* Numbers of rounds here are those among all rounds of the communicator. */
static unsigned char *slot_at(const wf_rounds_state *r, uint32_t member,
                              uint64_t round)
{
    return r->area + wf_rounds_counters(r->members) +
           (member * WF_ROUNDS_SLOTS + round % WF_ROUNDS_SLOTS) * r->slot;
}

static unsigned char *work_at(const wf_rounds_state *r, uint64_t round)
{
    return r->area + wf_rounds_counters(r->members) +
           (r->members * WF_ROUNDS_SLOTS + round % WF_ROUNDS_WORKS) * r->slot;
}

unsigned char *wf_rounds_work(const wf_rounds_state *r, uint64_t round)
{
    return work_at(r, r->base + round);
}

/* --- from init to fini ---------------------------------------------------- */

weft_status wf_rounds_layout(const weft_comm *comm, wf_layout *out)
{
    uint32_t *node = wf_alloc(comm->size * sizeof(*node));
    weft_status st;

    if (node == NULL) {
        return wf_fail_nomem("the layout of %u ranks", comm->size);
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        node[r] = comm->world->host->peer[comm->member[r]].node;
    }
    st = wf_layout_init(out, node, comm->size, comm->rank);
    wf_free(node);
    return st;
}

weft_status wf_rounds_init(wf_rounds_state *r, const wf_layout *layout,
                           const wf_segment *segment, void *area, size_t slot)
{
    uint32_t members = wf_layout_members(layout, layout->node);
    const void **src = wf_alloc(members * sizeof(void *));

    *r = (wf_rounds_state){.layout = layout,
                           .segment = area != NULL ? segment : NULL,
                           .area = area,
                           .src = src,
                           .members = members,
                           .slot = slot};
    if (area == NULL) {
        r->area = wf_zalloc_aligned(128, wf_rounds_bytes(members, slot));
    }
    if (r->area == NULL || src == NULL) {
        wf_rounds_fini(r);
        return wf_fail_nomem("the work area of rank %u", layout->rank);
    }
    return WEFT_OK;
}

void wf_rounds_fini(wf_rounds_state *r)
{
    if (r->segment == NULL) {
        wf_free(r->area);
    }
    wf_free(r->src);
    r->area = NULL;
    r->src = NULL;
}

/* Pages of our slots; member 0 has those of the work areas. */
static weft_status populate(const wf_rounds_state *r)
{
    const unsigned char *from = slot_at(r, r->layout->local, 0);
    const unsigned char *base;
    weft_status st;

    if (r->segment == NULL) {
        return WEFT_OK;
    }
    base = r->segment->base;
    st = wf_segment_populate(r->segment, (size_t)(from - base),
                             WF_ROUNDS_SLOTS * r->slot);
    if (st == WEFT_OK && r->layout->local == 0) {
        st = wf_segment_populate(r->segment, (size_t)(work_at(r, 0) - base),
                                 WF_ROUNDS_WORKS * r->slot);
    }
    return st;
}

bool wf_rounds_begin(wf_rounds_state *r)
{
    r->base = r->used;
    r->used += r->shape.rounds;
    memset(r->at, 0, sizeof(r->at));
    if (!r->populated) {
        r->populated = populate(r) == WEFT_OK;
    }
    return r->populated;
}

static void count_all(const wf_rounds_state *r, uint64_t value)
{
    counters *own = counters_of(r, r->layout->local);

    for (unsigned i = 0; i < WF_ROUNDS_STEPS; i++) {
        atomic_store_explicit(&own->step[i].value, value, memory_order_release);
    }
}

void wf_rounds_end(const wf_rounds_state *r, const wf_coll_op *op)
{
    count_all(r, r->base + r->shape.rounds);
    wf_rounds_ring(op, r);
}

void wf_rounds_restart(wf_rounds_state *r, uint64_t from)
{
    r->used = from;
    count_all(r, from);
}

/* --- counters ------------------------------------------------------------- */

void wf_rounds_ring(const wf_coll_op *op, const wf_rounds_state *r)
{
    const wf_layout *l = r->layout;

    for (uint32_t m = 0; m < r->members; m++) {
        if (m != l->local) {
            wf_board_ring(op->op.comm->entry[wf_layout_member(l, l->node, m)]);
        }
    }
}

/* Has a member got this far, in rounds of this operation? May be negative. */
static bool has(const wf_rounds_state *r, uint32_t member, wf_rounds_step what,
                int64_t rounds)
{
    uint64_t value = atomic_load_explicit(
        &counters_of(r, member)->step[what].value, memory_order_acquire);

    return (int64_t)(value - r->base) >= rounds;
}

static bool all_have(const wf_rounds_state *r, wf_rounds_step what,
                     int64_t rounds)
{
    for (uint32_t m = 0; m < r->members; m++) {
        if (!has(r, m, what, rounds)) {
            return false;
        }
    }
    return true;
}

/* So many rounds are through; publishes what was written for them. Pairs with
 * the acquire in has(). */
static void count(wf_coll_op *op, wf_rounds_state *r, wf_rounds_step what,
                  uint64_t rounds)
{
    r->at[what] = rounds;
    atomic_store_explicit(&counters_of(r, r->layout->local)->step[what].value,
                          r->base + rounds, memory_order_release);
    op->op.moved++;
    wf_rounds_ring(op, r);
}

void wf_rounds_carried(wf_rounds_state *r, wf_coll_op *op, uint64_t rounds)
{
    count(op, r, WF_ROUNDS_NET, rounds);
}

/* --- in ------------------------------------------------------------------- */

static bool reduces(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_REDUCES);
}

/* Do members bring data that others fold? */
static bool brings(const wf_rounds_state *r, const wf_coll_op *op)
{
    return reduces(op) && r->members > 1;
}

/* Where the block for, or of, a rank lies in the caller's buffer. */
static unsigned char *block(const void *base, const wf_coll_op *op,
                            uint32_t rank, size_t at)
{
    return (unsigned char *)(uintptr_t)base + rank * op->bytes + at;
}

static wf_range own_share(const wf_rounds_state *r, uint64_t round)
{
    return wf_shape_share(&r->shape, r->layout, round, r->layout->local,
                          r->members);
}

/* Copy our data into our slot, all but our own share. */
static void bring(const wf_coll_op *op, const wf_rounds_state *r,
                  uint64_t round)
{
    const wf_layout *l = r->layout;
    unsigned char *slot = slot_at(r, l->local, r->base + round);
    wf_range own = own_share(r, round);
    size_t length = wf_shape_length(&r->shape, round);
    size_t at = round * r->shape.chunk;

    if (!r->shape.blocks) {
        const unsigned char *src = (const unsigned char *)op->src + at;

        wf_copy(slot, src, own.from);
        wf_copy(slot + own.until, src + own.until, length - own.until);
        return;
    }
    for (uint32_t p = 0; p < l->size; p++) {
        if (p * length < own.from || p * length >= own.until) {
            wf_copy(slot + p * length, block(op->src, op, l->placed[p], at),
                    length);
        }
    }
}

/* --- red ------------------------------------------------------------------ */

void wf_rounds_set_inner(wf_rounds_state *r, const wf_call *call)
{
    weft_op how = {(weft_op_kind)call->op, call->factor};

    if (how.kind == WEFT_OP_AVG) {
        how.kind = WEFT_OP_SUM;
    }
    (void)wf_reducer_init(&r->inner, (weft_dtype)call->type, how, 1);
}

/* Fold what all have brought for a range of the work area, of which ours is at
 * `own`. */
static void fold(wf_rounds_state *r, uint64_t round, const void *own,
                 wf_range range)
{
    void *dst = wf_rounds_work(r, round) + range.from;

    for (uint32_t m = 0; m < r->members; m++) {
        r->src[m] = slot_at(r, m, r->base + round) + range.from;
    }
    r->src[r->layout->local] = own;
    if (range.until > range.from) {
        r->inner.fold(&r->inner, &dst, 1, r->src, r->members,
                      (range.until - range.from) / r->inner.elem);
    }
}

static void fold_share(const wf_coll_op *op, wf_rounds_state *r, uint64_t round)
{
    wf_range own = own_share(r, round);
    size_t length = wf_shape_length(&r->shape, round);
    size_t at = round * r->shape.chunk;

    if (!r->shape.blocks) {
        fold(r, round, (const unsigned char *)op->src + at + own.from, own);
        return;
    }
    for (size_t p = own.from / length; p * length < own.until; p++) {
        fold(r, round, block(op->src, op, r->layout->placed[p], at),
             (wf_range){p * length, (p + 1) * length});
    }
}

/* Put our part of a round into the work area. */
static void produce(const wf_coll_op *op, wf_rounds_state *r, uint64_t round)
{
    const wf_layout *l = r->layout;
    unsigned char *work = wf_rounds_work(r, round);
    size_t length = wf_shape_length(&r->shape, round);
    const unsigned char *src =
        (const unsigned char *)op->src + round * r->shape.chunk;

    if (reduces(op)) {
        fold_share(op, r, round);
    } else if (r->shape.blocks) {
        wf_copy(work + l->place[l->rank] * length, src, length);
    } else if (l->rank == op->op.call.root) {
        wf_copy(work, src, length);
    }
}

void wf_rounds_feed(wf_rounds_state *r, wf_coll_op *op, bool agreed)
{
    bool moved = agreed || (r->populated && brings(r, op));

    while (moved) {
        uint64_t in = r->at[WF_ROUNDS_IN];
        uint64_t red = r->at[WF_ROUNDS_RED];

        moved = false;
        if (brings(r, op) && in < r->shape.rounds &&
            all_have(r, WF_ROUNDS_RED,
                     (int64_t)in + 1 - (int64_t)WF_ROUNDS_SLOTS)) {
            bring(op, r, in);
            count(op, r, WF_ROUNDS_IN, in + 1);
            moved = true;
        }
        if (red < r->shape.rounds &&
            all_have(r, WF_ROUNDS_OUT,
                     (int64_t)red + 1 - (int64_t)WF_ROUNDS_WORKS) &&
            (!brings(r, op) || all_have(r, WF_ROUNDS_IN, (int64_t)red + 1))) {
            produce(op, r, red);
            count(op, r, WF_ROUNDS_RED, red + 1);
            moved = true;
        }
    }
}

/* --- net ------------------------------------------------------------------ */

static bool overlap(wf_range a, wf_range b)
{
    return a.from < b.until && b.from < a.until;
}

/* Has a member a part in what a rail carries in a round? */
static bool feeds(const wf_coll_op *op, const wf_rounds_state *r,
                  uint32_t member, uint32_t rail, uint64_t round)
{
    const wf_layout *l = r->layout;
    uint32_t rank = wf_layout_member(l, l->node, member);

    if (!reduces(op) && !r->shape.blocks) {
        return rank == op->op.call.root;
    }
    if (reduces(op)) {
        return overlap(wf_shape_rail(&r->shape, l, round, rail),
                       wf_shape_share(&r->shape, l, round, member, r->members));
    }
    return l->place[rank] >= l->run[rail * l->nodes] &&
           l->place[rank] < l->run[(rail + 1) * l->nodes];
}

bool wf_rounds_is_fed(const wf_rounds_state *r, const wf_coll_op *op,
                      uint32_t rail, uint64_t round)
{
    /* Our own share says as well that the work area is free. */
    if (r->at[WF_ROUNDS_RED] <= round) {
        return false;
    }
    for (uint32_t m = 0; m < r->members; m++) {
        if (feeds(op, r, m, rail, round) &&
            !has(r, m, WF_ROUNDS_RED, (int64_t)round + 1)) {
            return false;
        }
    }
    return true;
}

/* --- out ------------------------------------------------------------------ */

void wf_rounds_finish(const wf_coll_op *op, void *dst, const void *src,
                      size_t bytes)
{
    if (op->op.call.op == WEFT_OP_AVG && reduces(op)) {
        wf_data_fold_one(&op->reducer, dst, src, bytes);
    } else if (dst != src) {
        wf_copy(dst, src, bytes);
    }
}

static void take(const wf_coll_op *op, const wf_rounds_state *r, uint64_t round)
{
    const wf_layout *l = r->layout;
    const unsigned char *work = wf_rounds_work(r, round);
    size_t length = wf_shape_length(&r->shape, round);
    size_t at = round * r->shape.chunk;
    unsigned char *dst = (unsigned char *)op->dst + at;

    if (!r->shape.blocks) {
        if (reduces(op) ? wf_call_gives(&op->op.call, l->rank)
                        : l->rank != op->op.call.root) {
            wf_rounds_finish(op, dst, work, length);
        }
    } else if (reduces(op)) {
        wf_rounds_finish(op, dst, work + l->place[l->rank] * length, length);
    } else {
        for (uint32_t p = 0; p < l->size; p++) {
            wf_copy(block(op->dst, op, l->placed[p], at), work + p * length,
                    length);
        }
    }
}

bool wf_rounds_is_through(const wf_rounds_state *r)
{
    uint64_t round = r->at[WF_ROUNDS_OUT];

    for (uint32_t i = 0; i < r->shape.rails; i++) {
        if (!has(r, wf_layout_driver(r->members, i, r->shape.rails),
                 WF_ROUNDS_NET, (int64_t)round + 1)) {
            return false;
        }
    }
    return true;
}

void wf_rounds_take(wf_rounds_state *r, wf_coll_op *op)
{
    take(op, r, r->at[WF_ROUNDS_OUT]);
    count(op, r, WF_ROUNDS_OUT, r->at[WF_ROUNDS_OUT] + 1);
}

bool wf_rounds_awaits(const wf_rounds_state *r, const wf_coll_op *op,
                      uint32_t member)
{
    uint32_t local = op->op.comm->local[member];

    if (local == WF_NOT_HERE) {
        return false;
    }
    return (brings(r, op) &&
            !has(r, local, WF_ROUNDS_IN, (int64_t)r->at[WF_ROUNDS_RED] + 1)) ||
           !has(r, local, WF_ROUNDS_RED, (int64_t)r->at[WF_ROUNDS_OUT] + 1);
}
