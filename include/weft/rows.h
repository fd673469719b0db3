/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by their numbers: gather, scatter, and adding scatter, from regions or
 * from any memory of this process, host or GPU.
 *
 * No call is collective, not even between nodes: an owner need not call
 * anything. Rows of a region that are not mapped here come and go by messages.
 * Then a call may also fail with WEFT_ERR_PEER if the rank that has them died
 * or left, WEFT_ERR_CLOSED if it gave the region up, WEFT_ERR_TIMEOUT if it
 * does not answer, and have moved some of the rows. (weft_gather and
 * weft_scatter of <weft/coll.h> are the collectives of these names.) */
#ifndef WEFT_ROWS_H
#define WEFT_ROWS_H

#include <weft/region.h>

WEFT_BEGIN_DECLS

/** What to do with a number past the last row. A negative one always leaves
 * its row as it is. */
typedef enum weft_bounds {
    WEFT_BOUNDS_ERROR = 0,    /* WEFT_ERR_INVALID that names it */
    WEFT_BOUNDS_SKIP = 1,     /* leave its row as it is, too */
    WEFT_BOUNDS_UNCHECKED = 2 /* the caller has checked */
} weft_bounds;

/** The table: a region, or memory of this process, and which columns of it.
 * Ids count from row `first`, and those from `limit` on are past the end. A
 * view without rows has `first` equal to the number of rows. */
typedef struct weft_table {
    weft_region *region; /* or NULL, and then: */
    void *at;            /* its first row */
    uint64_t rows;
    uint64_t pitch;   /* bytes from row to row */
    weft_place place; /* which memory `at` is in */
    /* For both: */
    uint64_t first; /* the row that counts as row 0 (a view's first) */
    uint64_t limit; /* rows from there on; 0: to the end */
    uint64_t skip;  /* bytes before the first column */
    uint64_t width; /* elements of a row */
    weft_dtype type;
} weft_table;

/** A dense array of rows in this process, one for each id; as wide as the
 * table's. */
typedef struct weft_rows {
    void *at;
    uint64_t pitch; /* bytes from row to row; 0: no gap between them */
    weft_dtype type;
    weft_place place; /* which memory `at` is in; the same as that of the ids */
} weft_rows;

/** Row numbers: WEFT_I32 or WEFT_I64, `n` of them, one after the other. */
typedef struct weft_ids {
    const void *at;
    weft_dtype type;
    uint64_t n;
    weft_place place; /* which memory `at` is in */
} weft_ids;

typedef struct weft_rows_options {
    size_t size;
    weft_bounds bounds;
    uint32_t threads; /* CPU: 0 as WEFT_THREADS says, and for little work 1 */
    /** scatter_add: add equal ids in their order in `ids`, so that one call's
     * result does not depend on threads. scatter: of equal ids the last wins
     * always. */
    int32_t deterministic;
    void *stream;  /* CUDA: the stream (a CUstream); NULL: the default one */
    int32_t sort;  /* CUDA, host table: 0 decides by row size, 1 yes, -1 no */
    int32_t clear; /* gather, CPU: rows of ids that are left out become zeros,
                    * else they stay as they are */
} weft_rows_options;

/**
 * out[i, :] = table[ids[i], :]. Table, ids and out are all in host memory, or
 * ids and out on the GPU and the table anywhere. `out` overlaps neither table
 * nor ids, which on the host is an error: WEFT_ERR_INVALID, also if the rows
 * that are asked for are others (but other columns of the same rows will do).
 * Rows may have any size and lie at any address; ids are aligned.
 *
 * Types may differ inside a class: floating to floating, through f32 as in
 * torch; integers and bool among each other, what is too large wrapping
 * around; complex to complex.
 *
 * On the host the call returns when the rows are there. Ids are looked through
 * before anything is written: WEFT_ERR_INVALID for one past the end leaves
 * `out` as it was. On a GPU it returns when the work is on the stream, and
 * the next weft_rows_check of the stream reports ids past the end.
 *
 * WEFT_ERR_INVALID for arguments that do not fit together, WEFT_ERR_UNSUPPORTED
 * for what this build cannot reach. Any thread may call it.
 */
WEFT_API weft_status weft_rows_gather(const weft_table *table,
                                      const weft_ids *ids, const weft_rows *out,
                                      const weft_rows_options *options);

/** table[ids[i], :] = from[i, :], as weft_rows_gather. Of equal ids in a call
 * the last wins, whatever the threads; of ranks that write one row at once any
 * may win, in any part of it. The table's rows do not overlap, and neither
 * `from` nor ids lie in it. */
WEFT_API weft_status weft_rows_scatter(const weft_table *table,
                                       const weft_ids *ids,
                                       const weft_rows *from,
                                       const weft_rows_options *options);

/** table[ids[i], :] += from[i, :], as weft_rows_scatter. Each element is added
 * whole: no sum is lost between threads and ranks that add at once, and a
 * reader sees it before or after. Same type on both sides, and elements of the
 * table aligned to their size; bool is "or", integers wrap around, f16 and bf16
 * are rounded after each addition. */
WEFT_API weft_status weft_rows_scatter_add(const weft_table *table,
                                           const weft_ids *ids,
                                           const weft_rows *from,
                                           const weft_rows_options *options);

/** Has a gather or scatter on this CUDA stream met a number past the end since
 * the last check? Waits for the stream. */
WEFT_API weft_status weft_rows_check(void *stream);

WEFT_END_DECLS

#endif
