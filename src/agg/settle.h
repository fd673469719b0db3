/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a job agree on when their switch is of no more use. A pure
 * module: no I/O; words between two ranks arrive once and in order.
 *
 * Operations through the switch are numbered on in an epoch. No rank can finish
 * one before all have begun it, so ranks are never more than one apart. In an
 * operation each rank has a first chunk without a result; windows send in
 * order, so by rule 1 of slot.h nobody has a result `slots` chunks beyond
 * anybody else's first, and whoever has all results left others at most the
 * last `slots` chunks to miss. The rules:
 *
 *   1. A rank that gives up in operation k takes no more results of it, and
 *      tells all others a word: k, and its first chunk without a result, or
 *      that it has all.
 *   2. Who hears a word of k, or of k + 1, inside k, and has not said its own,
 *      gives up.
 *   3. Who hears a word of k after it has finished k answers that it has all.
 *   4. Who hears a word of k before k keeps it. The epoch is dead for whoever
 *      has heard or said a word: it gives up as soon as it begins an operation.
 *   5. A rank that has all results is done, and may leave. One that lacks some
 *      waits for the words of all. If any rank has all, it fetches what it
 *      lacks from the lowest such rank, which has kept its last results.
 *   6. If none has all, none has left: all do the operation again on the host
 *      path, from the least first chunk on. Then the epoch is over for all, at
 *      the same operation, and no more words are said.
 *
 * All see the same words, so all decide alike: either all do it again from the
 * same chunk, or nobody does. */
#ifndef WF_AGG_SETTLE_H
#define WF_AGG_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#define WF_SETTLE_ALL UINT64_MAX /* has all results */

typedef struct wf_settle_word {
    uint64_t op;
    uint64_t first; /* chunk without a result, or WF_SETTLE_ALL */
    bool heard;
} wf_settle_word;

typedef struct wf_settle {
    uint32_t rank;
    uint32_t ranks;
    uint64_t op; /* that this rank is in, or begins next */
    bool inside;
    bool said; /* its word of `op` */
    bool dead; /* the epoch, as far as this rank knows */
    bool over; /* rule 6 */
    /* 2 for each rank: of operations with even and odd numbers. Those of this
     * rank are its own. The caller's memory. */
    wf_settle_word *word;
} wf_settle;

typedef enum wf_settle_act {
    WF_SETTLE_NOTHING,
    WF_SETTLE_SAY,   /* give up: call wf_settle_say */
    WF_SETTLE_ANSWER /* send the word (op, WF_SETTLE_ALL) to the rank */
} wf_settle_act;

typedef enum wf_settle_way {
    WF_SETTLE_WAITS, /* for words */
    WF_SETTLE_DONE,  /* this rank has all */
    WF_SETTLE_FETCH, /* what it lacks, from `rank` */
    WF_SETTLE_REDO   /* from chunk `first` on, on the host path */
} wf_settle_way;

typedef struct wf_settled {
    wf_settle_way way;
    uint32_t rank;
    uint64_t first;
} wf_settled;

/* An epoch begins. `words` is room for 2 of each rank. */
void wf_settle_init(wf_settle *s, uint32_t rank, uint32_t ranks,
                    wf_settle_word *words);

/* Operation s->op begins. SAY: with chunk 0, without asking the switch. */
wf_settle_act wf_settle_begin(wf_settle *s);

/* This rank gives up, with this first chunk. The word is for all others. */
wf_settle_word wf_settle_say(wf_settle *s, uint64_t first);

/* A word of another rank has come. */
wf_settle_act wf_settle_hear(wf_settle *s, uint32_t from,
                             const wf_settle_word *word);

/* The last word of a rank about an operation, or about one two before it; and
 * has the rank said one of the operation that this rank is in? */
wf_settle_word *wf_settle_word_of(const wf_settle *s, uint32_t rank,
                                  uint64_t op);
bool wf_settle_has_said(const wf_settle *s, uint32_t rank);

/* What to do now that this rank has given up. */
wf_settled wf_settle_decide(const wf_settle *s);

/* This rank has finished the operation: by the switch, or as decided. */
void wf_settle_end(wf_settle *s, wf_settle_way way);

#endif
