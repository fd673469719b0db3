/* SPDX-License-Identifier: Apache-2.0 */
/* Large data, in rounds (H3 of area.h): while one round is on the wire the next
 * one is reduced in shared memory, and the one before is taken out. */
#include <string.h>

#include "coll/hosts/area.h"
#include "transport/msg.h"

static bool reduces(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_REDUCES);
}

/* Do members bring data that others fold? */
static bool brings(const wf_coll_op *op, const hosts_state *s)
{
    return reduces(op) && s->members > 1;
}

/* Has a member got this far, in rounds of this operation? May be negative. */
static bool has(const hosts_state *s, uint32_t member, hosts_count what,
                int64_t rounds)
{
    uint64_t value = atomic_load_explicit(
        &hosts_block_of(s, member)->count[what].value, memory_order_acquire);

    return (int64_t)(value - s->base) >= rounds;
}

static bool all_have(const hosts_state *s, hosts_count what, int64_t rounds)
{
    for (uint32_t m = 0; m < s->members; m++) {
        if (!has(s, m, what, rounds)) {
            return false;
        }
    }
    return true;
}

/* So many rounds are through; publishes what was written for them. Pairs with
 * the acquire in has(). */
static void count(wf_coll_op *op, hosts_state *s, hosts_count what,
                  uint64_t rounds)
{
    s->at[what] = rounds;
    atomic_store_explicit(
        &hosts_block_of(s, s->layout.local)->count[what].value,
        s->base + rounds, memory_order_release);
    op->op.moved++;
    hosts_ring(op, s);
}

/* Where the block for, or of, a rank lies in the caller's buffer. */
static unsigned char *block(const void *base, const wf_coll_op *op,
                            uint32_t rank, size_t at)
{
    return (unsigned char *)(uintptr_t)base + rank * op->bytes + at;
}

/* --- in ------------------------------------------------------------------- */

