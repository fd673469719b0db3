/* SPDX-License-Identifier: Apache-2.0 */
/* Making a region, in steps after each of which all ranks agree:
 *
 *   1. each has sound arguments and memory for what it keeps
 *   2. all have the same arguments
 *   3. each has the addresses, and there is memory for all parts together
 *   4. the control segment and the objects are made
 *   5. all are mapped, and have their memory
 *   6. rows that are not mapped everywhere can be asked for
 *
 * Whoever fails tells the others why, and all undo what they have. */
#include <string.h>

#include "base/alloc.h"
#include "base/options.h"
#include "base/secret.h"
#include "base/time.h"
#include "coll/coll.h"
#include "region/region.h"
#include "region/remote/remote.h"
#include <weft/coll.h>

/* Aligned parts may leave gaps; the reserve has room for so many growths. */
#define ALIGNED_GROWTHS 32u

static weft_region *region_alloc(weft_comm *comm)
{
    uint32_t n = comm->size;
    weft_region *region = wf_zalloc(sizeof(*region));

    if (region == NULL) {
        return NULL;
    }
    region->control_segment.fd = -1;
    region->count = &region->own_count;
    pthread_mutex_init(&region->lock, NULL);
    pthread_mutex_init(&region->barrier_lock, NULL);
    atomic_store(&region->holders, 1);
    region->world = comm->world;
    wf_world_acquire(comm->world);
    region->rank = comm->rank;
    region->ranks = n;
    region->one_node = comm->one_node;
    region->own = comm->own;
    region->member = wf_alloc(n * sizeof(*region->member));
    region->node = wf_alloc(n * sizeof(*region->node));
    region->domain = wf_alloc(n * sizeof(*region->domain));
    region->groups = wf_alloc(n * sizeof(*region->groups));
    region->entry = wf_alloc(n * sizeof(wf_board_rank *));
    region->wanted = wf_alloc(n * sizeof(*region->wanted));
    if (region->member == NULL || region->node == NULL ||
        region->domain == NULL || region->groups == NULL ||
        region->entry == NULL || region->wanted == NULL) {
        wf_region_free(region);
        return NULL;
    }
    memcpy(region->member, comm->member, n * sizeof(*comm->member));
    memcpy(region->entry, comm->entry, n * sizeof(wf_board_rank *));
    for (uint32_t r = 0; r < n; r++) {
        region->node[r] = comm->world->host->peer[comm->member[r]].node;
    }
    return region;
}

static void close_extras(weft_region *region)
{
    while (region->extras != NULL) {
        wf_region_extra *e = region->extras;

        region->extras = e->next;
        if (e->closing != NULL) {
            e->closing(e, region);
        }
    }
}

void wf_region_free(weft_region *region)
{
    if (region == NULL) {
        return;
    }
    close_extras(region);
    wf_region_hide(region);
    wf_views_close(region);
    if (region->store != NULL) {
        wf_find_remove(region, region->base);
        region->storage->close(region->store);
    }
    wf_control_close(region);
    weft_comm_destroy(region->comm);
    wf_partition_fini(&region->part);
    pthread_mutex_destroy(&region->lock);
    pthread_mutex_destroy(&region->barrier_lock);
    wf_free(region->member);
    wf_free(region->node);
    wf_free(region->domain);
    wf_free(region->groups);
    wf_free(region->entry);
    wf_free(region->wanted);
    wf_world_release(region->world);
    wf_free(region);
}

static const wf_storage *storage_of(const wf_region_plan *plan)
{
    return plan->storage != NULL              ? plan->storage
           : plan->options.place == WEFT_CUDA ? &wf_storage_cuda
                                              : &wf_storage_host;
}

static wf_huge huge_of(const wf_region_plan *plan, const weft_region *region)
{
    return plan->options.pages == WEFT_PAGES_SMALL ? WF_HUGE_OFF
           : plan->options.pages == WEFT_PAGES_HUGE
               ? WF_HUGE_HUGETLB
               : (wf_huge)region->world->settings.huge;
}

