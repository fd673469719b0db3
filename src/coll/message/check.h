/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks do before anything moves: compare their calls, by
 * dissemination. After round k a rank has heard of 2^(k+1) ranks, so after the
 * last round all have begun the operation, and a barrier is over.
 *
 * Small data goes along: if everybody's contribution fits, ranks pass on all
 * that they have got so far, each ends with everything, and makes the result by
 * itself. The reduction is in the order of ranks and rounds once. */
#ifndef WF_COLL_MESSAGE_CHECK_H
#define WF_COLL_MESSAGE_CHECK_H

#include <stdalign.h>

#include "coll/message/wire.h"

/* Everybody's records together, where data goes along. */
#define WF_CHECK_BYTES 2048u

typedef struct wf_check {
    uint32_t round;
    wf_wire send;
    wf_wire recv;
    uint32_t without; /* 1 + a rank that has no memory for it; 0: none */
    bool with_data;
    size_t record; /* bytes */
    /* Record j is of the rank j before us. Without data there are two: ours,
     * and the one that comes. Any message finds room behind ours. */
    alignas(64) unsigned char records[2 * WF_CHECK_BYTES];
} wf_check;

/* Does the data of such a call go along? Pure. */
bool wf_check_takes(const wf_coll_op *op);
/* The most bytes of this kind of call that do, with so many ranks. */
size_t wf_check_room(uint32_t ranks);

/* `without`: this rank cannot do its part for lack of memory. */
void wf_check_init(wf_check *check, const wf_coll_op *op, bool with_data,
                   bool without);

/* WF_PENDING; WEFT_OK when all ranks are known to have made this call, and
 * have memory for it; or why not. */
weft_status wf_check_step(wf_check *check, wf_coll_op *op);

/* Make the result of what went along. */
void wf_check_finish(const wf_check *check, wf_coll_op *op);

bool wf_check_awaits(const wf_check *check, uint32_t member);
void wf_check_drop(wf_check *check, const wf_coll_op *op);

#endif
