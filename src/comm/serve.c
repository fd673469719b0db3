/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/serve.h"

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/control.h"
#include "comm/drive.h"
#include "comm/wait.h"

/* How long the server leaves the ports to callers before it looks whether they
 * still see to them. */
#define STAND_BY_NS (300000u)

struct wf_server {
    weft_world *world;
    wf_pace pace;
    uint64_t turns;     /* of the world, as it was last seen */
    uint64_t driven_ns; /* when another thread was last seen to drive */
    uint32_t bell;      /* the second one, as it was last seen */
    pthread_t thread;
    _Atomic bool stop;
};

/* Its bell is the second one, unless answers wait for room: the peer that makes
 * room rings the first. */
static bool listens(weft_world *world)
{
    bool stuck;

    pthread_mutex_lock(&world->drive);
    stuck = wf_ports_busy(world);
    pthread_mutex_unlock(&world->drive);
    return !stuck;
}

/* While other threads drive the server stands by: a port with a descriptor
 * would wake it for each message that a caller waits for and takes itself. It
 * arms the ports when nobody has driven for a while. */
static void consider_others(wf_server *s, wf_wait *w)
{
    weft_world *world = s->world;
    uint64_t turns = atomic_load_explicit(&world->turns, memory_order_relaxed);
    uint64_t now = wf_now_ns();

    if (turns != s->turns) {
        s->turns = turns;
        s->driven_ns = now;
    }
    s->pace.nap_ns =
        world->plane != NULL ? atomic_load(&world->plane->nap_ns) : WF_SEC;
    w->arms = world->ports.watched == 0 || now - s->driven_ns >= STAND_BY_NS;
    if (!w->arms) {
        s->pace.nap_ns = wf_least(s->pace.nap_ns, STAND_BY_NS);
    }
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

/* A caller that waits for answers itself stands in for the server. Who arms the
 * ports is decided before the wait announces that it will sleep. */
static weft_status look(wf_wait *w)
{
    wf_server *s = w->goal.ctx;
    const wf_board_rank *own = wf_host_own(s->world->host);
    bool stood_in =
        atomic_load_explicit(&own->listening, memory_order_relaxed) < 0;
    bool drives = wf_plane_is_due(s->world) || was_rung(s);

    if (atomic_load(&s->stop)) {
        return WEFT_OK;
    }
    if (!w->drowsy) {
        consider_others(s, w);
    }
    if (drives || (w->arms && (w->drowsy || !stood_in))) {
        wf_wait_drive(w);
        s->turns = atomic_load_explicit(&s->world->turns, memory_order_relaxed);
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
    wf_wait_run(&w, look);
    return NULL;
}

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
    st = wf_thread_start("the thread that answers other ranks", server_main, s,
                         &s->thread);
    if (st != WEFT_OK) {
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
    }
    wf_free(s);
}
