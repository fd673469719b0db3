/* SPDX-License-Identifier: Apache-2.0 */
/* Two binary trees at once (Sanders, Speck and Traeff, 2009; as in NCCL). In
 * one tree half of the ranks are leaves, which only send or only receive. So
 * half of the data goes through one tree, and half through another one in which
 * the leaves are those that are not leaves in the first.
 *
 * Ranks are numbered from the root on; the root, 0, is above both trees. In the
 * first tree the odd numbers are leaves, and the parent of a number with lowest
 * bit b is the one of its two neighbours at distance b that has lowest bit 2b:
 *
 *                0
 *                 \______
 *                        8
 *             4 _______/ \______ 12
 *          2 / \ 6            10 / \ 14
 *         1/ \3 5/ \7        9/ \11 13/ \15
 *
 * or, if that is past the end, the other one. The second tree is the first one
 * with the numbers from 1 on mirrored, or shifted by one, whichever makes odd
 * numbers even.
 *
 * A clock prevents deadlock: each half is cut into pieces, and piece k crosses
 * an edge at tick k plus a number that depends only on the depth of the edge.
 * Within a tick all ranks keep one order of edges: first tree first, up before
 * down; up from the leaves, down from the root; left child before right
 * child. */
#include "coll/message/plan.h"

static uint32_t lowest_bit(uint32_t n)
{
    return n & (0u - n);
}

/* The parent in the first tree, with `last` the highest number. */
static uint32_t parent_of(uint32_t number, uint32_t last)
{
    uint32_t bit = lowest_bit(number);
    uint32_t parent = (number ^ bit) | bit << 1;

    return parent <= last ? parent : number ^ bit;
}

static uint32_t left_of(uint32_t number)
{
    uint32_t half = lowest_bit(number) >> 1;

    return half > 0 ? number - half : WF_NOBODY;
}

static uint32_t right_of(uint32_t number, uint32_t last)
{
    uint32_t half = number == 0 ? 1u << 31 : lowest_bit(number) >> 1;

    while (half > 0 && number + half > last) {
        half >>= 1;
    }
    return half > 0 ? number + half : WF_NOBODY;
}

/* The position of a number in the first tree; the second is mapped to it. */
static uint32_t position_in(const wf_plan *plan, unsigned tree, uint32_t number)
{
    uint32_t last = plan->size - 1;

    if (tree == 0 || number == 0) {
        return number;
    }
    return last % 2 == 0 ? last + 1 - number : number % last + 1;
}

static uint32_t rank_at(const wf_plan *plan, unsigned tree, uint32_t position)
{
    uint32_t last = plan->size - 1;
    uint32_t number = position;

    if (position == WF_NOBODY) {
        return WF_NOBODY;
    }
    if (tree == 1 && position != 0) {
        number = last % 2 == 0 ? last + 1 - position
                               : (position + last - 2) % last + 1;
    }
    return (uint32_t)(((uint64_t)number + plan->root) % plan->size);
}

static void tree_init(wf_plan *plan, unsigned which)
{
    uint32_t last = plan->size - 1;
    uint32_t number = (plan->rank + plan->size - plan->root) % plan->size;
    uint32_t position = position_in(plan, which, number);
    wf_tree *tree = &plan->tree[which];

    tree->depth = 0;
    for (uint32_t p = position; p != 0; p = parent_of(p, last)) {
        tree->depth++;
    }
    tree->parent = position != 0
                       ? rank_at(plan, which, parent_of(position, last))
                       : WF_NOBODY;
    tree->child[0] =
        rank_at(plan, which, position != 0 ? left_of(position) : WF_NOBODY);
    tree->child[1] = rank_at(plan, which, right_of(position, last));
}

/* The piece that crosses an edge `since` ticks after the first one, if any. */
static bool piece_now(const wf_plan *plan, unsigned which, int64_t since,
                      wf_piece *piece)
{
    uint32_t pieces = plan->blocks / 2;

    piece->block = which * pieces + (uint32_t)since;
    piece->count = 1;
    piece->slot = 2 * which + (uint32_t)(since % 2);
    return since >= 0 && since < pieces;
}

