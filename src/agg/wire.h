/* SPDX-License-Identifier: Apache-2.0 */
/* The packets between the ranks of a job and a switch, and the checks of them.
 *
 * A packet is one UDP datagram: a head of 64 bytes, then the payload. All
 * numbers are little endian.
 *
 *   at  bytes  field    what
 *    0      4  magic    WF_AGG_MAGIC
 *    4      1  format   WF_AGG_FORMAT; any other is refused
 *    5      1  kind     wf_agg_kind
 *    6      1  flags    wf_agg_flag
 *    7      1  version  which of the slot's two versions: 0 or 1
 *    8      4  job      the switch's number for the job
 *   12      4  epoch    which registration of the job; a new one has a new key
 *   16      8  chunk    counts from 0 in each epoch, over all calls
 *   24      8  total    elements of the whole call
 *   32      8  hash     of the call; ranks that disagree called differently
 *   40      2  slot     chunk modulo the number of slots
 *   42      2  rank     DATA: the sender; WAIT: the lowest rank that is
 *                       missing; else WF_AGG_ALL
 *   44      2  ranks    of the job
 *   46      2  count    elements in this packet; WAIT: ranks that are missing
 *   48      1  call     wf_call_kind
 *   49      1  type     weft_dtype
 *   50      1  op       weft_op_kind
 *   51      1  lane     which of the job's pools at this switch
 *   52      4  rtt      DATA: the sender's round trip in us, for the switch's
 *                       statistics; else 0
 *   56      8  tag      proof that the sender knows the job's key
 *
 * A DATA packet goes from a rank to the switch, all others come from it:
 *
 *   DATA      elements `chunk` of the call, as this rank has them
 *   RESULT    the same elements, reduced over all ranks
 *   WAIT      the switch has this rank's part, and not yet that of `rank`; the
 *             answer to a part that was sent again
 *   MISMATCH  ranks have made different calls; the payload is two records that
 *             say which rank called what
 *
 * The tag is a keyed hash (SipHash-2-4) of the head. A stranger can neither
 * forge nor alter a head, nor replay one: what was recorded in another epoch
 * has another key, and a chunk of this epoch counts once (slot.h). A tag over
 * the head says nothing about the payload; with WF_AGG_WHOLE it is over both,
 * which costs about 0.3 us for each KiB. Which of the two is demanded belongs
 * to the job, so that no packet can choose for itself. */
#ifndef WF_AGG_WIRE_H
#define WF_AGG_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/types.h>

#include "base/secret.h"

#define WF_AGG_MAGIC 0x47414657u /* "WFAG" */
#define WF_AGG_FORMAT 1u
#define WF_AGG_RANKS 256u /* of a job at most */
#define WF_AGG_SLOTS 4096u
#define WF_AGG_LANES 8u
#define WF_AGG_ALL 0xffffu
/* What fits into a jumbo frame of 9000 bytes, with IPv6. */
#define WF_AGG_PAYLOAD_MAX 8832u

typedef enum wf_agg_kind {
    WF_AGG_DATA = 1,
    WF_AGG_RESULT = 2,
    WF_AGG_WAIT = 3,
    WF_AGG_MISMATCH = 4
} wf_agg_kind;

typedef enum wf_agg_flag {
    WF_AGG_WHOLE = 1 << 0,  /* the tag covers the payload, too */
    WF_AGG_RESENT = 1 << 1, /* sent before; for statistics only */
    /* The payload is quantised, see quantise.h; `count` still counts elements,
     * of which a complex one is two numbers. */
    WF_AGG_QUANTISED = 1 << 2,
    WF_AGG_FLAGS = 7
} wf_agg_flag;

typedef struct wf_agg_head {
    uint32_t magic;
    uint8_t format;
    uint8_t kind;
    uint8_t flags;
    uint8_t version;
    uint32_t job;
    uint32_t epoch;
    uint64_t chunk;
    uint64_t total;
    uint64_t hash;
    uint16_t slot;
    uint16_t rank;
    uint16_t ranks;
    uint16_t count;
    uint8_t call;
    uint8_t type;
    uint8_t op;
    uint8_t lane;
    uint32_t rtt;
    uint64_t tag;
} wf_agg_head;
_Static_assert(sizeof(wf_agg_head) == 64, "layout");
_Static_assert(offsetof(wf_agg_head, tag) == 56, "the tag is last");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as on the wire");

/* What a rank called: a record of MISMATCH. */
typedef struct wf_agg_called {
    uint64_t total;
    uint64_t hash;
    uint16_t rank;
    uint16_t count;
    uint8_t call;
    uint8_t type;
    uint8_t op;
    uint8_t flags; /* WF_AGG_QUANTISED or 0 */
} wf_agg_called;
_Static_assert(sizeof(wf_agg_called) == 24, "layout");

/* What packets of one job and epoch are sealed with. */
typedef struct wf_agg_key {
    wf_secret secret;
    bool whole; /* tags cover payloads */
} wf_agg_key;

/* Why a packet was refused. The names are those of counters. */
#define WF_AGG_REFUSAL_TABLE(X)                                                \
    X(LENGTH, "length") /* cut, or longer than it says */                      \
    X(MAGIC, "magic")   /* not one of ours */                                  \
    X(FORMAT, "format") /* another version of the format */                    \
    X(TAG, "tag")       /* the wrong key, or altered */                        \
    X(FIELD, "field")   /* sealed, but out of range */

typedef enum wf_agg_refusal {
    WF_AGG_GOOD = 0,
#define WF_AGG_ENUM(name, text) WF_AGG_BAD_##name,
    WF_AGG_REFUSAL_TABLE(WF_AGG_ENUM)
#undef WF_AGG_ENUM
        WF_AGG_REFUSALS
} wf_agg_refusal;

/* "tag"; "good" for WF_AGG_GOOD. */
const char *wf_agg_refusal_name(wf_agg_refusal why);

/* Can the switch apply this operation to this type? PREMUL_SUM is for ranks to
 * do: multiply, then SUM. */
bool wf_agg_reduces(weft_dtype type, weft_op_kind op);

/* How many numbers `count` elements of a quantised type are. */
size_t wf_agg_numbers(const wf_agg_head *head);

/* Bytes behind this head; SIZE_MAX if no packet has so many. */
size_t wf_agg_payload(const wf_agg_head *head);

/* Which job a packet says it is of, to find the key; false: too short, not
 * ours, or another format. Nothing else of it is checked. */
bool wf_agg_job(const void *packet, size_t n, uint32_t *job);

/* Seal: fill in magic, format, the flag WF_AGG_WHOLE and the tag. `payload` is
 * wf_agg_payload(head) bytes, wherever they are. */
void wf_agg_seal(const wf_agg_key *key, wf_agg_head *head, const void *payload);

/* Check everything about a packet of `n` bytes that can be checked without
 * knowing the job's state: tag, ranges, length. Only then is *head written; the
 * payload is what follows it. The packet may lie at any address. */
wf_agg_refusal wf_agg_open(const wf_agg_key *key, const void *packet, size_t n,
                           wf_agg_head *head);

#endif
