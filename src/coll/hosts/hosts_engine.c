/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for members on several nodes of which some share memory: inside a
 * node it works in that memory, between nodes by messages. An operation has
 * three phases:
 *
 *   start   find its shape (shape.h), get memory, put the call into a cell
 *   meet    all compare their calls, first inside the node (meet.c); small data
 *           goes along, and larger data is reduced inside the node meanwhile
 *   move    rounds (pipe.c); or what has no shape of its own by messages
 *           between all ranks, as the message engine does */
#include "base/alloc.h"
#include "base/status.h"
#include "coll/hosts/area.h"

enum { PHASE_START, PHASE_MEET, PHASE_MOVE };

#define PAGE 4096u

static uint32_t *phase_of(const wf_coll_op *op)
{
    return (uint32_t *)(uintptr_t)op->room;
}

static size_t cells_bytes(uint32_t members)
{
    return wf_round_up(sizeof(hosts_common) + members * sizeof(hosts_cell),
                       PAGE);
}

size_t hosts_area_bytes(uint32_t members, size_t slot)
{
    return cells_bytes(members) + wf_rounds_bytes(members, slot);
}

static size_t slot_of(const weft_comm *comm)
{
    return wf_shape_slot(comm->size, comm->tree.nodes,
                         comm->world->settings.chunk_bytes);
}

/* Where every member is on a node of its own, messages are as good. */
static wf_offer hosts_offer(const weft_comm *comm, wf_call_kind kind)
{
    if (comm->one_node || kind == WF_CALL_ALLOC) {
        return wf_offer_all(0);
    }
    return wf_offer_all(comm->tree.nodes < comm->size ? 30 : 5);
}

static size_t hosts_area(const weft_comm *comm)
{
    return hosts_area_bytes(comm->mates, slot_of(comm));
}

/* --- phases --------------------------------------------------------------- */

static void find_shape(wf_coll_op *op, hosts_state *s)
{
    bool moves = wf_coll_moves(op);
    wf_shape_limits limits = {
        .slot = s->rounds.slot,
        .along = hosts_along(s->layout.nodes),
        .fixed = op->op.comm->world->settings.chunk_bytes != UINT64_MAX};
    wf_choice forced;

    if (moves && wf_hosts_choose((wf_call_kind)op->op.call.kind, 0, 2) &&
        wf_moves_choose_forced(&s->moves, op, s->layout.nodes, &forced)) {
        limits.has_forced = true;
        limits.forced = forced.how;
    }
    wf_shape_init(&s->rounds.shape, &s->layout, &op->op.call, moves, &limits);
}

/* False: there is no memory for it here. */
static bool get_ready(wf_coll_op *op, hosts_state *s)
{
    wf_choice choice;

    switch (s->rounds.shape.way) {
    case WF_SHAPE_RAILS:
        wf_moves_tell(&s->moves, op, &s->rounds.shape.choice, "nodes",
                      s->layout.nodes);
        return hosts_rounds_start(op);
    case WF_SHAPE_ALONG:
        wf_moves_tell(&s->moves, op, &s->rounds.shape.choice, "nodes",
                      s->layout.nodes);
        return true;
    case WF_SHAPE_PLAIN:
        if (!wf_moves_choose(&s->moves, op, &choice)) {
            s->rounds.shape.way = WF_SHAPE_MEET;
            return true;
        }
        wf_moves_tell(&s->moves, op, &choice, "ranks", s->layout.size);
        return wf_moves_start(&s->moves, op, &choice);
    default:
        return true;
    }
}

static void start(wf_coll_op *op)
{
    hosts_state *s = op->state;

    wf_moves_none(&s->moves);
    s->rail = WF_NO_RAIL;
    find_shape(op, s);
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        wf_rounds_set_inner(&s->rounds, &op->op.call);
    }
    hosts_post(op, !get_ready(op, s));
}

static weft_status meet(wf_coll_op *op)
{
    hosts_state *s = op->state;
    weft_status st;

    if (s->rounds.shape.way == WF_SHAPE_RAILS) {
        wf_rounds_feed(&s->rounds, op, false);
    }
    st = hosts_meet(op);
    if (st == WEFT_OK && s->rounds.shape.way == WF_SHAPE_RAILS) {
        hosts_rounds_agreed(op);
    } else if (st == WEFT_OK && s->rounds.shape.way == WF_SHAPE_PLAIN) {
        wf_moves_begin(&s->moves, op);
    } else if (st == WEFT_ERR_NOMEM && op->op.private_failure &&
               s->rounds.shape.way == WF_SHAPE_RAILS) {
        wf_rounds_end(&s->rounds,
                      op); /* the next operation begins behind them */
    }
    return st;
}

