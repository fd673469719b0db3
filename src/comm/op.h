/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that is carried out in steps. A blocking call keeps it on its
 * stack and steps it until it is over; a non-blocking one puts it behind a
 * request and whoever drives progress steps it. */
#ifndef WF_COMM_OP_H
#define WF_COMM_OP_H

#include <weft/comm.h>

#include "comm/call.h"

/* Not over yet. Never leaves the library. */
#define WF_PENDING ((weft_status)1)

typedef struct wf_op wf_op;

/* Do what can be done now without waiting: WF_PENDING, WEFT_OK when the result
 * is in place, or a failure (with detail), which breaks the communicator
 * unless `op->private_failure` is set. */
typedef weft_status wf_step_fn(wf_op *op);

/* Since when a count has stood still; zero: it was not looked at yet. */
typedef struct wf_quiet {
    uint64_t since_ns;
    uint64_t count;
} wf_quiet;

struct wf_op {
    weft_comm *comm;
    wf_step_fn *step;
    /* Bring small data to the others right away, though earlier operations are
     * still under way. Optional; runs under the same lock as step(). */
    void (*early)(wf_op *op);
    /* Does the operation wait for this member? Optional; runs under the same
     * lock as step(), when it is stalled. */
    bool (*awaits)(const wf_op *op, uint32_t member);
    /* It failed before it was over: let go of buffers and messages. Optional;
     * runs under the same lock as step(). */
    void (*drop)(wf_op *op);
    /* Counts up whenever something happened for it, a piece of a long message
     * included: the deadline counts from the last time (comm/wait.h). */
    uint64_t moved;
    uint32_t sequence; /* its number on the communicator; a message's tag */
    bool private_failure;
    bool driven; /* step() uses the ports: it runs under world->drive only */
    /* It waits for memory that members of the node write, though it may be
     * driven, too: the transport does not tell of their deaths. */
    bool shares;
    /* All that is left is up to the peers: nobody needs to step it before
     * somebody waits for it. */
    bool lazy;
    bool far; /* it waits for other nodes, though its communicator has one */
    /* Between nodes, see op.c: members that were asked; and how long nothing
     * has happened since a member is known to have closed the communicator, or
     * to have died. */
    uint32_t asked;
    wf_quiet closed;
    wf_quiet died;
    wf_call call;
};

/* For another engine to begin with: `far` stays, which those who wait read. */
static inline void wf_op_hand_on(wf_op *op)
{
    op->step = NULL;
    op->early = NULL;
    op->awaits = NULL;
    op->drop = NULL;
    op->moved = 0;
    op->private_failure = false;
    op->driven = false;
    op->shares = false;
    op->lazy = false;
    op->asked = 0;
    op->closed = (wf_quiet){0};
    op->died = (wf_quiet){0};
}

/* All but communicator, call and number: an operation that can be begun. */
static inline void wf_op_init(wf_op *op)
{
    wf_op_hand_on(op);
    op->far = false;
}

/* Step an operation until it is over. A failure breaks the communicator. */
weft_status wf_op_run(wf_op *op);

/* Take one step of it, with all that had come when this was called; it may be
 * left at WF_PENDING. */
weft_status wf_op_try(wf_op *op);

/* The operation as what is waited for (comm/wait.h). */
struct wf_goal wf_op_goal(wf_op *op);

#endif
