/* SPDX-License-Identifier: Apache-2.0 */
/* A file as the memory of a region: the first rank opens it, the others get its
 * descriptor, and all map its data. */
#ifndef WF_REGION_FILE_STORE_H
#define WF_REGION_FILE_STORE_H

#include "region/file/io.h"
#include "region/region.h"

/* wf_region_plan.storage_arg. Needed while the region is made only. */
typedef struct wf_file_store_arg {
    int fd; /* rank 0: the file, which stays the caller's; others: -1 */
    wf_file_header header;
    bool writable;
} wf_file_store_arg;

extern const wf_storage wf_storage_file;

/* The file of a region that has this storage, named as the region is, and the
 * header that it was opened with. */
wf_file wf_file_store_file(const weft_region *region);
const wf_file_header *wf_file_store_header(const weft_region *region);

#endif
