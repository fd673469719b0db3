/* SPDX-License-Identifier: Apache-2.0 */
/* What all calls on files of regions begin with, and how their ranks come to
 * one result. */
#ifndef WF_REGION_FILE_AGREE_H
#define WF_REGION_FILE_AGREE_H

#include <weft/file.h>

#include "region/region.h"

/* WEFT_OK if `own` is that on all ranks; else all get the failure of the first
 * rank that has one, named in the text. Collective. */
weft_status wf_file_agree(weft_comm *comm, weft_status own);

/* The same for what only rank 0 did; it gives its `n` bytes at `data` to all if
 * it went well. */
weft_status wf_file_tell(weft_comm *comm, weft_status own, void *data,
                         size_t n);

/* Check the arguments that all calls have, on all ranks, and give `out` the
 * options with their defaults. Collective unless `region` or `comm` is NULL. */
weft_status wf_file_begin(const weft_region *region, weft_comm *comm,
                          const char *path, const weft_file_options *options,
                          weft_file_options *out);

#endif
