/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/serve.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "comm/request.h"

/* It is rung for whatever concerns it; this is for what nobody thought of. */
#define NAP_NS WF_SEC

struct wf_server {
    weft_world *world;
    pthread_t thread;
    _Atomic bool stop;
};

void wf_serve_handle(weft_world *world, uint32_t number, wf_am_fn *fn)
{
    for (uint32_t i = 0; i < world->ports.count; i++) {
        const wf_route *r = &world->ports.route[i];

        r->transport->handle(r->port, number, fn, world);
    }
}

/* Do answers wait for room? The peer that makes room rings the first bell. */
static bool is_stuck(weft_world *world)
{
    bool stuck;

    pthread_mutex_lock(&world->drive);
    stuck = wf_ports_busy(world);
    pthread_mutex_unlock(&world->drive);
    return stuck;
}

/* Both kinds of sleep look once more after they are announced. */
static void sleep_for_room(const wf_server *s)
{
    wf_board *board = s->world->host->board;
    wf_board_rank *own = wf_host_own(s->world->host);
    uint32_t bell = wf_board_drowse(board, own);

    if (!wf_world_drive_now(s->world) && !atomic_load(&s->stop)) {
        wf_board_sleep(board, own, bell, wf_now_ns() + NAP_NS);
    }
    wf_board_awake(own);
}

static void sleep_listening(const wf_server *s)
{
    wf_board_rank *own = wf_host_own(s->world->host);
    uint32_t bell = wf_board_listen(own);

    if (!wf_world_drive_now(s->world) && !atomic_load(&s->stop) &&
        !is_stuck(s->world)) {
        wf_board_sleep_listening(own, bell, NAP_NS);
    }
    wf_board_unlisten(own);
}

/* One question is often followed by the next. */
static void poll_for_more(const wf_server *s)
{
    wf_board_rank *own = wf_host_own(s->world->host);
    uint64_t last = wf_now_ns();

    while (!atomic_load(&s->stop) &&
           atomic_load_explicit(&own->listening, memory_order_relaxed) >= 0 &&
           wf_now_ns() - last < s->world->spin_ns) {
        if (wf_world_drive(s->world)) {
            last = wf_now_ns();
        } else {
            wf_cpu_relax();
        }
    }
}

static void *server_main(void *arg)
{
    const wf_server *s = arg;

    while (!atomic_load(&s->stop)) {
        if (is_stuck(s->world)) {
            sleep_for_room(s);
        } else {
            sleep_listening(s);
        }
        poll_for_more(s);
    }
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
        return wf_fail(WEFT_ERR_NOMEM, "the thread that answers other ranks");
    }
    s->world = world;
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
