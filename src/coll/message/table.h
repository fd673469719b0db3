/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser: which algorithm carries out a call. Pure functions of what all
 * ranks know, so that all of them choose alike. */
#ifndef WF_COLL_MESSAGE_TABLE_H
#define WF_COLL_MESSAGE_TABLE_H

#include <weft/status.h>

#include "coll/message/plan.h"

/* One row: the first one that fits is taken. `bytes` are those of the whole
 * buffer where there is one, else of one rank's block, on average. */
typedef struct wf_choice {
    wf_call_kind kind;
    uint64_t up_to;      /* bytes */
    uint32_t ranks_from; /* at least so many */
    bool power_of_2;     /* only such numbers of ranks */
    wf_algorithm how;
    const char *why;
} wf_choice;

#define WF_ANY_BYTES UINT64_MAX

/* What the table says; NULL for what moves no data. */
const wf_choice *wf_message_choose(wf_call_kind kind, uint64_t bytes,
                                   uint32_t ranks);

/* Does the algorithm do this operation with so many ranks? */
bool wf_algorithm_applies(wf_call_kind kind, wf_algorithm how, uint32_t ranks);

/* Read the setting ALGORITHM, "allreduce=ring,broadcast=binomial" or "auto":
 * for each kind of call an algorithm, or WF_ALGORITHMS if none is named.
 * WEFT_ERR_INVALID says what could have been named. */
weft_status wf_algorithms_parse(const char *text,
                                wf_algorithm forced[WF_CALL_KINDS]);

#endif