/* Copy our data into our slot, all but our own share. */
static void bring(const wf_coll_op *op, const hosts_state *s, uint64_t round)
{
    const wf_layout *l = &s->layout;
    unsigned char *slot = hosts_slot(s, l->local, s->base + round);
    wf_range own = wf_shape_share(&s->shape, l, round, l->local, s->members);
    size_t length = wf_shape_length(&s->shape, round);
    size_t at = round * s->shape.chunk;

    if (!s->shape.blocks) {
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

/* Fold what all have brought for a range of the work area, of which ours is at
 * `own`. */
static void fold(hosts_state *s, uint64_t round, const void *own, wf_range r)
{
    void *dst = hosts_work(s, s->base + round) + r.from;

    for (uint32_t m = 0; m < s->members; m++) {
        s->src[m] = hosts_slot(s, m, s->base + round) + r.from;
    }
    s->src[s->layout.local] = own;
    if (r.until > r.from) {
        s->inner.fold(&s->inner, &dst, 1, s->src, s->members,
                      (r.until - r.from) / s->inner.elem);
    }
}

static void fold_share(const wf_coll_op *op, hosts_state *s, uint64_t round)
{
    const wf_layout *l = &s->layout;
    wf_range own = wf_shape_share(&s->shape, l, round, l->local, s->members);
    size_t length = wf_shape_length(&s->shape, round);
    size_t at = round * s->shape.chunk;

    if (!s->shape.blocks) {
        fold(s, round, (const unsigned char *)op->src + at + own.from, own);
        return;
    }
    for (size_t p = own.from / length; p * length < own.until; p++) {
        fold(s, round, block(op->src, op, l->placed[p], at),
             (wf_range){p * length, (p + 1) * length});
    }
}

/* Put our part of a round into the work area. */
static void produce(const wf_coll_op *op, hosts_state *s, uint64_t round)
{
    const wf_layout *l = &s->layout;
    unsigned char *work = hosts_work(s, s->base + round);
    size_t length = wf_shape_length(&s->shape, round);
    const unsigned char *src =
        (const unsigned char *)op->src + round * s->shape.chunk;

    if (reduces(op)) {
        fold_share(op, s, round);
    } else if (s->shape.blocks) {
        wf_copy(work + l->place[l->rank] * length, src, length);
    } else if (l->rank == op->op.call.root) {
        wf_copy(work, src, length);
    }
}

/* --- net ------------------------------------------------------------------ */

static bool overlap(wf_range a, wf_range b)
{
    return a.from < b.until && b.from < a.until;
}

/* Has a member a part in what our rail carries in a round? */
static bool feeds(const wf_coll_op *op, const hosts_state *s, uint32_t member,
                  uint64_t round)
{
    const wf_layout *l = &s->layout;
    uint32_t rank = wf_layout_member(l, l->node, member);
    wf_range rail;

    if (!reduces(op) && !s->shape.blocks) {
        return rank == op->op.call.root;
    }
    rail = wf_shape_rail(&s->shape, l, round, s->rail);
    if (reduces(op)) {
        return overlap(rail,
                       wf_shape_share(&s->shape, l, round, member, s->members));
    }
    return l->place[rank] >= l->run[s->rail * l->nodes] &&
           l->place[rank] < l->run[(s->rail + 1) * l->nodes];
}

static bool is_fed(const wf_coll_op *op, const hosts_state *s, uint64_t round)
{
    /* Our own share says as well that the work area is free. */
    if (s->at[HOSTS_RED] <= round) {
        return false;
    }
    for (uint32_t m = 0; m < s->members; m++) {
        if (feeds(op, s, m, round) &&
            !has(s, m, HOSTS_RED, (int64_t)round + 1)) {
            return false;
        }
    }
    return true;
}

/* Carry out as much of our rail's plan as its data is there for. */
static weft_status drive(wf_coll_op *op, hosts_state *s)
{
    wf_run *run = &s->moves.run;
    uint64_t steps = s->moves.plan.steps * s->moves.plan.width;
    uint64_t ended;
    weft_status st;

    while (run->open < run->length && is_fed(op, s, run->open / steps)) {
        run->open += steps;
    }
    st = wf_run_step(run, op);
    ended = wf_run_ended(run) / steps;
    if (ended > s->at[HOSTS_NET]) {
        count(op, s, HOSTS_NET, ended);
    }
    return st;
}

static wf_block rail_at(const wf_data *data, const wf_coll_op *op,
                        const wf_step *step, wf_piece piece)
{
    const hosts_state *s = data->ctx;
    wf_range r =
        wf_shape_piece(&s->shape, &s->layout, data->plan, s->rail, step, piece);

    (void)op;
    /* All is folded in place: whatever buffer the plan means, a piece of it
     * is here. */
    return (wf_block){hosts_work(s, s->base + step->chunk / data->plan->width) +
                          r.from,
                      r.until - r.from};
}

/* --- out ------------------------------------------------------------------ */

static void take(const wf_coll_op *op, const hosts_state *s, uint64_t round)
{
    const wf_layout *l = &s->layout;
    const unsigned char *work = hosts_work(s, s->base + round);
    size_t length = wf_shape_length(&s->shape, round);
    size_t at = round * s->shape.chunk;
    unsigned char *dst = (unsigned char *)op->dst + at;

    if (!s->shape.blocks) {
        if (reduces(op) ? wf_call_gives(&op->op.call, l->rank)
                        : l->rank != op->op.call.root) {
            hosts_finish(op, dst, work, length);
        }
    } else if (reduces(op)) {
        hosts_finish(op, dst, work + l->place[l->rank] * length, length);
    } else {
        for (uint32_t p = 0; p < l->size; p++) {
            wf_copy(block(op->dst, op, l->placed[p], at), work + p * length,
                    length);
        }
    }
}

/* Have all drivers of this node carried out a round? */
static bool is_through(const hosts_state *s, uint64_t round)
{
    for (uint32_t i = 0; i < s->shape.rails; i++) {
        if (!has(s, wf_layout_driver(s->members, i, s->shape.rails), HOSTS_NET,
                 (int64_t)round + 1)) {
            return false;
        }
    }
    return true;
}

/* --- all of it ------------------------------------------------------------ */

/* Bring and fold, as far as possible. Only a fold may do so before all have
 * agreed: it waits for all members of the node, so that all have memory. */
void hosts_rounds_feed(wf_coll_op *op, bool agreed)
{
    hosts_state *s = op->state;
    bool moved = agreed || (s->populated && brings(op, s));

    while (moved) {
        uint64_t in = s->at[HOSTS_IN];
        uint64_t red = s->at[HOSTS_RED];

        moved = false;
        if (brings(op, s) && in < s->shape.rounds &&
            all_have(s, HOSTS_RED, (int64_t)in + 1 - (int64_t)HOSTS_SLOTS)) {
            bring(op, s, in);
            count(op, s, HOSTS_IN, in + 1);
            moved = true;
        }
        if (red < s->shape.rounds &&
            all_have(s, HOSTS_OUT, (int64_t)red + 1 - (int64_t)HOSTS_WORKS) &&
            (!brings(op, s) || all_have(s, HOSTS_IN, (int64_t)red + 1))) {
            produce(op, s, red);
            count(op, s, HOSTS_RED, red + 1);
            moved = true;
        }
    }
}

weft_status hosts_rounds_step(wf_coll_op *op)
{
    hosts_state *s = op->state;
    weft_status st = WEFT_OK;

    if (s->rail != WF_NO_RAIL) {
        st = drive(op, s);
        if (st != WEFT_OK && st != WF_PENDING) {
            return st;
        }
    }
    while (s->at[HOSTS_OUT] < s->shape.rounds &&
           is_through(s, s->at[HOSTS_OUT])) {
        take(op, s, s->at[HOSTS_OUT]);
        count(op, s, HOSTS_OUT, s->at[HOSTS_OUT] + 1);
    }
    if (s->at[HOSTS_OUT] < s->shape.rounds) {
        return WF_PENDING;
    }
    hosts_rounds_end(op);
    wf_moves_drop(&s->moves, op);
    return WEFT_OK;
}

void hosts_rounds_end(const wf_coll_op *op)
{
    const hosts_state *s = op->state;
    hosts_block *own = hosts_block_of(s, s->layout.local);

    for (unsigned i = 0; i < HOSTS_COUNTS; i++) {
        atomic_store_explicit(&own->count[i].value, s->base + s->shape.rounds,
                              memory_order_release);
    }
    hosts_ring(op, s);
}

/* --- start ---------------------------------------------------------------- */

/* Pages of our slots; member 0 has those of the work areas. */
static weft_status populate(const wf_coll_op *op, const hosts_state *s)
{
    const weft_comm *comm = op->op.comm;
    const unsigned char *from = hosts_slot(s, s->layout.local, 0);
    const unsigned char *base = comm->segment.base;
    weft_status st;

    if (s->owns_area) {
        return WEFT_OK;
    }
    st = wf_segment_populate(&comm->segment, (size_t)(from - base),
                             HOSTS_SLOTS * s->slot);
    if (st == WEFT_OK && s->layout.local == 0) {
        st = wf_segment_populate(&comm->segment,
                                 (size_t)(hosts_work(s, 0) - base),
                                 HOSTS_WORKS * s->slot);
    }
    return st;
}

/* The plan of the rail that this member drives, and where received data is
 * folded from. */
static bool plan_rail(const wf_coll_op *op, hosts_state *s)
{
    const wf_layout *l = &s->layout;
    wf_moves *moves = &s->moves;
    size_t landing = 0;

    wf_layout_drivers(l, s->rail, s->shape.rails, s->driver);
    wf_shape_plan(&s->shape, l, &op->op.call, l->node, &moves->plan);
    if (reduces(op)) {
        landing = wf_round_up(wf_shape_longest(&s->shape, l, &moves->plan), 64);
    }
    moves->data = (wf_data){.at = rail_at,
                            .ctx = s,
                            .plan = &moves->plan,
                            .elem = s->shape.elem,
                            .landing_bytes = landing,
                            .scratch_bytes = WF_FLIGHTS * landing};
    if (reduces(op)) {
        moves->data.partial = wf_data_partial(&op->op.call);
    }
    return wf_moves_get_scratch(moves);
}

bool hosts_rounds_start(wf_coll_op *op)
{
    hosts_state *s = op->state;

    s->base = s->rounds;
    s->rounds += s->shape.rounds;
    memset(s->at, 0, sizeof(s->at));
    if (!s->populated) {
        s->populated = populate(op, s) == WEFT_OK;
    }
    s->rail = wf_layout_rail(&s->layout, s->shape.rails);
    return (s->rail == WF_NO_RAIL || plan_rail(op, s)) && s->populated;
}

void hosts_rounds_agreed(wf_coll_op *op)
{
    hosts_state *s = op->state;
    wf_party drivers = {
        .member = s->driver, .size = s->layout.nodes, .rank = s->layout.node};

    if (s->rail != WF_NO_RAIL) {
        wf_run_init(&s->moves.run, &s->moves.data, &drivers);
        s->moves.run.open = 0;
    }
}

bool hosts_rounds_awaits(const wf_coll_op *op, uint32_t member)
{
    const hosts_state *s = op->state;
    uint32_t local = op->op.comm->local[member];

    if (s->rail != WF_NO_RAIL && wf_run_awaits(&s->moves.run, member)) {
        return true;
    }
    if (local == WF_NOT_HERE) {
        return false;
    }
    return (brings(op, s) &&
            !has(s, local, HOSTS_IN, (int64_t)s->at[HOSTS_RED] + 1)) ||
           !has(s, local, HOSTS_RED, (int64_t)s->at[HOSTS_OUT] + 1);
}
