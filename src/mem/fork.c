/* SPDX-License-Identifier: Apache-2.0 */
/* Linux has no close-on-fork, and a fork handler gets no argument: so this
 * list is global, as are the log and the places in jobs (boot/seat.c). */
#include "mem/fork.h"

#include "mem/watch.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static wf_host *list;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void after_in_child(void)
{
    for (wf_host *h = list; h != NULL; h = h->next_host) {
        atomic_store(&h->orphan, true);
        if (h->watch != NULL) {
            wf_watch_orphan(h->watch);
        }
    }
    pthread_mutex_unlock(&list_lock);
}

static void install(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}

void wf_fork_add(wf_host *host)
{
    pthread_once(&installed, install);
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
