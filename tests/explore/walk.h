/* SPDX-License-Identifier: Apache-2.0 */
/* Walk all histories of a plan, the shortest first. */
#ifndef WT_EXPLORE_WALK_H
#define WT_EXPLORE_WALK_H

#include "world.h"

typedef struct walk_stats {
    uint64_t plans;
    uint64_t states; /* different ones */
    uint64_t ends;   /* of these, where nothing moves */
    uint64_t cut;    /* plans with more states than the limit, or the time */
    uint64_t happened[WF_LOST + 1];
} walk_stats;

/* True if every state is as it must be; else tells the shortest history that
 * leads to one that is not, unless `silent`. */
bool walk(const plan *p, uint64_t limit, bool silent, walk_stats *stats);

#endif
