/* SPDX-License-Identifier: Apache-2.0 */
/* The ring, where each rank communicates only with its two neighbours, and
 * pairwise exchange, where it communicates with each other rank once. */
#include "coll/message/plan.h"

/* Step s sends what step s - 1 received, so that each block goes all the way
 * round: `block` is sent, and the one before it is received. */
static void pass_on(const wf_plan *plan, uint32_t block, wf_step *step)
{
    step->to = wf_rank_plus(plan, 1);
    step->from = wf_rank_minus(plan, 1);
    step->send = wf_run_of(WF_AT_DST, block, 1);
    step->recv = wf_run_of(WF_AT_DST, (block + plan->size - 1) % plan->size, 1);
    step->waits = 1;
    step->flows = true;
}

static void ring_allgather(const wf_plan *plan, uint64_t at, wf_step *step)
{
    pass_on(plan, wf_rank_minus(plan, at), step);
}

/* First each block is folded around the ring and ends at the rank before the
 * one whose number it has; then the results go round. */
static void ring_allreduce(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint64_t folds = plan->size - 1;

    if (at >= folds) {
        pass_on(plan, wf_rank_minus(plan, at - folds + plan->size - 1), step);
        return;
    }
    pass_on(plan, wf_rank_minus(plan, at), step);
    step->act = WF_FOLD_FIRST;
    step->own = WF_AT_SRC;
    if (at == 0) {
        step->send.at = WF_AT_SRC;
    }
}

/* A block starts after the rank whose number it has, and ends there. Partial
 * sums use two slots in turn. */
static void ring_reduce_scatter(const wf_plan *plan, uint64_t at, wf_step *step)
{
    pass_on(plan, wf_rank_minus(plan, at + 1), step);
    step->act = WF_FOLD_FIRST;
    step->own = WF_AT_SRC;
    step->send.at = at == 0 ? WF_AT_SRC : WF_AT_SLOT;
    step->send.slot = (uint32_t)(at + 1) % 2;
    if (at + 2 < plan->size) {
        step->recv.at = WF_AT_SLOT;
        step->recv.slot = (uint32_t)at % 2;
    }
}

bool wf_plan_ring(wf_plan *plan, wf_call_kind kind)
{
    plan->blocks = plan->size;
    plan->steps = plan->size - 1;
    plan->piped = true;
    switch (kind) {
    case WF_CALL_ALLGATHER:
    case WF_CALL_ALLGATHERV:
        plan->fill = ring_allgather;
        return true;
    case WF_CALL_ALLREDUCE:
        plan->fill = ring_allreduce;
        plan->steps *= 2;
        return true;
    case WF_CALL_REDUCE_SCATTER:
    case WF_CALL_REDUCE_SCATTERV:
        plan->fill = ring_reduce_scatter;
        plan->slots = 2;
        plan->grouped = true;
        return true;
    default:
        return false;
    }
}

/* Exchange with the ranks at distance `at` + 1 on either side. */
static void exchange(const wf_plan *plan, uint64_t at, wf_step *step)
{
    step->to = wf_rank_plus(plan, at + 1);
    step->from = wf_rank_minus(plan, at + 1);
    step->send = wf_run_of(WF_AT_SRC, step->to, 1);
    step->recv = wf_run_of(WF_AT_DST, step->from, 1);
}

static void pairwise_reduce_scatter(const wf_plan *plan, uint64_t at,
                                    wf_step *step)
{
    exchange(plan, at, step);
    step->recv.block = plan->rank;
    step->act = WF_FOLD_LAST;
    step->own = at == 0 ? WF_AT_SRC : WF_AT_DST;
}

bool wf_plan_pairwise(wf_plan *plan, wf_call_kind kind)
{
    plan->steps = plan->size - 1;
    plan->piped = true;
    switch (kind) {
    case WF_CALL_ALLTOALL:
    case WF_CALL_ALLTOALLV:
        plan->fill = exchange;
        plan->whole = true;
        return true;
    case WF_CALL_REDUCE_SCATTER:
    case WF_CALL_REDUCE_SCATTERV:
        plan->fill = pairwise_reduce_scatter;
        return true;
    default:
        return false;
    }
}