static weft_status move(wf_coll_op *op)
{
    hosts_state *s = op->state;

    switch (s->rounds.shape.way) {
    case WF_SHAPE_RAILS:
        wf_rounds_feed(&s->rounds, op, true);
        return hosts_rounds_step(op);
    case WF_SHAPE_PLAIN:
        return wf_moves_step(&s->moves, op);
    default:
        return WEFT_OK;
    }
}

static weft_status hosts_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    weft_status st = WEFT_OK;

    if (*phase_of(op) == PHASE_START) {
        start(op);
        *phase_of(op) = PHASE_MEET;
    }
    if (*phase_of(op) == PHASE_MEET) {
        st = meet(op);
        if (st != WEFT_OK) {
            return st;
        }
        *phase_of(op) = PHASE_MOVE;
    }
    return move(op);
}

/* --- the engine ----------------------------------------------------------- */

static void hosts_drop(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    hosts_state *s = op->state;

    /* An operation that never started owns nothing; the state is another's. */
    if (*phase_of(op) != PHASE_START) {
        if (s->comparing) {
            wf_check_drop(&s->check, op);
        }
        wf_moves_drop(&s->moves, op);
    }
}

static bool hosts_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const hosts_state *s = op->state;

    switch (*phase_of(op)) {
    case PHASE_START:
        return false;
    case PHASE_MEET:
        return hosts_meet_awaits(op, member);
    default:
        return s->rounds.shape.way == WF_SHAPE_RAILS
                   ? hosts_rounds_awaits(op, member)
                   : wf_run_awaits(&s->moves.run, member);
    }
}

static void hosts_begin(wf_coll_op *op)
{
    *phase_of(op) = PHASE_START;
    op->op.step = hosts_step;
    op->op.drop = hosts_drop;
    op->op.awaits = hosts_awaits;
    op->op.driven = true;
    op->op.shares = true;
}

/* Cells and counters have pages from the start. */
static weft_status get_area(const weft_comm *comm, void *area, hosts_state *s)
{
    const unsigned char *base = comm->segment.base;
    size_t cells = cells_bytes(comm->mates);

    s->owns_area = area == NULL;
    s->area = area != NULL ? area : wf_zalloc_aligned(128, cells);
    if (s->area == NULL) {
        return wf_fail_nomem("the cells of rank %u", comm->rank);
    }
    if (area != NULL && s->layout.local == 0) {
        return wf_segment_populate(&comm->segment, (size_t)(s->area - base),
                                   cells + wf_rounds_counters(comm->mates));
    }
    return WEFT_OK;
}

static weft_status get_rounds(const weft_comm *comm, hosts_state *s)
{
    return wf_rounds_init(&s->rounds, &s->layout, &comm->segment,
                          s->owns_area ? NULL
                                       : s->area + cells_bytes(comm->mates),
                          slot_of(comm));
}

static void hosts_detach(weft_comm *comm, void *state)
{
    hosts_state *s = state;

    (void)comm;
    if (s->owns_area) {
        wf_free(s->area);
    }
    wf_rounds_fini(&s->rounds);
    wf_moves_fini(&s->moves);
    wf_layout_fini(&s->layout);
    wf_free(s);
}

static weft_status hosts_attach(weft_comm *comm, void *area, void **out)
{
    hosts_state *s = wf_zalloc_aligned(64, sizeof(*s) + 2 * comm->tree.nodes *
                                                            sizeof(uint32_t));
    weft_status st;

    if (s == NULL) {
        return wf_fail_nomem("the engine of %u nodes", comm->tree.nodes);
    }
    s->speaker = (uint32_t *)(void *)(s + 1);
    s->driver = s->speaker + comm->tree.nodes;
    st = wf_rounds_layout(comm, &s->layout);
    if (st == WEFT_OK) {
        wf_layout_drivers(&s->layout, 0, 1, s->speaker);
        st = get_area(comm, area, s);
    }
    if (st == WEFT_OK) {
        st = get_rounds(comm, s);
    }
    if (st == WEFT_OK) {
        st = wf_moves_init(&s->moves, &comm->world->settings);
    }
    if (st != WEFT_OK) {
        hosts_detach(comm, s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

const wf_engine wf_engine_hosts = {
    .name = "hosts",
    .what = "shared memory inside nodes, messages between them",
    .offer = hosts_offer,
    .area = hosts_area,
    .attach = hosts_attach,
    .detach = hosts_detach,
    .begin = hosts_begin,
};
