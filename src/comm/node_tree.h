/* SPDX-License-Identifier: Apache-2.0 */
/* Along whom the members of a group tell each other something by mail, so that
 * nobody talks to all others (docs/design/0014-hosts.md).
 *
 * The nodes of a group are numbered by their first members, each of which is
 * the head of its node. Heads form a binomial tree, in which the parent of a
 * node is its number without the lowest bit that is set; the other members of a
 * node are below its head, and are reached by sockets. So a head has at most
 * log2(nodes) partners on other nodes and nobody else has any. These are at a
 * distance of a power of two, as those with whom heads compare calls
 * (coll/hosts/meet.c): making a communicator connects no ranks that its first
 * barrier would not.
 *
 * A tree is cut wherever a member dies or is stopped. While a communicator is
 * made everybody waits, and looks for deaths; but that a communicator broke has
 * to arrive whoever is lost. That is told to the nodes at distance 1, 2, 4, ...
 * on either side, two members of each, and whoever hears it from another node
 * passes it on in the same way, once: there are as many ways to a node as it
 * has such neighbours. */
#ifndef WF_COMM_NODE_TREE_H
#define WF_COMM_NODE_TREE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft/status.h>
#include <weft/world.h>

/* The most nodes below one: there are less than 2^32. */
#define WF_NODE_TREE_BELOW 32u
/* The most members that are told of an end: of nodes at so many distances on
 * either side, so many each. */
#define WF_NODE_TREE_LISTENERS 2u
#define WF_NODE_TREE_NEIGHBOURS                                                \
    (2 * WF_NODE_TREE_BELOW * WF_NODE_TREE_LISTENERS)

/* --- numbers of nodes ----------------------------------------------------- */

/* The parent of a node that is not 0. */
static inline uint32_t wf_node_tree_up(uint32_t node)
{
    return node & (node - 1);
}

/* The i-th node below one of `nodes`; 0: there are not so many. */
static inline uint32_t wf_node_tree_down(uint32_t node, uint32_t i,
                                         uint32_t nodes)
{
    uint64_t distance = (uint64_t)1 << i;
    bool is_below = node == 0 || distance < (node & -node);

    return is_below && node + distance < nodes ? (uint32_t)(node + distance)
                                               : 0;
}

/* Steps from node 0 down to one. */
static inline uint32_t wf_node_tree_steps(uint32_t node)
{
    return (uint32_t)__builtin_popcount(node);
}

/* The most steps from node 0 to any of `nodes`, and one to their members. */
uint32_t wf_node_tree_levels(uint32_t nodes);

/* --- a member's place ----------------------------------------------------- */

/* Members by their number in the group. */
typedef struct wf_node_tree {
    uint32_t nodes;
    uint32_t self;
    uint32_t head;   /* of the member's node; `self` if it is that */
    uint32_t parent; /* who tells it; `self`: nobody, it is member 0 */
    uint32_t steps;  /* from member 0 */
    uint32_t count;
    uint32_t below[WF_NODE_TREE_BELOW]; /* the heads that a head tells */
} wf_node_tree;

/* Notes about nodes, for the time of a call: who finds its place has no memory
 * to allocate, since one without memory has to tell the others so. */
typedef struct wf_node_tree_note {
    uint64_t call;   /* the last that saw this node */
    uint32_t number; /* of this node in the group */
    uint32_t head;   /* of the node with this number; and members of it that */
    uint32_t told;   /* are told */
} wf_node_tree_note;

typedef struct wf_node_tree_notes {
    pthread_mutex_t lock;
    wf_node_tree_note *of; /* by node of the job */
    uint64_t calls;
} wf_node_tree_notes;

weft_status wf_node_tree_init(wf_node_tree_notes *notes, uint32_t nodes);
void wf_node_tree_fini(wf_node_tree_notes *notes);

/* The place of this rank among `members`, which are ranks in the job. */
void wf_node_tree_find(weft_world *world, const uint32_t *members,
                       uint32_t size, wf_node_tree *out);

/* The members of other nodes that are told directly when something ends,
 * without those who are gone; returns how many. */
uint32_t wf_node_tree_neighbours(weft_world *world, const uint32_t *members,
                                 uint32_t size,
                                 uint32_t out[WF_NODE_TREE_NEIGHBOURS]);

#endif
