/* SPDX-License-Identifier: Apache-2.0 */
/* Along whom the members of a group tell each other something by mail, so that
 * nobody talks to all others (docs/design/0014-hosts.md).
 *
 * The nodes of a group are numbered by their first members, each of which is
 * the head of its node. Heads form a tree in which each has at most three
 * partners: the heads of the nodes before and after its own, with whom it
 * exchanges heartbeats anyway (vigil.h), and one at a greater distance, the
 * chord. The other members of a node are below its head, and are reached by
 * sockets. Chords are at distances of powers of two, as those with whom heads
 * compare calls (coll/hosts/meet.c): making a communicator connects no ranks
 * that its first barrier would not.
 *
 * Nodes stand in blocks of 2^l, as short as they can be for each bit of a
 * block's number to have a place in the block: the chord of place c leads to
 * the same place of the block whose number differs in bit c. A block is entered
 * by the chord of the highest bit of its number, from the block without that
 * bit; from where it is entered the nodes before and after tell each other on.
 * The last block may have too few nodes for that, and then is entered from the
 * one before. 8 nodes, as they are told, block by block:
 *
 *      0 -> 1    2 -> 3    4 <- 5    6 <- 7      0 -> 2, 1 -> 5, 3 -> 7
 *
 * There are at most 2 log2(nodes) steps: 4 with 8 nodes, 10 with 64, 21 with
 * 1563.
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

/* The most nodes below one. */
#define WF_NODE_TREE_BELOW 3u
/* The most members that are told of an end: of nodes at so many distances on
 * either side, of which there are less than 2^32, so many each. */
#define WF_NODE_TREE_DISTANCES 32u
#define WF_NODE_TREE_LISTENERS 2u
#define WF_NODE_TREE_NEIGHBOURS                                                \
    (2 * WF_NODE_TREE_DISTANCES * WF_NODE_TREE_LISTENERS)

/* --- numbers of nodes ----------------------------------------------------- */

/* The parent of a node that is not 0. */
uint32_t wf_node_tree_up(uint32_t node, uint32_t nodes);

/* The i-th node below one of `nodes`; 0: there are not so many. */
uint32_t wf_node_tree_down(uint32_t node, uint32_t i, uint32_t nodes);

/* Steps from node 0 down to one. */
uint32_t wf_node_tree_steps(uint32_t node, uint32_t nodes);

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

/* Whom a member asks who waits for anybody and nothing comes: on each of some
 * other nodes one who is here, as far from the first there as this rank is on
 * its own node, so that askers have different ones. In turn 0 they are on nodes
 * at distances of powers of two, who are most likely to have been told
 * something; in the next ones on those at distance 1 to 16, 17 to 32 and so on,
 * up to 64; then it begins again. Returns how many there are. */
#define WF_NODE_TREE_TURN 16u
#define WF_NODE_TREE_TURNS 4u
#define WF_NODE_TREE_OPPOSITES (2 * WF_NODE_TREE_DISTANCES)
uint32_t wf_node_tree_opposites(weft_world *world, const uint32_t *members,
                                uint32_t size, uint32_t turn,
                                uint32_t out[WF_NODE_TREE_OPPOSITES]);

#endif
