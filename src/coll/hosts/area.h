/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a node share in a communicator over several nodes.
 *
 *   common | cell of member 0 | cell of member 1 | ... | rounds (rounds.h)
 *
 *   common: go        the last operation that all nodes have agreed on
 *           result    of small data that went along
 *   cell:   a call, and small data
 *
 * Members have their numbers on the node. Member 0 speaks for it when calls are
 * compared. A rule, cited by the code:
 *
 *  H1  Every operation starts by each member putting its call into its cell.
 *      Member 0 compares them, compares its own with member 0 of the other
 *      nodes, and then says `go`. No operation is over on a member before that.
 *      So a cell is free when its member comes to the next operation, and the
 *      result is when all cells have come. No round goes between nodes before.
 *
 * A member that dies leaves a cell that stands still; what it had published
 * is whole. Nobody has to clean up: the memory goes with the last member. */
#ifndef WF_COLL_HOSTS_AREA_H
#define WF_COLL_HOSTS_AREA_H

#include "coll/engine.h"
#include "coll/hosts/rounds.h"
#include "coll/message/check.h"
#include "coll/message/moves.h"

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

/* What a member keeps for itself. From `rail` on it belongs to the current
 * operation, since there is one at a time. */
typedef struct hosts_state {
    wf_layout layout;
    wf_rounds_state rounds;
    unsigned char *area; /* common and cells; rounds.area is behind them */
    bool owns_area;      /* there is no segment, since nobody shares it */
    uint32_t *speaker;   /* by node: the rank of member 0 */
    uint32_t *driver;    /* by node, of the rail that this member drives */
    wf_check check;
    wf_moves moves;

    uint32_t rail;       /* that this member drives, or WF_NO_RAIL */
    uint32_t cells_seen; /* by member 0: members before it have called */
    bool comparing;      /* by member 0: with the other nodes */
} hosts_state;

static inline hosts_common *hosts_common_of(const hosts_state *s)
{
    return (hosts_common *)(void *)s->area;
}

static inline hosts_cell *hosts_cell_of(const hosts_state *s, uint32_t member)
{
    return (hosts_cell *)(void *)(s->area + sizeof(hosts_common)) + member;
}

/* The most bytes of a node that go along with calls between so many. */
static inline size_t hosts_along(uint32_t nodes)
{
    size_t room = wf_check_room_in(nodes, WF_CHECK_BYTES);

    return room < HOSTS_PAYLOAD ? room : HOSTS_PAYLOAD;
}

/* Comparing calls (meet.c): put ours into its cell; `without`: there is no
 * memory for it here. Then step, until WEFT_OK: all members of all nodes have
 * made this call. */
void hosts_post(wf_coll_op *op, bool without);
weft_status hosts_meet(wf_coll_op *op);
bool hosts_meet_awaits(const wf_coll_op *op, uint32_t member);

/* Rounds (pipe.c): get ready, false if there is no memory; begin once all have
 * agreed; and then until WEFT_OK. */
bool hosts_rounds_start(wf_coll_op *op);
void hosts_rounds_agreed(wf_coll_op *op);
weft_status hosts_rounds_step(wf_coll_op *op);
bool hosts_rounds_awaits(const wf_coll_op *op, uint32_t member);

#endif
