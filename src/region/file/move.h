/* SPDX-License-Identifier: Apache-2.0 */
/* Moving this rank's share of the rows between a region and a file.
 *
 * Seen from here the file is one stream of bytes, its rows one after the other,
 * and byte `at` of it belongs to row at / width. The share of a rank is its own
 * rows, except that a round-robin region that is mapped everywhere is divided
 * into one contiguous share per rank, so that no rank writes row by row.
 *
 * The share is cut at multiples of `block` of the stream. Each piece goes
 * through a buffer, so that the checksum is that of the bytes written, even if
 * another thread changes the row meanwhile. */
#ifndef WF_REGION_FILE_MOVE_H
#define WF_REGION_FILE_MOVE_H

#include <weft/file.h>

#include "region/region.h"

/* Write or read a piece of the stream. Called by several threads at once. */
typedef weft_status wf_file_piece_fn(void *ctx, uint64_t at,
                                     unsigned char *bytes, size_t n);

typedef struct wf_file_move {
    weft_region *region;
    bool load;      /* from file to region */
    uint64_t rows;  /* in the file, at most those of the region */
    uint64_t width; /* bytes of a row in the file */
    uint64_t skip;  /* their offset in the region's row */
    uint64_t block;
    wf_file_piece_fn *piece;
    void *ctx;
    const weft_file_options *options;
} wf_file_move;

weft_status wf_file_move_run(const wf_file_move *move);

#endif
