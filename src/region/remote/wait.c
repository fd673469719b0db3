/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for answers: drive the world, politely, as src/comm/wait.c does; the
 * deadline counts from the last answer. Meanwhile the caller also answers the
 * questions of others, in place of the rank's server. */
#include <sched.h>
#include <stdio.h>

#include "base/time.h"
#include "comm/request.h"
#include "region/remote/remote.h"

#define LONGEST_NAP_NS (100 * WF_MS)

typedef struct waiting {
    wf_rows_block *block;
    weft_region *region;
    weft_world *world;
    uint32_t moved;
    uint64_t since_ns;
    uint64_t asked_ns; /* when the program was asked whether to give up */
} waiting;

static bool is_over(const wf_rows_block *b)
{
    return atomic_load_explicit(&b->unfinished, memory_order_acquire) == 0 ||
           atomic_load_explicit(&b->failed, memory_order_acquire) != 0;
}

static bool is_due(const wf_rows_target *t)
{
    return t->owed > 0 || t->next < t->end;
}

/* A rank that is gone answers no more, once all that it sent was read. */
static weft_status check_target(const waiting *w, const wf_rows_target *t)
{
    uint32_t rank = w->region->member[t->rank];
    const wf_route *r = wf_world_route(w->world, rank);
    weft_status st = WEFT_OK;

    if (is_due(t) && r->transport->lost(r->port, rank)) {
        st = wf_host_check(w->world->host, rank);
        if (st == WEFT_OK) {
            st = wf_fail(WEFT_ERR_PROTOCOL,
                         "rank %u sent something malformed before", rank);
        }
    }
    return st;
}

static void check_targets(const waiting *w)
{
    wf_rows_block *b = w->block;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&w->world->drive);
    for (uint32_t i = 0; i < b->targets && st == WEFT_OK; i++) {
        st = check_target(w, &b->target[i]);
    }
    if (st != WEFT_OK) {
        wf_rows_block_fail(b, st);
    }
    pthread_mutex_unlock(&w->world->drive);
}

static weft_status timed_out(const waiting *w)
{
    const wf_rows_block *b = w->block;
    char text[512] = "";
    size_t n = 0;

    for (uint32_t i = 0; i < b->targets && n < sizeof(text) - 96; i++) {
        uint32_t rank = w->region->member[b->target[i].rank];
        const wf_peer *p = &w->world->host->peer[rank];

        if (is_due(&b->target[i])) {
            n += (size_t)snprintf(
                text + n, sizeof(text) - n, "%s rank %u (pid %d on %.40s%s)",
                n > 0 ? "," : "", rank, p->pid, p->host,
                wf_host_stopped(w->world->host, rank) ? ", stopped" : "");
        }
    }
    return wf_fail(WEFT_ERR_TIMEOUT,
                   "rank %u: rows of a region: no answer for %.1f s, waiting "
                   "for%s",
                   w->region->rank, (double)w->region->timeout_ns * 1e-9, text);
}

static void check_time(waiting *w, uint64_t now)
{
    weft_world *world = w->world;
    weft_status st = wf_region_here(w->region);

    if (world->interrupted != NULL && now - w->asked_ns >= LONGEST_NAP_NS) {
        w->asked_ns = now;
        if (world->interrupted(world->interrupted_ctx) != 0) {
            st = wf_fail(WEFT_ERR_ABORTED, "interrupted while waiting for rows "
                                           "of a region");
        }
    }
    pthread_mutex_lock(&world->drive);
    if (st == WEFT_OK && now - w->since_ns > w->region->timeout_ns) {
        st = timed_out(w);
    }
    if (st != WEFT_OK) {
        wf_rows_block_fail(w->block, st);
    }
    pthread_mutex_unlock(&world->drive);
}

/* Announce it, look again, sleep. */
static void sleep_once(const waiting *w)
{
    wf_board *board = w->world->host->board;
    wf_board_rank *own = w->region->own;
    uint32_t bell = wf_board_drowse(board, own);

    if (!wf_world_drive_now(w->world) && !is_over(w->block)) {
        wf_board_sleep(board, own, bell, wf_now_ns() + LONGEST_NAP_NS);
    }
    wf_board_awake(own);
}

/* The rare part: clock, peers, yielding, sleeping. */
static void pause_long(waiting *w)
{
    uint64_t now = wf_now_ns();
    uint32_t moved =
        atomic_load_explicit(&w->block->moved, memory_order_relaxed);
    uint64_t quiet;

    if (moved != w->moved) {
        w->moved = moved;
        w->since_ns = now;
    }
    quiet = now - w->since_ns;
    if (quiet < w->world->spin_ns) {
        return;
    }
    check_targets(w);
    check_time(w, now);
    if (is_over(w->block)) {
        return;
    }
    if (quiet < w->world->spin_ns + w->world->yield_ns) {
        sched_yield();
    } else {
        sleep_once(w);
    }
}

weft_status wf_rows_block_wait(wf_rows_block *b)
{
    weft_region *region = b->call->table.region;
    waiting w = {.block = b, .region = region, .world = region->world};

    w.since_ns = wf_now_ns();
    w.asked_ns = w.since_ns;
    wf_board_stand_in(region->own);
    for (uint32_t polls = 1; !is_over(b); polls++) {
        if (!wf_world_drive(w.world)) {
            if ((polls & w.world->poll_mask) != 0) {
                wf_cpu_relax();
            } else {
                pause_long(&w);
            }
        }
    }
    /* What was posted while this thread stood in, and the server slept. */
    wf_board_step_back(region->own);
    wf_world_drive_now(w.world);
    /* A thread of ours may have gone to sleep because this one was driving. */
    wf_board_ring(region->own);
    return atomic_load(&b->failed) == 0 ? WEFT_OK
                                        : wf_fail(b->status, "%s", b->text);
}
