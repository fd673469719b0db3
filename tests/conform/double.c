/* SPDX-License-Identifier: Apache-2.0 */
#include "double.h"

#include <stdlib.h>

#include "base/status.h"
#include "transport/msg.h"

/* What the user gave us, and what we gave the transport underneath. */
typedef struct proxy {
    struct proxy *next;
    enum { PROXY_SEND, PROXY_RECV, PROXY_AM } what;
    bool held; /* not given to the transport underneath yet */
    uint32_t peer;
    uint64_t tag;
    const void *buf;
    size_t n;
    wf_msg *user; /* NULL for an active message */
    wf_msg inner;
    uint32_t am_id;
    size_t header_bytes;
    unsigned char am[WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX];
} proxy;

struct wf_port {
    const wf_transport *inner;
    wf_port *port;
    /* By rank, of which tests have fewer than 64. */
    uint64_t gone; /* gone() was called */
    uint64_t
        ended; /* the port underneath has lost it, and we have not said so */
    weft_status why[64];
    wf_port_setup setup;
    uint64_t random;
    proxy *first; /* all that is under way, oldest first */
    proxy **end;
};

/* One in `n`. */
static bool chance(wf_port *port, unsigned n)
{
    port->random ^= port->random << 13;
    port->random ^= port->random >> 7;
    port->random ^= port->random << 17;
    return (port->random >> 16) % n == 0;
}

/* --- the list ------------------------------------------------------------ */

static proxy *proxy_add(wf_port *port, const proxy *like)
{
    proxy *p = malloc(sizeof(*p));

    if (p == NULL) {
        abort();
    }
    *p = *like;
    p->next = NULL;
    *port->end = p;
    port->end = &p->next;
    return p;
}

static void proxy_remove(wf_port *port, proxy *p)
{
    proxy **at = &port->first;

    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    if (port->end == &p->next) {
        port->end = at;
    }
    free(p);
}

static proxy *proxy_of(wf_port *port, const wf_msg *user)
{
    proxy *p = port->first;

    while (p != NULL && p->user != user) {
        p = p->next;
    }
    return p;
}

/* Is an older one of the same kind to the same rank still held back? */
static bool must_wait(const wf_port *port, const proxy *p)
{
    for (const proxy *q = port->first; q != p; q = q->next) {
        if (q->held && q->peer == p->peer && q->what == p->what) {
            return true;
        }
    }
    return false;
}

/* --- what is held back --------------------------------------------------- */

/* A failure that a caller would have had at once comes as a completion. */
static void release(wf_port *port, proxy *p)
{
    const wf_transport *t = port->inner;
    weft_status st;

    if (p->what == PROXY_AM) {
        st = t->am(port->port, p->peer, p->am_id, p->am, p->header_bytes,
                   p->am + p->header_bytes, p->n);
        if (st != WEFT_ERR_NOMEM) {
            proxy_remove(port, p);
        }
        return;
    }
    st = t->send(port->port, p->peer, p->tag, p->buf, p->n, &p->inner);
    if (st == WEFT_ERR_NOMEM) {
        return;
    }
    p->held = false;
    if (st != WEFT_OK) {
        p->inner.done = true;
        p->inner.status = st;
    }
}

static void release_some(wf_port *port)
{
    proxy *next;

    for (proxy *p = port->first; p != NULL; p = next) {
        next = p->next;
        if (p->held && chance(port, 3) && !must_wait(port, p)) {
            release(port, p);
        }
    }
}

static unsigned complete_some(wf_port *port)
{
    unsigned events = 0;
    proxy *next;

    for (proxy *p = port->first; p != NULL; p = next) {
        next = p->next;
        if (!p->held && p->user != NULL) {
            p->user->moved = p->inner.moved;
        }
        if (!p->held && p->inner.done && chance(port, 3)) {
            p->user->from = p->inner.from;
            p->user->tag = p->inner.tag;
            p->user->n = p->inner.n;
            p->user->status = p->inner.status;
            p->user->done = true;
            proxy_remove(port, p);
            events++;
        }
    }
    return events;
}

/* --- the contract -------------------------------------------------------- */

static void on_loss(void *ctx, uint32_t rank, weft_status why)
{
    wf_port *port = ctx;

    port->ended |= (uint64_t)1 << rank;
    port->why[rank] = why;
}

static bool on_keep(void *ctx, uint64_t tag)
{
    const wf_port_setup *s = &((wf_port *)ctx)->setup;

    return s->keep == NULL || s->keep(s->ctx, tag);
}

/* A loss is told of when all that was pending with the rank has been. */
static void tell_of_losses(wf_port *port)
{
    uint64_t open = 0;

    for (const proxy *p = port->first; p != NULL; p = p->next) {
        open |= p->peer != WF_FROM_ANY ? (uint64_t)1 << p->peer % 64 : 0;
    }
    for (uint32_t r = 0; r < 64; r++) {
        if ((port->ended & ~open) >> r & 1) {
            port->ended &= ~((uint64_t)1 << r);
            port->setup.lost(port->setup.ctx, r, port->why[r]);
        }
    }
}

static weft_status double_open(const wf_transport *inner,
                               const wf_port_setup *setup, wf_port **out)
{
    wf_port_setup inside = *setup;
    wf_port *port = calloc(1, sizeof(*port));
    weft_status st;

    if (port == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a test double");
    }
    inside.ctx = port;
    inside.keep = on_keep;
    inside.lost = on_loss;
    port->setup = *setup;
    st = inner->open(&inside, &port->port);
    if (st != WEFT_OK) {
        free(port);
        return st;
    }
    port->inner = inner;
    port->random = 0x9e3779b97f4a7c15u + setup->host->rank;
    port->end = &port->first;
    *out = port;
    return WEFT_OK;
}

