/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/request.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "comm/wait.h"

#define ASK_NS WF_MS

weft_status wf_request_create(weft_comm *comm, size_t op_bytes,
                              weft_request **out)
{
    /* The operation may hold anything, so it starts on a line of its own. */
    size_t head = wf_round_up(sizeof(weft_request), 64);
    weft_request *r = wf_zalloc(head + op_bytes);

    if (r == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a request");
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

static void append(weft_request *r, weft_request ***end)
{
    **end = r;
    *end = &r->next;
}

static void busy_add(weft_comm *comm)
{
    if (!comm->busy) {
        comm->busy = true;
        comm->next_busy = comm->world->busy;
        comm->world->busy = comm;
    }
}

static void busy_sweep(weft_world *world)
{
    for (weft_comm **at = &world->busy; *at != NULL;) {
        weft_comm *comm = *at;

        if (comm->ordered == NULL && comm->loose == NULL) {
            comm->busy = false;
            *at = comm->next_busy;
        } else {
            at = &comm->next_busy;
        }
    }
}

/* Mark it over. The callback is left for call_back, without the lock. */
static void finish(weft_request *r, weft_status st)
{
    weft_world *world = r->comm->world;

    r->status = st;
    if (st != WEFT_OK) {
        r->text = wf_strdup(weft_error_detail());
        if (r->op->drop != NULL) {
            r->op->drop(r->op);
        }
    }
    if (r->ordered) {
        if (st == WEFT_OK) {
            wf_comm_end(r->comm, r->op);
        }
        atomic_fetch_sub_explicit(&r->comm->queued, 1, memory_order_release);
    }
    atomic_fetch_sub_explicit(&world->pending, 1, memory_order_release);
    /* Publishes result and status; pairs with the acquire in request_done. */
    atomic_store_explicit(&r->done, 1, memory_order_release);
}

static void call_back(weft_request *finished)
{
    for (weft_request *r = finished, *next; r != NULL; r = next) {
        weft_request_fn *fn;
        void *ctx;

        next = r->next;
        pthread_mutex_lock(&r->lock);
        fn = r->fn;
        ctx = r->ctx;
        r->fn = NULL;
        pthread_mutex_unlock(&r->lock);
        if (fn != NULL) {
            fn(r, r->status, ctx);
        }
        weft_request_release(r);
    }
}

/* One round through everything that is pending. */
typedef struct sweep {
    uint64_t now_ns;
    bool asks;              /* whether each can still end */
    bool moved;             /* something happened */
    weft_request *finished; /* their callbacks are due */
    weft_request **end;
} sweep;

/* A receive may be there for a message that comes some day: its time counts
 * only while somebody waits for it. */
static bool has_deadline(weft_request *r)
{
    bool called_back;

    if (r->op->call.kind != WF_CALL_RECV || atomic_load(&r->waiters) > 0) {
        return true;
    }
    pthread_mutex_lock(&r->lock);
    called_back = r->fn != NULL;
    pthread_mutex_unlock(&r->lock);
    return called_back;
}

/* Is there a reason to stop waiting for it? */
static weft_status check_pending(weft_request *r, uint64_t now)
{
    wf_goal goal = wf_op_goal(r->op);
    weft_status st;

    if (!has_deadline(r)) {
        r->stall.since_ns = now;
    }
    st = wf_goal_check(&goal, &r->stall, now);
    return st == WEFT_OK ? WF_PENDING : st;
}

static weft_status step_request(weft_request *r, sweep *w)
{
    uint64_t before = r->op->moved;
    weft_status st = wf_comm_check(r->comm);

    if (st == WEFT_OK) {
        st = r->op->step(r->op);
    }
    if (r->op->moved != before || st != WF_PENDING) {
        w->moved = true;
    }
    if (st == WF_PENDING && w->asks) {
        st = check_pending(r, w->now_ns);
    }
    if (st != WEFT_OK && st != WF_PENDING && !r->op->private_failure) {
        st = wf_comm_break(r->comm, st, weft_error_detail());
    }
    return st;
}

static void drive_ordered(weft_comm *comm, sweep *w)
{
    while (comm->ordered != NULL && !atomic_load(&comm->running)) {
        weft_request *r = comm->ordered;
        weft_status st = step_request(r, w);

        if (st == WF_PENDING) {
            return;
        }
        comm->ordered = r->next;
        if (comm->ordered == NULL) {
            comm->ordered_end = &comm->ordered;
        }
        r->next = NULL;
        append(r, &w->end);
        finish(r, st);
    }
}

static void drive_loose(weft_comm *comm, sweep *w)
{
    for (weft_request **at = &comm->loose; *at != NULL;) {
        weft_request *r = *at;
        weft_status st = step_request(r, w);

        if (st == WF_PENDING) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (*at == NULL) {
            comm->loose_end = at;
        }
        r->next = NULL;
        append(r, &w->end);
        finish(r, st);
    }
}

/* Whether an operation can still end is asked now and then only: with thousands
 * of them pending that would be most of the work. */
static bool asking_is_due(weft_world *world, uint64_t now)
{
    uint32_t alarm =
        atomic_load_explicit(&world->host->board->alarm, memory_order_acquire);

    if (now - world->asked_ns < ASK_NS && alarm == world->asked_alarm) {
        return false;
    }
    world->asked_ns = now;
    world->asked_alarm = alarm;
    return true;
}

/* Step everything. Called with world->drive held, returns without it. The ports
 * of an orphan lead nowhere, and what is in them is not for it. */
static bool drive_and_unlock(weft_world *world)
{
    sweep w = {.end = &w.finished};

    if (atomic_load_explicit(&world->host->orphan, memory_order_relaxed)) {
        pthread_mutex_unlock(&world->drive);
        return false;
    }
    w.moved = wf_ports_progress(world);
    if (world->busy != NULL) {
        w.now_ns = wf_now_ns();
        w.asks = asking_is_due(world, w.now_ns);
    }
    for (weft_comm *c = world->busy; c != NULL; c = c->next_busy) {
        drive_ordered(c, &w);
        drive_loose(c, &w);
    }
    if (w.finished != NULL) {
        busy_sweep(world);
    }
    pthread_mutex_unlock(&world->drive);
    if (w.finished != NULL) {
        wf_board_ring(wf_host_own(world->host)); /* others of us who wait */
        call_back(w.finished);
    }
    return w.moved;
}

bool wf_world_drive(weft_world *world)
{
    return pthread_mutex_trylock(&world->drive) == 0 && drive_and_unlock(world);
}

bool wf_world_drive_now(weft_world *world)
{
    pthread_mutex_lock(&world->drive);
    return drive_and_unlock(world);
}

void wf_request_submit(weft_request *r, bool ordered)
{
    weft_comm *comm = r->comm;
    weft_world *world = comm->world;
    bool lazy;

    r->ordered = ordered;
    atomic_fetch_add(&r->users, 1);
    pthread_mutex_lock(&world->drive);
    atomic_fetch_add(&world->pending, 1);
    if (ordered) {
        atomic_fetch_add(&comm->queued, 1);
        append(r, &comm->ordered_end);
    } else {
        append(r, &comm->loose_end);
    }
    busy_add(comm);
    if (r->op->early != NULL) {
        r->op->early(r->op);
    }
    /* The first step is taken here and now, so that messages are posted in the
     * order of the calls, and small data has left the caller's buffer. */
    drive_and_unlock(world);
    pthread_mutex_lock(&world->drive);
    lazy = r->op->lazy;
    pthread_mutex_unlock(&world->drive);
    if (atomic_load(&r->done) == 0 && !lazy) {
        wf_progress_kick(world->progress);
    }
}

bool wf_requests_fail(weft_comm *comm, weft_status status, const char *text)
{
    weft_world *world = comm->world;
    weft_request *finished = NULL;
    weft_request **end = &finished;
    weft_request *lists[2];
    bool collectives;

    pthread_mutex_lock(&world->drive);
    lists[0] = comm->ordered;
    lists[1] = comm->loose;
    collectives = lists[0] != NULL;
    comm->ordered = NULL;
    comm->ordered_end = &comm->ordered;
    comm->loose = NULL;
    comm->loose_end = &comm->loose;
    for (int i = 0; i < 2; i++) {
        for (weft_request *r = lists[i], *next; r != NULL; r = next) {
            next = r->next;
            r->next = NULL;
            append(r, &end);
            finish(r, wf_fail(status, "%s", text));
        }
    }
    busy_sweep(world);
    pthread_mutex_unlock(&world->drive);
    call_back(finished);
    return collectives;
}

static void orphan_list(weft_request *list)
{
    for (weft_request *r = list, *next; r != NULL; r = next) {
        next = r->next;
        r->next = NULL;
        r->fn = NULL;
        r->status = WEFT_ERR_CLOSED;
        pthread_mutex_init(&r->lock, NULL);
        atomic_store(&r->done, 1);
        weft_request_release(r);
    }
}

void wf_requests_orphan(weft_comm *comm)
{
    orphan_list(comm->ordered);
    orphan_list(comm->loose);
    comm->ordered = NULL;
    comm->ordered_end = &comm->ordered;
    comm->loose = NULL;
    comm->loose_end = &comm->loose;
    comm->busy = false;
    atomic_store(&comm->queued, 0);
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

static void request_name(const wf_goal *g, char *text, size_t room)
{
    (void)g;
    snprintf(text, room, "a request");
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

static weft_status wait_for(weft_request *r, double seconds)
{
    static const wf_goal_kind kind = {.name = request_name,
                                      .fail = request_fail};
    wf_goal goal = wf_op_goal(r->op);
    bool bounded = seconds > 0 && seconds < 1e9;
    _Atomic uint64_t bound_ns = bounded ? (uint64_t)(seconds * 1e9) : 0;
    wf_wait w;

    goal.kind = &kind;
    goal.ctx = r;
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
        wf_comm_show(r->comm, r->op);
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
