/* SPDX-License-Identifier: Apache-2.0 */
/* Recursive algorithms, with partners at distance 1, 2, 4, 8...: doubling, in
 * which a rank's data covers twice as many ranks after each step, and halving,
 * in which a rank keeps half of what it folded.
 *
 * If the number of ranks is not a power of two, some form pairs: one rank of
 * each pair sends its data to the other one at the start, and gets the result
 * at the end. In doubling these are the first few, each with its neighbour, and
 * the others are renumbered, so that a partial result still covers consecutive
 * ranks. In halving, whose order differs anyway, a rank past the power of two
 * is with the one that is so much before it: so all partners are those that a
 * rank has in dissemination, too. */
#include "coll/message/plan.h"

static void cube_init(wf_plan *plan, bool far)
{
    uint32_t rank = plan->rank;

    plan->cube = 1;
    while (plan->cube <= plan->size / 2) {
        plan->cube *= 2;
    }
    plan->far = far;
    plan->extra = plan->size - plan->cube;
    if (far) {
        plan->number = rank < plan->cube ? rank : WF_NOBODY;
    } else {
        plan->number = rank >= 2 * plan->extra ? rank - plan->extra
                       : rank % 2 == 0         ? rank / 2
                                               : WF_NOBODY;
    }
}

static uint32_t cube_rank(const wf_plan *plan, uint32_t number)
{
    if (plan->far) {
        return number;
    }
    return number < plan->extra ? 2 * number : number + plan->extra;
}

/* Does this rank belong to a pair? */
static bool cube_paired(const wf_plan *plan)
{
    return plan->far ? plan->rank < plan->extra || plan->rank >= plan->cube
                     : plan->rank < 2 * plan->extra;
}

/* The other one of its pair. */
static uint32_t pair_of(const wf_plan *plan)
{
    uint32_t away = plan->far ? plan->cube : 1;

    return plan->number == WF_NOBODY ? plan->rank - away : plan->rank + away;
}

/* The higher rank sends its data to the lower one. */
static void pair_up(const wf_plan *plan, wf_step *step)
{
    wf_piece all = wf_run_of(WF_AT_SRC, 0, plan->blocks);

    if (plan->number == WF_NOBODY) {
        step->to = pair_of(plan);
        step->send = all;
    } else if (cube_paired(plan)) {
        step->from = pair_of(plan);
        step->recv = all;
        step->recv.at = WF_AT_DST;
        step->act = WF_FOLD_LAST;
        step->own = WF_AT_SRC;
    }
}

/* The lower rank sends the result back. */
static void pair_down(const wf_plan *plan, wf_step *step)
{
    wf_piece all = wf_run_of(WF_AT_DST, 0, plan->blocks);

    if (plan->number == WF_NOBODY) {
        step->from = pair_of(plan);
        step->recv = all;
    } else if (cube_paired(plan)) {
        step->to = pair_of(plan);
        step->send = all;
    }
}

/* The buffer of our data before the first exchange. */
static wf_buffer cube_first(const wf_plan *plan)
{
    return cube_paired(plan) ? WF_AT_DST : WF_AT_SRC;
}

/* Fold lower numbers first, so that both partners compute the same bits. */
static void fold_with(const wf_plan *plan, uint32_t mask, wf_step *step)
{
    uint32_t other = cube_rank(plan, plan->number ^ mask);

    step->to = other;
    step->from = other;
    step->act = other < plan->rank ? WF_FOLD_FIRST : WF_FOLD_LAST;
}

static void doubling_allreduce(const wf_plan *plan, uint64_t at, wf_step *step)
{
    step->waits = 1;
    step->flows = true;
    if (at == 0) {
        pair_up(plan, step);
    } else if (at + 1 == plan->steps) {
        pair_down(plan, step);
    } else if (plan->number != WF_NOBODY) {
        fold_with(plan, 1u << (at - 1), step);
        step->own = at == 1 ? cube_first(plan) : WF_AT_DST;
        step->send = wf_run_of(step->own, 0, 1);
        step->recv = wf_run_of(WF_AT_DST, 0, 1);
    }
}

/* The half of the 2 * mask blocks shared with the partner that belongs to
 * `number`. */
static wf_piece cube_half(wf_buffer at, uint32_t number, uint32_t mask)
{
    return wf_run_of(at, number & ~(mask - 1), mask);
}

