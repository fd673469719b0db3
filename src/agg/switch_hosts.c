/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks share hosts they are added up in shared memory first, in rounds
 * (coll/hosts/rounds.h), so that a host's link carries each element once. The
 * work area of a round is cut into rails by whole chunks. On each host one rank
 * drives a rail: it sends its chunks of the host's sums, and puts the results
 * back into the work area, from where all ranks of the host take them. Each
 * rail is a job of its own at the switch, whose ranks are the hosts.
 *
 * To settle.h a round is what a chunk is where no ranks share hosts: rule R3 of
 * rounds.h takes the place of rule 1 of slot.h, and the rounds of an epoch
 * begin with a number that no round of an earlier one has (R1).
 *
 * Calls of the ranks of a host are compared in cells: each rank writes its own,
 * and brings nothing before it has compared all. No operation is over before
 * all have brought their first round; so a cell is free when its rank comes to
 * the next operation. */
#include <string.h>

#include "agg/quantise.h"
#include "agg/switch.h"
#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"

#define PAGE 4096u
#define RAILS_MOST 4u /* jobs of a communicator at the switch */
#define ROUNDS_WANTED 4u
#define ROUND_LEAST ((size_t)64 << 10)
#define EPOCH_SHIFT 40 /* an epoch has fewer rounds */

struct switch_cell {
    alignas(64) _Atomic uint32_t sequence; /* its number + 1; publishes it */
    wf_call call;
};

bool switch_shares_hosts(const weft_comm *comm)
{
    return comm->tree.nodes > 1 && comm->tree.nodes < comm->size;
}

/* --- memory --------------------------------------------------------------- */

static size_t cells_bytes(uint32_t members)
{
    return wf_round_up(members * sizeof(switch_cell), PAGE);
}

/* At least a chunk of each rail. */
static size_t slot_of(const weft_comm *comm)
{
    const wf_settings *set = &comm->world->settings;
    size_t slot = wf_shape_slot(comm->size, comm->tree.nodes, set->chunk_bytes);
    size_t least = wf_round_up(RAILS_MOST * set->switch_payload, PAGE);

    return slot > least ? slot : least;
}

size_t switch_hosts_area(const weft_comm *comm)
{
    return switch_shares_hosts(comm)
               ? cells_bytes(comm->mates) +
                     wf_rounds_bytes(comm->mates, slot_of(comm))
               : 0;
}

/* Cells and counters have pages from the start. */
static weft_status get_cells(switch_state *s, unsigned char *area)
{
    const weft_comm *comm = s->comm;
    const unsigned char *base = comm->segment.base;
    size_t bytes = cells_bytes(comm->mates);

    s->owns_cells = area == NULL;
    s->cells = area != NULL ? (void *)area : wf_zalloc_aligned(64, bytes);
    if (s->cells == NULL) {
        return wf_fail_nomem("the cells of rank %u", comm->rank);
    }
    if (area != NULL && s->layout.local == 0) {
        return wf_segment_populate(&comm->segment, (size_t)(area - base),
                                   bytes + wf_rounds_counters(comm->mates));
    }
    return WEFT_OK;
}

weft_status switch_hosts_attach(switch_state *s, unsigned char *area)
{
    const weft_comm *comm = s->comm;
    weft_status st = wf_rounds_layout(comm, &s->layout);

    if (st == WEFT_OK) {
        st = get_cells(s, area);
    }
    if (st == WEFT_OK) {
        st = wf_rounds_init(&s->rounds, &s->layout, &comm->segment,
                            area != NULL ? area + cells_bytes(comm->mates)
                                         : NULL,
                            slot_of(comm));
    }
    s->driver = wf_alloc(comm->tree.nodes * sizeof(*s->driver));
    if (st == WEFT_OK && s->driver == NULL) {
        st = wf_fail_nomem("the rails of rank %u", comm->rank);
    }
    if (st != WEFT_OK) {
        return st;
    }
    s->rails = (uint32_t)wf_least(s->layout.rails, RAILS_MOST);
    s->rail = wf_layout_rail(&s->layout, s->rails);
    if (s->rail != WF_NO_RAIL) {
        wf_layout_drivers(&s->layout, s->rail, s->rails, s->driver);
    }
    return WEFT_OK;
}

