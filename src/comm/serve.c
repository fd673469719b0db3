/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/serve.h"

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/control.h"
#include "comm/drive.h"
#include "comm/wait.h"
#include "mem/watch.h"

/* How long the ports are left to callers before somebody looks whether they
 * still see to them. */
#define STAND_BY_NS (300000u)

/* How long to sleep where ports cannot be armed and nothing happens either: a
 * port may wait for a connection to end, and others need the core. */
#define REFUSED_NS (100000u)

/* There are two things that the server may have to wake up for, and the kernel
 * has no sleep for both: so each has a thread, which then drives by itself. If
 * one woke the other, each message would cost two wake-ups. */
struct wf_server {
    weft_world *world;
    wf_pace pace;
    uint32_t bell; /* the second one, as it was last seen */
    pthread_t thread;
    _Atomic bool stop;
    /* The other thread, where ports have descriptors. */
    bool minds_ports;
    pthread_t ports_thread;
    pthread_mutex_t begin; /* it waits for this one first */
    bool refused;          /* the ports could not be armed the last time */
    uint64_t turns;        /* of the world, as it was last seen */
    uint64_t driven_ns;    /* when another thread was last seen to drive */
};

/* --- what peers of this node ring for ------------------------------------- */

/* Its bell is the second one, unless answers wait for room: the peer that makes
 * room rings the first. */
static bool listens(weft_world *world)
{
    bool stuck;

    pthread_mutex_lock(&world->drive);
    stuck = wf_ports_stuck(world);
    pthread_mutex_unlock(&world->drive);
    return !stuck;
}

/* Has the second bell rung since this was last asked? */
static bool was_rung(wf_server *s)
{
    uint32_t bell = atomic_load_explicit(
        &wf_host_own(s->world->host)->second_bell, memory_order_relaxed);
    bool rung = bell != s->bell;

    s->bell = bell;
    return rung;
}

/* A caller that waits for answers itself stands in for the server. */
static weft_status look(wf_wait *w)
{
    wf_server *s = w->goal.ctx;
    weft_world *world = s->world;
    bool stood_in = atomic_load_explicit(&wf_host_own(world->host)->listening,
                                         memory_order_relaxed) < 0;
    bool drives = wf_plane_is_due(world) || was_rung(s);

    if (atomic_load(&s->stop)) {
        return WEFT_OK;
    }
    s->pace.nap_ns =
        world->plane != NULL ? atomic_load(&world->plane->nap_ns) : WF_SEC;
    if (drives || w->drowsy || !stood_in) {
        wf_wait_drive(w);
    } else {
        wf_wait_tire(w);
    }
    return WF_PENDING;
}

static void *server_main(void *arg)
{
    wf_server *s = arg;
    wf_goal goal = wf_goal_none(s->world, s);
    wf_wait w;

    wf_wait_begin(&w, &goal, true);
    wf_wait_pace(&w, &s->pace);
    w.listens = listens;
    w.arms = false;
    wf_wait_run(&w, look);
    return NULL;
}

/* --- ports with descriptors ----------------------------------------------- */

/* While other threads drive this one stands by: it would wake up for each
 * message that a caller waits for and takes itself. */
static bool others_drive(wf_server *s, uint64_t now)
{
    uint64_t turns =
        atomic_load_explicit(&s->world->turns, memory_order_relaxed);

    if (turns != s->turns) {
        s->turns = turns;
        s->driven_ns = now;
    }
    return now - s->driven_ns < STAND_BY_NS;
}

/* Drive, unless another thread does. Did something happen? */
static bool drive(wf_server *s, uint64_t now)
{
    bool moved = wf_world_drive_minding(s->world);
    uint64_t turns =
        atomic_load_explicit(&s->world->turns, memory_order_relaxed);

    if (turns == s->turns) {
        s->driven_ns = now; /* the lock was held */
    }
    s->turns = turns;
    return moved;
}

/* Until a port has something to do, somebody else asks for a look, or it is
 * time to look whether others still drive. True: a port may have something to
 * do, and nobody else is known to see to it; that somebody has driven meanwhile
 * may be long ago. */
