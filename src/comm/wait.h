/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting politely: poll for a while, then yield the core, then sleep until a
 * peer rings. How long depends on whether ranks outnumber cores.
 *
 *     wf_wait w;
 *     wf_wait_begin(&w, comm, op);
 *     while ((st = op->step(op)) == WF_PENDING) {
 *         st = wf_wait_pause(&w);
 *         if (st != WEFT_OK) break;
 *     }
 *     wf_wait_end(&w);
 *
 * Before it sleeps, a wait announces it and has the loop look once more; so
 * nothing that was posted in between is slept through (see mem/board.h). */
#ifndef WF_COMM_WAIT_H
#define WF_COMM_WAIT_H

#include "base/time.h"
#include "comm/comm.h"

typedef struct wf_wait {
    weft_comm *comm;
    const wf_op *op; /* NULL: others see to its deadline */
    uint32_t polls;
    uint32_t mask;
    uint32_t bell;
    bool drowsy;
    bool looked; /* at the members, when the board's alarm was `alarm` */
    uint32_t alarm;
    uint64_t moved;    /* op->moved when it last changed */
    uint64_t since_ns; /* when that was; 0: the clock was not read yet */
    uint64_t until_ns; /* the caller wants to look again then; 0: never */
    uint64_t asked_ns; /* when it was last asked whether to give up */
} wf_wait;

static inline void wf_wait_begin(wf_wait *w, weft_comm *comm, const wf_op *op)
{
    *w = (wf_wait){.comm = comm, .op = op, .mask = comm->world->poll_mask};
}

/* The rare part: clock, peers, other work, yielding, sleeping. */
weft_status wf_wait_slow(wf_wait *w);

static inline weft_status wf_wait_pause(wf_wait *w)
{
    if ((++w->polls & w->mask) != 0) {
        wf_cpu_relax();
        return WEFT_OK;
    }
    return wf_wait_slow(w);
}

static inline void wf_wait_end(wf_wait *w)
{
    if (w->drowsy) {
        wf_board_awake(w->comm->own);
        w->drowsy = false;
    }
}

/* Step an operation until it is over. A failure breaks the communicator. */
weft_status wf_op_run(wf_op *op);

/* Take one step of it, with all that had come when this was called; it may be
 * left at WF_PENDING. */
weft_status wf_op_try(wf_op *op);

#endif
