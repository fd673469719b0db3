/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums of all blocks, made by all ranks together: each adds what its
 * own bytes give, and the exclusive or over the ranks is the table of a file.
 */
#ifndef WF_REGION_FILE_SUMS_H
#define WF_REGION_FILE_SUMS_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "region/file/format.h"

typedef struct wf_file_sums {
    const wf_file_header *header; /* the caller's */
    _Atomic uint32_t *piece;      /* for each block, what was added so far */
} wf_file_sums;

weft_status wf_file_sums_init(const wf_file_header *header, wf_file_sums *out);
/* Takes a zeroed one, too. */
void wf_file_sums_fini(wf_file_sums *sums);

/* Add `n` bytes of one block that lie `at` behind the beginning of the data.
 * Any thread. */
void wf_file_sums_add(wf_file_sums *sums, uint64_t at, const void *bytes,
                      size_t n);

/* Put those of all ranks together: on rank 0 the result is the table, which is
 * `sums`' own. Collective. */
weft_status wf_file_sums_join(wf_file_sums *sums, weft_comm *comm,
                              const uint32_t **table);

#endif
