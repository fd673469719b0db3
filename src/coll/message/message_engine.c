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
 * of their pieces; check.h is the second phase, run.h the third. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/engine.h"
#include "coll/message/check.h"
#include "coll/message/run.h"
#include "coll/message/table.h"

/* Scratch up to this size is kept for the next operation. */
#define SCRATCH_KEPT ((size_t)4 << 20)

enum { PHASE_START, PHASE_CHECK, PHASE_RUN };

/* The state of a communicator. All but the settings and the scratch belongs to
 * the current operation, since there is one at a time; the operation itself has
 * only its phase. */
typedef struct message_state {
    wf_algorithm forced[WF_CALL_KINDS]; /* by the setting ALGORITHM */
    uint32_t
        logged[WF_CALL_KINDS]; /* a bit for each algorithm that was logged */
    void *scratch;
    size_t room;

    wf_check check;
    bool moves; /* there is a plan */
    wf_plan plan;
    wf_data data;
    wf_run run;
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

/* --- what is chosen ------------------------------------------------------- */

/* " of up to 64 KiB", or nothing. */
static void bytes_text(uint64_t up_to, char *text, size_t room)
{
    bool mib = up_to % ((uint64_t)1 << 20) == 0;
    bool kib = up_to % 1024 == 0;
    uint64_t n = mib ? up_to >> 20 : kib ? up_to >> 10 : up_to;

    text[0] = '\0';
    if (up_to != WF_ANY_BYTES) {
        snprintf(text, room, " of up to %llu %s", (unsigned long long)n,
                 mib   ? "MiB"
                 : kib ? "KiB"
                       : "bytes");
    }
}

/* Log the choice, once per operation and algorithm, on one rank. */
static void tell(const wf_coll_op *op, const wf_choice *choice)
{
    const weft_comm *comm = op->op.comm;
    message_state *state = op->state;
    uint8_t kind = op->op.call.kind;
    char bytes[40];

    if (comm->rank != 0 || (state->logged[kind] >> choice->how & 1) != 0) {
        return;
    }
    state->logged[kind] |= 1u << choice->how;
    bytes_text(choice->up_to, bytes, sizeof(bytes));
    wf_log(WEFT_LOG_INFO, "communicator %u: %s%s on %u ranks by %s: %s",
           comm->id, wf_call_name(kind), bytes, comm->size,
           wf_algorithm_name(choice->how), choice->why);
}

/* Use the algorithm of the setting; false if it does not apply, so that the
 * table decides. */
static bool choose_forced(const wf_coll_op *op, wf_choice *choice)
{
    message_state *state = op->state;
    uint8_t kind = op->op.call.kind;
    wf_algorithm how = state->forced[kind];

    if (how == WF_ALGORITHMS) {
        return false;
    }
    if (!wf_algorithm_applies((wf_call_kind)kind, how, op->op.comm->size)) {
        wf_log(op->op.comm->rank == 0 ? WEFT_LOG_INFO : WEFT_LOG_DEBUG,
               "communicator %u: %s of %u ranks cannot be done by %s, as the "
               "setting ALGORITHM asks",
               op->op.comm->id, wf_call_name(kind), op->op.comm->size,
               wf_algorithm_name(how));
        state->forced[kind] = WF_ALGORITHMS;
        return false;
    }
    *choice = (wf_choice){.kind = (wf_call_kind)kind,
                          .up_to = WF_ANY_BYTES,
                          .how = how,
                          .why = "the setting ALGORITHM asks for it"};
    return true;
}

/* Choose alike on all ranks; false if no data moves. */
static bool choose(const wf_coll_op *op, wf_choice *choice)
{
    const wf_call *call = &op->op.call;
    uint32_t size = op->op.comm->size;
    bool ragged = wf_call_is(call->kind, WF_OWN_LENGTHS);
    uint64_t bytes = ragged ? 0 : wf_data_bytes(op);
    const wf_choice *row =
        wf_message_choose((wf_call_kind)call->kind, bytes, size);

    if (row == NULL || !wf_coll_moves(op) || (call->count == 0 && !ragged)) {
        return false;
    }
    if (!choose_forced(op, choice)) {
        *choice = *row;
        if (wf_check_takes(op)) {
            choice->up_to = wf_check_room(size);
            choice->how = WF_BY_DISSEMINATION;
            choice->why = "it goes along when calls are compared";
        }
    }
    tell(op, choice);
    return true;
}

/* --- phases --------------------------------------------------------------- */

/* False: out of memory. */
static bool get_scratch(message_state *state)
{
    size_t bytes = state->data.scratch_bytes;

    if (bytes > state->room) {
        wf_free(state->scratch);
        state->scratch = wf_alloc(bytes);
        state->room = state->scratch != NULL ? bytes : 0;
    }
    /* Without scratch any address will do. */
    wf_data_place_scratch(&state->data,
                          state->scratch != NULL ? state->scratch : state);
    return bytes <= state->room;
}

static void forget_scratch(message_state *state)
{
    if (state->room > SCRATCH_KEPT) {
        wf_free(state->scratch);
        state->scratch = NULL;
        state->room = 0;
    }
}

static void start(wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    message_state *state = op->state;
    wf_choice choice;
    bool any = choose(op, &choice);
    bool along = any && choice.how == WF_BY_DISSEMINATION;
    bool without = false;

    state->run.count = 0;
    state->moves =
        any && !along &&
        wf_plan_make(&state->plan, choice.kind, choice.how, comm->size,
                     comm->rank, op->op.call.root, wf_data_pieces(op));
    if (state->moves) {
        wf_data_init(&state->data, op, &state->plan);
        without = !get_scratch(state);
    }
    wf_check_init(&state->check, op, along, without);
}

/* All ranks have made this call, so data may move. */
static void checked(wf_coll_op *op)
{
    message_state *state = op->state;

    if (state->moves) {
        wf_data_prepare(&state->data, op);
        wf_run_init(&state->run, &state->data);
    } else if (state->check.with_data) {
        wf_check_finish(&state->check, op);
    }
}

static weft_status run_step(wf_coll_op *op)
{
    message_state *state = op->state;
    weft_status st;

    if (!state->moves) {
        return WEFT_OK;
    }
    st = wf_run_step(&state->run, op);
    if (st == WEFT_OK) {
        wf_data_finish(&state->data, op);
        forget_scratch(state);
    }
    return st;
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
    return run_step(op);
}

/* --- the engine ----------------------------------------------------------- */

static void message_drop(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    message_state *state = op->state;

    /* An operation that never started owns nothing; the state is another's. */
    if (*phase_of(op) != PHASE_START) {
        wf_check_drop(&state->check, op);
        wf_run_drop(&state->run, op);
        forget_scratch(state);
    }
}

static bool message_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;
    const message_state *state = op->state;

    return *phase_of(op) != PHASE_START &&
           (wf_check_awaits(&state->check, member) ||
            wf_run_awaits(&state->run, member));
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
    st = wf_algorithms_parse(comm->world->settings.algorithm, state->forced);
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
    wf_free(((message_state *)state)->scratch);
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
