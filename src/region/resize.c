/* SPDX-License-Identifier: Apache-2.0 */
/* Growing and shrinking in place. Growth is agreed and made as at creation.
 * Shrinking cannot fail once all have come: each rank clears and gives back
 * what it owns of the rows that go. */
#include <stdio.h>

#include "base/log.h"
#include "base/num.h"
#include "region/region.h"

/* All must ask for the same. */
static weft_status compare(weft_region *region, uint64_t rows,
                           uint64_t deadline)
{
    weft_status st = wf_region_tell(region, region->comm, &rows, sizeof(rows),
                                    region->wanted, deadline);

    for (uint32_t r = 1; r < region->ranks && st == WEFT_OK; r++) {
        if (region->wanted[r] != region->wanted[0]) {
            st = wf_fail(WEFT_ERR_MISMATCH,
                         "resize of a region: rank %u asks for %llu rows, rank "
                         "0 for %llu",
                         r, (unsigned long long)region->wanted[r],
                         (unsigned long long)region->wanted[0]);
        }
    }
    if (st == WEFT_OK && rows > region->max_rows) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "resize to %llu rows exceeds max_rows of the region, "
                     "%llu",
                     (unsigned long long)rows,
                     (unsigned long long)region->max_rows);
    }
    return st;
}

static uint64_t end_of(const weft_region *region, const wf_partition *part)
{
    return wf_round_up(wf_partition_bytes(part), region->part.granule);
}

/* Only aligned parts can need more than was reserved. */
static weft_status check_reserve(const weft_region *region,
                                 const wf_partition *next)
{
    return end_of(region, next) <= region->reserve
               ? WEFT_OK
               : wf_fail(WEFT_ERR_NOMEM,
                         "%s: after %u growths the gaps between aligned parts "
                         "have used up the reserved addresses",
                         region->what, next->count);
}

static weft_status grow(weft_region *region, weft_status own,
                        const wf_partition *next, uint64_t deadline)
{
    uint32_t from = region->part.count;
    weft_status st;

    if (own == WEFT_OK) {
        own = check_reserve(region, next);
    }
    if (own == WEFT_OK) {
        own = wf_region_room(region, &region->part, next);
    }
    /* The last stretch there is may get rows back. */
    st = wf_region_back(region, region->comm, own, next, from,
                        from > 0 ? from - 1 : 0, deadline);
    if (st != WEFT_OK && own == WEFT_OK) {
        wf_failure why = wf_failure_of(st);

        wf_region_unback(region, next, from);
        (void)region->storage->access(region->store,
                                      end_of(region, &region->part));
        return wf_failure_again(&why);
    }
    return st;
}

/* Clear the bytes of this rank's part of a stretch from its row `keep` on, as
 * far as they lie before `until`: the granule there stays in use. */
static void clear_rows(weft_region *region, const wf_stretch *s, uint64_t keep,
                       uint64_t until)
{
    uint64_t at = s->at[region->rank] + keep * region->part.pitch;
    uint64_t end = s->at[region->rank] +
                   (s->first[region->rank + 1] - s->first[region->rank]) *
                       region->part.pitch;

    end = wf_least(end, until);
    if (at < end) {
        region->storage->discard(region->store, at, end - at);
    }
}

static void shrink(weft_region *region, const wf_partition *next)
{
    const wf_partition *now = &region->part;
    uint64_t until = end_of(region, next);

    if (next->count > 0) {
        const wf_stretch *cut = &next->stretch[next->count - 1];

        clear_rows(region, cut, wf_stretch_rows_of(next, cut, region->rank),
                   until);
    }
    for (uint32_t i = next->count; i < now->count; i++) {
        clear_rows(region, &now->stretch[i], 0, until);
    }
    wf_region_unback(region, now, next->count);
    if (region->storage->access(region->store, until) != WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "%s was shrunk, but: %s", region->what,
               weft_error_detail());
    }
}

/* Not while others are answered who ask for rows of this rank. */
static void take_over(weft_region *region, wf_partition *next)
{
    pthread_mutex_lock(&region->world->drive);
    if (next->rows < region->part.rows) {
        shrink(region, next);
    }
    wf_partition_fini(&region->part);
    region->part = *next;
    pthread_mutex_unlock(&region->world->drive);
}

static void tell_extras(weft_region *region)
{
    for (wf_region_extra *e = region->extras; e != NULL; e = e->next) {
        if (e->resized != NULL) {
            e->resized(e, region);
        }
    }
}

weft_status weft_region_resize(weft_region *region, uint64_t rows)
{
    wf_partition next = {0};
    uint64_t deadline;
    weft_status own;
    weft_status st;

    if (region == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region is NULL");
    }
    if (region->storage->fixed) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s is in a %s, which cannot be resized", region->what,
                       region->storage->name);
    }
    st = wf_region_here(region);
    if (st != WEFT_OK) {
        return st;
    }
    deadline = wf_region_deadline(0, region->timeout_ns);
    st = compare(region, rows, deadline);
    if (st != WEFT_OK) {
        return st;
    }
    own = wf_partition_resized(&region->part, rows, &next);
    if (rows > region->part.rows) {
        st = grow(region, own, &next, deadline);
    } else {
        st = wf_region_verdict(region, region->comm, own, deadline);
    }
    if (st != WEFT_OK) {
        wf_partition_fini(&next);
        return st;
    }
    take_over(region, &next);
    tell_extras(region);
    if (region->shown != NULL) {
        wf_region_show(region);
    }
    return WEFT_OK;
}
