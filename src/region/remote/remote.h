/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are not mapped here: the caller asks for them by active messages,
 * and a rank that maps them answers from its handler.
 *
 *   remote.c         a region's part in it; a call, block by block
 *   ask.c     the caller's side: questions go out, answers come in
 *   answer.c  the other side
 *   wait.c    waiting until all answers are there
 *
 * Whom to ask: the owner; in the two-hop hierarchy the rank on the owner's node
 * that has the caller's own number there (modulo the ranks of that node), which
 * reads and writes the owner's rows directly, since it maps them. If that rank
 * has died or left, the next one of the node is asked. Questions name rows by
 * their number in the region, so the answer does not depend on the route.
 *
 * A question and its answer:
 *
 *   ask     header wf_rows_ask; payload: the numbers of the rows, 8 bytes each
 *           (of one row only: in the header), then, for writing, the rows, in
 *           the type of the table
 *   answer  header wf_rows_answer; payload: for a gather, whole rows, or a
 *           piece of one row that is longer than a payload. A gather has as
 *           many answers as it takes, a write has one.
 *
 * `owed` counts the bytes of rows that a target was asked for and has not
 * answered. It is at most the window of the flow to it (comm/flow.h), which
 * also bounds the answers that queue in the memory of the target. Handlers
 * never wait: two ranks may ask each other at the same time.
 *
 * Questions of one call to one rank are answered in their order, so that of
 * equal ids the last one wins, and sums are added in order. A write is answered
 * when it is done.
 *
 * A rank that has released the region answers with WEFT_ERR_CLOSED. What comes
 * in is checked before it is used. A malformed question is answered with
 * WEFT_ERR_PROTOCOL; a malformed answer fails the call, and one to a call that
 * is over is dropped. */
#ifndef WF_REGION_REMOTE_REMOTE_H
#define WF_REGION_REMOTE_REMOTE_H

#include "comm/serve.h"
#include "region/layer.h"
#include "region/region.h"
#include "region/rows/rows.h"

/* Bytes of rows that one question may be about, in payloads of the transport
 * that leads to its rank: the next one is on its way before all of these have
 * come. */
#define WF_ROWS_ANSWER_PAYLOADS 2u
/* More is in no question, whatever leads to its rank. */
#define WF_ROWS_ANSWER_MAX (WF_ROWS_ANSWER_PAYLOADS * WF_AM_PAYLOAD_MOST)
/* Ids of a call that are looked at together. */
#define WF_ROWS_BLOCK (1u << 16)
/* In a route: mapped here. */
#define WF_ROUTE_HERE UINT32_MAX

typedef struct wf_rows_ask {
    uint64_t region;
    uint64_t token; /* of the call; comes back */
    uint64_t skip;  /* bytes of each row before those that are meant */
    uint64_t bytes; /* of each row */
    uint32_t first; /* number of the first row, to the caller; comes back */
    uint32_t rows;
    uint32_t op;
    uint32_t type; /* to add in */
    int64_t row;   /* if it is about one row only */
} wf_rows_ask;
_Static_assert(sizeof(wf_rows_ask) == 56, "layout");

typedef struct wf_rows_answer {
    uint64_t token;
    uint64_t skip;  /* as in the question, and more in later pieces of a row */
    uint64_t bytes; /* of each row that this is about */
    uint32_t first;
    uint32_t rows;
    int32_t status;
    uint32_t zero;
} wf_rows_answer;
_Static_assert(sizeof(wf_rows_answer) == 40, "layout");

/* A rank's state of a region with rows on other nodes. On the world's list. */
typedef struct wf_region_remote {
    wf_region_extra extra;
    weft_region *region;
    struct wf_region_remote *next;
    _Atomic uint64_t alarm; /* of the board when routes were chosen, plus 1 */
    /* Owner -> rank of the region to ask, or HERE. */
    _Atomic uint32_t route[];
} wf_region_remote;

/* A rank that is asked, and how far it has come with its share of a block. */
typedef struct wf_rows_target {
    uint32_t rank; /* of the region */
    uint32_t begin;
    uint32_t next; /* in the call's order: what is asked for next */
    uint32_t end;
    wf_flow *flow;
    size_t payload; /* the longest one of a message to it */
    uint64_t at;    /* bytes of row `next` that were asked for before */
    uint64_t owed;  /* bytes of rows that are due */
} wf_rows_target;

/* A block of a call that is under way. All but the atomics is touched under
 * world->drive only, once it is on the world's list. */
typedef struct wf_rows_block {
    struct wf_rows_block *next;
    const wf_rows_call *call;
    uint64_t token;
    uint64_t base;  /* position of the block's first id */
    int32_t *order; /* positions in the block, by target */
    wf_rows_target *target;
    uint32_t targets;
    _Atomic uint32_t unfinished; /* targets; all are there at 0 */
    _Atomic uint32_t failed;
    _Atomic uint32_t moved; /* counts up whenever something came */
    wf_failure why;         /* it failed */
} wf_rows_block;

/* Let others ask for the rows that this rank maps; collective, as the last step
 * of creation of a region that is not mapped everywhere. */
weft_status wf_remote_open(weft_region *region, weft_comm *comm,
                           uint64_t deadline_ns);

/* Bytes of row numbers that a question has in its payload. */
static inline uint64_t wf_rows_numbers(uint32_t rows)
{
    return rows > 1 ? rows * sizeof(int64_t) : 0;
}

/* --- among these files ---------------------------------------------------- */

wf_am_fn wf_rows_on_ask;
wf_am_fn wf_rows_on_answer;
wf_am_early_fn wf_rows_on_answer_early;

/* Put the block on the list and ask for as much as the windows allow; take it
 * off the list: from then on no handler touches it. */
void wf_rows_block_begin(wf_rows_block *block);
void wf_rows_block_end(wf_rows_block *block);

/* Wait until it is over: WEFT_OK, or why it failed. */
weft_status wf_rows_block_wait(wf_rows_block *block);

#endif
