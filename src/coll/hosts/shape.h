/* SPDX-License-Identifier: Apache-2.0 */
/* How an operation over several nodes is carried out: pure functions of the
 * call, the layout and the settings, so that all members come to the same, and
 * a simulator can, too.
 *
 * Large data goes in *rounds*. In each, the members of a node bring their data
 * together in a work area that they share, of at most a slot's bytes; the
 * drivers of the rails exchange parts of it with those of other nodes; and each
 * member takes out what it is to get. What the drivers of a rail do in a round
 * is a plan of coll/message over the nodes; a round is a group of that plan.
 *
 * One buffer is cut into rounds of `chunk` bytes, and the work area of a round
 * into rails, by whole grains (lines). Where each rank has a block, a round has
 * `chunk` bytes of every block, one behind the other in the order of places. */
#ifndef WF_COLL_HOSTS_SHAPE_H
#define WF_COLL_HOSTS_SHAPE_H

#include "coll/hosts/layout.h"
#include "coll/message/plan.h"
#include "coll/message/table.h"

typedef enum wf_shape_way {
    WF_SHAPE_MEET,  /* no data moves: calls are compared */
    WF_SHAPE_ALONG, /* data goes along when calls are compared */
    WF_SHAPE_RAILS,
    WF_SHAPE_PLAIN /* by messages between all ranks */
} wf_shape_way;

typedef struct wf_shape {
    wf_shape_way way;
    wf_choice choice; /* of the algorithm between nodes */
    bool blocks;      /* a block for each rank, rather than one buffer */
    size_t elem;      /* bytes */
    size_t bytes;     /* of the buffer, or of a block */
    size_t chunk;     /* bytes of it in a round, a multiple of 64 */
    uint64_t rounds;
    uint32_t width; /* chunks that a piece of a round is sent in */
    uint32_t rails;
    size_t grain;    /* rails of one buffer are cut by so many bytes */
    uint32_t pieces; /* of double trees, see wf_plan_make */
} wf_shape;

/* Settings that shapes depend on. */
typedef struct wf_shape_limits {
    size_t slot;     /* bytes of a round's work area */
    size_t along;    /* bytes of a node's data that can go along */
    bool fixed;      /* rounds are as long as the slot allows */
    bool has_forced; /* the setting ALGORITHM names one: */
    wf_algorithm forced;
} wf_shape_limits;

/* A slot's bytes for so many ranks on so many nodes; `wanted` is the setting
 * CHUNK_BYTES, or UINT64_MAX. */
size_t wf_shape_slot(uint32_t size, uint32_t nodes, uint64_t wanted);

/* How a call is carried out. `has_data`: there is data to move. */
void wf_shape_init(wf_shape *shape, const wf_layout *layout,
                   const wf_call *call, bool has_data,
                   const wf_shape_limits *limits);

/* The plan of a node on a rail: `rounds` groups of it. */
void wf_shape_plan(const wf_shape *shape, const wf_layout *layout,
                   const wf_call *call, uint32_t node, wf_plan *out);

/* A range of the work area, in bytes. */
typedef struct wf_range {
    size_t from;
    size_t until;
} wf_range;

/* Bytes of the buffer, or of each block, in a round; and of its work area. */
size_t wf_shape_length(const wf_shape *shape, uint64_t round);
size_t wf_shape_work(const wf_shape *shape, const wf_layout *layout,
                     uint64_t round);

/* What member `local` of `members` folds in a round. */
wf_range wf_shape_share(const wf_shape *shape, const wf_layout *layout,
                        uint64_t round, uint32_t local, uint32_t members);

/* What a rail carries in a round, of all nodes. */
wf_range wf_shape_rail(const wf_shape *shape, const wf_layout *layout,
                       uint64_t round, uint32_t rail);

/* The chunk of a piece that a step of a rail's plan is about. */
wf_range wf_shape_piece(const wf_shape *shape, const wf_layout *layout,
                        const wf_plan *plan, uint32_t rail, const wf_step *step,
                        wf_piece piece);

/* At least as many bytes as any such chunk has. */
size_t wf_shape_longest(const wf_shape *shape, const wf_layout *layout,
                        const wf_plan *plan);

/* What the table says. `bytes` are those of the work area of all rounds. */
const wf_choice *wf_hosts_choose(wf_call_kind kind, uint64_t bytes,
                                 uint32_t nodes);

#endif