static void double_close(wf_port *port)
{
    if (port == NULL) {
        return;
    }
    port->inner->close(port->port);
    while (port->first != NULL) {
        proxy_remove(port, port->first);
    }
    free(port);
}

static weft_status double_open_self(const wf_port_setup *setup, wf_port **out)
{
    return double_open(&wf_transport_self, setup, out);
}

static weft_status double_open_shm(const wf_port_setup *setup, wf_port **out)
{
    return double_open(&wf_transport_shm, setup, out);
}

/* What is refused, is refused at once, by the transport underneath. */
static bool refused(const wf_port *port, uint32_t rank)
{
    return !port->inner->reaches(port->setup.host, rank) ||
           (port->gone >> rank % 64 & 1) != 0;
}

static weft_status double_send(wf_port *port, uint32_t to, uint64_t tag,
                               const void *buf, size_t n, wf_msg *msg)
{
    proxy like = {.what = PROXY_SEND,
                  .held = true,
                  .peer = to,
                  .tag = tag,
                  .buf = buf,
                  .n = n,
                  .user = msg};
    proxy *p;

    if (refused(port, to)) {
        return port->inner->send(port->port, to, tag, buf, n, msg);
    }
    *msg = (wf_msg){0};
    p = proxy_add(port, &like);
    if (chance(port, 2) && !must_wait(port, p)) {
        release(port, p);
    }
    return WEFT_OK;
}

static weft_status double_recv(wf_port *port, uint32_t from, uint64_t tag,
                               uint64_t mask, void *buf, size_t room,
                               wf_msg *msg)
{
    proxy like = {.what = PROXY_RECV, .peer = from, .user = msg};
    proxy *p = proxy_add(port, &like);
    weft_status st =
        port->inner->recv(port->port, from, tag, mask, buf, room, &p->inner);

    if (st != WEFT_OK) {
        proxy_remove(port, p);
        return st;
    }
    *msg = (wf_msg){0};
    return WEFT_OK;
}

static bool double_peek(wf_port *port, uint32_t from, uint64_t tag,
                        uint64_t mask, wf_msg *found)
{
    return port->inner->peek(port->port, from, tag, mask, found);
}

static void double_drop(wf_port *port, wf_msg *msg)
{
    proxy *p = proxy_of(port, msg);

    if (p != NULL) {
        if (!p->held) {
            port->inner->drop(port->port, &p->inner);
        }
        proxy_remove(port, p);
    }
}

static void double_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    port->inner->forget(port->port, tag, mask);
}

static void double_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    port->inner->handle(port->port, id, fn, ctx);
}

static weft_status double_am(wf_port *port, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes,
                             const void *payload, size_t payload_bytes)
{
    proxy like = {.what = PROXY_AM,
                  .held = true,
                  .peer = to,
                  .n = payload_bytes,
                  .am_id = id,
                  .header_bytes = header_bytes};
    proxy *p;

    if (refused(port, to) || id >= WF_AM_IDS ||
        header_bytes > WF_AM_HEADER_MAX || payload_bytes > WF_AM_PAYLOAD_MAX) {
        return port->inner->am(port->port, to, id, header, header_bytes,
                               payload, payload_bytes);
    }
    wf_copy(like.am, header, header_bytes);
    wf_copy(like.am + header_bytes, payload, payload_bytes);
    p = proxy_add(port, &like);
    if (chance(port, 2) && !must_wait(port, p)) {
        release(port, p);
    }
    return WEFT_OK;
}

static unsigned double_progress(wf_port *port)
{
    unsigned events = 0;

    if (chance(port, 4)) {
        return 0;
    }
    release_some(port);
    if (chance(port, 2)) {
        events = port->inner->progress(port->port);
    }
    events += complete_some(port);
    tell_of_losses(port);
    return events;
}

static bool double_busy(const wf_port *port)
{
    for (const proxy *p = port->first; p != NULL; p = p->next) {
        if (p->held || p->inner.done) {
            return true;
        }
    }
    return port->inner->busy(port->port);
}

static void double_gone(wf_port *port, uint32_t rank)
{
    proxy *next;

    for (proxy *p = port->first; p != NULL; p = next) {
        next = p->next;
        if (p->held && p->peer == rank && p->what == PROXY_AM) {
            proxy_remove(port, p);
        } else if (p->held && p->peer == rank) {
            p->held = false;
            p->inner = (wf_msg){.done = true, .status = WEFT_ERR_PEER};
        }
    }
    if (port->inner->reaches(port->setup.host, rank)) {
        port->gone |= (uint64_t)1 << rank % 64;
    }
    port->inner->gone(port->port, rank);
}

static bool double_reaches_self(const wf_host *host, uint32_t rank)
{
    return wf_transport_self.reaches(host, rank);
}

static bool double_reaches_shm(const wf_host *host, uint32_t rank)
{
    return wf_transport_shm.reaches(host, rank);
}

#define DOUBLE(of)                                                             \
    {                                                                          \
        .abi = WF_TRANSPORT_ABI, .name = "double of " #of,                     \
        .reaches = double_reaches_##of, .open = double_open_##of,              \
        .close = double_close, .send = double_send, .recv = double_recv,       \
        .peek = double_peek, .drop = double_drop, .forget = double_forget,     \
        .handle = double_handle, .am = double_am, .progress = double_progress, \
        .busy = double_busy, .gone = double_gone                               \
    }

const wf_transport wf_double_self = DOUBLE(self);
const wf_transport wf_double_shm = DOUBLE(shm);
