/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that moves non-blocking operations on while nobody waits. It is
 * started by the first operation that needs it, and sleeps unless something is
 * pending and no caller is driving. */
#include <stdbool.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "base/time.h"
#include "comm/drive.h"
#include "comm/wait.h"

/* The program is computing meanwhile: poll briefly, then leave it the core. */
static const wf_pace pace = {.spin_ns = 5000, .nap_ns = 100 * WF_MS};

struct wf_progress {
    weft_world *world;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool started;
    bool stop;
    bool wanted;      /* something pending needs a driver */
    unsigned waiters; /* callers that drive by themselves */
};

weft_status wf_progress_create(weft_world *world, wf_progress **out)
{
    wf_progress *p = wf_zalloc(sizeof(*p));

    if (p == NULL) {
        return wf_fail_nomem("the progress thread");
    }
    p->world = world;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    *out = p;
    return WEFT_OK;
}

/* Should the thread be at work? Under the lock. */
static bool called_for(const wf_progress *p)
{
    return p->wanted && p->waiters == 0;
}

static weft_status look(wf_wait *w)
{
    wf_progress *p = w->goal.ctx;
    bool on;

    pthread_mutex_lock(&p->lock);
    if (atomic_load(&p->world->pending) == 0) {
        p->wanted = false;
    }
    on = called_for(p) && !p->stop;
    pthread_mutex_unlock(&p->lock);
    if (on) {
        wf_wait_drive(w);
    }
    return on ? WF_PENDING : WEFT_OK;
}

static void work(wf_progress *p)
{
    wf_goal goal = wf_goal_none(p->world, p);
    wf_wait w;

    wf_wait_begin(&w, &goal, true);
    wf_wait_pace(&w, &pace);
    wf_wait_run(&w, look);
    /* A caller may have gone to sleep because we were driving. */
    wf_board_ring(wf_host_own(p->world->host));
}

static void *progress_main(void *arg)
{
    wf_progress *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (called_for(p)) {
            pthread_mutex_unlock(&p->lock);
            work(p);
            pthread_mutex_lock(&p->lock);
        } else {
            pthread_cond_wait(&p->wake, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void wf_progress_kick(wf_progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->wanted = true;
    if (!p->started && !p->stop) {
        /* Without the thread, waits and tests still make progress. */
        p->started = wf_thread_start("the progress thread", progress_main, p,
                                     &p->thread) == WEFT_OK;
    }
    if (p->waiters == 0) {
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
}

void wf_progress_wait_begin(wf_progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->waiters++;
    pthread_mutex_unlock(&p->lock);
}

void wf_progress_wait_end(wf_progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->waiters--;
    if (called_for(p) && atomic_load(&p->world->pending) != 0) {
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
    wf_board_ring(wf_host_own(p->world->host)); /* as in work() */
}

void wf_progress_orphan(wf_progress *p)
{
    /* Threads that do not exist here may have held the one, and have waited for
     * the other, which could then never be destroyed. */
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->started = false;
    p->wanted = false;
    p->waiters = 0;
}

void wf_progress_destroy(wf_progress *p)
{
    if (p == NULL) {
        return;
    }
    if (p->started) {
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        wf_board_wake(wf_host_own(p->world->host));
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    wf_free(p);
}
