/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/wait.h"

#include <sched.h>

#include "comm/request.h"

/* A sleeper looks around by itself now and then, for its own deadline. */
#define LONGEST_NAP_NS (100 * WF_MS)

static void wait_sleep(wf_wait *w)
{
    uint64_t until = wf_now_ns() + LONGEST_NAP_NS;
    uint64_t deadline = w->since_ns + w->comm->timeout_ns + 1;

    if (w->op != NULL && deadline < until) {
        until = deadline;
    }
    if (w->until_ns != 0 && w->until_ns < until) {
        until = w->until_ns;
    }
    wf_board_sleep(w->comm->world->host->board, w->comm->own, w->bell, until);
    wf_wait_end(w);
}

/* Does the caller want to give up? Others can then not rely on this rank any
 * more, and are told. Who set a bound comes back soon enough by itself. */
static void wait_ask(wf_wait *w, uint64_t now)
{
    const weft_world *world = w->comm->world;

    if (world->interrupted == NULL || w->until_ns != 0) {
        return;
    }
    if (w->asked_ns == 0) {
        w->asked_ns = now;
    }
    if (now - w->asked_ns >= LONGEST_NAP_NS) {
        w->asked_ns = now;
        if (world->interrupted(world->interrupted_ctx) != 0) {
            weft_comm_abort(w->comm, "interrupted");
        }
    }
}

/* Can the operation still end? */
static weft_status wait_check(wf_wait *w, uint64_t now)
{
    weft_comm *comm = w->comm;
    uint32_t alarm = atomic_load_explicit(&comm->world->host->board->alarm,
                                          memory_order_acquire);
    weft_status st = wf_comm_check(comm);

    if (st != WEFT_OK || w->op == NULL) {
        return w->op == NULL ? WEFT_OK : st;
    }
    if (!w->looked || alarm != w->alarm) {
        w->looked = true;
        w->alarm = alarm;
        st = wf_comm_check_members(comm, w->op);
    }
    if (st == WEFT_OK && now - w->since_ns > comm->timeout_ns) {
        st = wf_comm_timed_out(comm, w->op, now - w->since_ns);
    }
    return st;
}

weft_status wf_wait_slow(wf_wait *w)
{
    weft_world *world = w->comm->world;
    uint64_t quiet;
    uint64_t now;
    weft_status st;

    if (w->drowsy && w->op != NULL && w->op->moved != w->moved) {
        wf_wait_end(w); /* the second look found something to do, maybe more */
    } else if (w->drowsy) {
        wait_sleep(w);
    }
    if (atomic_load_explicit(&world->pending, memory_order_relaxed) != 0) {
        wf_world_drive(world);
    }
    now = wf_now_ns();
    if (w->since_ns == 0 || (w->op != NULL && w->op->moved != w->moved)) {
        w->since_ns = now;
        w->moved = w->op != NULL ? w->op->moved : 0;
    }
    wait_ask(w, now);
    st = wait_check(w, now);
    if (st != WEFT_OK) {
        return st;
    }
    quiet = now - w->since_ns;
    if (quiet < world->spin_ns) {
        wf_cpu_relax();
    } else if (quiet < world->spin_ns + world->yield_ns) {
        sched_yield();
    } else {
        atomic_store_explicit(&w->comm->own->since_ns, w->since_ns,
                              memory_order_relaxed);
        w->bell = wf_board_drowse(world->host->board, w->comm->own);
        w->drowsy = true;
    }
    return WEFT_OK;
}

/* One step, under the lock of the ports where the operation needs them. */
static weft_status op_step_alone(wf_op *op)
{
    weft_world *world = op->comm->world;
    weft_status st;

    if (!op->driven) {
        return op->step(op);
    }
    pthread_mutex_lock(&world->drive);
    st = op->step(op);
    pthread_mutex_unlock(&world->drive);
    return st;
}

/* One step, having moved on what it may depend on. The last look before a sleep
 * must not be left to a thread that is driving, and may have looked earlier. */
static weft_status op_step(wf_op *op, bool last_look)
{
    weft_world *world = op->comm->world;

    if (op->driven &&
        (last_look ? wf_world_drive_now(world) : wf_world_drive(world))) {
        op->moved++; /* bytes of ours may have moved: do not go to sleep */
    }
    return op_step_alone(op);
}

static void op_drop(wf_op *op)
{
    weft_world *world = op->comm->world;

    if (op->drop == NULL) {
        return;
    }
    if (op->driven) {
        pthread_mutex_lock(&world->drive);
    }
    op->drop(op);
    if (op->driven) {
        pthread_mutex_unlock(&world->drive);
    }
}

static weft_status op_fail(wf_op *op, weft_status st)
{
    if (!op->private_failure) {
        st = wf_comm_break(op->comm, st, weft_error_detail());
    }
    op_drop(op);
    return st;
}

weft_status wf_op_try(wf_op *op)
{
    weft_status st;

    wf_world_drive_now(op->comm->world);
    st = op_step_alone(op);
    return st == WEFT_OK || st == WF_PENDING ? st : op_fail(op, st);
}

weft_status wf_op_run(wf_op *op)
{
    wf_wait w;
    weft_status st = op_step(op, false);

    if (st == WEFT_OK) {
        return st;
    }
    wf_wait_begin(&w, op->comm, op);
    wf_comm_show_waiting(op->comm, true);
    while (st == WF_PENDING) {
        st = wf_wait_pause(&w);
        if (st == WEFT_OK) {
            st = op_step(op, w.drowsy);
        }
    }
    wf_wait_end(&w);
    wf_comm_show_waiting(op->comm, false);
    return st == WEFT_OK ? st : op_fail(op, st);
}
