/* SPDX-License-Identifier: Apache-2.0 */
/* Words that ranks signal each other with. */
#include "region/region.h"

static weft_status check(const weft_region *region, uint32_t rank,
                         uint32_t slot)
{
    if (region == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region is NULL");
    }
    if (rank >= region->ranks || slot >= WEFT_REGION_SIGNALS) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rank %u or signal %u is out of range (size %u, %d "
                       "signals per rank)",
                       rank, slot, region->ranks, WEFT_REGION_SIGNALS);
    }
    if (region->node[rank] != region->node[region->rank]) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "signals reach ranks of the same node only; rank %u is "
                       "on another node",
                       rank);
    }
    return WEFT_OK;
}

static _Atomic uint64_t *word_of(const weft_region *region, uint32_t rank,
                                 uint32_t slot)
{
    return &region->control->rank[rank].signal[slot];
}

weft_status weft_region_signal(weft_region *region, uint32_t to, uint32_t slot,
                               uint64_t by)
{
    weft_status st = check(region, to, slot);

    if (st == WEFT_OK) {
        st = wf_region_here(region);
    }
    if (st == WEFT_OK && to != region->rank) {
        st = wf_host_check(region->world->host, region->member[to]);
    }
    if (st != WEFT_OK) {
        return st;
    }
    /* Publishes what this rank wrote before; pairs with the load in reached. */
    atomic_fetch_add_explicit(word_of(region, to, slot), by,
                              memory_order_release);
    wf_board_ring(region->entry[to]);
    return WEFT_OK;
}

static bool reached(const wf_region_wait *w)
{
    return atomic_load_explicit(word_of(w->region, w->region->rank, w->slot),
                                memory_order_acquire) >= w->value;
}

/* Any rank may be the one to signal; one that left in peace is not missed. */
static bool died(const wf_region_wait *w, uint32_t rank)
{
    return atomic_load(&w->region->entry[rank]->state) == WF_BOARD_DEAD;
}

weft_status weft_region_wait(weft_region *region, uint32_t slot, uint64_t value,
                             double timeout)
{
    wf_region_wait w = {.region = region,
                        .done = reached,
                        .needs = died,
                        .what = "a signal of a region",
                        .value = value,
                        .slot = slot};
    weft_status st = check(region, region != NULL ? region->rank : 0, slot);

    if (st == WEFT_OK) {
        st = wf_region_here(region);
    }
    if (st != WEFT_OK) {
        return st;
    }
    return wf_region_await(&w, wf_region_deadline(timeout, region->timeout_ns));
}

weft_status weft_region_signalled(const weft_region *region, uint32_t rank,
                                  uint32_t slot, uint64_t *out)
{
    weft_status st = out != NULL ? check(region, rank, slot)
                                 : wf_fail(WEFT_ERR_INVALID, "out is NULL");

    if (st == WEFT_OK) {
        *out = atomic_load_explicit(word_of(region, rank, slot),
                                    memory_order_acquire);
    }
    return st;
}
