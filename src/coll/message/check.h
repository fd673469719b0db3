/* SPDX-License-Identifier: Apache-2.0 */
/* What all of a party do before anything moves: compare their calls, by
 * dissemination. After round k one has heard of 2^(k+1) others, so after the
 * last round all have begun the operation, and a barrier is over.
 *
 * Small data goes along: if everybody's contribution fits, they pass on all
 * that they have got so far, each ends with everything, and makes the result by
 * itself. */
#ifndef WF_COLL_MESSAGE_CHECK_H
#define WF_COLL_MESSAGE_CHECK_H

#include <stdalign.h>

#include "coll/message/wire.h"

/* The most bytes that everybody's records may have together, where data goes
 * along; and more than can then bring any. */
#define WF_CHECK_BYTES 16384u
#define WF_CHECK_MOST (WF_CHECK_BYTES / 32)

typedef struct wf_check {
    wf_party party;
    uint32_t round;
    wf_wire send;
    wf_wire recv;
    uint32_t without; /* 1 + a rank that has no memory for it; 0: none */
    bool with_data;
    size_t record; /* bytes */
    /* Record j is of the one j before us. Without data there are two: ours,
     * and the one that comes. Any message finds room behind ours. */
    alignas(64) unsigned char records[2 * WF_CHECK_BYTES];
} wf_check;

/* The most bytes of each that go along, in a party of so many whose records
 * shall have up to `bytes` together; and among the members of a communicator,
 * where there are usually many to a node. */
size_t wf_check_room_in(uint32_t size, size_t bytes);
static inline size_t wf_check_room(uint32_t size)
{
    return wf_check_room_in(size, 2048);
}

/* With `bytes` of data from each, the same number for all; NULL brings zeros.
 * `without`: 1 + the rank that cannot do its part for lack of memory, or 0. */
void wf_check_init(wf_check *check, const wf_party *party, bool with_data,
                   const void *data, size_t bytes, uint32_t without);

/* WF_PENDING; WEFT_OK when all are known to have made this call, and have
 * memory for it; or why not. */
weft_status wf_check_step(wf_check *check, wf_coll_op *op);

/* The error for a rank that has no memory: all fail alike, and the communicator
 * stays good. */
weft_status wf_check_no_memory(wf_coll_op *op, uint32_t rank);

/* The data that one of the party has brought. */
const unsigned char *wf_check_data(const wf_check *check, uint32_t number);

bool wf_check_awaits(const wf_check *check, uint32_t member);
void wf_check_drop(wf_check *check, const wf_coll_op *op);

#endif
