/* SPDX-License-Identifier: Apache-2.0 */
/* What a node tells others of its ranks for the board: what each does, and its
 * counters. They ride beside the heartbeats (comm/beat.c), some ranks at a
 * time, and are passed on from node to node with their age. */
#ifndef WF_COMM_FIGURES_H
#define WF_COMM_FIGURES_H

#include "comm/world.h"

/* Of one rank, on the wire. */
typedef struct wf_figures {
    uint32_t rank; /* in the job */
    uint32_t root;
    uint64_t age_ns; /* since its node wrote them down */
    uint64_t act;
    uint64_t sequence;
    uint64_t count;
    uint64_t waiting;
    uint64_t waits_ns; /* for how long; 0: not for long */
    uint64_t operations;
    uint64_t bytes;
    uint64_t waited_ns;
    uint64_t awaited_ns;
    uint32_t waits_for;
    uint32_t zero;
    uint64_t keys;
    uint64_t keys_away;
    uint64_t copies;
    uint64_t stale_ns;
} wf_figures;
_Static_assert(sizeof(wf_figures) == 128, "on the wire");

/* Ranks in one message. */
#define WF_FIGURES_MAX 32u

/* Write down ranks of this node, and others of which something is known, from
 * `*turn` on, which moves. Returns how many. */
size_t wf_figures_tell(const wf_host *host, uint32_t *turn,
                       wf_figures out[WF_FIGURES_MAX]);

/* Put on the board what came; false if it makes no sense. */
bool wf_figures_hear(const wf_host *host, const void *payload, size_t n);

#endif
