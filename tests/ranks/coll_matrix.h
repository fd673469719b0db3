/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective by every algorithm of an engine, against the reference.
 *
 * The short run takes every (operation, algorithm, size) with a few types,
 * reductions, roots and forms, which rotate; the full run takes more of them,
 * as processes and as threads. */
#ifndef COLL_MATRIX_H
#define COLL_MATRIX_H

#include "wt.h"
#include "wt_coll.h"

/* Sets of settings that between them name every algorithm of every operation.
 * Where one does not apply to the number of ranks, another one is taken. */
enum { COLL_SETS = 5 };

/* Set before the ranks are forked. */
typedef struct coll_matrix {
    const char *engine;
    const char *nodes; /* by rank, as letters; NULL: one node */
    const char *rest;  /* of the settings */
    unsigned set;
} coll_matrix;
extern coll_matrix coll_the;

/* The settings of a rank. */
const char *coll_settings_of(unsigned rank);

/* Run all of it, with all sets in turn: as processes or as threads, in turn;
 * both in the full run. */
void coll_run_matrix(const char *engine, unsigned ranks, const char *nodes,
                     const char *rest);

/* Called in ranks: the same bits on all of them, whether blocking or by
 * request, in place or not. */
void coll_check_bits(weft_world *world, wt_coll c);

#endif
