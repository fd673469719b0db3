/* SPDX-License-Identifier: Apache-2.0 */
/* Operations with a root: the binomial tree, and the flat tree, in which the
 * root communicates with each rank.
 *
 * Ranks are numbered from the root on, so the root is number 0. The parent of v
 * is v without its lowest set bit, and its children are v plus each smaller
 * power of two. So the subtree of v is as many consecutive numbers as its
 * lowest bit says, or up to the last one. */
#include "coll/message/plan.h"

static uint32_t number_of(const wf_plan *plan, uint32_t rank)
{
    return rank >= plan->root ? rank - plan->root
                              : rank + plan->size - plan->root;
}

static uint32_t rank_of(const wf_plan *plan, uint64_t number)
{
    return (uint32_t)((number + plan->root) % plan->size);
}

/* The lowest set bit of a number; for 0, the first power of two that is not
 * below `size`. A number has children at all smaller powers of two. */
static uint32_t span_of(const wf_plan *plan, uint32_t number)
{
    return number != 0 ? number & (0u - number) : 1u << wf_rounds(plan->size);
}

static bool is_leaf(const wf_plan *plan, uint32_t number)
{
    return span_of(plan, number) == 1 || number + 1 >= plan->size;
}

/* Step 0 receives; then it sends to the children, the largest subtree first. */
static void binomial_broadcast(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t number = number_of(plan, plan->rank);
    uint32_t span = span_of(plan, number);
    wf_piece all = wf_run_of(WF_AT_DST, 0, 1);

    if (at == 0 && number != 0) {
        step->from = rank_of(plan, number - span);
        step->recv = all;
    } else if (at > 0 && number + (span >> at) < plan->size) {
        step->to = rank_of(plan, number + (span >> at));
        step->send = all;
        step->waits = (uint32_t)at;
        step->flows = true;
    }
}

/* Receive from the children, the smallest subtree first, so that the fold is in
 * the order of numbers; then send to the parent. */
static void binomial_reduce(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t number = number_of(plan, plan->rank);
    wf_buffer sum = number == 0 ? WF_AT_DST : WF_AT_SLOT;

    if (at + 1 == plan->steps && number != 0) {
        step->to = rank_of(plan, number - span_of(plan, number));
        step->send = wf_run_of(is_leaf(plan, number) ? WF_AT_SRC : sum, 0, 1);
        step->waits = 1;
        step->flows = true;
    } else if (at + 1 < plan->steps && number + (1u << at) < plan->size) {
        step->from = rank_of(plan, number + (1u << at));
        step->recv = wf_run_of(sum, 0, 1);
        step->act = WF_FOLD_LAST;
        step->own = at == 0 ? WF_AT_SRC : sum;
    }
}

/* The blocks of the subtree of `number`, which may wrap around the end. */
static bool below(const wf_plan *plan, uint32_t number, uint32_t part,
                  wf_piece *run)
{
    uint32_t span = span_of(plan, number);
    uint32_t left = plan->size - number;

    return wf_run_part(plan->size, rank_of(plan, number),
                       span < left ? span : left, part, run);
}

/* The buffer of a rank for the data of its subtree. */
static wf_buffer gathered_at(const wf_plan *plan, uint32_t number,
                             wf_buffer root, wf_buffer leaf)
{
    return number == 0 ? root : is_leaf(plan, number) ? leaf : WF_AT_WORK;
}

static void binomial_gather(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t number = number_of(plan, plan->rank);
    uint32_t part = at % 2;
    uint64_t round = at / 2;
    wf_buffer buffer = gathered_at(plan, number, WF_AT_DST, WF_AT_SRC);

    if (round + 1 == plan->steps / 2) {
        step->send.at = buffer;
        if (number != 0 && below(plan, number, part, &step->send)) {
            step->to = rank_of(plan, number - span_of(plan, number));
            step->waits = 1 + part;
        }
    } else if (number + (1u << round) < plan->size) {
        step->recv.at = buffer;
        if (below(plan, number + (1u << round), part, &step->recv)) {
            step->from = rank_of(plan, number + (1u << round));
        }
    }
}

