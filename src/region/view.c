/* SPDX-License-Identifier: Apache-2.0 */
/* Properties, parts, read-only mappings and references of a region. */
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "region/cuda/storage.h"
#include "region/region.h"

typedef struct wf_region_view {
    void *at;
    uint64_t bytes;
    struct wf_region_view *next;
} wf_region_view;

void weft_region_retain(weft_region *region)
{
    if (region != NULL) {
        atomic_fetch_add(&region->holders, 1);
    }
}

void weft_region_destroy(weft_region *region)
{
    if (region != NULL && wf_find_release(region)) {
        wf_region_free(region);
    }
}

void weft_region_describe(const weft_region *region, weft_region_info *out)
{
    *out = (weft_region_info){.id = region->id,
                              .dims = region->dims,
                              .type = region->type,
                              .row_bytes = region->row_bytes,
                              .row_pitch = region->part.pitch,
                              .max_rows = region->max_rows,
                              .place = region->place,
                              .device = region->place == WEFT_CUDA
                                            ? wf_cuda_device_of(region->store)
                                            : region->spec.device,
                              .reach = region->reach,
                              .partition = region->part.kind,
                              .run = region->part.run,
                              .rank = region->rank,
                              .ranks = region->ranks,
                              .page = region->part.granule,
                              .flat = wf_partition_is_flat(&region->part),
                              .read_only = region->read_only};
    memcpy(out->shape, region->shape, sizeof(out->shape));
    out->shape[0] = region->part.rows;
}

void *weft_region_base(const weft_region *region)
{
    return region != NULL && region->mapped ? region->base : NULL;
}

uint32_t weft_region_parts(const weft_region *region, uint32_t rank)
{
    return region != NULL && rank < region->ranks
               ? wf_partition_ranges(&region->part, rank)
               : 0;
}

weft_status weft_region_part_of(const weft_region *region, uint32_t rank,
                                uint32_t index, weft_region_part *out)
{
    wf_range range;

    if (region == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region or out is NULL");
    }
    if (rank >= region->ranks ||
        !wf_partition_range(&region->part, rank, index, &range)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s: part %u of rank %u is out of range", region->what,
                       index, rank);
    }
    *out = (weft_region_part){.row = range.row, .rows = range.rows};
    if (wf_region_maps(region, rank)) {
        out->at = region->base + range.at;
    }
    return WEFT_OK;
}

weft_status weft_region_locate(const weft_region *region, uint64_t row,
                               uint32_t *owner, uint64_t *local)
{
    if (region == NULL || owner == NULL || local == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region, owner or local is NULL");
    }
    if (row >= region->part.rows) {
        return wf_fail(WEFT_ERR_INVALID, "row %llu is out of range (%llu rows)",
                       (unsigned long long)row,
                       (unsigned long long)region->part.rows);
    }
    *local = wf_partition_local(&region->part, row, owner);
    return WEFT_OK;
}

/* Whole granules, and at least one, so that there is something to map. */
static uint64_t view_bytes(const weft_region *region)
{
    uint64_t bytes = wf_partition_bytes(&region->part);

    return wf_round_up(bytes > 0 ? bytes : 1, region->part.granule);
}

weft_status weft_region_view_readonly(weft_region *region, void **out)
{
    wf_region_view *view;
    weft_status st;

    if (region == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region or out is NULL");
    }
    if (!region->mapped) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s: the parts of other ranks are not mapped here",
                       region->what);
    }
    view = wf_zalloc(sizeof(*view));
    if (view == NULL) {
        return wf_fail_nomem("a view of %s", region->what);
    }
    view->bytes = view_bytes(region);
    st = region->storage->view(region->store, view->bytes, &view->at);
    if (st == WEFT_OK) {
        st = wf_find_add(region, view->at, view->bytes);
        if (st != WEFT_OK) {
            region->storage->unview(region->store, view->at, view->bytes);
        }
    }
    if (st != WEFT_OK) {
        wf_free(view);
        return st;
    }
    pthread_mutex_lock(&region->lock);
    view->next = region->views;
    region->views = view;
    pthread_mutex_unlock(&region->lock);
    *out = view->at;
    return WEFT_OK;
}

static void view_end(weft_region *region, wf_region_view *view)
{
    wf_find_remove(region, view->at);
    region->storage->unview(region->store, view->at, view->bytes);
    wf_free(view);
}

void weft_region_unview(weft_region *region, void *at)
{
    wf_region_view *view = NULL;

    if (region == NULL) {
        return;
    }
    pthread_mutex_lock(&region->lock);
    for (wf_region_view **p = &region->views; *p != NULL; p = &(*p)->next) {
        if ((*p)->at == at) {
            view = *p;
            *p = view->next;
            break;
        }
    }
    pthread_mutex_unlock(&region->lock);
    if (view != NULL) {
        view_end(region, view);
    }
}

void wf_views_close(weft_region *region)
{
    while (region->views != NULL) {
        wf_region_view *view = region->views;

        region->views = view->next;
        view_end(region, view);
    }
}

bool wf_region_keep(weft_region *region, wf_region_extra *extra)
{
    bool is_new = true;

    pthread_mutex_lock(&region->lock);
    for (wf_region_extra *e = region->extras; e != NULL; e = e->next) {
        is_new = is_new && e->kind != extra->kind;
    }
    if (is_new) {
        extra->next = region->extras;
        region->extras = extra;
    }
    pthread_mutex_unlock(&region->lock);
    return is_new;
}

wf_region_extra *wf_region_kept(weft_region *region, const void *kind)
{
    wf_region_extra *e;

    pthread_mutex_lock(&region->lock);
    e = region->extras;
    while (e != NULL && e->kind != kind) {
        e = e->next;
    }
    pthread_mutex_unlock(&region->lock);
    return e;
}