/* Halving folds the half that is kept; then doubling exchanges results. */
static void halving_allreduce(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t rounds = wf_rounds(plan->cube);
    uint32_t number = plan->number;

    step->waits = 1;
    if (at == 0) {
        pair_up(plan, step);
    } else if (at + 1 == plan->steps) {
        pair_down(plan, step);
    } else if (number != WF_NOBODY && at <= rounds) {
        uint32_t mask = plan->cube >> at;

        fold_with(plan, mask, step);
        step->own = at == 1 ? cube_first(plan) : WF_AT_DST;
        step->send = cube_half(step->own, number ^ mask, mask);
        step->recv = cube_half(WF_AT_DST, number, mask);
    } else if (number != WF_NOBODY) {
        uint32_t mask = 1u << (at - 1 - rounds);

        fold_with(plan, mask, step);
        step->act = WF_STORE;
        step->send = cube_half(WF_AT_DST, number, mask);
        step->recv = cube_half(WF_AT_DST, number ^ mask, mask);
    }
}

/* Kept halves go to scratch, the last one to the destination. */
static void halving_reduce_scatter(const wf_plan *plan, uint64_t at,
                                   wf_step *step)
{
    uint32_t mask = plan->cube >> (at + 1);

    fold_with(plan, mask, step);
    step->waits = 1;
    step->own = at == 0 ? WF_AT_SRC : WF_AT_WORK;
    step->send = cube_half(step->own, plan->number ^ mask, mask);
    step->recv =
        cube_half(mask == 1 ? WF_AT_DST : WF_AT_WORK, plan->number, mask);
}

static void doubling_allgather(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t mask = 1u << at;

    fold_with(plan, mask, step);
    step->waits = 1;
    step->act = WF_STORE;
    step->send = cube_half(WF_AT_DST, plan->number, mask);
    step->recv = cube_half(WF_AT_DST, plan->number ^ mask, mask);
}

/* After step k the result covers 2^(k+1) ranks up to our own; the first
 * `before` ranks do not take part. */
static void scan_from(const wf_plan *plan, uint32_t before, uint64_t at,
                      wf_step *step)
{
    uint64_t away = (uint64_t)1 << at;

    step->waits = 1;
    step->flows = true;
    if (plan->rank < before) {
        return;
    }
    if (plan->rank + away < plan->size) {
        step->to = (uint32_t)(plan->rank + away);
        step->send = wf_run_of(WF_AT_DST, 0, 1);
    }
    if (plan->rank >= before + away) {
        step->from = (uint32_t)(plan->rank - away);
        step->recv = wf_run_of(WF_AT_DST, 0, 1);
        step->act = WF_FOLD_FIRST;
        step->own = WF_AT_DST;
    }
}

static void doubling_scan(const wf_plan *plan, uint64_t at, wf_step *step)
{
    scan_from(plan, 0, at, step);
}

/* Each rank sends its data to the next; then the ranks that received do a
 * scan. */
static void doubling_exscan(const wf_plan *plan, uint64_t at, wf_step *step)
{
    if (at > 0) {
        scan_from(plan, 1, at - 1, step);
        return;
    }
    if (plan->rank + 1 < plan->size) {
        step->to = plan->rank + 1;
        step->send = wf_run_of(WF_AT_SRC, 0, 1);
    }
    if (plan->rank > 0) {
        step->from = plan->rank - 1;
        step->recv = wf_run_of(WF_AT_DST, 0, 1);
        step->act = WF_LAND;
    }
}

bool wf_plan_doubling(wf_plan *plan, wf_call_kind kind)
{
    cube_init(plan, false);
    plan->blocks = 1;
    plan->piped = true;
    switch (kind) {
    case WF_CALL_ALLREDUCE:
        plan->fill = doubling_allreduce;
        plan->steps = wf_rounds(plan->cube) + 2;
        return true;
    case WF_CALL_SCAN:
        plan->fill = doubling_scan;
        plan->steps = wf_rounds(plan->size);
        return true;
    case WF_CALL_EXSCAN:
        plan->fill = doubling_exscan;
        plan->steps = wf_rounds(plan->size - 1) + 1;
        return true;
    case WF_CALL_ALLGATHER:
        plan->fill = doubling_allgather;
        plan->steps = wf_rounds(plan->size);
        plan->span = plan->size / 2;
        plan->piped = false;
        return wf_is_power_of_2(plan->size);
    default:
        return false;
    }
}

bool wf_plan_halving(wf_plan *plan, wf_call_kind kind)
{
    cube_init(plan, true);
    plan->blocks = plan->cube;
    plan->span = plan->extra > 0 ? plan->cube : plan->cube / 2;
    switch (kind) {
    case WF_CALL_ALLREDUCE:
        plan->fill = halving_allreduce;
        plan->steps = 2 * (uint64_t)wf_rounds(plan->cube) + 2;
        return true;
    case WF_CALL_REDUCE_SCATTER:
        plan->fill = halving_reduce_scatter;
        plan->steps = wf_rounds(plan->cube);
        plan->work_blocks = plan->cube / 2;
        plan->work_first = plan->rank & ~(plan->cube / 2 - 1);
        return wf_is_power_of_2(plan->size);
    default:
        return false;
    }
}
