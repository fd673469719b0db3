/* SPDX-License-Identifier: Apache-2.0 */
#include "region/region.h"

static uint64_t bytes_of(const weft_region *region, uint32_t rank)
{
    return wf_partition_rows_of(&region->part, rank) * region->part.pitch;
}

void weft_region_count(const weft_region *region, weft_region_stats *out)
{
    *out = (weft_region_stats){
        .own_bytes = bytes_of(region, region->rank),
        .gathers = atomic_load(&region->count->gathers),
        .scatters = atomic_load(&region->count->scatters),
        .rows_own = atomic_load(&region->count->rows_own),
        .rows_node = atomic_load(&region->count->rows_node),
        .rows_remote = atomic_load(&region->count->rows_remote),
        .bytes_remote = atomic_load(&region->count->bytes_remote)};
    for (uint32_t r = 0; r < region->ranks; r++) {
        if (region->node[r] == region->node[region->rank]) {
            out->bytes += bytes_of(region, r);
        }
    }
    if (region->storage->huge_bytes != NULL) {
        out->huge_bytes = region->storage->huge_bytes(region->store);
    }
}
