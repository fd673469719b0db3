/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the data of an operation by messages, once calls are compared: an
 * algorithm is chosen, its plan gets scratch and is carried out. */
#ifndef WF_COLL_MESSAGE_MOVES_H
#define WF_COLL_MESSAGE_MOVES_H

#include "coll/message/run.h"
#include "coll/message/table.h"

/* Kept with a communicator. All from the plan on belongs to the current
 * operation, since there is one at a time. */
typedef struct wf_moves {
    wf_algorithm forced[WF_CALL_KINDS]; /* by the setting ALGORITHM */
    /* A bit for each algorithm that was logged. */
    uint32_t logged[WF_CALL_KINDS];
    void *scratch;
    size_t room;
    wf_plan plan;
    wf_data data;
    wf_run run;
} wf_moves;

weft_status wf_moves_init(wf_moves *moves, const wf_settings *settings);
void wf_moves_fini(wf_moves *moves);

/* Choose alike on all ranks; false if no data moves. */
bool wf_moves_choose(wf_moves *moves, const wf_coll_op *op, wf_choice *choice);
/* Does the setting ALGORITHM say so? */
bool wf_moves_forced(const wf_moves *moves, const wf_coll_op *op);
/* Use the algorithm of the setting for `size` of them; false if there is none
 * or it does not apply, so that a table decides. */
bool wf_moves_choose_forced(wf_moves *moves, const wf_coll_op *op,
                            uint32_t size, wf_choice *choice);
/* Log the choice, once per operation and algorithm, on one rank: so many
 * `what`, "ranks" or "nodes". */
void wf_moves_tell(wf_moves *moves, const wf_coll_op *op,
                   const wf_choice *choice, const char *what, uint32_t size);

/* Plan it for all members; false: there is no memory for the scratch. */
bool wf_moves_start(wf_moves *moves, const wf_coll_op *op,
                    const wf_choice *choice);
/* There is no plan: nothing to be dropped. */
void wf_moves_none(wf_moves *moves);
/* Get the scratch of a plan; false: out of memory. */
bool wf_moves_get_scratch(wf_moves *moves);
void wf_moves_begin(wf_moves *moves, wf_coll_op *op);
weft_status wf_moves_step(wf_moves *moves, wf_coll_op *op);
/* It is over, or failed: let go of its messages, and of much scratch. */
void wf_moves_drop(wf_moves *moves, const wf_coll_op *op);

#endif
