/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds with partners at distance 1, 2, 4, 8...: dissemination, for barriers
 * and for comparing calls, and the algorithms of Bruck et al., which move
 * blocks. Any number of ranks takes ceil(log2(ranks)) rounds. */
#include "coll/message/plan.h"

static void disseminate(const wf_plan *plan, uint64_t at, wf_step *step)
{
    step->to = wf_rank_plus(plan, (uint64_t)1 << at);
    step->from = wf_rank_minus(plan, (uint64_t)1 << at);
    step->waits = 1;
}

bool wf_plan_dissemination(wf_plan *plan, wf_call_kind kind)
{
    plan->fill = disseminate;
    plan->steps = wf_rounds(plan->size);
    return kind == WF_CALL_BARRIER;
}

/* Before round k a rank has the 2^k blocks from its own on. It sends them, or
 * as many as are missing, and receives those that follow. The blocks may wrap
 * around the end, so each round is two steps. */
static void bruck_allgather(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t part = at % 2;
    uint32_t away = 1u << at / 2;
    uint32_t count = away < plan->size - away ? away : plan->size - away;
    uint32_t right = wf_rank_plus(plan, away);

    step->send.at = WF_AT_DST;
    step->recv.at = WF_AT_DST;
    if (wf_run_part(plan->size, plan->rank, count, part, &step->send)) {
        step->to = wf_rank_minus(plan, away);
    }
    if (wf_run_part(plan->size, right, count, part, &step->recv)) {
        step->from = right;
    }
    step->waits = 1 + part;
}

/* Block j of the scratch travels j ranks in all: in round k it moves 2^k ranks
 * if j has that bit. */
static void bruck_alltoall(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t bit = 1u << at;

    step->to = wf_rank_plus(plan, bit);
    step->from = wf_rank_minus(plan, bit);
    step->send = (wf_piece){.at = WF_AT_WORK, .bit = bit};
    step->recv = step->send;
    step->act = WF_LAND;
    step->waits = 1;
}

bool wf_plan_bruck(wf_plan *plan, wf_call_kind kind)
{
    uint32_t rounds = wf_rounds(plan->size);

    plan->span = (plan->size + 1) / 2;
    switch (kind) {
    case WF_CALL_ALLGATHER:
        plan->fill = bruck_allgather;
        plan->steps = 2 * (uint64_t)rounds;
        return true;
    case WF_CALL_ALLTOALL:
        plan->fill = bruck_alltoall;
        plan->steps = rounds;
        plan->whole = true;
        plan->work_blocks = plan->size;
        return true;
    default:
        return false;
    }
}
