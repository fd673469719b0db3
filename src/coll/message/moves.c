/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/moves.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"

/* Scratch up to this size is kept for the next operation. */
#define SCRATCH_KEPT ((size_t)4 << 20)

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

void wf_moves_tell(wf_moves *moves, const wf_coll_op *op,
                   const wf_choice *choice, const char *what, uint32_t size)
{
    const weft_comm *comm = op->op.comm;
    uint8_t kind = op->op.call.kind;
    char bytes[40];

    if (comm->rank != 0 || (moves->logged[kind] >> choice->how & 1) != 0) {
        return;
    }
    moves->logged[kind] |= 1u << choice->how;
    bytes_text(choice->up_to, bytes, sizeof(bytes));
    wf_log(WEFT_LOG_INFO, "communicator %u: %s%s on %u %s by %s: %s", comm->id,
           wf_call_name(kind), bytes, size, what,
           wf_algorithm_name(choice->how), choice->why);
}

bool wf_moves_forced(const wf_moves *moves, const wf_coll_op *op)
{
    return moves->forced[op->op.call.kind] != WF_ALGORITHMS;
}

bool wf_moves_choose_forced(wf_moves *moves, const wf_coll_op *op,
                            uint32_t size, wf_choice *choice)
{
    uint8_t kind = op->op.call.kind;
    wf_algorithm how = moves->forced[kind];

    if (how == WF_ALGORITHMS) {
        return false;
    }
    if (!wf_algorithm_applies((wf_call_kind)kind, how, size)) {
        wf_log(op->op.comm->rank == 0 ? WEFT_LOG_INFO : WEFT_LOG_DEBUG,
               "communicator %u: %s of %u ranks cannot be done by %s, as the "
               "setting ALGORITHM asks",
               op->op.comm->id, wf_call_name(kind), size,
               wf_algorithm_name(how));
        moves->forced[kind] = WF_ALGORITHMS;
        return false;
    }
    *choice = (wf_choice){.kind = (wf_call_kind)kind,
                          .up_to = WF_ANY_BYTES,
                          .how = how,
                          .why = "the setting ALGORITHM asks for it"};
    return true;
}

bool wf_moves_choose(wf_moves *moves, const wf_coll_op *op, wf_choice *choice)
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
    if (!wf_moves_choose_forced(moves, op, size, choice)) {
        *choice = *row;
    }
    return true;
}

/* --- scratch -------------------------------------------------------------- */

bool wf_moves_get_scratch(wf_moves *moves)
{
    size_t bytes = moves->data.scratch_bytes;

    if (bytes > moves->room) {
        wf_free(moves->scratch);
        moves->scratch = wf_alloc(bytes);
        moves->room = moves->scratch != NULL ? bytes : 0;
    }
    /* Without scratch any address will do. */
    wf_data_place_scratch(&moves->data,
                          moves->scratch != NULL ? moves->scratch : moves);
    return bytes <= moves->room;
}

static void forget_scratch(wf_moves *moves)
{
    if (moves->room > SCRATCH_KEPT) {
        wf_free(moves->scratch);
        moves->scratch = NULL;
        moves->room = 0;
    }
}

/* --- phases --------------------------------------------------------------- */

void wf_moves_none(wf_moves *moves)
{
    moves->run.count = 0;
}

bool wf_moves_start(wf_moves *moves, const wf_coll_op *op,
                    const wf_choice *choice)
{
    const weft_comm *comm = op->op.comm;

    wf_moves_none(moves);
    /* The choice has shown that there is such a plan. */
    (void)wf_plan_make(&moves->plan, choice->kind, choice->how, comm->size,
                       comm->rank, op->op.call.root, wf_data_pieces(op));
    wf_data_init(&moves->data, op, &moves->plan);
    return wf_moves_get_scratch(moves);
}

void wf_moves_begin(wf_moves *moves, wf_coll_op *op)
{
    wf_party all = wf_party_all(op->op.comm);

    wf_data_prepare(&moves->data, op);
    wf_run_init(&moves->run, &moves->data, &all);
}

weft_status wf_moves_step(wf_moves *moves, wf_coll_op *op)
{
    weft_status st = wf_run_step(&moves->run, op);

    if (st == WEFT_OK) {
        wf_data_finish(&moves->data, op);
        forget_scratch(moves);
    }
    return st;
}

void wf_moves_drop(wf_moves *moves, const wf_coll_op *op)
{
    wf_run_drop(&moves->run, op);
    forget_scratch(moves);
}

/* --- with a communicator -------------------------------------------------- */

weft_status wf_moves_init(wf_moves *moves, const wf_settings *settings)
{
    return wf_algorithms_parse(settings->algorithm, moves->forced);
}

void wf_moves_fini(wf_moves *moves)
{
    wf_free(moves->scratch);
}
