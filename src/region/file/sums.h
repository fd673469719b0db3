/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums of all blocks, computed by all ranks together: each adds the
 * contribution of its own bytes, and the exclusive or over the ranks is the
 * table of a file. */
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

/* Combine those of all ranks; on rank 0 `*table` is the result, owned by
 * `sums`. Collective. */
weft_status wf_file_sums_join(wf_file_sums *sums, weft_comm *comm,
                              const uint32_t **table);

#endif
