/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/drive.h"

#include "base/alloc.h"
#include "base/time.h"
#include "comm/control.h"
#include "comm/request.h"
#include "comm/wait.h"
#include "mem/watch.h"

#define ASK_NS WF_MS

void wf_requests_init(wf_request_queue *queue)
{
    *queue = (wf_request_queue){NULL, &queue->first};
}

static void append(wf_request_queue *queue, weft_request *r)
{
    r->next = NULL;
    *queue->end = r;
    queue->end = &r->next;
}

/* Take one out of the queue, which is where `at` points. */
static void take(wf_request_queue *queue, weft_request **at)
{
    *at = (*at)->next;
    if (*at == NULL) {
        queue->end = at;
    }
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

        if (comm->ordered.first == NULL && comm->loose.first == NULL) {
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

/* `watch` is NULL, or that of which the calling thread minds the ports: while a
 * callback runs, which may wait for messages itself, the watching thread does
 * so. */
static void call_back(const wf_request_queue *finished, wf_watch *watch)
{
    bool given = false;

    for (weft_request *r = finished->first, *next; r != NULL; r = next) {
        weft_request_fn *fn;
        void *ctx;

        next = r->next;
        pthread_mutex_lock(&r->lock);
        fn = r->fn;
        ctx = r->ctx;
        r->fn = NULL;
        pthread_mutex_unlock(&r->lock);
        if (fn != NULL && watch != NULL && !given) {
            wf_watch_give(watch);
            given = true;
        }
        if (fn != NULL) {
            fn(r, r->status, ctx);
        }
        weft_request_release(r);
    }
    if (given) {
        wf_watch_take(watch);
    }
}

/* One round through everything that is pending. */
typedef struct sweep {
    uint64_t now_ns;
    bool asks;                 /* whether each can still end */
    bool moved;                /* something happened */
    wf_request_queue finished; /* their callbacks are due */
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

    goal.locked = true;
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

/* Ordered ones are stepped up to the first that is not over, and none while a
 * blocking collective runs. */
static void drive_queue(weft_comm *comm, wf_request_queue *queue, sweep *w)
{
    bool ordered = queue == &comm->ordered;

    for (weft_request **at = &queue->first; *at != NULL;) {
        weft_request *r = *at;
        weft_status st = WF_PENDING;

        if (!ordered || !atomic_load(&comm->running)) {
            st = step_request(r, w);
        }
        if (st != WF_PENDING) {
            take(queue, at);
            append(&w->finished, r);
            finish(r, st);
        } else if (ordered) {
            return;
        } else {
            at = &r->next;
        }
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
 * of an orphan lead nowhere, and what is in them is not for it. `watch` as for
 * call_back. */
static bool drive_and_unlock(weft_world *world, wf_watch *watch)
{
    sweep w = {.moved = false};

    if (atomic_load_explicit(&world->host->orphan, memory_order_relaxed)) {
        pthread_mutex_unlock(&world->drive);
        return false;
    }
    /* Only the holder of the lock writes it. */
    atomic_store_explicit(
        &world->turns,
        atomic_load_explicit(&world->turns, memory_order_relaxed) + 1,
        memory_order_relaxed);
    wf_requests_init(&w.finished);
    w.moved = wf_ports_progress(world);
    if (world->busy != NULL) {
        w.now_ns = wf_now_ns();
        w.asks = asking_is_due(world, w.now_ns);
    }
    for (weft_comm *c = world->busy; c != NULL; c = c->next_busy) {
        drive_queue(c, &c->ordered, &w);
        drive_queue(c, &c->loose, &w);
    }
    if (w.finished.first != NULL) {
        busy_sweep(world);
    }
    wf_plane_tick(world);
    pthread_mutex_unlock(&world->drive);
    if (w.finished.first != NULL) {
        wf_board_ring(wf_host_own(world->host)); /* others of us who wait */
        call_back(&w.finished, watch);
    }
    return w.moved;
}

bool wf_world_drive(weft_world *world)
{
    return pthread_mutex_trylock(&world->drive) == 0 &&
           drive_and_unlock(world, NULL);
}

bool wf_world_drive_minding(weft_world *world)
{
    return pthread_mutex_trylock(&world->drive) == 0 &&
           drive_and_unlock(world, world->host->watch);
}

bool wf_world_drive_now(weft_world *world)
{
    pthread_mutex_lock(&world->drive);
    return drive_and_unlock(world, NULL);
}

void wf_request_submit(weft_request *r, bool ordered)
{
    weft_comm *comm = r->comm;
    weft_world *world = comm->world;
    bool lazy;

    r->ordered = ordered;
    r->call = r->op->call;
    atomic_fetch_add(&r->users, 1);
    pthread_mutex_lock(&world->drive);
    atomic_fetch_add(&world->pending, 1);
    if (ordered) {
        atomic_fetch_add(&comm->queued, 1);
    }
    append(ordered ? &comm->ordered : &comm->loose, r);
    busy_add(comm);
    if (r->op->early != NULL) {
        r->op->early(r->op);
    }
    /* The first step is taken here and now, so that messages are posted in the
     * order of the calls, and small data has left the caller's buffer. */
    drive_and_unlock(world, NULL);
    pthread_mutex_lock(&world->drive);
    lazy = r->op->lazy;
    pthread_mutex_unlock(&world->drive);
    if (atomic_load(&r->done) == 0 && !lazy) {
        wf_progress_kick(world->progress);
    }
}

static void fail_queue(wf_request_queue *queue, wf_request_queue *finished,
                       weft_status status, const char *text)
{
    while (queue->first != NULL) {
        weft_request *r = queue->first;

        take(queue, &queue->first);
        append(finished, r);
        finish(r, wf_fail(status, "%s", text));
    }
}

bool wf_requests_fail(weft_comm *comm, weft_status status, const char *text)
{
    weft_world *world = comm->world;
    wf_request_queue finished;
    bool collectives;

    wf_requests_init(&finished);
    pthread_mutex_lock(&world->drive);
    collectives = comm->ordered.first != NULL;
    if (collectives) {
        /* Others may still write to buffers that are let go of here. */
        wf_arena_hold(world->host->arena);
    }
    fail_queue(&comm->ordered, &finished, status, text);
    fail_queue(&comm->loose, &finished, status, text);
    busy_sweep(world);
    pthread_mutex_unlock(&world->drive);
    call_back(&finished, NULL);
    return collectives;
}

static void orphan_queue(wf_request_queue *queue)
{
    while (queue->first != NULL) {
        weft_request *r = queue->first;

        take(queue, &queue->first);
        r->fn = NULL;
        r->status = WEFT_ERR_CLOSED;
        pthread_mutex_init(&r->lock, NULL);
        atomic_store(&r->done, 1);
        weft_request_release(r);
    }
}

void wf_requests_orphan(weft_comm *comm)
{
    orphan_queue(&comm->ordered);
    orphan_queue(&comm->loose);
    comm->busy = false;
    atomic_store(&comm->queued, 0);
}
