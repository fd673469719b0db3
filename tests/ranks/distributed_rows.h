/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of rows on other nodes have in common: regions over pretended
 * nodes, and elements whose value follows from row and column, small whole
 * numbers that every type can hold. */
#ifndef DISTRIBUTED_ROWS_H
#define DISTRIBUTED_ROWS_H

#include "wt.h"
#include "wt_cmocka.h"

/* Run `body` on ranks whose nodes are the letters of `layout`. */
void dr_run(const char *layout, wt_body *body);
/* More settings for every rank of later runs, as "TIMEOUT=5"; "" for none. */
void dr_settings(const char *text);

/* One element of any type, and its value. */
void dr_set(void *at, weft_dtype type, int value);
int dr_get(const void *at, weft_dtype type);
/* What dr_get finds in an element that was set to `value`. */
int dr_as(weft_dtype type, int value);
int dr_value(uint64_t row, uint64_t column);

typedef struct dr_shape {
    uint64_t rows;
    uint64_t width;
    weft_dtype type;
    weft_reach reach;
    weft_partition partition;
    uint64_t run;
    uint64_t gap; /* elements between rows */
    uint64_t max_rows;
} dr_shape;

/* Make one; each rank fills its own part. Returns behind a barrier. */
weft_region *dr_create(weft_world *world, const dr_shape *shape);
weft_region *dr_create_on(weft_comm *comm, const dr_shape *shape);
/* Set the rows that this rank owns to dr_value. */
void dr_fill(weft_region *region);
/* Where a row lies that this rank owns; NULL for others. */
char *dr_own_row(weft_region *region, uint64_t row);

/* The whole rows of a region as a table. */
weft_table dr_table(weft_region *region);

/* Gather `n` rows and compare all elements with dr_value. */
void dr_check_gather(weft_region *region, const int64_t *ids, uint64_t n);
/* All rows of the region. */
void dr_check_all(weft_region *region);

#endif