static void binomial_scatter(const wf_plan *plan, uint64_t at, wf_step *step)
{
    uint32_t number = number_of(plan, plan->rank);
    uint32_t span = span_of(plan, number);
    uint32_t part = at % 2;
    uint64_t round = at / 2;
    wf_buffer buffer = gathered_at(plan, number, WF_AT_SRC, WF_AT_DST);

    if (round == 0) {
        step->recv.at = buffer;
        if (number != 0 && below(plan, number, part, &step->recv)) {
            step->from = rank_of(plan, number - span);
        }
    } else if (number + (span >> round) < plan->size) {
        step->send.at = buffer;
        if (below(plan, number + (span >> round), part, &step->send)) {
            step->to = rank_of(plan, number + (span >> round));
            /* Wait for the second part of the first round. */
            step->waits = (uint32_t)at - 1;
        }
    }
}

/* Get scratch for the data of the subtree. */
static void work_below(wf_plan *plan, uint32_t number)
{
    uint32_t span = span_of(plan, number);
    uint32_t left = plan->size - number;

    if (number != 0 && !is_leaf(plan, number)) {
        plan->work_first = plan->rank;
        plan->work_blocks = span < left ? span : left;
    }
    plan->span = plan->size;
    plan->whole = true;
}

bool wf_plan_binomial(wf_plan *plan, wf_call_kind kind)
{
    uint32_t number = number_of(plan, plan->rank);
    uint64_t rounds = (uint64_t)wf_rounds(span_of(plan, number)) + 1;

    plan->blocks = 1;
    plan->steps = rounds;
    switch (kind) {
    case WF_CALL_BROADCAST:
        plan->fill = binomial_broadcast;
        plan->grouped = true;
        plan->piped = true;
        return true;
    case WF_CALL_REDUCE:
        plan->fill = binomial_reduce;
        plan->grouped = true;
        plan->piped = true;
        plan->slots = number != 0 && !is_leaf(plan, number);
        return true;
    case WF_CALL_GATHER:
    case WF_CALL_SCATTER:
        plan->fill = wf_call_is((uint8_t)kind, WF_ROOT_RECEIVES)
                         ? binomial_gather
                         : binomial_scatter;
        plan->steps = 2 * rounds;
        work_below(plan, number);
        return true;
    default:
        return false;
    }
}

/* --- the flat tree -------------------------------------------------------- */

static void linear_gather(const wf_plan *plan, uint64_t at, wf_step *step)
{
    if (plan->rank == plan->root) {
        step->from = rank_of(plan, at + 1);
        step->recv = wf_run_of(WF_AT_DST, step->from, 1);
    } else {
        step->to = plan->root;
        step->send = wf_run_of(WF_AT_SRC, plan->rank, 1);
    }
}

static void linear_scatter(const wf_plan *plan, uint64_t at, wf_step *step)
{
    if (plan->rank == plan->root) {
        step->to = rank_of(plan, at + 1);
        step->send = wf_run_of(WF_AT_SRC, step->to, 1);
    } else {
        step->from = plan->root;
        step->recv = wf_run_of(WF_AT_DST, plan->rank, 1);
    }
}

bool wf_plan_linear(wf_plan *plan, wf_call_kind kind)
{
    plan->steps = plan->rank == plan->root ? plan->size - 1 : 1;
    plan->whole = true;
    switch (kind) {
    case WF_CALL_GATHER:
    case WF_CALL_GATHERV:
        plan->fill = linear_gather;
        return true;
    case WF_CALL_SCATTER:
    case WF_CALL_SCATTERV:
        plan->fill = linear_scatter;
        return true;
    default:
        return false;
    }
}
