/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank knows of who died or left, and whom it tells. Pure: control.c
 * sends and receives.
 *
 * Nodes stand in a circle. The neighbours of a node are the living ones at
 * distance 1, 2, 4, ... on either side, counted without the dead: 2 log2(n) of
 * them at most. Who hears something new tells its neighbours once, so that all
 * hear within log2(n) steps. What gets lost with a node that dies meanwhile is
 * found out by digests: a count and a hash of those who are gone, which nodes
 * that stand beside each other send all the time (vigil.h); where two differ,
 * the lists are sent, and whoever learns something from them tells its
 * neighbours.
 *
 * That a rank is gone is final; how it went is whatever was heard first. */
#ifndef WF_COMM_GOSSIP_H
#define WF_COMM_GOSSIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

/* The most neighbours that a node can have. */
#define WF_GOSSIP_NEIGHBOURS 64u
#define WF_GOSSIP_NOBODY UINT32_MAX

typedef struct wf_gossip {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t node;     /* the caller's */
    uint32_t *node_of; /* by rank */
    uint32_t *member;  /* ranks, node by node, those of one in order */
    uint32_t *start;   /* by node, and one more: where in `member` */
    uint32_t *living;  /* by node: ranks that are here */
    uint8_t *state;    /* by rank: wf_board_state, never EMPTY */
    bool *told;        /* by rank: that it is gone was told to the neighbours */
    uint32_t gone;
    uint32_t untold; /* of those */
    uint64_t hash;   /* of those who are gone */
} wf_gossip;

/* All are here at first. `node_of` is copied. */
weft_status wf_gossip_init(wf_gossip *g, const uint32_t *node_of,
                           uint32_t ranks, uint32_t nodes, uint32_t node);
void wf_gossip_fini(wf_gossip *g);

/* A rank died or left. True if that is new. */
bool wf_gossip_note(wf_gossip *g, uint32_t rank, uint32_t state);

/* The neighbours; returns their number. */
uint32_t wf_gossip_neighbours(const wf_gossip *g, uint32_t *out);
/* Those of them at distance 1, two at most. */
uint32_t wf_gossip_beside(const wf_gossip *g, uint32_t *out);

/* The living rank with this number on a node, 0 being the lowest: who speaks
 * for it. WF_GOSSIP_NOBODY if it has not so many. */
uint32_t wf_gossip_living(const wf_gossip *g, uint32_t node, uint32_t number);

/* What a heartbeat says. */
typedef struct wf_digest {
    uint64_t hash;
    uint32_t gone;
    uint32_t alert_ms; /* for how long the sender is alert still (vigil.h) */
} wf_digest;

wf_digest wf_gossip_digest(const wf_gossip *g);
bool wf_gossip_agrees(const wf_gossip *g, const wf_digest *theirs);

/* A part of a list: `count` ranks that went the same way. */
typedef struct wf_gone {
    uint32_t first;
    uint32_t count;
    uint32_t state;
} wf_gone;

/* Write who is gone, from rank `*from` on, which moves behind what was written;
 * or, with `untold`, only what was not told yet. Returns the number of parts;
 * fewer than `room` means that it was all. */
size_t wf_gossip_list(const wf_gossip *g, bool untold, uint32_t *from,
                      wf_gone *out, size_t room);
/* Did somebody die of whom it was not told? */
bool wf_gossip_deaths(const wf_gossip *g);
/* All of it has been told. */
void wf_gossip_told(wf_gossip *g);

/* Is this a well-formed part, of no rank that is not in the job? */
bool wf_gossip_check(const wf_gossip *g, const wf_gone *part);

#endif
