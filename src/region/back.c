/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the rows of a region: each rank makes its objects, mails them to
 * those who map them, maps theirs and commits its own granules. The steps are
 * in storage.h; they are the same for creation and for growth. */
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/num.h"
#include "mem/link.h"
#include "region/region.h"

/* What goes with a descriptor; compared with what the receiver expects. */
typedef struct letter {
    uint64_t at;
    uint64_t bytes;
} letter;

typedef struct work {
    weft_region *region;
    weft_comm *comm; /* NULL: the control segment */
    const wf_partition *part;
    uint32_t from;
    uint64_t key;
    uint64_t deadline;
} work;

static uint32_t first_of_domain(const weft_region *region)
{
    uint32_t r = 0;

    while (!wf_region_maps(region, r)) {
        r++;
    }
    return r;
}

/* The object that a rank of this domain makes; of no bytes if it makes none. */
static wf_extent object_of(const work *w, uint32_t rank)
{
    const weft_region *region = w->region;

    if (region->storage->whole) {
        bool makes = !region->made && rank == first_of_domain(region);

        return (wf_extent){0, makes ? region->reserve : 0};
    }
    return w->from < w->part->count
               ? wf_partition_extent(w->part, region->domain, rank, w->from)
               : (wf_extent){0};
}

static weft_status make_own(const work *w, int *fd)
{
    weft_region *region = w->region;
    wf_extent e = object_of(w, region->rank);

    return e.bytes > 0
               ? region->storage->create(region->store, e.at, e.bytes, fd)
               : WEFT_OK;
}

/* To everybody; if that cannot be, nobody waits for the rest. */
static weft_status post_own(const work *w, int fd)
{
    weft_region *region = w->region;
    wf_extent e = object_of(w, region->rank);
    letter l = {e.at, fd >= 0 ? e.bytes : 0};
    weft_status st = WEFT_OK;

    for (uint32_t r = 0; e.bytes > 0 && r < region->ranks && st == WEFT_OK;
         r++) {
        if (r != region->rank && wf_region_maps(region, r)) {
            st = wf_region_post(region, w->comm, r, w->key, &l, sizeof(l), fd);
        }
    }
    return st;
}

static weft_status take_one(const work *w, uint32_t rank, wf_extent e)
{
    weft_region *region = w->region;
    letter l = {0};
    size_t n = sizeof(l);
    int fd = -1;
    weft_status st =
        wf_region_take(region, w->comm, rank, w->key, &l, &n, &fd, w->deadline);

    if (st != WEFT_OK) {
        return st;
    }
    if (n != sizeof(l) || l.at != e.at || l.bytes != e.bytes) {
        wf_close(fd);
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u sent memory of the wrong size for %s", rank,
                       region->what);
    }
    if (fd < 0) {
        return wf_link_fail_lost(rank);
    }
    return region->storage->attach(region->store, e.at, e.bytes, fd);
}

/* All of it, also after a failure, so that no mail is left lying; only those
 * who are gone are not waited for. */
static void take_others(const work *w, wf_failure *first)
{
    weft_region *region = w->region;

    for (uint32_t r = 0; r < region->ranks; r++) {
        if (r != region->rank && wf_region_maps(region, r)) {
            wf_extent e = object_of(w, r);

            wf_failure_note(first, e.bytes > 0 ? take_one(w, r, e) : WEFT_OK);
        }
    }
}

static weft_status commit_own(const work *w, uint32_t commit)
{
    weft_region *region = w->region;
    weft_status st = WEFT_OK;

    for (uint32_t i = commit; i < w->part->count && st == WEFT_OK; i++) {
        wf_extent e =
            wf_partition_extent(w->part, region->domain, region->rank, i);

        if (e.bytes > 0) {
            st = region->storage->commit(region->store, e.at, e.bytes);
        }
    }
    if (st == WEFT_OK) {
        st = region->storage->access(
            region->store,
            wf_round_up(wf_partition_bytes(w->part), region->part.granule));
    }
    return st;
}

weft_status wf_region_back(weft_region *region, weft_comm *comm,
                           weft_status own, const wf_partition *part,
                           uint32_t from, uint32_t commit, uint64_t deadline)
{
    work w = {region, comm, part, from, wf_region_mail_key(region), deadline};
    int fd = -1;
    weft_status st;

    if (own == WEFT_OK) {
        own = make_own(&w, &fd);
    }
    st = wf_region_verdict(region, comm, own, deadline);
    if (st == WEFT_OK) {
        wf_failure first = wf_failure_of(post_own(&w, fd));

        take_others(&w, &first);
        if (first.status == WEFT_OK) {
            first = wf_failure_of(commit_own(&w, commit));
        }
        st =
            wf_region_verdict(region, comm, wf_failure_again(&first), deadline);
    }
    region->made = region->made || st == WEFT_OK;
    wf_close(fd);
    return st;
}

void wf_region_unback(weft_region *region, const wf_partition *part,
                      uint32_t from)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = from; i < part->count; i++) {
        for (uint32_t r = 0; r < region->ranks; r++) {
            wf_extent e = wf_partition_extent(part, region->domain, r, i);

            if (wf_region_maps(region, r) && e.bytes > 0) {
                least = wf_least(e.at, least);
            }
            if (r == region->rank && e.bytes > 0 && region->storage->whole) {
                region->storage->discard(region->store, e.at, e.bytes);
            }
        }
    }
    if (least != UINT64_MAX && region->storage->truncate != NULL) {
        region->storage->truncate(region->store, least);
    }
}

/* Bytes that a rank has to commit to come from `now` to `more`. */
static uint64_t growth_of(const weft_region *region, const wf_partition *now,
                          const wf_partition *more, uint32_t rank)
{
    uint64_t had = wf_partition_backed(now, region->domain, rank);
    uint64_t needs = wf_partition_backed(more, region->domain, rank);

    return needs > had ? needs - had : 0;
}

/* Count `bytes` of a rank to those groups of ours that it is in, too. */
static void count_in_groups(const wf_cgroup_ids *its, uint64_t bytes,
                            wf_storage_need *need)
{
    for (unsigned i = 0; i < need->groups.count; i++) {
        if (wf_cgroup_ids_have(its, need->groups.group[i].id)) {
            need->in_group[i] += bytes;
        }
    }
}

weft_status wf_region_room(const weft_region *region, const wf_partition *now,
                           const wf_partition *more)
{
    const wf_host *host = region->world->host;
    wf_storage_need need = {0};

    if (region->storage->room == NULL) {
        return WEFT_OK;
    }
    for (uint32_t r = 0; r < region->ranks; r++) {
        if (host->peer[region->member[r]].local != WF_NOT_HERE) {
            need.bytes += growth_of(region, now, more, r);
        }
    }
    wf_cgroups_read("", need.bytes, &need.groups);
    for (uint32_t r = 0; r < region->ranks; r++) {
        if (host->peer[region->member[r]].local != WF_NOT_HERE) {
            count_in_groups(&region->groups[r], growth_of(region, now, more, r),
                            &need);
        }
    }
    return region->storage->room(&region->spec, &need);
}
