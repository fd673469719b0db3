/* SPDX-License-Identifier: Apache-2.0 */
/* Which plans are walked. */
#ifndef WT_EXPLORE_PLANS_H
#define WT_EXPLORE_PLANS_H

#include "walk.h"

/* A plan chosen by hand; `techniques` as digits of weft_techniques. */
typedef struct chosen {
    const char *text;
    const char *techniques;
    unsigned rounds;
    unsigned deaths;
    unsigned host_deaths;
    unsigned room;
    bool optimizer;
    unsigned moves;
} chosen;

/* All ways to give each of some workers one of a list of short programs, with
 * `length` steps together at most, and all techniques. `hosts` has a digit for
 * each worker. False, told on stdout, if a history is wrong. What else `like`
 * says holds for all of them. */
bool plans_all(const char *hosts, const chosen *like, unsigned length,
               walk_stats *stats);
bool plans_chosen(const chosen *list, unsigned n, walk_stats *stats);
void plans_print(const char *what, const walk_stats *stats);

#endif