void switch_hosts_detach(switch_state *s)
{
    wf_rounds_fini(&s->rounds);
    if (s->owns_cells) {
        wf_free(s->cells);
    }
    wf_free(s->driver);
    wf_layout_fini(&s->layout);
}

void switch_hosts_epoch(switch_state *s)
{
    wf_rounds_restart(&s->rounds, (uint64_t)s->epoch << EPOCH_SHIFT);
}

/* --- an operation begins -------------------------------------------------- */

/* Rounds of whole chunks of each rail: as long as the slots allow, but some of
 * them, so that they overlap, and not too short. A pure function of the call:
 * all ranks come to the same. */
static void find_shape(switch_state *s, const wf_coll_op *op, size_t grain)
{
    size_t row = grain * s->rails; /* a chunk of each rail */
    uint64_t wanted = op->bytes / row / ROUNDS_WANTED + 1;
    uint64_t least = ROUND_LEAST / row + 1;

    wanted = wanted > least ? wanted : least;
    s->deep = (uint32_t)wf_least(wanted, s->rounds.slot / row);
    s->rounds.shape =
        (wf_shape){.way = WF_SHAPE_RAILS,
                   .elem = wf_dtype_bytes((weft_dtype)op->op.call.type),
                   .bytes = op->bytes,
                   .chunk = s->deep * row,
                   .rounds = (op->bytes + s->deep * row - 1) / (s->deep * row),
                   .rails = s->rails,
                   .grain = grain};
}

static size_t rail_bytes(const switch_state *s, uint64_t round)
{
    wf_range r = wf_shape_rail(&s->rounds.shape, &s->layout, round, s->rail);

    return r.until - r.from;
}

/* Where a chunk of our rail is in the work area of its round. */
static wf_agg_piece piece_at(void *ctx, uint64_t chunk)
{
    const switch_state *s = ctx;
    const wf_shape *shape = &s->rounds.shape;
    uint64_t round = chunk / s->deep;
    wf_range r = wf_shape_rail(shape, &s->layout, round, s->rail);
    size_t from = r.from + chunk % s->deep * shape->grain;
    unsigned char *at = wf_rounds_work(&s->rounds, round) + from;

    return (wf_agg_piece){
        at, at,
        (uint32_t)(wf_least(shape->grain, r.until - from) / shape->elem)};
}

static void post(switch_state *s, const wf_coll_op *op)
{
    switch_cell *cell = &s->cells[s->layout.local];

    s->seen = 0;
    cell->call = op->op.call;
    /* Publishes the call; pairs with the acquire in has_called. */
    atomic_store_explicit(&cell->sequence, op->op.sequence + 1,
                          memory_order_release);
    wf_rounds_ring(op, &s->rounds);
}

bool switch_hosts_begin(switch_state *s, wf_coll_op *op, wf_agg_call *call,
                        uint64_t now)
{
    size_t payload = s->comm->world->settings.switch_payload;
    size_t elem = wf_dtype_bytes((weft_dtype)call->type);
    wf_rounds_state *r = &s->rounds;
    uint64_t last;

    find_shape(
        s, op,
        elem * wf_agg_each(payload, (weft_dtype)call->type, call->quantised));
    wf_rounds_set_inner(r, &op->op.call);
    if (!wf_rounds_begin(r)) {
        return false;
    }
    s->chunk_bytes = r->shape.chunk;
    s->fed = 0;
    post(s, op);
    if (s->rail != WF_NO_RAIL) {
        last = r->shape.rounds - 1;
        call->piece = piece_at;
        call->chunks =
            last * s->deep +
            (rail_bytes(s, last) + r->shape.grain - 1) / r->shape.grain;
        wf_agg_client_begin(&s->client, call, now);
        s->client.ready = 0;
    }
    return true;
}