/* Step 1: what this rank can say by itself. */
static weft_status begin(const wf_region_plan *plan, weft_region *region)
{
    weft_status st = wf_region_check(plan, region);

    if (st != WEFT_OK) {
        return st;
    }
    region->place = plan->options.place;
    region->storage = storage_of(plan);
    region->read_only = plan->read_only;
    region->spec =
        (wf_storage_spec){.what = region->what,
                          .device = plan->options.device,
                          .driver = region->world->settings.cuda_driver,
                          .local = region->world->host->self,
                          .numa = plan->options.numa,
                          .huge = huge_of(plan, region),
                          .bytes = region->shape[0] * region->part.pitch,
                          .arg = plan->storage_arg};
    return region->storage->granule(&region->spec, &region->spec.granule);
}

/* By the first rank's count of regions: sequence numbers and ids of
 * communicators come again, and a region may outlive its communicator. */
static uint64_t region_id(const weft_region *region, uint64_t number)
{
    wf_secret key = {{region->world->host->job, region->member[0]}};

    return wf_keyed_hash(&key, &number, sizeof(number));
}

/* Step 2. */
static weft_status compare(weft_comm *comm, const wf_region_plan *plan,
                           weft_region *region, wf_region_facts *all,
                           uint64_t deadline)
{
    wf_region_facts mine;
    weft_status st;

    wf_region_facts_of(plan, region, &mine);
    mine.number = atomic_fetch_add(&wf_region_world_of(region->world)->made, 1);
    st = wf_region_tell(region, comm, &mine, sizeof(mine), all, deadline);
    if (st == WEFT_OK) {
        st = wf_region_compare(all, region->ranks);
    }
    if (st == WEFT_OK) {
        region->id = region_id(region, all[0].number);
    }
    for (uint32_t r = 0; r < region->ranks && st == WEFT_OK; r++) {
        region->groups[r] = all[r].groups;
        if (all[r].granule > region->spec.granule) {
            region->spec.granule = all[r].granule;
        }
    }
    return st;
}

/* Who maps whose parts. All ranks come to the same result. */
static weft_status choose_reach(const wf_region_plan *plan, weft_region *region)
{
    weft_reach reach = plan->options.reach;
    bool each_alone = reach == WEFT_REACH_DISTRIBUTED;

    if (!region->one_node && reach == WEFT_REACH_MAPPED) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s: its ranks are on several nodes and cannot map each "
                       "other's memory",
                       region->what);
    }
    region->reach = each_alone                      ? WEFT_REACH_DISTRIBUTED
                    : region->one_node              ? WEFT_REACH_MAPPED
                    : reach == WEFT_REACH_HIERARCHY ? WEFT_REACH_HIERARCHY
                                                    : WEFT_REACH_DISTRIBUTED;
    region->mapped = true;
    region->spec.alone = true;
    for (uint32_t r = 0; r < region->ranks; r++) {
        region->domain[r] = each_alone ? r : region->node[r];
    }
    for (uint32_t r = 0; r < region->ranks; r++) {
        bool mate = wf_region_maps(region, r);

        region->mapped = region->mapped && mate;
        region->spec.alone = region->spec.alone && (!mate || r == region->rank);
    }
    return WEFT_OK;
}

/* Bytes of addresses for all rows it may ever have, at least a granule. */
static weft_status size_reserve(weft_region *region)
{
    const wf_partition *p = &region->part;
    uint64_t growths = region->max_rows > p->rows ? ALIGNED_GROWTHS : 0;
    uint64_t gaps = p->aligned ? (growths + 1) * p->ranks * p->granule : 0;
    uint64_t bytes = region->max_rows * p->pitch;

    if (__builtin_add_overflow(bytes, gaps + p->granule, &bytes) ||
        bytes > WF_REGION_BYTES_MAX) {
        return wf_fail(WEFT_ERR_NOMEM, "%s exceeds the address space",
                       region->what);
    }
    region->reserve = bytes / p->granule * p->granule;
    return WEFT_OK;
}

