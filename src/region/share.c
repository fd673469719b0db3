/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a region for processes that are none of its ranks. */
#include "base/status.h"
#include "region/region.h"

weft_status weft_region_descriptor(weft_region *region, int *fd,
                                   uint64_t *offset, uint64_t *bytes)
{
    weft_status st;

    if (region == NULL || fd == NULL || offset == NULL || bytes == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region, fd, offset or bytes is NULL");
    }
    if (region->storage->descriptor == NULL || !wf_region_maps_all(region)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the memory of %s has no single descriptor: it is on a "
                       "GPU, or on several nodes",
                       region->what);
    }
    st = region->storage->descriptor(region->store, fd, offset);
    if (st == WEFT_OK) {
        *bytes = wf_partition_bytes(&region->part);
    }
    return st;
}
