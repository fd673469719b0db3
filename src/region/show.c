/* SPDX-License-Identifier: Apache-2.0 */
/* A region on the board's shelf, for those who look from outside. */
#include "region/region.h"

/* Counts go on from where they were. */
static void count_at(weft_region *region, wf_region_counts *at)
{
    const _Atomic uint64_t *from = &region->count->gathers;
    _Atomic uint64_t *to = &at->gathers;

    for (size_t i = 0; i < sizeof(*at) / sizeof(*to); i++) {
        atomic_store(&to[i], atomic_load(&from[i]));
    }
    region->count = at;
}

static void fill(weft_region *region)
{
    wf_shown_region *shown = region->shown;
    const wf_partition *p = &region->part;

    shown->ranks = region->ranks;
    shown->dims = region->dims;
    shown->type = (uint32_t)region->type;
    shown->place = (uint32_t)region->place;
    shown->reach = (uint32_t)region->reach;
    for (uint32_t d = 1; d < region->dims; d++) {
        atomic_store(&shown->shape[d], region->shape[d]);
    }
    atomic_store(&shown->shape[0], p->rows);
    atomic_store(&shown->bytes, p->rows * p->pitch);
    atomic_store(&shown->own_bytes,
                 wf_partition_rows_of(p, region->rank) * p->pitch);
    wf_shelf_show(&shown->id, region->id + 1);
}

void wf_region_show(weft_region *region)
{
    if (region->shown == NULL) {
        region->shown =
            wf_shelf_take_region(wf_host_shelf(region->world->host));
        if (region->shown == NULL) {
            return;
        }
        count_at(region, &region->shown->count);
    }
    fill(region);
}

void wf_region_hide(weft_region *region)
{
    if (region->shown != NULL) {
        count_at(region, &region->own_count);
        wf_shelf_give_region(region->shown);
        region->shown = NULL;
    }
}
