/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/match.h"

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

weft_status wf_match_init(wf_match *m, uint32_t sources)
{
    memset(m, 0, sizeof(*m));
    m->source = wf_zalloc(sources * sizeof(*m->source));
    if (m->source == NULL) {
        return wf_fail_nomem("message queues for %u ranks", sources);
    }
    m->sources = sources;
    m->all = (wf_link){&m->all, &m->all};
    for (uint32_t i = 0; i < sources; i++) {
        wf_link *arrived = &m->source[i].arrived;

        *arrived = (wf_link){arrived, arrived};
    }
    return WEFT_OK;
}

void wf_match_fini(wf_match *m)
{
    wf_free(m->source);
    memset(m, 0, sizeof(*m));
}

/* --- receives that wait -------------------------------------------------- */

void wf_match_fill(wf_msg *msg, uint32_t from, uint64_t tag, uint64_t mask,
                   void *buf, size_t room)
{
    *msg = (wf_msg){
        .peer = from, .tag = tag, .mask = mask, .buf = buf, .room = room};
}

static wf_queue *match_queue(wf_match *m, const wf_msg *msg)
{
    return msg->peer == WF_SOURCE_ANY ? &m->any : &m->source[msg->peer].posted;
}

void wf_match_post(wf_match *m, wf_msg *msg)
{
    msg->token = m->posts++;
    wf_queue_push(match_queue(m, msg), msg);
}

static bool match_wants(const wf_msg *msg, uint64_t tag)
{
    return ((msg->tag ^ tag) & msg->mask) == 0;
}

/* A receive in a queue, and the one before it. */
typedef struct posted_at {
    wf_queue *queue;
    wf_msg *before;
    wf_msg *msg;
} posted_at;

static posted_at posted_find(wf_queue *q, uint64_t tag)
{
    posted_at at = {q, NULL, q->head};

    while (at.msg != NULL && !match_wants(at.msg, tag)) {
        at.before = at.msg;
        at.msg = at.msg->next;
    }
    return at;
}

wf_msg *wf_match_take_posted(wf_match *m, uint32_t source, uint64_t tag)
{
    posted_at at = posted_find(&m->source[source].posted, tag);

    if (m->any.head != NULL) {
        posted_at any = posted_find(&m->any, tag);

        if (at.msg == NULL ||
            (any.msg != NULL && any.msg->token < at.msg->token)) {
            at = any;
        }
    }
    if (at.msg != NULL) {
        wf_queue_cut(at.queue, at.before, at.msg);
    }
    return at.msg;
}

bool wf_match_cancel(wf_match *m, wf_msg *msg)
{
    if (msg->done || (msg->peer != WF_SOURCE_ANY && msg->peer >= m->sources)) {
        return false;
    }
    return wf_queue_remove(match_queue(m, msg), msg);
}

wf_msg *wf_match_next_of(wf_match *m, uint32_t source)
{
    return wf_queue_pop(&m->source[source].posted);
}

void wf_match_unpost(wf_match *m)
{
    m->any.head = NULL;
    for (uint32_t i = 0; i < m->sources; i++) {
        m->source[i].posted.head = NULL;
    }
}

void wf_match_describe(wf_msg *msg, uint32_t from, uint64_t tag, size_t n)
{
    msg->from = from;
    msg->tag = tag;
    msg->n = n;
}

void wf_match_finish(wf_msg *msg)
{
    wf_msg_finish(msg, msg->n > msg->room ? WEFT_ERR_TRUNCATED : WEFT_OK);
}

/* --- messages that wait -------------------------------------------------- */

static void link_append(wf_link *list, wf_link *link)
{
    link->next = list;
    link->prev = list->prev;
    list->prev->next = link;
    list->prev = link;
}

static void link_remove(wf_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
}

static wf_arrival *arrival_in_source(wf_link *link)
{
    return (wf_arrival *)((char *)link - offsetof(wf_arrival, in_source));
}

static wf_arrival *arrival_in_all(wf_link *link)
{
    return (wf_arrival *)((char *)link - offsetof(wf_arrival, in_all));
}

void wf_match_keep(wf_match *m, wf_arrival *arrival)
{
    link_append(&m->source[arrival->source].arrived, &arrival->in_source);
    link_append(&m->all, &arrival->in_all);
}

void wf_match_drop(wf_arrival *arrival)
{
    link_remove(&arrival->in_source);
    link_remove(&arrival->in_all);
}

wf_arrival *wf_match_walk(const wf_match *m, uint32_t source,
                          const wf_arrival *arrival)
{
    const wf_link *list = &m->source[source].arrived;
    wf_link *next = arrival == NULL ? list->next : arrival->in_source.next;

    return next == list ? NULL : arrival_in_source(next);
}

static wf_arrival *match_find_any(const wf_match *m, uint64_t tag,
                                  uint64_t mask)
{
    for (wf_link *l = m->all.next; l != &m->all; l = l->next) {
        wf_arrival *a = arrival_in_all(l);

        if (((a->tag ^ tag) & mask) == 0) {
            return a;
        }
    }
    return NULL;
}

wf_arrival *wf_match_find(const wf_match *m, uint32_t from, uint64_t tag,
                          uint64_t mask)
{
    wf_arrival *a;

    if (from == WF_SOURCE_ANY) {
        return match_find_any(m, tag, mask);
    }
    for (a = wf_match_walk(m, from, NULL); a != NULL;
         a = wf_match_walk(m, from, a)) {
        if (((a->tag ^ tag) & mask) == 0) {
            return a;
        }
    }
    return NULL;
}

void wf_match_forget(wf_match *m, uint64_t tag, uint64_t mask)
{
    wf_link *next;

    for (wf_link *l = m->all.next; l != &m->all; l = next) {
        wf_arrival *a = arrival_in_all(l);

        next = l->next;
        if (((a->tag ^ tag) & mask) == 0) {
            wf_match_drop(a);
            wf_free(a);
        }
    }
}
