/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a node share in a communicator over several nodes.
 *
 *   common | block of member 0 | block of member 1 | ... | work 0 .. 3
 *
 *   common: go        the last operation that all nodes have agreed on
 *           result    of small data that went along
 *   block:  counters  in, red, net, out: rounds, each on a line of its own
 *           cell      a call, and small data
 *           slot 0, 1 what this member brings for a round
 *
 * Members have their numbers on the node. Member 0 speaks for it when calls are
 * compared. Rules, cited by the code:
 *
 *  H1  Every operation starts by each member putting its call into its cell.
 *      Member 0 compares them, compares its own with member 0 of the other
 *      nodes, and then says `go`. No operation is over on a member before that.
 *      So a cell is free when its member comes to the next operation, and the
 *      result is when all cells have come.
 *  H2  Counters only grow, over the life of the communicator; each member's are
 *      equal at the end of every operation. A round of an operation has the
 *      number that it has among all rounds.
 *  H3  A round goes through on each member in this order:
 *        in    it has put its data into its slot, unless nothing is reduced
 *        red   it has put its share into the work area: the fold of what all
 *              have brought, or its own data
 *        net   the plan of the rail that it drives is carried out
 *        out   it has taken out what it gets
 *      in(k) needs red(k - 2) of all members; red(k) needs in(k) and out(k - 4)
 *      of all; net(k) needs red(k) of those whose share the rail has, and `go`;
 *      out(k) needs net(k) of all drivers. No round needs a later one.
 *
 * A member that dies leaves counters that stand still; what it had published
 * is whole. Nobody has to clean up: the memory goes with the last member. */
#ifndef WF_COLL_HOSTS_AREA_H
#define WF_COLL_HOSTS_AREA_H

#include "coll/engine.h"
#include "coll/hosts/layout.h"
#include "coll/hosts/shape.h"
#include "coll/message/check.h"
#include "coll/message/moves.h"

#define HOSTS_SLOTS 2u
#define HOSTS_WORKS 4u
#define HOSTS_PAYLOAD 2048u

typedef struct hosts_common {
    alignas(128) _Atomic uint32_t go; /* its number + 1; publishes the rest */
    uint32_t without; /* 1 + a rank that has no memory for it; 0: none */
    alignas(64) unsigned char result[WF_CHECK_BYTES];
} hosts_common;

typedef struct hosts_cell {
    alignas(64) _Atomic uint32_t sequence; /* its number + 1; publishes it */
    uint32_t without; /* 1: this member has no memory for it */
    wf_call call;
    alignas(64) unsigned char payload[HOSTS_PAYLOAD];
} hosts_cell;

/* The steps of a round. */
typedef enum hosts_count {
    HOSTS_IN,
    HOSTS_RED,
    HOSTS_NET,
    HOSTS_OUT,
    HOSTS_COUNTS
} hosts_count;

typedef struct hosts_counter {
    alignas(64) _Atomic uint64_t value;
} hosts_counter;

typedef struct hosts_block {
    hosts_counter count[HOSTS_COUNTS];
    hosts_cell cell;
} hosts_block;

/* What a member keeps for itself. From `shape` on it belongs to the current
 * operation, since there is one at a time. */
typedef struct hosts_state {
    wf_layout layout;
    uint32_t members; /* of this node */
    unsigned char *area;
    bool owns_area;    /* there is no segment, since nobody shares it */
    bool populated;    /* our slots have pages */
    size_t slot;       /* bytes of a slot, and of a work area */
    uint64_t rounds;   /* that all operations so far have used, see H2 */
    uint32_t *speaker; /* by node: the rank of member 0 */
    uint32_t *driver;  /* by node, of the rail that this member drives */
    const void **src;  /* by member, for folding */
    wf_check check;
    wf_moves moves;

    wf_shape shape;
    wf_reducer inner;          /* folds what the members of a node bring */
    uint32_t rail;             /* that this member drives, or WF_NO_RAIL */
    uint32_t cells_seen;       /* by member 0: members before it have called */
    bool comparing;            /* by member 0: with the other nodes */
    uint64_t base;             /* rounds before this operation */
    uint64_t at[HOSTS_COUNTS]; /* rounds of it that are through, by step */
} hosts_state;

static inline hosts_common *hosts_common_of(const hosts_state *s)
{
    return (hosts_common *)(void *)s->area;
}

static inline hosts_block *hosts_block_of(const hosts_state *s, uint32_t member)
{
    return (hosts_block *)(void *)(s->area + sizeof(hosts_common) +
                                   member * sizeof(hosts_block));
}

/* The most bytes of a node that go along with calls between so many. */
static inline size_t hosts_along(uint32_t nodes)
{
    size_t room = wf_check_room_in(nodes, WF_CHECK_BYTES);

    return room < HOSTS_PAYLOAD ? room : HOSTS_PAYLOAD;
}

/* Where the slots begin: on a page. */
size_t hosts_slots_at(uint32_t members);
/* Bytes of all. */
size_t hosts_area_bytes(uint32_t members, size_t slot);

/* Numbers of rounds here are those among all rounds of the communicator. */
static inline unsigned char *hosts_slot(const hosts_state *s, uint32_t member,
                                        uint64_t round)
{
    return s->area + hosts_slots_at(s->members) +
           (member * HOSTS_SLOTS + round % HOSTS_SLOTS) * s->slot;
}

static inline unsigned char *hosts_work(const hosts_state *s, uint64_t round)
{
    return s->area + hosts_slots_at(s->members) +
           (s->members * HOSTS_SLOTS + round % HOSTS_WORKS) * s->slot;
}

/* Wake the other members of the node that sleep. */
static inline void hosts_ring(const wf_coll_op *op, const hosts_state *s)
{
    for (uint32_t m = 0; m < s->members; m++) {
        if (m != s->layout.local) {
            wf_board_ring(
                op->op.comm
                    ->entry[wf_layout_member(&s->layout, s->layout.node, m)]);
        }
    }
}

/* A result, from sums of all ranks: an average is divided. */
void hosts_finish(const wf_coll_op *op, void *dst, const void *src,
                  size_t bytes);

/* Comparing calls (meet.c): put ours into its cell; `without`: there is no
 * memory for it here. Then step, until WEFT_OK: all members of all nodes have
 * made this call. */
void hosts_post(wf_coll_op *op, bool without);
weft_status hosts_meet(wf_coll_op *op);
bool hosts_meet_awaits(const wf_coll_op *op, uint32_t member);

/* Rounds (pipe.c): get ready, false if there is no memory; do what can be done
 * before all have agreed; and then until WEFT_OK. */
bool hosts_rounds_start(wf_coll_op *op);
void hosts_rounds_feed(wf_coll_op *op, bool agreed);
void hosts_rounds_agreed(wf_coll_op *op);
weft_status hosts_rounds_step(wf_coll_op *op);
bool hosts_rounds_awaits(const wf_coll_op *op, uint32_t member);
/* Count all rounds of the operation as through, see H2. */
void hosts_rounds_end(const wf_coll_op *op);

#endif
