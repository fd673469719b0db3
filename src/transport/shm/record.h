/* SPDX-License-Identifier: Apache-2.0 */
/* The records that go through a ring, and the check of what a peer wrote.
 *
 *   kind     word    payload
 *   SKIP     -       none; the rest of the ring is not used this time
 *   EAGER    tag     a whole message
 *   OFFER    tag     wf_offer: a large message lies ready at the sender
 *   SEND     token   want: stream the first `want` bytes of it through the ring
 *   PIECE    token   the next piece of such a stream
 *   TAKEN    token   none; the receiver has all that it wants of it
 *   WITHDRAWN token  none; the sender has let go of a message it offered
 *   AM       -       header and payload of an active message, or its last part
 *   AM_PART  -       the beginning of one that is too long for a record
 *
 * A large message is one of two conversations:
 *
 *   sender                         receiver
 *   OFFER   ---------------------> a receive matches;
 *           <--------------------- TAKEN, having read the sender's memory
 * or
 *   OFFER   ---------------------> a receive matches;
 *           <--------------------- SEND
 *   PIECE PIECE PIECE ...  ------>
 *
 * The receiver decides which, and may turn from the first to the second. Where
 * the sender withdraws what it offered, an answer may cross that on its way and
 * is then of no use; so answers about unknown messages are passed over. A
 * sender that withdraws a message counts that in the ring before its buffer
 * changes (WITHDRAWN may wait for room), and a receiver looks at the count
 * after its last read of the sender's memory: if anything was withdrawn since
 * the offer, it cannot tell what it has read, and turns to the second. */
#ifndef WF_TRANSPORT_SHM_RECORD_H
#define WF_TRANSPORT_SHM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum wf_record_kind {
    WF_RECORD_SKIP = 1,
    WF_RECORD_EAGER,
    WF_RECORD_OFFER,
    WF_RECORD_SEND,
    WF_RECORD_PIECE,
    WF_RECORD_TAKEN,
    WF_RECORD_WITHDRAWN,
    WF_RECORD_AM,
    WF_RECORD_AM_PART,
    WF_RECORD_KINDS
} wf_record_kind;

typedef struct wf_offer {
    uint64_t n;
    uint64_t address;   /* in the sender's process */
    uint64_t token;     /* the sender's name for it */
    uint64_t place;     /* in its range of the arena, plus 1; 0: not there */
    uint32_t withdrawn; /* messages that it had withdrawn before */
    uint32_t zero;
} wf_offer;
_Static_assert(sizeof(wf_offer) == 40, "one line, with its header");

/* A commit word, checked. */
typedef struct wf_record {
    wf_record_kind kind;
    uint32_t bytes; /* of the payload */
    uint32_t lines; /* of the whole record */
    uint32_t am_id;
    uint32_t am_header_bytes;
} wf_record;

/* The commit word of a record: bits 0-31 length, 32-39 kind, 40-47 number of
 * the active message, 48-55 length of its header, 56-63 zero. */
static inline uint64_t wf_record_commit(wf_record_kind kind, size_t bytes)
{
    return (uint64_t)kind << 32 | (uint32_t)bytes;
}

static inline uint64_t wf_record_am_commit(uint32_t id, size_t header_bytes,
                                           size_t bytes)
{
    return wf_record_commit(WF_RECORD_AM, bytes) | (uint64_t)id << 40 |
           (uint64_t)header_bytes << 48;
}

/* Parse a commit word that was found at line `index` of a ring of `lines`.
 * False if no correct peer can have written it; then `out` is not written.
 * Otherwise the record lies inside the ring and its length fits its kind. */
bool wf_record_parse(uint64_t commit, uint32_t index, uint32_t lines,
                     wf_record *out);

#endif
