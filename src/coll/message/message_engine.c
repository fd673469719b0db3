/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for members that do not all share memory: it sends messages. An
 * operation has three phases:
 *
 *   start   choose an algorithm and get scratch
 *   check   all compare their calls, which ends a barrier; small data goes
 *           along. A rank that could not get its scratch says so, and all give
 *           up alike
 *   run     carry out the plan of the algorithm
 *
 * table.c chooses the algorithm, plan.h defines its messages, data.h the memory
 * of their pieces; check.h is the second phase, moves.h the third. */
#include "base/alloc.h"
#include "base/status.h"
#include "coll/engine.h"
#include "coll/message/check.h"
#include "coll/message/moves.h"
#include "transport/msg.h"

enum { PHASE_START, PHASE_CHECK, PHASE_RUN };

/* The state of a communicator. All but the settings and the scratch belongs to
 * the current operation, since there is one at a time; the operation itself has
 * only its phase. */
typedef struct message_state {
    wf_check check;
    bool moves; /* there is a plan */
    wf_moves work;
} message_state;

static uint32_t *phase_of(const wf_coll_op *op)
{
    return (uint32_t *)(uintptr_t)op->room;
}

static wf_offer message_offer(const weft_comm *comm, wf_call_kind kind)
{
    (void)kind;
    return wf_offer_all(comm->size > 1 ? 10 : 0);
}

static weft_status message_check(const wf_settings *settings)
{
    wf_algorithm unused[WF_CALL_KINDS];

    return wf_algorithms_parse(settings->algorithm, unused);
}

/* --- small data that goes along ------------------------------------------- */

/* Each rank has one block, of a length that all know. */
static bool goes_along(const wf_coll_op *op)
{
    uint8_t kind = op->op.call.kind;

    return wf_call_is(kind, WF_HAS_DATA) &&
           !wf_call_is(kind, WF_SRC_BLOCKS | WF_ALL_LENGTHS | WF_OWN_LENGTHS) &&
           op->bytes <= wf_check_room(op->op.comm->size);
}

static bool brings(const wf_coll_op *op)
{
    return !wf_call_is(op->op.call.kind, WF_ROOT_SENDS) ||
           op->op.comm->rank == op->op.call.root;
}

/* Fold the data of the first `ranks` ranks, in their order; it rounds once. */
static void fold_first(const wf_check *check, wf_coll_op *op, uint32_t ranks)
{
    const void *src[WF_CHECK_MOST];
    void *dst = op->dst;

    for (uint32_t r = 0; r < ranks; r++) {
        src[r] = wf_check_data(check, r);
    }
    op->reducer.fold(&op->reducer, &dst, 1, src, ranks,
                     op->bytes / op->reducer.elem);
}

static void gather_all(const wf_check *check, wf_coll_op *op)
{
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        wf_copy(wf_coll_dst(op, r).at, wf_check_data(check, r), op->bytes);
    }
}

/* Make the result of what went along. */
static void finish_along(const wf_check *check, wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    uint32_t rank = op->op.comm->rank;
    uint32_t size = op->op.comm->size;

    if (op->bytes == 0) {
        return;
    }
    if (wf_call_is(call->kind, WF_ROOT_SENDS)) {
        wf_copy(op->dst, wf_check_data(check, call->root), op->bytes);
    } else if (!wf_call_gives(call, rank)) {
        return;
    } else if (wf_call_is(call->kind, WF_REDUCES)) {
        fold_first(check, op, wf_call_folded(call->kind, rank, size));
    } else {
        gather_all(check, op);
    }
}

/* --- phases --------------------------------------------------------------- */

static void start(wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    message_state *state = op->state;
    wf_party all = wf_party_all(comm);
    wf_choice choice;
    bool any = wf_moves_choose(&state->work, op, &choice);
    bool along = any && !wf_moves_forced(&state->work, op) && goes_along(op);
    bool without = false;

    if (along) {
        choice.up_to = wf_check_room(comm->size);
        choice.how = WF_BY_DISSEMINATION;
        choice.why = "it goes along when calls are compared";
    }
    if (any) {
        wf_moves_tell(&state->work, op, &choice, "ranks", comm->size);
    }
    state->moves = any && !along;
    if (state->moves) {
        without = !wf_moves_start(&state->work, op, &choice);
    } else {
        wf_moves_none(&state->work);
    }
    wf_check_init(&state->check, &all, along, brings(op) ? op->src : NULL,
                  op->bytes, without ? comm->rank + 1 : 0);
}

/* All ranks have made this call, so data may move. */
static void checked(wf_coll_op *op)
{
    message_state *state = op->state;

    if (state->moves) {
        wf_moves_begin(&state->work, op);
    } else if (state->check.with_data) {
        finish_along(&state->check, op);
    }
}

static weft_status message_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    message_state *state = op->state;
    weft_status st = WEFT_OK;

    if (*phase_of(op) == PHASE_START) {
        start(op);
        *phase_of(op) = PHASE_CHECK;
    }
    if (*phase_of(op) == PHASE_CHECK) {
        st = wf_check_step(&state->check, op);
        if (st != WEFT_OK) {
            return st;
        }
        checked(op);
        *phase_of(op) = PHASE_RUN;
    }
    return state->moves ? wf_moves_step(&state->work, op) : WEFT_OK;
}

/* --- the engine ----------------------------------------------------------- */

static void message_drop(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    message_state *state = op->state;

    /* An operation that never started owns nothing; the state is another's. */
    if (*phase_of(op) != PHASE_START) {
        wf_check_drop(&state->check, op);
        wf_moves_drop(&state->work, op);
    }
}

static bool message_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const message_state *state = op->state;

    return *phase_of(op) != PHASE_START &&
           (wf_check_awaits(&state->check, member) ||
            wf_run_awaits(&state->work.run, member));
}

static void message_begin(wf_coll_op *op)
{
    *phase_of(op) = PHASE_START;
    op->op.step = message_step;
    op->op.drop = message_drop;
    op->op.awaits = message_awaits;
    op->op.driven = true;
}

static weft_status message_attach(weft_comm *comm, void *area, void **out)
{
    message_state *state = wf_zalloc_aligned(64, sizeof(*state));
    weft_status st;

    (void)area;
    if (state == NULL) {
        return wf_fail_nomem("a communicator's messages");
    }
    st = wf_moves_init(&state->work, &comm->world->settings);
    if (st != WEFT_OK) {
        wf_free(state);
        return st;
    }
    *out = state;
    return WEFT_OK;
}

static void message_detach(weft_comm *comm, void *state)
{
    (void)comm;
    wf_moves_fini(&((message_state *)state)->work);
    wf_free(state);
}

const wf_engine wf_engine_message = {
    .name = "message",
    .what = "messages along trees, rings and cubes",
    .check = message_check,
    .offer = message_offer,
    .attach = message_attach,
    .detach = message_detach,
    .begin = message_begin,
};
