/* SPDX-License-Identifier: Apache-2.0 */
/* Who talks to whom: pure functions, tested without any communication.
 *
 * A plan is what one rank does in one operation, as a list of steps. A step
 * sends a piece of data to one rank, receives a piece from one rank, or both at
 * once, and then stores what came or folds it with data of its own. Steps are
 * worked out one at a time from their number; nothing is kept for them.
 *
 * Data is counted in blocks. Operations on one buffer (broadcast, reduce,
 * allreduce, scan, exscan) cut it evenly into `blocks`; in all others there is
 * one block for each rank, and blocks carry the numbers of the ranks. A piece
 * is a run of blocks that lie behind each other.
 *
 * Large pieces travel in chunks, so that one is on its way while another one
 * is folded and a third is passed on. A plan runs in `groups`, one after the
 * other; in each, every step is done for `width` chunks. So there are
 * groups * width chunks to each piece, and what is in between fits into slots
 * that are reused for each group.
 *
 * Three rules make plans fit together:
 *
 *   1. Messages between two ranks are matched in their order: what one rank's
 *      plan sends to another one in n-th place, that one's plan receives from
 *      it in n-th place, with the same length.
 *   2. Steps end in their order, and a fold or a copy is made when its step
 *      ends. Steps may begin before the ones before have ended, as far as
 *      `needs` allows.
 *   3. Nobody is ever stuck if each begins a step only when all before it have
 *      ended, and a send ends only when it is received. */
#ifndef WF_COLL_MESSAGE_PLAN_H
#define WF_COLL_MESSAGE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/call.h"

#define WF_NOBODY UINT32_MAX

/* X(name, as in the setting ALGORITHM; its maker is wf_plan_ that). */
#define WF_ALGORITHM_TABLE(X)                                                  \
    X(DISSEMINATION, dissemination)                                            \
    X(BINOMIAL, binomial)                                                      \
    X(DOUBLE_TREE, double_tree)                                                \
    X(RING, ring)                                                              \
    X(DOUBLING, doubling)                                                      \
    X(HALVING, halving)                                                        \
    X(PAIRWISE, pairwise)                                                      \
    X(BRUCK, bruck)                                                            \
    X(LINEAR, linear)

typedef enum wf_algorithm {
#define WF_ALGORITHM_ENUM(name, text) WF_BY_##name,
    WF_ALGORITHM_TABLE(WF_ALGORITHM_ENUM)
#undef WF_ALGORITHM_ENUM
        WF_ALGORITHMS
} wf_algorithm;

/* Where a piece lies. A source or destination that is a single block in an
 * operation with a block for each rank is meant as a whole, whatever number
 * the piece has: it is the rank's own. */
typedef enum wf_buffer {
    WF_AT_SRC,
    WF_AT_DST,
    WF_AT_WORK, /* blocks of scratch, see wf_plan.work_first */
    WF_AT_SLOT  /* scratch for one piece of a group */
} wf_buffer;

typedef struct wf_piece {
    wf_buffer at;
    uint32_t block; /* the first one */
    uint32_t count; /* of blocks */
    uint32_t slot;
    /* Not 0: all blocks whose number has this bit, packed, instead of a run. */
    uint32_t bit;
} wf_piece;

typedef enum wf_act {
    WF_STORE,      /* straight into its place */
    WF_LAND,       /* beside it first: the place may be in use until the end */
    WF_FOLD_FIRST, /* what came is the first operand, ours the second */
    WF_FOLD_LAST
} wf_act;

typedef struct wf_step {
    uint32_t to;   /* WF_NOBODY: nothing is sent */
    uint32_t from; /* WF_NOBODY: nothing is received */
    wf_piece send;
    wf_piece recv; /* where it, or the result of the fold, goes */
    wf_act act;
    wf_buffer own; /* of folds: where our operand is; its piece is `recv` */

    /* It may begin when the step that is `waits` before it has ended, and all
     * before that one; 0: at any time. `flows`: only the same chunk of it. */
    uint32_t waits;
    bool flows;

    /* Filled in by wf_plan_at. */
    uint64_t needs;    /* so many steps, counted by chunks, must have ended */
    uint64_t chunk;    /* which one of groups * width of each piece */
    uint32_t in_group; /* which one of the width of the group */
} wf_step;

typedef struct wf_plan wf_plan;

