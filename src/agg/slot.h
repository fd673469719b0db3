/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a switch: what it does with each packet of a job. A pure module:
 * no I/O, no clock, no allocation.
 *
 * A job has a pool of slots. Chunk c is reduced in slot c mod slots, and the
 * slot has two versions, of which c has (c / slots) mod 2. A version keeps its
 * result until the chunk that follows there, c + 2 slots, begins. The rules:
 *
 *   1. A rank sends chunk c only when it has the result of chunk c - slots.
 *      So when any part of c + 2 slots is here, all ranks have sent c + slots,
 *      hence all have the result of c, and nobody will ask for it again.
 *   2. A packet of another epoch, with another number of ranks or with a slot
 *      or version that is not its chunk's is dropped.
 *   3. A chunk that is older than the one its version has is dropped: it is a
 *      late duplicate or a replay, and everybody has its result.
 *   4. A newer chunk begins only if it is the next one there and the chunk
 *      before it in the slot, c - slots, is complete (or c < slots). Else it
 *      is dropped: no correct rank sends it.
 *   5. The first part of a chunk says what was called. A part that disagrees
 *      (hash, elements, type, operation) makes the chunk a
 *      mismatch: it never has a result, and all who send a part of it are told
 *      which rank called what.
 *   6. A part is kept once for each rank. One that was kept before is answered:
 *      with the result if there is one, else with the ranks that are missing.
 *   7. When the last part is here, all are reduced in the order of ranks, and
 *      the result goes to all ranks.
 *
 * So loss, duplication, reordering and delay change when a result comes, never
 * what it is; and arrival order never changes a bit of it.
 *
 * Parts need room for one chunk of each slot only: by rule 4 the other version
 * is complete while one is being filled. */
#ifndef WF_AGG_SLOT_H
#define WF_AGG_SLOT_H

#include "agg/wire.h"

typedef struct wf_agg_shape {
    uint32_t job;
    uint32_t epoch;
    uint32_t lane;
    uint32_t ranks;   /* 1 to WF_AGG_RANKS */
    uint32_t slots;   /* 1 to WF_AGG_SLOTS */
    uint32_t payload; /* bytes of a packet's payload at most; a multiple of 64
                         up to WF_AGG_PAYLOAD_MAX */
} wf_agg_shape;

typedef enum wf_agg_state {
    WF_AGG_EMPTY = 0,
    WF_AGG_FILLING,
    WF_AGG_COMPLETE,
    WF_AGG_DISAGREES
} wf_agg_state;

/* One version of a slot. */
typedef struct wf_agg_place {
    uint64_t chunk;
    uint64_t seen[WF_AGG_RANKS / 64]; /* ranks whose part is kept */
    uint32_t arrived;
    uint32_t state;      /* wf_agg_state */
    wf_agg_called first; /* what the first part says was called */
} wf_agg_place;

/* In memory that the caller brought. */
typedef struct wf_agg_pool {
    wf_agg_shape shape;
    wf_agg_place *place;   /* 2 for each slot */
    unsigned char *result; /* one for each place */
    unsigned char *part;   /* one for each slot and rank */
} wf_agg_pool;

typedef enum wf_agg_verdict {
    WF_AGG_DROPPED_STRANGE, /* rule 2 */
    WF_AGG_DROPPED_LATE,    /* rule 3 */
    WF_AGG_DROPPED_AHEAD,   /* rule 4 */
    WF_AGG_KEPT,            /* more parts are missing: nothing to send */
    WF_AGG_ANSWER,          /* send the reply to the rank that sent this */
    WF_AGG_BROADCAST,       /* send the reply to all ranks */
    WF_AGG_VERDICTS
} wf_agg_verdict;

/* "late", "kept", ...: names of counters. */
const char *wf_agg_verdict_name(wf_agg_verdict verdict);

/* What to send: a head that is yet to be sealed and the payload, which stays
 * where it is until the chunk that follows in its version is complete; by rule
 * 1 nobody needs it then. */
typedef struct wf_agg_reply {
    wf_agg_head head;
    const void *payload;
} wf_agg_reply;

static inline uint32_t wf_agg_slot_of(uint64_t chunk, uint32_t slots)
{
    return (uint32_t)(chunk % slots);
}

static inline uint32_t wf_agg_version_of(uint64_t chunk, uint32_t slots)
{
    return (uint32_t)(chunk / slots % 2);
}

/* Bytes of memory for a pool; 0 if there can be no such pool. */
size_t wf_agg_pool_bytes(const wf_agg_shape *shape);

/* `memory` is of wf_agg_pool_bytes, aligned to 64, of any content, and belongs
 * to the pool as long as it is used. */
void wf_agg_pool_init(wf_agg_pool *pool, const wf_agg_shape *shape,
                      void *memory);

/* Take a DATA packet that wf_agg_open has passed, with its payload, which may
 * lie at any address. `reply` is written for ANSWER and BROADCAST. */
wf_agg_verdict wf_agg_take(wf_agg_pool *pool, const wf_agg_head *head,
                           const void *payload, wf_agg_reply *reply);

#endif
