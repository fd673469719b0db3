/* SPDX-License-Identifier: Apache-2.0 */
/* Data of a large operation, in rounds, through memory that the members of a
 * node share. What happens between nodes is the caller's: while one round is on
 * the wire the next one is reduced here, and the one before is taken out.
 *
 *   counters of member 0, 1, ... | slot 0, 1 of member 0 | ... | work 0 .. 3
 *
 * Members have their numbers on the node. A counter says how many rounds have
 * gone through a step, and a slot is what its member brings for a round. Rules,
 * cited by the code:
 *
 *  R1  Counters only grow, over the life of the communicator; each member's are
 *      equal at the end of every operation. A round of an operation has the
 *      number that it has among all rounds. After an operation that not all
 *      members have carried out, all go on from a higher number that they agree
 *      on (wf_rounds_restart).
 *  R2  A round goes through on each member in this order:
 *        in    it has put its data into its slot, unless nothing is reduced
 *        red   it has put its share into the work area: the fold of what all
 *              have brought, or its own data
 *        net   the rail that it drives has carried the round between nodes
 *        out   it has taken out what it gets
 *      in(k) needs red(k - 2) of all members; red(k) needs in(k) and out(k - 4)
 *      of all; net(k) needs red(k) of those whose share the rail has; out(k)
 *      needs net(k) of all drivers. No round needs a later one.
 *  R3  So where net(k) needs a part of all nodes, nobody on any node has
 *      taken out round k + WF_ROUNDS_WORKS before all have taken out k.
 *
 * A member that dies leaves counters that stand still; what it had published
 * is whole. Nobody has to clean up: the memory goes with the last member. */
#ifndef WF_COLL_HOSTS_ROUNDS_H
#define WF_COLL_HOSTS_ROUNDS_H

#include "coll/engine.h"
#include "coll/hosts/layout.h"
#include "coll/hosts/shape.h"
#include "mem/segment.h"

#define WF_ROUNDS_SLOTS 2u
#define WF_ROUNDS_WORKS 4u

/* The steps of a round. */
typedef enum wf_rounds_step {
    WF_ROUNDS_IN,
    WF_ROUNDS_RED,
    WF_ROUNDS_NET,
    WF_ROUNDS_OUT,
    WF_ROUNDS_STEPS
} wf_rounds_step;

/* What a member keeps for itself. From `shape` on it belongs to the current
 * operation, since there is one at a time. */
typedef struct wf_rounds_state {
    const wf_layout *layout;
    const wf_segment *segment; /* that the area is in; NULL: nobody shares it */
    unsigned char *area;
    const void **src; /* by member, for folding */
    uint32_t members; /* of this node */
    bool populated;   /* our slots have pages */
    size_t slot;      /* bytes of a slot, and of a work area */
    uint64_t used;    /* rounds that all operations so far have used, see R1 */

    wf_shape shape;               /* the caller's to fill in */
    wf_reducer inner;             /* folds what the members of a node bring */
    uint64_t base;                /* rounds before this operation */
    uint64_t at[WF_ROUNDS_STEPS]; /* rounds of it that are through, by step */
} wf_rounds_state;

/* Bytes of the area, all zero at first and aligned to a page, and of the
 * counters at its beginning. */
size_t wf_rounds_bytes(uint32_t members, size_t slot);
size_t wf_rounds_counters(uint32_t members);

/* Which members of a communicator are on which node. */
weft_status wf_rounds_layout(const weft_comm *comm, wf_layout *out);

/* `area` is in `segment`; or it is NULL, and this member's own is made, for a
 * node with one member. WEFT_ERR_NOMEM leaves nothing behind. */
weft_status wf_rounds_init(wf_rounds_state *r, const wf_layout *layout,
                           const wf_segment *segment, void *area, size_t slot);
void wf_rounds_fini(wf_rounds_state *r);

/* Wake the other members of the node that sleep. */
void wf_rounds_ring(const wf_coll_op *op, const wf_rounds_state *r);

/* Begin an operation, whose shape is filled in. False: there is no memory for
 * it here. */
bool wf_rounds_begin(wf_rounds_state *r);

/* Count all rounds of the operation as through, see R1. */
void wf_rounds_end(const wf_rounds_state *r, const wf_coll_op *op);

/* Go on from round `from`, see R1. Nobody gets ahead of a member that has not
 * done so. */
void wf_rounds_restart(wf_rounds_state *r, uint64_t from);

/* Bring and fold, as far as possible. Only a fold may do so before all have
 * agreed: it waits for all members of the node, so that all have memory. */
void wf_rounds_feed(wf_rounds_state *r, wf_coll_op *op, bool agreed);

/* Is the work area of a round ready for what a rail carries of it? */
bool wf_rounds_is_fed(const wf_rounds_state *r, const wf_coll_op *op,
                      uint32_t rail, uint64_t round);

/* Where a round is worked on; it is numbered in the operation. */
unsigned char *wf_rounds_work(const wf_rounds_state *r, uint64_t round);

/* The rail of this member has carried so many rounds. */
void wf_rounds_carried(wf_rounds_state *r, wf_coll_op *op, uint64_t rounds);

/* Have all drivers of this node carried the next round that is to be taken
 * out? There is one. Then take it out. */
bool wf_rounds_is_through(const wf_rounds_state *r);
void wf_rounds_take(wf_rounds_state *r, wf_coll_op *op);

/* Does this member wait for something of another member of the node? */
bool wf_rounds_awaits(const wf_rounds_state *r, const wf_coll_op *op,
                      uint32_t member);

/* Set how the members of a node are folded for a call: an average is a sum
 * until the end. And make a result of sums of all ranks: an average is divided.
 */
void wf_rounds_set_inner(wf_rounds_state *r, const wf_call *call);
void wf_rounds_finish(const wf_coll_op *op, void *dst, const void *src,
                      size_t bytes);

#endif