/* Step 3. */
static weft_status lay_out(const wf_region_plan *plan, weft_region *region)
{
    const weft_region_options *o = &plan->options;
    wf_partition none;
    weft_status st;

    wf_partition_init(&region->part, o->partition, region->ranks, o->run,
                      region->part.pitch, region->spec.granule,
                      o->aligned != 0);
    none = region->part;
    st = wf_partition_add(&region->part, region->shape[0],
                          o->partition == WEFT_PARTITION_GIVEN ? o->part_rows
                                                               : NULL);
    if (st == WEFT_OK) {
        st = size_reserve(region);
    }
    if (st == WEFT_OK) {
        st = wf_region_room(region, &none, &region->part);
    }
    return st;
}

static weft_status open_storage(weft_region *region)
{
    void *base = NULL;
    void *store = NULL;
    weft_status st =
        region->storage->open(&region->spec, region->reserve, &base, &store);

    if (st != WEFT_OK) {
        return st;
    }
    region->base = base;
    region->store = store;
    return wf_find_add(region, base, region->reserve);
}

/* The steps from the third on. */
static weft_status build(weft_comm *comm, const wf_region_plan *plan,
                         weft_region *region, uint64_t deadline)
{
    weft_status st = choose_reach(plan, region);
    weft_status own;

    if (st != WEFT_OK) {
        return st; /* the same on all ranks */
    }
    own = lay_out(plan, region);
    if (own == WEFT_OK) {
        own = open_storage(region);
    }
    st = wf_region_verdict(region, comm, own, deadline);
    if (st == WEFT_OK && !region->one_node) {
        st = weft_comm_dup(comm, &region->comm);
    }
    if (st != WEFT_OK) {
        return st;
    }
    own = wf_control_open(region, comm, deadline);
    st = wf_region_back(region, comm, own, &region->part, 0, 0, deadline);
    return st == WEFT_OK && !region->mapped
               ? wf_remote_open(region, comm, deadline)
               : st;
}

/* All ranks of the communicator have come to make a region. */
static weft_status agree(weft_comm *comm, uint64_t deadline, uint32_t *sequence)
{
    wf_call call = {.kind = WF_CALL_REGION};
    uint64_t usual = comm->timeout_ns;
    weft_status st;

    comm->timeout_ns = wf_ns_until(deadline);
    st = wf_coll_agree(comm, &call, sequence);
    comm->timeout_ns = usual;
    return st;
}

/* Free it, and let the reason stand. */
static weft_status give_up(weft_region *region, weft_status st)
{
    wf_failure why = wf_failure_of(st);

    wf_region_free(region);
    return wf_failure_again(&why);
}

weft_status wf_region_form(weft_comm *comm, const wf_region_plan *plan,
                           weft_status bad, weft_region **out)
{
    uint64_t deadline =
        wf_region_deadline(plan->options.timeout, comm->timeout_ns);
    weft_region *region = region_alloc(comm);
    wf_region_facts *all = wf_alloc(comm->size * sizeof(*all));
    wf_failure own;
    uint32_t sequence;
    weft_status st;

    if (bad == WEFT_OK) {
        bad = region == NULL || all == NULL
                  ? wf_fail_nomem("a region of %u ranks", comm->size)
                  : begin(plan, region);
    }
    own = wf_failure_of(bad);
    st = agree(comm, deadline, &sequence);
    if (st == WEFT_OK) {
        st = wf_region_verdict(region, comm, wf_failure_again(&own), deadline);
    }
    /* Whoever lacks one of the two has said so, and none goes on. */
    if (st == WEFT_OK && region != NULL && all != NULL) {
        region->timeout_ns = comm->timeout_ns;
        st = compare(comm, plan, region, all, deadline);
        if (st == WEFT_OK) {
            st = build(comm, plan, region, deadline);
        }
    }
    wf_free(all);
    if (st != WEFT_OK) {
        return give_up(region, st);
    }
    if (!plan->inside) {
        wf_region_show(region);
    }
    *out = region;
    return WEFT_OK;
}

weft_status weft_region_create(weft_comm *comm, uint32_t dims,
                               const uint64_t *shape, weft_dtype type,
                               const weft_region_options *options,
                               weft_region **out)
{
    wf_region_plan plan = {.dims = dims, .shape = shape, .type = type};
    weft_status bad;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    bad = wf_options_read(options, "weft_region_options", &plan.options,
                          sizeof(plan.options));
    return wf_region_form(comm, &plan, bad, out);
}
