/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for words in the control segment, by comm/wait.h. */
#include "comm/wait.h"
#include "base/time.h"
#include "region/region.h"

uint64_t wf_region_deadline(double seconds, uint64_t fallback_ns)
{
    return wf_now_ns() + wf_timeout_ns(seconds, fallback_ns);
}

weft_status wf_region_here(const weft_region *region)
{
    if (atomic_load(&region->world->host->orphan)) {
        return wf_fail(WEFT_ERR_CLOSED,
                       "this process was forked after the region was made: it "
                       "may use the memory, but not wait for ranks");
    }
    if (atomic_load(&region->own->state) != WF_BOARD_HERE) {
        return wf_fail(WEFT_ERR_CLOSED,
                       "the world was destroyed: the region's "
                       "memory is valid, but ranks cannot wait");
    }
    return WEFT_OK;
}

static weft_status wait_check(const wf_goal *g)
{
    wf_region_wait *w = g->ctx;
    weft_status st = wf_region_here(w->region);

    return st == WEFT_OK && w->check != NULL ? w->check(w) : st;
}

static weft_status wait_gone(const wf_goal *g, uint32_t rank)
{
    const wf_region_wait *w = g->ctx;
    const weft_region *region = w->region;
    const wf_host *host = region->world->host;
    const wf_peer *peer = &host->peer[region->member[rank]];
    weft_status st = WEFT_OK;

    if (w->needs(w, rank)) {
        st = wf_host_check(host, region->member[rank]);
    }
    if (st == WEFT_OK && w->needs(w, rank) &&
        atomic_load(&region->control->rank[rank].gone) != 0) {
        st = wf_fail(WEFT_ERR_PEER,
                     "rank %u (pid %d on %s) has released the region", rank,
                     peer->pid, peer->host);
    }
    /* What it did before it went counts. */
    return st != WEFT_OK && w->needs(w, rank) ? st : WEFT_OK;
}

static bool wait_awaits(const wf_goal *g, uint32_t rank)
{
    const wf_region_wait *w = g->ctx;

    return w->needs(w, rank);
}

/* One that has just been reached is none that failed. */
static weft_status wait_fail(const wf_goal *g, weft_status why)
{
    const wf_region_wait *w = g->ctx;

    return w->done(w) ? WEFT_OK : why;
}

static weft_status wait_look(wf_wait *w)
{
    const wf_region_wait *of = w->goal.ctx;

    return of->done(of) ? WEFT_OK : WF_PENDING;
}

wf_goal wf_region_goal(weft_region *region, const wf_goal_kind *kind, void *ctx,
                       const char *what, const _Atomic uint64_t *timeout_ns)
{
    return (wf_goal){.kind = kind,
                     .ctx = ctx,
                     .what = what,
                     .world = region->world,
                     .rank = region->rank,
                     .ranks = region->ranks,
                     .member = region->member,
                     .timeout_ns = timeout_ns,
                     .interrupt = &region->world->host->interrupt};
}

static const wf_goal_kind wait_kind = {.check = wait_check,
                                       .gone = wait_gone,
                                       .awaits = wait_awaits,
                                       .fail = wait_fail};

weft_status wf_region_await(wf_region_wait *of, uint64_t deadline_ns)
{
    _Atomic uint64_t left_ns = wf_ns_until(deadline_ns);
    wf_goal goal =
        wf_region_goal(of->region, &wait_kind, of, of->what, &left_ns);
    wf_wait w;

    wf_wait_begin(&w, &goal, false);
    return wf_wait_run(&w, wait_look);
}

weft_status wf_region_check_peers(wf_region_wait *of)
{
    wf_goal goal = wf_region_goal(of->region, &wait_kind, of, of->what, NULL);

    return wf_goal_check_peers(&goal);
}
