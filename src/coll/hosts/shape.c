/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hosts/shape.h"

#include "base/num.h"
#include "base/types.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define ANY WF_ANY_BYTES
#define LINE 64u

/* Slots: enough for messages of tens of KiB, and little enough to stay in the
 * caches. */
#define SLOT_A_RANK (32 * KIB)
#define SLOT_LEAST (256 * KIB)
#define SLOT_MOST MIB
#define SLOTS_OF_A_NODE (16 * MIB)
#define SLOT_FLOOR (128 * KIB)

#define ROUND_LEAST (64 * KIB) /* shorter ones cost more than they overlap */
#define ROUNDS_WANTED 4u
#define RAIL_LEAST (8 * KIB)     /* less is not worth a driver */
#define MESSAGE_BYTES (16 * KIB) /* pieces are sent in chunks of about that */
#define WIDTH_MOST 4u

/* --- the table ------------------------------------------------------------ */

/* As in coll/message/table.c, with nodes in place of ranks. No row uses more
 * than 2 log2(nodes) + 2 partners, rounded up, together with those of
 * dissemination. */
static const wf_choice table[] = {
    {WF_CALL_BROADCAST, 32 * KIB, 2, false, WF_BY_BINOMIAL, "few rounds"},
    {WF_CALL_BROADCAST, ANY, 4, false, WF_BY_DOUBLE_TREE,
     "all nodes send and receive all the time"},
    {WF_CALL_BROADCAST, ANY, 2, false, WF_BY_BINOMIAL,
     "so few nodes leave no choice"},

    {WF_CALL_REDUCE, 32 * KIB, 2, false, WF_BY_BINOMIAL, "few rounds"},
    {WF_CALL_REDUCE, ANY, 4, false, WF_BY_DOUBLE_TREE,
     "all nodes receive and fold all the time"},
    {WF_CALL_REDUCE, ANY, 2, false, WF_BY_BINOMIAL,
     "so few nodes leave no choice"},

    {WF_CALL_ALLREDUCE, 16 * KIB, 2, true, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_ALLREDUCE, 16 * KIB, 11, false, WF_BY_HALVING,
     "few rounds with few partners"},
    {WF_CALL_ALLREDUCE, 16 * KIB, 2, false, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_ALLREDUCE, 512 * KIB, 3, false, WF_BY_HALVING,
     "each byte is folded once, in few rounds"},
    {WF_CALL_ALLREDUCE, ANY, 3, true, WF_BY_HALVING,
     "as few bytes as by a ring, in fewer rounds"},
    {WF_CALL_ALLREDUCE, 4 * MIB, 33, false, WF_BY_HALVING,
     "the rounds of a ring would be many"},
    {WF_CALL_ALLREDUCE, ANY, 3, false, WF_BY_RING,
     "each byte is folded once, between neighbours, in chunks"},
    {WF_CALL_ALLREDUCE, ANY, 2, false, WF_BY_DOUBLING,
     "two nodes exchange everything once, whatever they do"},

    {WF_CALL_REDUCE_SCATTER, 64 * KIB, 2, true, WF_BY_HALVING, "few rounds"},
    {WF_CALL_REDUCE_SCATTER, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},

    {WF_CALL_ALLGATHER, 64 * KIB, 2, true, WF_BY_DOUBLING, "few rounds"},
    {WF_CALL_ALLGATHER, 64 * KIB, 2, false, WF_BY_BRUCK,
     "few rounds with any number of nodes"},
    {WF_CALL_ALLGATHER, ANY, 2, false, WF_BY_RING,
     "only neighbours talk, in chunks"},
};

enum { ROWS = sizeof(table) / sizeof(table[0]) };

const wf_choice *wf_hosts_choose(wf_call_kind kind, uint64_t bytes,
                                 uint32_t nodes)
{
    for (size_t i = 0; i < ROWS; i++) {
        const wf_choice *c = &table[i];

        if (c->kind == kind && bytes <= c->up_to && nodes >= c->ranks_from &&
            (!c->power_of_2 || wf_is_power_of_2(nodes))) {
            return c;
        }
    }
    return NULL;
}

/* --- how much ------------------------------------------------------------- */

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

static size_t at_least(size_t n, size_t least)
{
    return n > least ? n : least;
}

/* A slot in which every rank's block has a line. */
static size_t slot_of_blocks(uint32_t size)
{
    return wf_round_up((size_t)size * LINE, 4 * KIB);
}

/* Are there so many ranks that operations with a block for each of them do
 * without slots? */
static bool blocks_go_plain(uint32_t size)
{
    return slot_of_blocks(size) > SLOT_MOST;
}

