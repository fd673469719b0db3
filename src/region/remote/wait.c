/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for answers, by comm/wait.h; the deadline counts from the last one.
 * Meanwhile the caller also answers the questions of others, in place of the
 * rank's server. */
#include "comm/drive.h"
#include "region/remote/remote.h"

static bool is_over(const wf_rows_block *b)
{
    return atomic_load_explicit(&b->unfinished, memory_order_acquire) == 0 ||
           atomic_load_explicit(&b->failed, memory_order_acquire) != 0;
}

static weft_status block_look(wf_wait *w)
{
    const wf_rows_block *b = w->goal.ctx;

    if (!is_over(b)) {
        wf_wait_drive(w);
    }
    return is_over(b) ? WEFT_OK : WF_PENDING;
}

static uint64_t block_moved(const wf_goal *g)
{
    const wf_rows_block *b = g->ctx;

    return atomic_load_explicit(&b->moved, memory_order_relaxed);
}

static weft_status block_check(const wf_goal *g)
{
    const wf_rows_block *b = g->ctx;

    return wf_region_here(b->call->table.region);
}

/* Under world->drive. */
static bool is_due(const wf_rows_block *b, uint32_t rank)
{
    uint32_t i = 0;

    while (i < b->targets && b->target[i].rank != rank) {
        i++;
    }
    return i < b->targets &&
           (b->target[i].owed > 0 || b->target[i].next < b->target[i].end);
}

static bool block_awaits(const wf_goal *g, uint32_t rank)
{
    bool due;

    pthread_mutex_lock(&g->world->drive);
    due = is_due(g->ctx, rank);
    pthread_mutex_unlock(&g->world->drive);
    return due;
}

/* A rank that is gone answers no more, once all that it sent was read. */
static weft_status block_gone(const wf_goal *g, uint32_t rank)
{
    uint32_t number = g->member[rank];
    bool due;
    bool lost;

    pthread_mutex_lock(&g->world->drive);
    due = is_due(g->ctx, rank);
    lost = due && g->world->ports.lost[number] != WEFT_OK;
    pthread_mutex_unlock(&g->world->drive);
    return lost ? wf_ports_fail(g->world, number) : due ? WF_PENDING : WEFT_OK;
}

weft_status wf_rows_block_wait(wf_rows_block *b)
{
    static const wf_goal_kind kind = {.moved = block_moved,
                                      .check = block_check,
                                      .gone = block_gone,
                                      .awaits = block_awaits};
    weft_region *region = b->call->table.region;
    wf_goal goal = wf_region_goal(region, &kind, b, "rows of a region",
                                  &region->timeout_ns);
    wf_wait w;
    weft_status st;

    goal.far = true;
    wf_board_stand_in(region->own);
    wf_wait_begin(&w, &goal, true);
    st = wf_wait_run(&w, block_look);
    /* What was posted while this thread stood in, and the server slept. */
    wf_board_step_back(region->own);
    wf_world_drive_now(region->world);
    /* A thread of ours may have gone to sleep because this one was driving. */
    wf_board_ring(region->own);
    return st == WEFT_OK && atomic_load(&b->failed) != 0
               ? wf_failure_again(&b->why)
               : st;
}
