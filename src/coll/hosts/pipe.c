/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds between nodes by messages: the plans of rails (net of rounds.h). */
#include "coll/hosts/area.h"
#include "transport/msg.h"

static bool reduces(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_REDUCES);
}

/* Carry out as much of our rail's plan as its data is there for. */
static weft_status drive(wf_coll_op *op, hosts_state *s)
{
    wf_run *run = &s->moves.run;
    uint64_t steps = s->moves.plan.steps * s->moves.plan.width;
    uint64_t ended;
    weft_status st;

    while (run->open < run->length &&
           wf_rounds_is_fed(&s->rounds, op, s->rail, run->open / steps)) {
        run->open += steps;
    }
    st = wf_run_step(run, op);
    ended = wf_run_ended(run) / steps;
    if (ended > s->rounds.at[WF_ROUNDS_NET]) {
        wf_rounds_carried(&s->rounds, op, ended);
    }
    return st;
}

static wf_block rail_at(const wf_data *data, const wf_coll_op *op,
                        const wf_step *step, wf_piece piece)
{
    const hosts_state *s = data->ctx;
    wf_range r = wf_shape_piece(&s->rounds.shape, &s->layout, data->plan,
                                s->rail, step, piece);

    (void)op;
    /* All is folded in place: whatever buffer the plan means, a piece of it
     * is here. */
    return (wf_block){
        wf_rounds_work(&s->rounds, step->chunk / data->plan->width) + r.from,
        r.until - r.from};
}

weft_status hosts_rounds_step(wf_coll_op *op)
{
    hosts_state *s = op->state;
    wf_rounds_state *r = &s->rounds;
    weft_status st = WEFT_OK;

    if (s->rail != WF_NO_RAIL) {
        st = drive(op, s);
        if (st != WEFT_OK && st != WF_PENDING) {
            return st;
        }
    }
    while (r->at[WF_ROUNDS_OUT] < r->shape.rounds && wf_rounds_is_through(r)) {
        wf_rounds_take(r, op);
    }
    if (r->at[WF_ROUNDS_OUT] < r->shape.rounds) {
        return WF_PENDING;
    }
    wf_rounds_end(r, op);
    wf_moves_drop(&s->moves, op);
    return WEFT_OK;
}

/* --- start ---------------------------------------------------------------- */

/* The plan of the rail that this member drives, and where received data is
 * folded from. */
static bool plan_rail(const wf_coll_op *op, hosts_state *s)
{
    const wf_layout *l = &s->layout;
    wf_moves *moves = &s->moves;
    size_t landing = 0;

    wf_layout_drivers(l, s->rail, s->rounds.shape.rails, s->driver);
    wf_shape_plan(&s->rounds.shape, l, &op->op.call, l->node, &moves->plan);
    if (reduces(op)) {
        landing = wf_round_up(
            wf_shape_longest(&s->rounds.shape, l, &moves->plan), 64);
    }
    moves->data = (wf_data){.at = rail_at,
                            .ctx = s,
                            .plan = &moves->plan,
                            .elem = s->rounds.shape.elem,
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
    bool ready = wf_rounds_begin(&s->rounds);

    s->rail = wf_layout_rail(&s->layout, s->rounds.shape.rails);
    return (s->rail == WF_NO_RAIL || plan_rail(op, s)) && ready;
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

    return (s->rail != WF_NO_RAIL && wf_run_awaits(&s->moves.run, member)) ||
           wf_rounds_awaits(&s->rounds, op, member);
}
