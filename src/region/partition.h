/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which rows, where they lie in the flat range, and which granules
 * each rank brings the memory for. Pure arithmetic: no memory is touched, and
 * all ranks come to the same result.
 *
 * A region is a sequence of stretches. The first is what it was created with;
 * each growth appends one, which is divided among the ranks by itself:
 *
 *   rows   0 ........ R0-1 | R0 ........ R1-1
 *          stretch 0         stretch 1
 *   part   0  1  2  3        0  1  2  3
 *
 * Inside a stretch the parts follow each other by rank. In the flat layout the
 * next part begins at the byte where the one before it ends, and a stretch
 * where the one before it ends; so, round-robin apart, row i lies at i * pitch.
 * In the aligned layout each part begins on a granule of its own.
 *
 * Shrinking drops the stretches that lie behind the new end and cuts the last
 * one: it stays divided as it was, but has fewer rows. Growing first restores
 * these rows.
 *
 * Domains: ranks with the same number map each other's parts. A granule (the
 * unit in which memory is owned) that holds bytes of several ranks of a domain
 * is backed by the first of them, in the order of addresses. */
#ifndef WF_REGION_PARTITION_H
#define WF_REGION_PARTITION_H

#include <stdbool.h>
#include <weft/region.h>

/* Longest address range of a region; offsets below never wrap. */
#define WF_REGION_BYTES_MAX (1ull << 62)

typedef struct wf_stretch {
    uint64_t row;  /* the first, in the region */
    uint64_t rows; /* when appended; fewer may be left, see wf_partition.rows */
    uint64_t rows_per_rank; /* EQUAL: of all ranks but the last; else 0 */
    /* Rows before those of rank r, r = 0 ... ranks, in the order of storage. */
    uint64_t *first;
    /* Bytes from the base to the part of rank r; [ranks] is where it ends. */
    uint64_t *at;
} wf_stretch;

typedef struct wf_partition {
    weft_partition kind;
    uint32_t ranks;
    uint64_t run; /* ROUND_ROBIN */
    uint64_t pitch;
    uint64_t granule;
    bool aligned;
    uint64_t rows; /* now */
    uint32_t count;
    wf_stretch *stretch;
} wf_partition;

/* Rows of consecutive storage of one owner. */
typedef struct wf_range {
    uint64_t row;  /* the first */
    uint64_t rows; /* round-robin: not consecutive in the region */
    uint64_t at;   /* bytes from the base */
} wf_range;

/* Rows of one owner that follow each other in the region. */
typedef struct wf_row_span {
    uint64_t row;  /* the first */
    uint64_t rows; /* 0: of nobody yet */
    uint32_t owner;
} wf_row_span;

/* An empty one; `granule` is not 0. */
void wf_partition_init(wf_partition *p, weft_partition kind, uint32_t ranks,
                       uint64_t run, uint64_t pitch, uint64_t granule,
                       bool aligned);
void wf_partition_fini(wf_partition *p);

/* Append a stretch of `rows`. `given` has the rows of each rank, their sum
 * being `rows`; NULL: equal, or round-robin. WEFT_ERR_NOMEM leaves it as it
 * was. Adding 0 rows does nothing. */
weft_status wf_partition_add(wf_partition *p, uint64_t rows,
                             const uint64_t *given);

/* Shrink or grow to `rows`. Rows that were cut off come back to the same
 * owners. Those beyond the end of the last stretch become a stretch of their
 * own, which is divided equally where part_rows were given. */
weft_status wf_partition_resize(wf_partition *p, uint64_t rows);

/* Like wf_partition_resize, but on a copy, `*out`. */
weft_status wf_partition_resized(const wf_partition *p, uint64_t rows,
                                 wf_partition *out);

/* Bytes of the flat range that are in use now, cut-off rows included. */
uint64_t wf_partition_bytes(const wf_partition *p);

/* Does row i lie at i * pitch, for all rows? */
bool wf_partition_is_flat(const wf_partition *p);

/* The stretch that holds `row`, which is less than p->rows. */
const wf_stretch *wf_partition_stretch(const wf_partition *p, uint64_t row);

/* The owner of a row, its index among the owner's rows (of all stretches), and
 * its offset from the base in bytes. `row` is less than p->rows. */
uint32_t wf_partition_owner(const wf_partition *p, uint64_t row);
uint64_t wf_partition_local(const wf_partition *p, uint64_t row,
                            uint32_t *owner);
uint64_t wf_partition_offset(const wf_partition *p, uint64_t row,
                             uint32_t *owner);

/* The owner of one row after the other, without a search for each: `span` holds
 * the rows around the one before, and is moved when `row` is not among them. */
void wf_partition_find_span(const wf_partition *p, uint64_t row,
                            wf_row_span *span);
static inline uint32_t wf_partition_owner_next(const wf_partition *p,
                                               uint64_t row, wf_row_span *span)
{
    if (row - span->row >= span->rows) {
        wf_partition_find_span(p, row, span);
    }
    return span->owner;
}

/* The current number of rows of a rank, in all stretches and in one. */
uint64_t wf_partition_rows_of(const wf_partition *p, uint32_t rank);
uint64_t wf_stretch_rows_of(const wf_partition *p, const wf_stretch *s,
                            uint32_t rank);

/* The inverse of wf_partition_local. `local` is less than
 * wf_partition_rows_of. */
uint64_t wf_partition_row_at(const wf_partition *p, uint32_t rank,
                             uint64_t local);

/* The number of ranges of a rank, at least 1 (empty, if it has no rows); ranges
 * that are adjacent in rows and in memory are merged. */
uint32_t wf_partition_ranges(const wf_partition *p, uint32_t rank);
bool wf_partition_range(const wf_partition *p, uint32_t rank, uint32_t index,
                        wf_range *out);

/* The granules of stretch number `stretch` that `rank` backs, as bytes from
 * the base: one run of whole granules, maybe empty. `domain` is by rank. */
typedef struct wf_extent {
    uint64_t at;
    uint64_t bytes;
} wf_extent;
wf_extent wf_partition_extent(const wf_partition *p, const uint32_t *domain,
                              uint32_t rank, uint32_t stretch);

/* Bytes that `rank` backs in all. */
uint64_t wf_partition_backed(const wf_partition *p, const uint32_t *domain,
                             uint32_t rank);

#endif
