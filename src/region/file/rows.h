/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a region as a stream of bytes, in host or in GPU memory. */
#ifndef WF_REGION_FILE_ROWS_H
#define WF_REGION_FILE_ROWS_H

#include "region/file/move.h"

/* How many rows of `owner` from `row` on are consecutive both in memory and in
 * the region. */
uint64_t wf_file_rows_together(const wf_partition *p, uint64_t row,
                               uint32_t owner);

/* Each thread calls these before and after it copies. */
weft_status wf_file_rows_enter(const weft_region *region);
void wf_file_rows_leave(const weft_region *region);

/* Copy `n` bytes from `at` of the stream on, to the region or from it as
 * `move` says. */
weft_status wf_file_rows_copy(const wf_file_move *move, uint64_t at,
                              unsigned char *bytes, size_t n);

#endif
