/* SPDX-License-Identifier: Apache-2.0 */
/* Running an operation on its caller's thread, and what it is as a goal: a
 * failure to reach it breaks the communicator. */
#include "comm/op.h"

#include <stdio.h>

#include "base/time.h"
#include "comm/comm.h"
#include "comm/drive.h"
#include "comm/mail.h"
#include "comm/wait.h"

/* How long nothing may come in after a member has closed the communicator; and
 * nothing move after one has died. */
#define CLOSED_NS (100 * WF_MS)
#define DIED_NS (500 * WF_MS)
/* Members that are asked at a time. */
#define ASKED 16u
/* How often, at most, members are asked for those who wait for anybody: a
 * little more often than each of them would ask. When that was so long ago
 * nobody waits. */
#define TURN_NS (900 * WF_MS)
#define TURNS_END_NS (3 * WF_SEC)

/* --- as a goal ------------------------------------------------------------ */

static void op_name(const wf_goal *g, char *text, size_t room)
{
    const wf_op *op = g->ctx;
    char name[128];
    char number[64];

    wf_call_text(&op->call, name, sizeof(name));
    wf_call_number_text(op->call.kind, op->sequence, op->comm->id, number,
                        sizeof(number));
    snprintf(text, room, "%s (%s)", name, number);
}

static uint64_t op_moved(const wf_goal *g)
{
    const wf_op *op = g->ctx;

    return op->moved;
}

static weft_status op_check(const wf_goal *g)
{
    const wf_op *op = g->ctx;

    return wf_comm_check(op->comm);
}

static bool finished(const wf_op *op, const wf_comm_done *done)
{
    uint32_t count = atomic_load_explicit(&done->count, memory_order_acquire);

    return (int32_t)(count - op->sequence) > 0;
}

/* It has closed the communicator, so that it will never join in; perhaps since
 * it was broken there. */
static weft_status fail_closed(const weft_comm *comm, uint32_t member)
{
    const wf_peer *peer = &comm->world->host->peer[comm->member[member]];
    const wf_comm_done *done = wf_comm_done_of(comm, member);

    if (comm->shared == NULL && done != NULL && done->status != WEFT_OK) {
        return wf_fail(wf_status_parse(done->status), "%.*s",
                       (int)sizeof(done->text) - 1, done->text);
    }
    return wf_fail(WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) has closed communicator %u", member,
                   peer->pid, peer->host, comm->id);
}

/* An operation that uses the ports is changed by whoever drives. */
static void op_lock(const wf_goal *g)
{
    const wf_op *op = g->ctx;

    if (op->driven && !g->locked) {
        pthread_mutex_lock(&g->world->drive);
    }
}

static void op_unlock(const wf_goal *g)
{
    const wf_op *op = g->ctx;

    if (op->driven && !g->locked) {
        pthread_mutex_unlock(&g->world->drive);
    }
}

static bool op_awaits(const wf_goal *g, uint32_t member)
{
    const wf_op *op = g->ctx;
    bool awaits;

    if (op->awaits == NULL) {
        return false;
    }
    op_lock(g);
    awaits = op->awaits(op, member);
    op_unlock(g);
    return awaits;
}

/* Counts up with all that comes in on a port, too: what is meant for an
 * operation may be behind what is meant for others. */
static uint64_t op_heard(const wf_goal *g)
{
    const wf_op *op = g->ctx;
    uint64_t heard;

    op_lock(g);
    heard = op->moved + g->world->news;
    op_unlock(g);
    return heard;
}

static bool is_quiet(wf_quiet *q, uint64_t count, uint64_t for_ns)
{
    uint64_t now = wf_now_ns();

    if (q->since_ns == 0 || q->count != count) {
        *q = (wf_quiet){.since_ns = now, .count = count};
    }
    return now - q->since_ns >= for_ns;
}

/* Between nodes, one that has closed it may have done its part before, and that
 * may still be on its way: so only if nothing comes in any more. So may one
 * that has died, of which the transport tells those who have a message under
 * way with it; but others may wait for a member that was told so, and has given
 * up. */
static weft_status far_gone(const wf_goal *g, uint32_t member)
{
    wf_op *op = g->ctx;
    weft_comm *comm = op->comm;
    const wf_host *host = comm->world->host;
    uint32_t rank = comm->member[member];

    if (atomic_load(&comm->closed_by) == rank + 1 && op_awaits(g, member)) {
        return is_quiet(&op->closed, op_heard(g), CLOSED_NS)
                   ? fail_closed(comm, member)
                   : WF_PENDING;
    }
    if (wf_host_died(host, rank)) {
        return is_quiet(&op->died, op->moved, DIED_NS)
                   ? wf_host_check(host, rank)
                   : WF_PENDING;
    }
    return WEFT_OK;
}

/* Does it wait for one member only? */
static bool awaits_one(const wf_goal *g)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < g->ranks && count < 2; r++) {
        count += op_awaits(g, r);
    }
    return count == 1;
}