/* The buffer of the sum of our subtree: the destination at the root and where
 * all get the result. A leaf has only its own data. */
static wf_buffer sum_at(const wf_plan *plan, const wf_tree *tree)
{
    return tree->depth == 0 || plan->down ? WF_AT_DST : WF_AT_SLOT;
}

/* Receive from the left and right child, send to the parent. */
static void tree_up(const wf_plan *plan, unsigned which, int64_t tick,
                    unsigned edge, wf_step *step)
{
    const wf_tree *tree = &plan->tree[which];
    int64_t since = tick - ((int64_t)plan->height - tree->depth);
    bool leaf = tree->child[0] == WF_NOBODY && tree->child[1] == WF_NOBODY;

    if (edge < 2 && tree->child[edge] != WF_NOBODY &&
        piece_now(plan, which, since + 1, &step->recv)) {
        bool second = edge == 1 && tree->child[0] != WF_NOBODY;

        step->from = tree->child[edge];
        step->recv.at = sum_at(plan, tree);
        step->act = edge == 0 ? WF_FOLD_FIRST : WF_FOLD_LAST;
        step->own = second ? step->recv.at : WF_AT_SRC;
    } else if (edge == 2 && tree->parent != WF_NOBODY &&
               piece_now(plan, which, since, &step->send)) {
        step->to = tree->parent;
        step->send.at = leaf ? WF_AT_SRC : sum_at(plan, tree);
    }
}

/* Receive from the parent, send to the left and right child. `tick` counts from
 * when the root has the first piece. */
static void tree_down(const wf_plan *plan, unsigned which, int64_t tick,
                      unsigned edge, wf_step *step)
{
    const wf_tree *tree = &plan->tree[which];
    int64_t since = tick - (int64_t)tree->depth;

    if (edge == 0 && tree->parent != WF_NOBODY &&
        piece_now(plan, which, since + 1, &step->recv)) {
        step->from = tree->parent;
        step->recv.at = WF_AT_DST;
    } else if (edge > 0 && tree->child[edge - 1] != WF_NOBODY &&
               piece_now(plan, which, since, &step->send)) {
        step->to = tree->child[edge - 1];
        step->send.at = WF_AT_DST;
    }
}

/* A tick has three edges for each tree and direction. A piece is sent in the
 * tick after it was received. */
static void double_tree(const wf_plan *plan, uint64_t at, wf_step *step)
{
    unsigned ways = (unsigned)plan->up + plan->down;
    unsigned edges = 6 * ways;
    int64_t tick = (int64_t)(at / edges);
    unsigned edge = (unsigned)(at % edges);
    unsigned which = edge / (3 * ways);
    bool up = plan->up && edge % (3 * ways) < 3;

    if (up) {
        tree_up(plan, which, tick, edge % 3, step);
    } else {
        tree_down(plan, which, tick - (plan->up ? plan->height : 0), edge % 3,
                  step);
    }
    step->waits = step->to != WF_NOBODY ? edges + 1 : 0;
}

bool wf_plan_double_tree(wf_plan *plan, wf_call_kind kind)
{
    uint64_t pieces = plan->blocks > 0 ? plan->blocks : 1;

    if (!wf_call_cuts((uint8_t)kind) || wf_call_is((uint8_t)kind, WF_PREFIX)) {
        return false;
    }
    plan->up = wf_call_is((uint8_t)kind, WF_REDUCES);
    plan->down = !wf_call_is((uint8_t)kind, WF_ROOT_RECEIVES);
    /* An upper bound of the depth: the lowest bit grows towards the root. */
    plan->height = wf_rounds(plan->size);
    plan->fill = double_tree;
    plan->blocks = (uint32_t)(2 * pieces);
    plan->whole = true;
    plan->piped = true;
    plan->slots = plan->up && !plan->down ? 4 : 0;
    if (plan->size > 1) {
        unsigned ways = (unsigned)plan->up + plan->down;

        tree_init(plan, 0);
        tree_init(plan, 1);
        plan->steps = 6 * ways * (pieces + (uint64_t)ways * plan->height);
    }
    return true;
}
