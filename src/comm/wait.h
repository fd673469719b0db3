/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to wait: poll for a while, yield the core, then sleep until a
 * peer rings. How long each takes depends on whether ranks outnumber cores.
 *
 *     wf_wait w;
 *     wf_wait_begin(&w, &goal, drives);
 *     st = wf_wait_run(&w, look);
 *
 * A goal says what is waited for: whom it needs, whether it has moved, what it
 * is called. `look` tells whether it is reached, and does on the way what this
 * rank can do for it. The rules:
 *
 *   1. Before it sleeps, a wait announces it and looks once more; so nothing
 *      that was posted in between is slept through (see mem/board.h). That look
 *      does not leave the driving to another thread, which may have looked
 *      earlier. Then it arms the ports that have descriptors (comm/ports.h): it
 *      sleeps on the bell only.
 *   2. The deadline counts from the last time that the goal moved. Whatever
 *      else happened keeps the wait from sleeping, but not from failing.
 *   3. After each alarm of the board it checks whether a peer is gone, and
 *      after each sleep it looks first: what was done while it slept is done,
 *      whoever has died or given up since.
 *   4. About ten times a second it asks whether the caller was interrupted. */
#ifndef WF_COMM_WAIT_H
#define WF_COMM_WAIT_H

#include "base/patience.h"
#include "base/time.h"
#include "comm/op.h"
#include "comm/world.h"

typedef struct wf_goal wf_goal;

/* Each of these is optional, and none is called while a wait only polls. */
typedef struct wf_goal_kind {
    /* Writes what it is called in errors, unless wf_goal.what says so. */
    void (*name)(const wf_goal *goal, char *text, size_t room);
    /* Counts up whenever something happened for it. */
    uint64_t (*moved)(const wf_goal *goal);
    /* Can it still be reached? WEFT_OK, or why not. */
    weft_status (*check)(const wf_goal *goal);
    /* Is `rank` gone, though it is needed? WEFT_OK, or how it went; WF_PENDING
     * if that has to be looked at again without a further alarm. */
    weft_status (*gone)(const wf_goal *goal, uint32_t rank);
    /* Is `rank` late? Called when the deadline has passed. */
    bool (*awaits)(const wf_goal *goal, uint32_t rank);
    /* Does it wait for `rank`, for the board? NULL: `awaits` says so. */
    bool (*needs)(const wf_goal *goal, uint32_t rank);
    /* Nothing has moved for a while: find out whether it still can. */
    void (*stalled)(const wf_goal *goal);
    /* The wait would fail with this status and the error detail: returns the
     * status to fail with, or WEFT_OK to go on. */
    weft_status (*fail)(const wf_goal *goal, weft_status why);
} wf_goal_kind;

struct wf_goal {
    const wf_goal_kind *kind;
    void *ctx;
    const char *what; /* its name in errors: "a barrier of a region" */
    weft_world *world;
    /* Who takes part, as a communicator or a region numbers them. */
    uint32_t rank; /* this one */
    uint32_t ranks;
    const uint32_t *member;             /* rank -> rank in the job */
    const _Atomic uint64_t *timeout_ns; /* NULL: there is no deadline */
    const wf_interrupt *interrupt;      /* NULL: nobody is asked */
    bool locked;                        /* who checks it holds world->drive */
    bool far;                           /* it needs ranks of other nodes */
};

/* The goal of a thread that only drives: it never fails. */
static inline wf_goal wf_goal_none(weft_world *world, void *ctx)
{
    static const wf_goal_kind kind = {0};

    return (wf_goal){.kind = &kind, .ctx = ctx, .world = world};
}

/* How long a goal has not moved. Zero: it was not looked at yet. */
typedef struct wf_stall {
    uint64_t moved;
    uint64_t since_ns;
    uint64_t asked_ns; /* when it was last told so */
    uint32_t alarm;    /* of the board, at the last look at the peers */
    bool has_looked;   /* and need not look before the next alarm */
} wf_stall;

/* Can it still be reached? By rules 2 and 3; fails as the kind says. */
weft_status wf_goal_check(const wf_goal *goal, wf_stall *stall, uint64_t now);

/* Is one of the ranks gone that it needs? */
weft_status wf_goal_check_peers(const wf_goal *goal);

typedef struct wf_wait {
    wf_goal goal;
    wf_stall stall;
    const wf_pace *pace;
    /* Which bell to sleep on: the second one, for active messages, while this
     * says so; NULL: always the first. Who sleeps on the second arms no ports:
     * their descriptors wake another thread (comm/serve.c). */
    bool (*listens)(weft_world *world);
    uint32_t polls;
    uint32_t mask;
    uint32_t bell;
    bool drives;       /* `look` drives the world, by wf_wait_drive */
    bool arms;         /* and, before it sleeps, arms the ports */
    bool stirred;      /* it did something */
    bool drowsy;       /* it has announced that it will sleep */
    bool listening;    /* on the second bell */
    bool lingers;      /* it is awake for a far goal alone, see wait_linger */
    long preempted;    /* of its thread, how often, when that was last asked */
    uint64_t awake_ns; /* when it last did something */
    uint64_t asked_ns; /* when the caller was last asked */
    /* What is shown of it, see wait_show: until when it has waited by what the
     * board says, whom for (1 + rank here), and whom to look at next. */
    uint64_t shown_ns;
    uint32_t waits_for;
    uint32_t next;
} wf_wait;

static inline void wf_wait_begin(wf_wait *w, const wf_goal *goal, bool drives)
{
    *w = (wf_wait){.goal = *goal,
                   .pace = &goal->world->pace,
                   .mask = goal->world->pace.poll_mask,
                   .drives = drives,
                   .arms = drives};
}

/* Wait at a pace of its own, which outlives the wait. */
static inline void wf_wait_pace(wf_wait *w, const wf_pace *pace)
{
    w->pace = pace;
    w->mask = pace->poll_mask;
}

/* The rare part: clock, peers, other work, yielding, sleeping. */
weft_status wf_wait_slow(wf_wait *w);

/* Take back what was announced: that it will sleep, and for whom it waits. */
void wf_wait_end(wf_wait *w);

static inline weft_status wf_wait_pause(wf_wait *w)
{
    if ((++w->polls & w->mask) != 0) {
        wf_cpu_relax();
        return WEFT_OK;
    }
    return wf_wait_slow(w);
}

/* Look until it says WEFT_OK or a failure, or until the goal fails. */
static inline weft_status wf_wait_run(wf_wait *w,
                                      weft_status (*look)(wf_wait *w))
{
    weft_status st = look(w);

    while (st == WF_PENDING) {
        st = wf_wait_pause(w);
        if (st == WEFT_OK) {
            st = look(w);
        }
    }
    if (w->drowsy || w->waits_for != 0) {
        wf_wait_end(w);
    }
    return st;
}

/* --- for looks ------------------------------------------------------------ */

/* Drive the world. Did something happen? */
bool wf_wait_drive(wf_wait *w);

/* Another thread does the driving: sleep at once. */
static inline void wf_wait_tire(wf_wait *w)
{
    w->awake_ns = 0;
    w->polls = w->mask;
}

#endif