/* --- and goes on ---------------------------------------------------------- */

static bool has_called(const switch_state *s, const wf_coll_op *op,
                       uint32_t member)
{
    return atomic_load_explicit(&s->cells[member].sequence,
                                memory_order_acquire) == op->op.sequence + 1;
}

/* Have all ranks of this host made this call? */
static weft_status compare_cells(switch_state *s, wf_coll_op *op)
{
    const wf_layout *l = &s->layout;

    for (; s->seen < s->rounds.members; s->seen++) {
        const switch_cell *cell = &s->cells[s->seen];

        if (!has_called(s, op, s->seen)) {
            return WF_PENDING;
        }
        if (!wf_call_equal(&cell->call, &op->op.call)) {
            return wf_coll_mismatch(op, wf_layout_member(l, l->node, s->seen),
                                    &cell->call);
        }
        op->op.moved++;
    }
    return WEFT_OK;
}

/* Send what is ready of our rail, and see how many rounds have come back. */
static weft_status drive(switch_state *s, wf_coll_op *op, uint64_t now)
{
    wf_rounds_state *r = &s->rounds;
    uint64_t carried;
    weft_status st;

    while (s->fed < r->shape.rounds &&
           wf_rounds_is_fed(r, op, s->rail, s->fed)) {
        s->fed++;
    }
    s->client.ready = s->fed * s->deep;
    st = switch_client_step(s, op, now);
    if (st != WEFT_OK || s->phase != SWITCH_CALL) {
        return st;
    }
    carried = s->client.under_way ? wf_agg_client_first(&s->client) / s->deep
                                  : s->fed;
    if (carried > r->at[WF_ROUNDS_NET]) {
        wf_rounds_carried(r, op, carried);
    }
    return WEFT_OK;
}

static void take_out(switch_state *s, wf_coll_op *op)
{
    wf_rounds_state *r = &s->rounds;
    uint64_t round = r->at[WF_ROUNDS_OUT];

    if (op->src == op->dst) {
        switch_keep_input(s, round,
                          (const char *)op->src + round * r->shape.chunk,
                          wf_shape_length(&r->shape, round));
    }
    wf_rounds_take(r, op);
}

static weft_status step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    wf_rounds_state *r = &s->rounds;
    weft_status st = compare_cells(s, op);

    if (st == WEFT_OK) {
        wf_rounds_feed(r, op, true);
    }
    if (st == WEFT_OK && s->rail != WF_NO_RAIL) {
        st = drive(s, op, now);
    }
    if (st != WEFT_OK || s->phase != SWITCH_CALL) {
        return st == WEFT_OK ? WF_PENDING : st;
    }
    while (r->at[WF_ROUNDS_OUT] < r->shape.rounds && wf_rounds_is_through(r)) {
        take_out(s, op);
    }
    if (r->at[WF_ROUNDS_OUT] < r->shape.rounds) {
        return WF_PENDING;
    }
    wf_rounds_end(r, op);
    return WEFT_OK;
}

weft_status switch_hosts_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    uint64_t moved = op->op.moved;
    weft_status st = step(s, op, now);

    if (op->op.moved != moved) {
        s->moved_ns = now;
    }
    return st;
}

uint64_t switch_hosts_first(const switch_state *s)
{
    return s->rounds.at[WF_ROUNDS_OUT];
}

bool switch_hosts_awaits(const switch_state *s, uint32_t member)
{
    uint32_t local = s->comm->local[member];

    if (s->seen < s->rounds.members) {
        return local != WF_NOT_HERE && !has_called(s, s->op, local);
    }
    return (s->rail != WF_NO_RAIL && s->client.missing < s->layout.nodes &&
            s->driver[s->client.missing] == member) ||
           wf_rounds_awaits(&s->rounds, s->op, member);
}
