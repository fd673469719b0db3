/* SPDX-License-Identifier: Apache-2.0 */
/* Which receive gets which message: the receives that wait for a message, and
 * the messages that wait for a receive.
 *
 * Sources are small numbers that a transport gives its peers. Receives wait in
 * one queue for each source and one for "any"; a number that counts the
 * receives tells which of two queues' heads was posted first. A message that
 * waits is in two lists: that of its source, and that of all, in which a
 * receive from any source looks. So a receive and a message that are each the
 * first in their queue meet in constant time, however many others there are;
 * else the search is linear in what was passed over. */
#ifndef WF_TRANSPORT_MATCH_H
#define WF_TRANSPORT_MATCH_H

#include "transport/msg.h"

#define WF_SOURCE_ANY UINT32_MAX

/* A node of a circular doubly linked list, whose head is a node, too. */
typedef struct wf_link {
    struct wf_link *next;
    struct wf_link *prev;
} wf_link;

/* A message that no receive has matched yet; the transport's own data about it
 * lies around it. */
typedef struct wf_arrival {
    wf_link in_source;
    wf_link in_all;
    uint64_t tag;
    size_t n;
    uint32_t source;
    uint32_t kind; /* the transport's own */
} wf_arrival;

typedef struct wf_match_source {
    wf_queue posted;
    wf_link arrived;
} wf_match_source;

typedef struct wf_match {
    uint32_t sources;
    uint64_t posts; /* counts the receives */
    wf_queue any;
    wf_link all;
    wf_match_source *source;
    wf_keep_fn *keep; /* NULL: all messages are kept */
    void *keep_ctx;
} wf_match;

WF_API weft_status wf_match_init(wf_match *m, uint32_t sources);
/* Whatever is still in the lists stays the caller's. */
WF_API void wf_match_fini(wf_match *m);

/* Make `msg` a receive that wf_match_post can take; `from` is a source or
 * WF_SOURCE_ANY. */
WF_API void wf_match_fill(wf_msg *msg, uint32_t from, uint64_t tag,
                          uint64_t mask, void *buf, size_t room);

/* Queue a receive that no arrival matches. */
WF_API void wf_match_post(wf_match *m, wf_msg *msg);

/* The receive that a message from `source` with `tag` belongs to, taken out of
 * its queue; NULL if none waits for it. */
WF_API wf_msg *wf_match_take_posted(wf_match *m, uint32_t source, uint64_t tag);

/* Take back a receive; false if it does not wait here. */
WF_API bool wf_match_cancel(wf_match *m, wf_msg *msg);

/* Take out the oldest receive that can only be served by `source`. */
WF_API wf_msg *wf_match_next_of(wf_match *m, uint32_t source);

/* Take out all receives; they are not touched. */
WF_API void wf_match_unpost(wf_match *m);

/* Shall a message be kept that no receive matches? */
static inline bool wf_match_wants(const wf_match *m, uint64_t tag)
{
    return m->keep == NULL || m->keep(m->keep_ctx, tag);
}

/* Queue a message whose source, tag and n are filled in. */
WF_API void wf_match_keep(wf_match *m, wf_arrival *arrival);

/* The oldest message that waits for such a receive, or NULL. */
WF_API wf_arrival *wf_match_find(const wf_match *m, uint32_t from, uint64_t tag,
                                 uint64_t mask);

/* The message after `arrival` (NULL for the first) from `source`, or NULL. */
WF_API wf_arrival *wf_match_walk(const wf_match *m, uint32_t source,
                                 const wf_arrival *arrival);

/* Take out and free all messages with such a tag. */
WF_API void wf_match_forget(wf_match *m, uint64_t tag, uint64_t mask);

/* Take a message out that wf_match_find or wf_match_walk found. */
WF_API void wf_match_drop(wf_arrival *arrival);

/* The message `n` bytes long from rank `from` has gone to the receive `msg`:
 * tell what it was, and finish with the status that its length gives. */
WF_API void wf_match_describe(wf_msg *msg, uint32_t from, uint64_t tag,
                              size_t n);
WF_API void wf_match_finish(wf_msg *msg);

/* How much of the message the receive's buffer takes. */
static inline size_t wf_match_fits(const wf_msg *msg, size_t n)
{
    return n < msg->room ? n : msg->room;
}

#endif
