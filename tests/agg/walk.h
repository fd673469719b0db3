/* SPDX-License-Identifier: Apache-2.0 */
/* Walk all histories of a plan, the shortest first. */
#ifndef WT_AGG_WALK_H
#define WT_AGG_WALK_H

#include "world.h"

typedef struct walk_stats {
    uint64_t plans;
    uint64_t states; /* different ones */
    uint64_t quiet;  /* of these, without packets on their way */
    uint64_t done;   /* of these, where every rank had all its results */
    uint64_t cut;    /* plans that had more states than the limit */
} walk_stats;

/* True if every state is as it must be; else tells the shortest history that
 * leads to one that is not, unless `silent`. */
bool walk(const plan *p, uint64_t limit, bool silent, walk_stats *stats);

void walk_print(const char *what, const walk_stats *stats);

#endif