/* Is it time for the next turn, for all that wait for anybody here? Several
 * threads may find out at once. After a time in which nobody waited it begins
 * again. */
static bool turn_is_due(weft_comm *comm, uint32_t *turn)
{
    uint64_t now = wf_now_ns();
    uint64_t last = atomic_load(&comm->ask_turn_ns);

    if ((last != 0 && now - last < TURN_NS) ||
        !atomic_compare_exchange_strong(&comm->ask_turn_ns, &last, now)) {
        return false;
    }
    if (now - last > TURNS_END_NS) {
        atomic_store(&comm->ask_turn, 0);
    }
    *turn = atomic_fetch_add(&comm->ask_turn, 1);
    return true;
}

/* It waits for anybody, and others have no reason to tell it that it waits in
 * vain: those who were told of an end may have closed the communicator. An
 * answer is for all operations on it, so one of them asks. */
static void ask_in_turn(weft_comm *comm)
{
    uint32_t member[WF_NODE_TREE_OPPOSITES];
    uint32_t turn;
    uint32_t count = 0;

    if (turn_is_due(comm, &turn)) {
        count = wf_node_tree_opposites(comm->world, comm->member, comm->size,
                                       turn, member);
    }
    for (uint32_t i = 0; i < count; i++) {
        wf_mail_ask(comm, member[i]);
    }
}

/* Some of those that it waits for, others the next time. */
static void op_stalled(const wf_goal *g)
{
    wf_op *op = g->ctx;
    weft_comm *comm = op->comm;
    uint32_t asked = 0;

    if (comm->one_node || op->awaits == NULL) {
        return;
    }
    if (wf_call_is(op->call.kind, WF_MESSAGE) && !awaits_one(g)) {
        ask_in_turn(comm);
        return;
    }
    for (uint32_t i = 0; i < comm->size && asked < ASKED; i++) {
        uint32_t member = op->asked++ % comm->size;

        if (!wf_host_same_node(comm->world->host, comm->member[member]) &&
            op_awaits(g, member)) {
            wf_mail_ask(comm, member);
            asked++;
        }
    }
}

static weft_status op_gone(const wf_goal *g, uint32_t member)
{
    wf_op *op = g->ctx;
    const weft_comm *comm = op->comm;
    const wf_comm_done *done = wf_comm_done_of(comm, member);
    weft_status st = WEFT_OK;

    if (wf_call_is(op->call.kind, WF_MESSAGE)) {
        return WEFT_OK; /* the transport tells of those who went */
    }
    if (done == NULL) {
        return far_gone(g, member);
    }
    if (atomic_load(&done->closed) != 0) {
        st = fail_closed(comm, member);
    } else if (!op->driven || op->shares) {
        /* Of deaths the transport tells those who use it. */
        st = wf_host_check(comm->world->host, comm->member[member]);
    }
    /* In this order: what it finished, it finished before it went. */
    return st == WEFT_OK || finished(op, done) ? WEFT_OK : st;
}

static weft_status op_give_up(const wf_goal *g, weft_status why)
{
    const wf_op *op = g->ctx;

    return wf_comm_give_up(op->comm, why);
}

wf_goal wf_op_goal(wf_op *op)
{
    static const wf_goal_kind kind = {.name = op_name,
                                      .moved = op_moved,
                                      .check = op_check,
                                      .gone = op_gone,
                                      .awaits = op_awaits,
                                      .stalled = op_stalled,
                                      .fail = op_give_up};
    weft_comm *comm = op->comm;

    return (wf_goal){.kind = &kind,
                     .ctx = op,
                     .world = comm->world,
                     .rank = comm->rank,
                     .ranks = comm->size,
                     .member = comm->member,
                     .timeout_ns = &comm->timeout_ns,
                     .interrupt = &comm->world->host->interrupt,
                     .far = op->far || !comm->one_node};
}

/* --- on the caller's thread ----------------------------------------------- */

/* One step, under the lock of the ports where the operation needs them. */
static weft_status op_step(wf_op *op)
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

static weft_status op_look(wf_wait *w)
{
    wf_op *op = w->goal.ctx;

    if (op->driven) {
        wf_wait_drive(w);
    }
    return op_step(op);
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
    st = op_step(op);
    return st == WEFT_OK || st == WF_PENDING ? st : op_fail(op, st);
}

weft_status wf_op_run(wf_op *op)
{
    weft_world *world = op->comm->world;
    wf_goal goal;
    wf_wait w;
    weft_status st;

    /* Most often the first step is all there is to do. */
    if (op->driven) {
        wf_world_drive(world);
    }
    st = op_step(op);
    if (st == WEFT_OK) {
        return st;
    }
    if (st == WF_PENDING) {
        goal = wf_op_goal(op);
        wf_wait_begin(&w, &goal, op->driven);
        wf_comm_show_waiting(op->comm, true);
        st = wf_wait_run(&w, op_look);
        wf_comm_show_waiting(op->comm, false);
    }
    return st == WEFT_OK ? st : op_fail(op, st);
}
