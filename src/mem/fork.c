/* SPDX-License-Identifier: Apache-2.0 */
/* Linux has no close-on-fork, and a fork handler gets no argument: so this
 * list is global, as are the log and the places in jobs (boot/seat.c). */
#include "mem/fork.h"

#include "base/fd.h"
#include "mem/arena.h"
#include "mem/watch.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static wf_host *list;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (wf_host *h = list; h != NULL; h = h->next_host) {
        if (h->on_fork != NULL) {
            h->on_fork->before(h->on_fork->ctx);
        }
    }
    wf_arenas_before_fork();
}

static void after_fork(bool in_child)
{
    wf_arenas_after_fork(in_child);
    for (wf_host *h = list; h != NULL; h = h->next_host) {
        if (h->on_fork != NULL) {
            h->on_fork->after(h->on_fork->ctx, in_child);
        }
    }
    pthread_mutex_unlock(&list_lock);
}

static void after_in_parent(void)
{
    after_fork(false);
}

static void after_in_child(void)
{
    for (wf_host *h = list; h != NULL; h = h->next_host) {
        atomic_store(&h->orphan, true);
        if (h->watch != NULL) {
            wf_watch_orphan(h->watch);
        }
        wf_segment_part(&h->control, h->control.bytes);
        wf_close(h->shown); /* a child is no rank */
        h->shown = -1;
    }
    after_fork(true);
}

static void install(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}

void wf_fork_watch(void)
{
    pthread_once(&installed, install);
}

void wf_fork_add(wf_host *host)
{
    wf_fork_watch();
    pthread_mutex_lock(&list_lock);
    host->next_host = list;
    list = host;
    pthread_mutex_unlock(&list_lock);
}

void wf_fork_remove(wf_host *host)
{
    pthread_mutex_lock(&list_lock);
    for (wf_host **at = &list; *at != NULL; at = &(*at)->next_host) {
        if (*at == host) {
            *at = host->next_host;
            break;
        }
    }
    pthread_mutex_unlock(&list_lock);
}

void wf_fork_tell(wf_host *host, const wf_fork_calls *calls)
{
    pthread_mutex_lock(&list_lock);
    host->on_fork = calls;
    pthread_mutex_unlock(&list_lock);
}
