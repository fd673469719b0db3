/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for words in the control segment: poll for a while, yield the core,
 * then sleep until a peer rings, as src/comm/wait.c does for operations. */
#include <sched.h>
#include <stdio.h>

#include "base/time.h"
#include "comm/request.h"
#include "region/region.h"

/* A sleeper looks around by itself now and then, for its own deadline. */
#define LONGEST_NAP_NS (100 * WF_MS)
#define LONGEST_S 1e9

uint64_t wf_region_deadline(double seconds, uint64_t fallback_ns)
{
    /* Written so that not-a-number means the fallback, too. */
    uint64_t ns = !(seconds > 0)        ? fallback_ns
                  : seconds < LONGEST_S ? (uint64_t)(seconds * 1e9)
                                        : (uint64_t)(LONGEST_S * 1e9);

    return wf_now_ns() + ns;
}

weft_status wf_region_here(const weft_region *region)
{
    if (atomic_load(&region->world->host->orphan)) {
        return wf_fail(WEFT_ERR_CLOSED,
                       "this process was forked after the region was made: it "
                       "may use the memory, but not wait for ranks");
    }
    if (atomic_load(&region->own->state) != WF_BOARD_HERE) {
        return wf_fail(WEFT_ERR_CLOSED, "the world was destroyed; the region's "
                                        "memory stays, waiting does not");
    }
    return WEFT_OK;
}

weft_status wf_region_check_peers(const wf_region_wait *w)
{
    const weft_region *region = w->region;
    const wf_host *host = region->world->host;

    for (uint32_t r = 0; r < region->ranks; r++) {
        const wf_peer *peer = &host->peer[region->member[r]];
        weft_status st = WEFT_OK;

        if (r == region->rank || !w->needs(w, r)) {
            continue;
        }
        if (atomic_load(&region->control->rank[r].gone) != 0) {
            st = wf_fail(WEFT_ERR_PEER,
                         "rank %u (pid %d on %s) has given the region up", r,
                         peer->pid, peer->host);
        }
        if (wf_host_check(host, region->member[r]) != WEFT_OK) {
            st = WEFT_ERR_PEER;
        }
        /* What it did before it went counts. */
        if (st != WEFT_OK && w->needs(w, r)) {
            return w->done(w) ? WEFT_OK : st;
        }
    }
    return WEFT_OK;
}

static weft_status timed_out(const wf_region_wait *w)
{
    const weft_region *region = w->region;
    char text[512] = "";
    size_t n = 0;

    for (uint32_t r = 0; r < region->ranks && n < sizeof(text) - 96; r++) {
        const wf_peer *p = &region->world->host->peer[region->member[r]];

        if (r != region->rank && w->needs(w, r)) {
            n += (size_t)snprintf(text + n, sizeof(text) - n,
                                  "%s rank %u (pid %d on %.40s)",
                                  n > 0 ? "," : "", r, p->pid, p->host);
        }
    }
    return wf_fail(WEFT_ERR_TIMEOUT, "rank %u: the time for %s is over%s%s",
                   region->rank, w->what, n > 0 ? ", waiting for" : "", text);
}

/* Does the caller want to give up? Asked now and then: it may be slow. */
static weft_status wait_ask(const wf_region_wait *w, uint64_t now,
                            uint64_t *asked)
{
    const weft_world *world = w->region->world;

    if (world->interrupted == NULL || now - *asked < LONGEST_NAP_NS) {
        return WEFT_OK;
    }
    *asked = now;
    return world->interrupted(world->interrupted_ctx) != 0
               ? wf_fail(WEFT_ERR_ABORTED, "interrupted in %s", w->what)
               : WEFT_OK;
}

/* Can it still end? */
static weft_status wait_check(const wf_region_wait *w, uint64_t now)
{
    weft_status st = wf_region_here(w->region);

    if (st == WEFT_OK) {
        st = wf_region_check_peers(w);
    }
    if (st == WEFT_OK && w->check != NULL) {
        st = w->check(w);
    }
    if (st == WEFT_OK && now >= w->deadline_ns) {
        st = timed_out(w);
    }
    return st;
}

/* Announce it, look again, sleep. */
static void wait_sleep(const wf_region_wait *w, uint64_t now)
{
    weft_region *region = w->region;
    wf_board *board = region->world->host->board;
    uint64_t until = now + LONGEST_NAP_NS;
    uint32_t bell = wf_board_drowse(board, region->own);

    if (!w->done(w)) {
        wf_board_sleep(board, region->own, bell,
                       until < w->deadline_ns ? until : w->deadline_ns);
    }
    wf_board_awake(region->own);
}

weft_status wf_region_await(const wf_region_wait *w)
{
    weft_world *world = w->region->world;
    uint64_t since = wf_now_ns();
    uint64_t now = since;
    uint64_t asked = since;
    weft_status st;

    for (uint32_t polls = 1; !w->done(w); polls++) {
        if ((polls & world->poll_mask) != 0) {
            wf_cpu_relax();
            continue;
        }
        st = wait_check(w, now);
        if (st == WEFT_OK) {
            st = wait_ask(w, now, &asked);
        }
        if (st != WEFT_OK) {
            return w->done(w) ? WEFT_OK : st;
        }
        if (atomic_load_explicit(&world->pending, memory_order_relaxed) != 0) {
            wf_world_drive(world);
        }
        now = wf_now_ns();
        if (now - since >= world->spin_ns + world->yield_ns) {
            wait_sleep(w, now);
            now = wf_now_ns();
        } else if (now - since >= world->spin_ns) {
            sched_yield();
        }
    }
    return WEFT_OK;
}