static size_t slot_floor(uint32_t size)
{
    return blocks_go_plain(size) ? 4 * KIB : slot_of_blocks(size);
}

size_t wf_shape_slot(uint32_t size, uint32_t nodes, uint64_t wanted)
{
    size_t per_node = (size + nodes - 1) / nodes;
    size_t slot = at_most(size * SLOT_A_RANK, SLOT_MOST);

    if (wanted != UINT64_MAX) {
        slot = wanted < 16 * MIB ? (size_t)wanted : 16 * MIB;
        return at_least(wf_round_up(slot, 4 * KIB), slot_floor(size));
    }
    slot = at_least(slot, SLOT_LEAST);
    while (slot > SLOT_FLOOR && slot * per_node > SLOTS_OF_A_NODE) {
        slot /= 2;
    }
    return at_least(slot, slot_floor(size));
}

/* Bytes of a node's data that would go along. */
static size_t along_bytes(const wf_shape *shape, const wf_layout *l)
{
    size_t blocks = shape->choice.kind == WF_CALL_ALLGATHER ? l->most : l->size;

    return shape->bytes * (shape->blocks ? blocks : 1);
}

static void cut_rounds(wf_shape *shape, const wf_layout *l,
                       const wf_shape_limits *limits)
{
    size_t blocks = shape->blocks ? l->size : 1;
    size_t all = shape->bytes * blocks;
    size_t work = at_least(all / ROUNDS_WANTED, ROUND_LEAST);

    work = limits->fixed ? limits->slot : at_most(work, limits->slot);
    shape->chunk = at_least(work / blocks / LINE * LINE, LINE);
    shape->rounds = (shape->bytes + shape->chunk - 1) / shape->chunk;
}

/* The most bytes of a rail in a round. */
static size_t rail_bytes(const wf_shape *shape, const wf_layout *l)
{
    size_t blocks = 0;

    if (!shape->blocks) {
        size_t lines = (at_most(shape->chunk, shape->bytes) + LINE - 1) / LINE;

        return (lines + shape->rails - 1) / shape->rails * LINE;
    }
    for (uint32_t i = 0; i < l->rails; i++) {
        size_t n = l->run[(i + 1) * l->nodes] - l->run[i * l->nodes];

        blocks = n > blocks ? n : blocks;
    }
    return blocks * at_most(shape->chunk, shape->bytes);
}

static void cut_messages(wf_shape *shape, const wf_layout *l,
                         const wf_call *call)
{
    size_t rail = rail_bytes(shape, l);
    wf_plan plan;

    shape->width = 1;
    shape->pieces =
        (uint32_t)at_least(at_most(rail / 2 / MESSAGE_BYTES, WIDTH_MOST), 1);
    wf_shape_plan(shape, l, call, 0, &plan);
    if (plan.piped && !plan.whole) {
        size_t cuts = shape->blocks ? l->nodes : plan.blocks;
        size_t piece = rail / cuts * plan.span;

        shape->width =
            (uint32_t)at_least(at_most(piece / MESSAGE_BYTES, WIDTH_MOST), 1);
    }
}

static void choose_rails(wf_shape *shape, const wf_layout *l,
                         const wf_call *call, const wf_shape_limits *limits)
{
    size_t all = shape->bytes * (shape->blocks ? l->size : 1);

    shape->way = WF_SHAPE_RAILS;
    if (limits->has_forced) {
        shape->choice.how = limits->forced;
        shape->choice.up_to = ANY;
        shape->choice.why = "the setting ALGORITHM asks for it";
    }
    shape->rails = (uint32_t)at_least(at_most(all / RAIL_LEAST, l->rails), 1);
    if (shape->blocks) {
        shape->rails = l->rails; /* places are for all of them */
    }
    cut_rounds(shape, l, limits);
    cut_messages(shape, l, call);
}

void wf_shape_init(wf_shape *shape, const wf_layout *l, const wf_call *call,
                   bool has_data, const wf_shape_limits *limits)
{
    wf_call_kind kind = (wf_call_kind)call->kind;
    size_t elem = wf_dtype_bytes((weft_dtype)call->type);
    bool blocks = wf_call_is(call->kind, WF_SRC_BLOCKS | WF_DST_BLOCKS);
    uint64_t bytes = call->count * elem * (blocks ? l->size : 1);
    const wf_choice *row = wf_hosts_choose(kind, bytes, l->nodes);

    *shape = (wf_shape){.way = WF_SHAPE_MEET,
                        .blocks = blocks,
                        .elem = elem,
                        .bytes = call->count * elem,
                        .grain = LINE};
    if (!has_data ||
        (call->count == 0 && !wf_call_is(call->kind, WF_OWN_LENGTHS))) {
        return;
    }
    if (row == NULL || (blocks && blocks_go_plain(l->size))) {
        shape->way = WF_SHAPE_PLAIN;
        return;
    }
    shape->choice = *row;
    if (!limits->has_forced && along_bytes(shape, l) <= limits->along) {
        shape->way = WF_SHAPE_ALONG;
        shape->choice.how = WF_BY_DISSEMINATION;
        shape->choice.up_to = limits->along;
        shape->choice.why = "it goes along when calls are compared";
        return;
    }
    choose_rails(shape, l, call, limits);
}

