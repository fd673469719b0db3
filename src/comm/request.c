/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/request.h"

#include "base/alloc.h"
#include "comm/wait.h"

weft_status wf_request_create(weft_comm *comm, size_t op_bytes,
                              weft_request **out)
{
    /* The operation may hold anything, so it starts on a line of its own. */
    size_t head = wf_round_up(sizeof(weft_request), 64);
    weft_request *r = wf_zalloc(head + op_bytes);

    if (r == NULL) {
        return wf_fail_nomem("a request");
    }
    wf_comm_acquire(comm);
    r->comm = comm;
    r->op = (wf_op *)(void *)((char *)r + head);
    pthread_mutex_init(&r->lock, NULL);
    atomic_store(&r->users, 1);
    *out = r;
    return WEFT_OK;
}

void weft_request_release(weft_request *r)
{
    if (r == NULL || atomic_fetch_sub(&r->users, 1) != 1) {
        return;
    }
    wf_comm_release(r->comm);
    pthread_mutex_destroy(&r->lock);
    wf_free(r->text);
    wf_free(r);
}

static bool request_done(const weft_request *r)
{
    return atomic_load_explicit(&r->done, memory_order_acquire) != 0;
}

static weft_status request_status(const weft_request *r)
{
    if (r->status == WEFT_OK) {
        return WEFT_OK;
    }
    if (r->text == NULL && atomic_load(&r->comm->world->host->orphan)) {
        return wf_comm_refuse(r->comm);
    }
    return wf_fail(r->status, "%s",
                   r->text != NULL ? r->text : weft_status_text(r->status));
}

weft_status weft_request_test(weft_request *r, int *done)
{
    if (r == NULL || done == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "request or done is NULL");
    }
    if (!request_done(r)) {
        wf_world_drive(r->comm->world);
    }
    *done = request_done(r) ? 1 : 0;
    return *done ? request_status(r) : WEFT_OK;
}

static weft_status request_look(wf_wait *w)
{
    const weft_request *r = w->goal.ctx;

    if (!request_done(r)) {
        wf_wait_drive(w);
    }
    return request_done(r) ? WEFT_OK : WF_PENDING;
}

/* Whoever drives sees to the deadline of the operation. This wait ends before
 * it at the caller's own bound, which breaks nothing. If the caller was
 * interrupted, the request fails with the communicator. */
static weft_status request_fail(const wf_goal *g, weft_status why)
{
    const weft_request *r = g->ctx;

    if (why == WEFT_ERR_TIMEOUT) {
        return wf_fail(why, "the request is not over yet");
    }
    weft_comm_abort(r->comm, "interrupted");
    return WEFT_OK;
}

/* Whoever drives changes the operation, which in a queue has not begun unless
 * it is the first. */
static bool request_needs(const wf_goal *g, uint32_t member)
{
    const weft_request *r = g->ctx;
    weft_world *world = g->world;
    bool awaits = false;

    pthread_mutex_lock(&world->drive);
    if (!request_done(r) && r->op->awaits != NULL &&
        (!r->ordered || r->comm->ordered.first == r)) {
        awaits = r->op->awaits(r->op, member);
    }
    pthread_mutex_unlock(&world->drive);
    return awaits;
}

static weft_status wait_for(weft_request *r, double seconds)
{
    static const wf_goal_kind kind = {.fail = request_fail,
                                      .needs = request_needs};
    wf_goal goal = wf_op_goal(r->op);
    bool bounded = seconds > 0 && seconds < 1e9;
    _Atomic uint64_t bound_ns = bounded ? (uint64_t)(seconds * 1e9) : 0;
    wf_wait w;

    goal.kind = &kind;
    goal.ctx = r;
    goal.what = "a request";
    /* Who set a bound comes back soon enough by itself. */
    goal.timeout_ns = bounded ? &bound_ns : NULL;
    goal.interrupt = bounded ? NULL : goal.interrupt;
    wf_wait_begin(&w, &goal, true);
    return wf_wait_run(&w, request_look);
}

weft_status weft_request_wait(weft_request *r, double seconds)
{
    weft_world *world;
    weft_status st;

    if (r == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "request is NULL");
    }
    if (!request_done(r)) {
        world = r->comm->world;
        atomic_fetch_add(&r->waiters, 1);
        wf_comm_show_call(r->comm, &r->call, r->op->sequence);
        wf_comm_show_waiting(r->comm, true);
        wf_progress_wait_begin(world->progress);
        st = wait_for(r, seconds);
        wf_progress_wait_end(world->progress);
        wf_comm_show_waiting(r->comm, false);
        atomic_fetch_sub(&r->waiters, 1);
        if (st != WEFT_OK) {
            return st;
        }
    }
    return request_status(r);
}

weft_status weft_request_on_done(weft_request *r, weft_request_fn *fn,
                                 void *ctx)
{
    bool second;
    bool now;

    if (r == NULL || fn == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "request or fn is NULL");
    }
    pthread_mutex_lock(&r->lock);
    second = r->has_fn;
    r->has_fn = true;
    now = request_done(r);
    if (!now && !second) {
        r->fn = fn;
        r->ctx = ctx;
    }
    pthread_mutex_unlock(&r->lock);
    if (second) {
        return wf_fail(WEFT_ERR_INVALID, "the request has a callback already");
    }
    if (now) {
        fn(r, r->status, ctx);
    } else {
        wf_progress_kick(r->comm->world->progress);
    }
    return WEFT_OK;
}