static bool sleep_for_ports(wf_server *s, uint64_t now, bool stands_by)
{
    weft_world *world = s->world;
    uint64_t until = now + (stands_by ? STAND_BY_NS : WF_SEC);
    uint64_t due = stands_by ? 0 : wf_ports_next_due(world, now);

    if (due != 0 && due < until) {
        until = due;
    }
    if (!stands_by && !wf_ports_arm(world)) {
        if (!s->refused || atomic_load(&s->stop)) {
            s->refused = true;
            return true;
        }
        until = now + REFUSED_NS; /* it is time that they wait for */
    } else {
        s->refused = false;
    }
    if (atomic_load(&s->stop)) {
        return true;
    }
    if (wf_watch_sleep(world->host->watch, until)) {
        s->driven_ns = wf_now_ns();
        return false;
    }
    return !stands_by;
}

static void *ports_main(void *arg)
{
    wf_server *s = arg;
    uint64_t moved_ns = 0;
    bool woken = false;

    pthread_mutex_lock(&s->begin);
    pthread_mutex_unlock(&s->begin);
    while (!atomic_load(&s->stop)) {
        uint64_t now = wf_now_ns();
        bool stands_by = others_drive(s, now);

        if ((woken || !stands_by) && drive(s, now)) {
            moved_ns = now;
            woken = false;
            s->refused = false;
        } else if (now - moved_ns >= s->pace.spin_ns || stands_by) {
            woken = sleep_for_ports(s, now, stands_by || s->driven_ns == now);
        } else {
            wf_cpu_relax();
        }
    }
    return NULL;
}

static weft_status mind_ports(wf_server *s)
{
    weft_status st;

    if (s->world->ports.watched == 0) {
        return WEFT_OK;
    }
    wf_watch_take(s->world->host->watch);
    st = wf_thread_start("the thread that sees to ports", ports_main, s,
                         &s->ports_thread);
    s->minds_ports = st == WEFT_OK;
    if (st != WEFT_OK) {
        wf_watch_give(s->world->host->watch);
    }
    return st;
}

static void leave_ports(wf_server *s)
{
    if (s->minds_ports) {
        wf_watch_rouse(s->world->host->watch);
        pthread_join(s->ports_thread, NULL);
        wf_watch_give(s->world->host->watch);
    }
}

/* --- begin and end -------------------------------------------------------- */

weft_status wf_serve(weft_world *world)
{
    wf_server *s;
    weft_status st;

    if (world->server != NULL) {
        return WEFT_OK;
    }
    s = wf_zalloc(sizeof(*s));
    if (s == NULL) {
        return wf_fail_nomem("the thread that answers other ranks");
    }
    s->world = world;
    /* One question is often followed by the next. The bell rings for whatever
     * concerns it; the nap is for what nobody thought of. */
    s->pace = (wf_pace){.spin_ns = world->pace.spin_ns, .nap_ns = WF_SEC};
    pthread_mutex_init(&s->begin, NULL);
    pthread_mutex_lock(&s->begin);
    st = mind_ports(s);
    if (st == WEFT_OK) {
        st = wf_thread_start("the thread that answers other ranks", server_main,
                             s, &s->thread);
        atomic_store(&s->stop, st != WEFT_OK);
    }
    pthread_mutex_unlock(&s->begin);
    if (st != WEFT_OK) {
        leave_ports(s);
        pthread_mutex_destroy(&s->begin);
        wf_free(s);
        return st;
    }
    world->server = s;
    return WEFT_OK;
}

void wf_server_destroy(wf_server *s)
{
    if (s == NULL) {
        return;
    }
    if (!atomic_load(&s->world->host->orphan)) {
        wf_board_rank *own = wf_host_own(s->world->host);

        atomic_store(&s->stop, true);
        wf_board_wake_listener(own);
        wf_board_wake(own);
        pthread_join(s->thread, NULL);
        leave_ports(s);
        pthread_mutex_destroy(&s->begin);
    }
    wf_free(s);
}