void wf_shape_plan(const wf_shape *shape, const wf_layout *l,
                   const wf_call *call, uint32_t node, wf_plan *out)
{
    bool rooted = wf_call_has_root(call->kind);

    /* The table, or whoever forced it, knows that there is such a plan. */
    (void)wf_plan_make(out, shape->choice.kind, shape->choice.how, l->nodes,
                       node, rooted ? l->node_of[call->root] : 0,
                       shape->pieces);
    out->groups = shape->rounds;
    out->width = shape->width;
    out->apart = true;
}

/* --- where ---------------------------------------------------------------- */

size_t wf_shape_length(const wf_shape *shape, uint64_t round)
{
    return at_most(shape->chunk, shape->bytes - round * shape->chunk);
}

size_t wf_shape_work(const wf_shape *shape, const wf_layout *l, uint64_t round)
{
    return wf_shape_length(shape, round) * (shape->blocks ? l->size : 1);
}

/* Share `i` of `of` of some bytes: whole grains. */
static wf_range grains(size_t bytes, size_t grain, uint64_t i, uint64_t of)
{
    size_t n = (bytes + grain - 1) / grain;

    return (wf_range){at_most(n * i / of * grain, bytes),
                      at_most(n * (i + 1) / of * grain, bytes)};
}

/* The same of a range, by whole elements. */
static wf_range part(wf_range r, size_t elem, uint64_t from, uint64_t until,
                     uint64_t of)
{
    size_t n = (r.until - r.from) / elem;

    return (wf_range){r.from + n * from / of * elem,
                      r.from + n * until / of * elem};
}

static wf_range places(const wf_shape *shape, uint64_t round, uint64_t from,
                       uint64_t until)
{
    size_t length = wf_shape_length(shape, round);

    return (wf_range){from * length, until * length};
}

wf_range wf_shape_share(const wf_shape *shape, const wf_layout *l,
                        uint64_t round, uint32_t local, uint32_t members)
{
    if (!shape->blocks) {
        return grains(wf_shape_length(shape, round), LINE, local, members);
    }
    return places(shape, round, (uint64_t)l->size * local / members,
                  (uint64_t)l->size * (local + 1) / members);
}

wf_range wf_shape_rail(const wf_shape *shape, const wf_layout *l,
                       uint64_t round, uint32_t rail)
{
    if (!shape->blocks) {
        return grains(wf_shape_length(shape, round), shape->grain, rail,
                      shape->rails);
    }
    return places(shape, round, l->run[rail * l->nodes],
                  l->run[(rail + 1) * l->nodes]);
}

wf_range wf_shape_piece(const wf_shape *shape, const wf_layout *l,
                        const wf_plan *plan, uint32_t rail, const wf_step *step,
                        wf_piece piece)
{
    uint64_t round = step->chunk / plan->width;
    uint32_t until = piece.block + piece.count;
    wf_range r;

    if (shape->blocks) {
        const uint32_t *run = &l->run[rail * l->nodes];

        r = places(shape, round, run[piece.block], run[until]);
    } else {
        r = part(wf_shape_rail(shape, l, round, rail), shape->elem, piece.block,
                 until, plan->blocks);
    }
    return part(r, shape->elem, step->in_group, step->in_group + 1,
                plan->width);
}

/* The most blocks of ranks that `span` nodes in a row have on a rail. */
static size_t longest_run(const wf_layout *l, uint32_t span)
{
    size_t most = (l->most + l->rails - 1) / l->rails;

    return most * span;
}

size_t wf_shape_longest(const wf_shape *shape, const wf_layout *l,
                        const wf_plan *plan)
{
    size_t rail = rail_bytes(shape, l);
    size_t piece;

    if (shape->blocks) {
        piece = longest_run(l, plan->span) * wf_shape_length(shape, 0);
    } else {
        piece =
            (rail / shape->elem / plan->blocks + 1) * plan->span * shape->elem;
    }
    return at_most(piece, rail) / plan->width + shape->elem;
}
