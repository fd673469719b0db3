/* SPDX-License-Identifier: Apache-2.0 */
/* This list is global, as is that of hosts (mem/fork.c): a block that is freed
 * comes alone, maybe after its world is gone, and a fork handler gets no
 * argument. */
#include "mem/arenas.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "mem/fork.h"
#include "mem/segment.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static wf_arena *list;

void wf_arenas_add(wf_arena *a)
{
    wf_fork_watch();
    pthread_mutex_lock(&list_lock);
    a->next = list;
    list = a;
    pthread_mutex_unlock(&list_lock);
}

void wf_arenas_remove(wf_arena *a)
{
    wf_arena **at = &list;

    pthread_mutex_lock(&list_lock);
    while (*at != a) {
        at = &(*at)->next;
    }
    *at = a->next;
    pthread_mutex_unlock(&list_lock);
}

wf_arena *wf_arenas_find(const void *at)
{
    wf_arena *a;

    pthread_mutex_lock(&list_lock);
    a = list;
    while (a != NULL && wf_arena_place(a, at, 0) == 0) {
        a = a->next;
    }
    pthread_mutex_unlock(&list_lock);
    return a;
}

/* A3: only what exists now can be read by the child. */
static void lease_begin(wf_arena *a)
{
    if (a->child || a->spans.blocks == 0) {
        return;
    }
    /* Or each fork of a process that frees nothing would cost a descriptor. */
    wf_arena_release(a);
    if (pipe2(a->lease, O_CLOEXEC | O_NONBLOCK) != 0) {
        a->lease[0] = a->lease[1] = -1;
    }
}

void wf_arenas_before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (wf_arena *a = list; a != NULL; a = a->next) {
        pthread_mutex_lock(&a->lock);
        lease_begin(a);
    }
}

/* The fork may also have failed: then the pipe has ended, and nothing is lost.
 */
static void lease_add(wf_arena *a)
{
    wf_arena_lease *l;

    if (a->child || a->spans.blocks == 0) {
        return;
    }
    l = wf_alloc(sizeof(*l));
    wf_close(a->lease[1]);
    a->forks++;
    if (l != NULL && a->lease[0] >= 0) {
        *l = (wf_arena_lease){a->leases, a->forks, a->lease[0]};
        a->leases = l;
    } else {
        wf_log(WEFT_LOG_WARN,
               "blocks of the arena that exist now will not be used again: "
               "nothing tells when the child that was forked ends");
        a->endless = a->forks;
        wf_close(a->lease[0]);
        wf_free(l);
    }
    a->lease[0] = a->lease[1] = -1;
}

static void ranges_hide(wf_arena *a)
{
    if (!a->child &&
        mmap(a->base, a->range * a->ranges, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        (void)mprotect(a->base, a->range * a->ranges, PROT_READ);
    }
}

/* A4. */
static void range_part(wf_arena *a)
{
    size_t bytes = wf_spans_top(&a->spans) * wf_segment_page();
    size_t at = (size_t)(a->own - a->base);

    if (a->child) {
        return;
    }
    if (bytes > 0 &&
        mmap(a->own, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, a->fd,
             (off_t)at) == MAP_FAILED &&
        mmap(a->own, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, a->fd,
             (off_t)at) == MAP_FAILED) {
        wf_log(WEFT_LOG_ERROR, "a forked child has no memory of the arena: %s",
               strerror(errno));
    }
    for (wf_arena_lease *l = a->leases, *next; l != NULL; l = next) {
        next = l->next;
        wf_close(l->fd);
        wf_free(l);
    }
    wf_close(a->lease[0]); /* and the other end stays until this child ends */
    wf_close(a->fd);
    a->leases = NULL;
    a->fd = -1;
    a->child = true;
}

void wf_arenas_after_fork(bool in_child)
{
    if (in_child) {
        /* Ranks that are threads may have one mapping for all of them. */
        for (wf_arena *a = list; a != NULL; a = a->next) {
            ranges_hide(a);
        }
        for (wf_arena *a = list; a != NULL; a = a->next) {
            range_part(a);
        }
    }
    for (wf_arena *a = list; a != NULL; a = a->next) {
        if (!in_child) {
            lease_add(a);
        }
        pthread_mutex_unlock(&a->lock);
    }
    pthread_mutex_unlock(&list_lock);
}
