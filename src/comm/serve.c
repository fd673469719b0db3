/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/serve.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/control.h"
#include "comm/drive.h"
#include "comm/wait.h"

struct wf_server {
    weft_world *world;
    wf_pace pace;
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

/* A caller that waits for answers itself stands in for the server. */
static weft_status look(wf_wait *w)
{
    wf_server *s = w->goal.ctx;
    const wf_board_rank *own = wf_host_own(s->world->host);
    bool due = false;

    if (atomic_load(&s->stop)) {
        return WEFT_OK;
    }
    if (s->world->plane != NULL) {
        due = wf_plane_is_due(s->world);
        s->pace.nap_ns = atomic_load(&s->world->plane->nap_ns);
    }
    if (due || w->drowsy ||
        atomic_load_explicit(&own->listening, memory_order_relaxed) >= 0) {
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