/* Step number `at` of a group. Of `step`, to and from are WF_NOBODY and the
 * rest is 0. */
typedef void wf_plan_fn(const wf_plan *plan, uint64_t at, wf_step *step);

/* One rank's neighbours in one of two trees. */
typedef struct wf_tree {
    uint32_t depth; /* 0: the root */
    uint32_t parent;
    uint32_t child[2]; /* WF_NOBODY: none */
} wf_tree;

struct wf_plan {
    wf_plan_fn *fill;
    uint32_t size;
    uint32_t rank;
    uint32_t root;
    uint64_t steps;  /* of a group */
    uint32_t blocks; /* that one buffer is cut into */
    uint32_t span;   /* blocks of the longest piece */
    bool grouped;    /* may run in several groups, and should when data is large
                      */
    bool piped;      /* chunks of a step flow on to the next one */
    bool whole;      /* not in chunks: `blocks` are the chunks */
    uint32_t slots;
    uint32_t work_first; /* the block at the start of WF_AT_WORK */
    uint32_t work_blocks;

    uint64_t groups;
    uint32_t width;
    bool apart; /* groups have data of their own: none waits for another */

    /* Of double trees. */
    wf_tree tree[2];
    uint32_t height;
    bool up;
    bool down;

    /* Of the cube: the ranks beyond a power of two have sent their data to a
     * neighbour and take no part; the others are numbered anew. */
    uint32_t cube; /* a power of two */
    bool far;      /* that neighbour is `cube` ranks away */
    uint32_t extra;
    uint32_t number; /* WF_NOBODY: takes no part */
};

/* The plan of one rank; one group, one chunk, until wf_plan_chunks says
 * otherwise. False: this algorithm does not do this operation, or not with
 * this number of ranks. `pieces` is how many pieces a double tree should cut
 * each half of the data into. */
bool wf_plan_make(wf_plan *plan, wf_call_kind kind, wf_algorithm how,
                  uint32_t size, uint32_t rank, uint32_t root, uint32_t pieces);

/* Let it run in chunks: `total` of them to each piece, in groups of at most
 * `width` where it is grouped. */
void wf_plan_chunks(wf_plan *plan, uint64_t total, uint32_t width);

/* Steps of all groups, counted by chunks, and one of them. A step may turn out
 * to be empty. */
static inline uint64_t wf_plan_length(const wf_plan *plan)
{
    return plan->groups * plan->steps * plan->width;
}
void wf_plan_at(const wf_plan *plan, uint64_t at, wf_step *out);

const char *wf_algorithm_name(wf_algorithm how);

/* The makers, by family. Each sets what its plans need and returns true, or
 * returns false. */
typedef bool wf_plan_maker(wf_plan *plan, wf_call_kind kind);
#define WF_ALGORITHM_MAKER(name, text) wf_plan_maker wf_plan_##text;
WF_ALGORITHM_TABLE(WF_ALGORITHM_MAKER)
#undef WF_ALGORITHM_MAKER

/* --- small things that several of them need ------------------------------- */

static inline bool wf_is_power_of_2(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* Rounds until 2^rounds is at least n. */
static inline uint32_t wf_rounds(uint32_t n)
{
    uint32_t rounds = 0;

    while (n > (uint64_t)1 << rounds) {
        rounds++;
    }
    return rounds;
}

/* The rank that is `by` further on around the circle. */
static inline uint32_t wf_rank_plus(const wf_plan *plan, uint64_t by)
{
    return (uint32_t)((plan->rank + by) % plan->size);
}

static inline uint32_t wf_rank_minus(const wf_plan *plan, uint64_t by)
{
    return (uint32_t)((plan->rank + plan->size - by % plan->size) % plan->size);
}

static inline wf_piece wf_run_of(wf_buffer at, uint32_t block, uint32_t count)
{
    return (wf_piece){.at = at, .block = block, .count = count};
}

/* Blocks from `first` on around the circle, as two runs that do not wrap: the
 * one before (part 0) or after (part 1) the end. False if it is empty. */
static inline bool wf_run_part(uint32_t size, uint32_t first, uint32_t count,
                               uint32_t part, wf_piece *run)
{
    uint32_t before = count < size - first ? count : size - first;

    run->block = part == 0 ? first : 0;
    run->count = part == 0 ? before : count - before;
    return run->count > 0;
}

#endif
