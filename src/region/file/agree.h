/* SPDX-License-Identifier: Apache-2.0 */
/* The common beginning of all calls on files of regions, and the agreement of
 * their ranks on one result. */
#ifndef WF_REGION_FILE_AGREE_H
#define WF_REGION_FILE_AGREE_H

#include <weft/file.h>

#include "region/region.h"

/* WEFT_OK if `own` is WEFT_OK on all ranks; else all get the failure of the
 * first rank that has one, named in the text. Collective. */
weft_status wf_file_agree(weft_comm *comm, weft_status own);

/* Like wf_file_agree, for what only rank 0 did; if it succeeded, its `n` bytes
 * at `data` are broadcast. */
weft_status wf_file_tell(weft_comm *comm, weft_status own, void *data,
                         size_t n);

/* Check the arguments that all calls have, on all ranks, and give `out` the
 * options with their defaults. Collective unless `region` or `comm` is NULL. */
weft_status wf_file_begin(const weft_region *region, weft_comm *comm,
                          const char *path, const weft_file_options *options,
                          weft_file_options *out);

#endif
