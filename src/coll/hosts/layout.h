/* SPDX-License-Identifier: Apache-2.0 */
/* Which members of a communicator are on which node, and who drives what part
 * of the network. Pure: it is worked out from a list of node numbers.
 *
 * Nodes are numbered in the order of their first members, and the members of a
 * node among themselves in the order of ranks. There are as many *rails* as the
 * smallest node has members. On each node one member drives rail i; the drivers
 * of a rail, one a node, are those who talk to each other.
 *
 * Where each rank has a block, the blocks of a node are dealt to the rails, in
 * their order and as evenly as whole blocks allow. A *place* is the number of a
 * block when those of rail 0 come first, within a rail those of node 0, and
 * within a node in the order of ranks: so what a rail carries for one node, or
 * for several in a row, is one run of places. */
#ifndef WF_COLL_HOSTS_LAYOUT_H
#define WF_COLL_HOSTS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

typedef struct wf_layout {
    uint32_t size;
    uint32_t nodes;
    uint32_t rails;
    uint32_t most;  /* members of the largest node */
    uint32_t rank;  /* ours */
    uint32_t node;  /* ours */
    uint32_t local; /* our number on it */
    /* Tables, behind each other in one allocation. */
    uint32_t *node_of; /* rank -> node */
    uint32_t *first;   /* node -> where its members begin; one more at the end
                        */
    uint32_t *member;  /* ranks, by node */
    uint32_t *place;   /* rank -> place */
    uint32_t *placed;  /* place -> rank */
    uint32_t *run;     /* rail * nodes + node -> its first place; one more */
} wf_layout;

/* `node` has a number for each of `size` ranks: equal ones are on one node. */
weft_status wf_layout_init(wf_layout *layout, const uint32_t *node,
                           uint32_t size, uint32_t rank);
void wf_layout_fini(wf_layout *layout);

/* How many members a node has, and the rank of one of them. */
static inline uint32_t wf_layout_members(const wf_layout *l, uint32_t node)
{
    return l->first[node + 1] - l->first[node];
}

static inline uint32_t wf_layout_member(const wf_layout *l, uint32_t node,
                                        uint32_t local)
{
    return l->member[l->first[node] + local];
}

/* The number, on its node of `members`, of who drives a rail if `rails` of them
 * are used. */
static inline uint32_t wf_layout_driver(uint32_t members, uint32_t rail,
                                        uint32_t rails)
{
    return (uint32_t)((uint64_t)rail * members / rails);
}

/* The rail that our member drives, or WF_NO_RAIL. */
#define WF_NO_RAIL UINT32_MAX
uint32_t wf_layout_rail(const wf_layout *l, uint32_t rails);

/* Fill in who drives a rail, by node. */
void wf_layout_drivers(const wf_layout *l, uint32_t rail, uint32_t rails,
                       uint32_t *out);

#endif
