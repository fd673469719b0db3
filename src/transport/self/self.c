/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's messages to itself.
 *
 * A message whose receive waits is copied straight into it. Else a small one
 * is copied aside and its send is over at once; the send of a large one waits
 * for its receive, as it would between two ranks. Active messages are copied
 * and handled by the next progress(), never inside the call that sends them. */
#include "base/alloc.h"
#include "base/status.h"
#include "transport/am.h"
#include "transport/match.h"

/* The only source there is. */
#define SELF_SOURCE 0u

typedef struct self_arrival {
    wf_arrival arrival;
    wf_msg *send;         /* NULL: the data lies here */
    unsigned char data[]; /* n bytes */
} self_arrival;

typedef struct self_am {
    struct self_am *next;
    wf_am_view view;
    _Alignas(16) unsigned char header[WF_AM_HEADER_MAX];
    _Alignas(16) unsigned char payload[];
} self_am;

struct wf_port {
    uint32_t rank;
    size_t eager_bytes;
    bool going; /* gone() was called; progress() ends it */
    bool gone;
    wf_loss_fn *lost;
    void *ctx;
    wf_match match;
    self_am *am_head;
    self_am **am_end;
    unsigned am_count;
    wf_am_table handlers;
};

static bool self_reaches(const wf_host *host, uint32_t rank)
{
    return rank == host->rank;
}

static weft_status self_open(const wf_port_setup *setup, wf_port **out)
{
    wf_port *port = wf_zalloc(sizeof(*port));
    weft_status st;

    if (port == NULL) {
        return wf_fail_nomem("the port of transport self");
    }
    st = wf_match_init(&port->match, 1);
    if (st != WEFT_OK) {
        wf_free(port);
        return st;
    }
    port->match.keep = setup->keep;
    port->match.keep_ctx = setup->ctx;
    port->lost = setup->lost;
    port->ctx = setup->ctx;
    port->rank = setup->host->rank;
    port->eager_bytes = setup->settings->eager_bytes;
    port->am_end = &port->am_head;
    *out = port;
    return WEFT_OK;
}

static void self_forget_ams(wf_port *port)
{
    while (port->am_head != NULL) {
        self_am *am = port->am_head;

        port->am_head = am->next;
        wf_free(am);
    }
    port->am_end = &port->am_head;
}

/* Without telling the callers of what is pending. */
static void self_let_go(wf_port *port)
{
    wf_arrival *a;

    while ((a = wf_match_walk(&port->match, SELF_SOURCE, NULL)) != NULL) {
        wf_match_drop(a);
        wf_free(a);
    }
    self_forget_ams(port);
}

static void self_orphan(wf_port *port)
{
    self_let_go(port);
    wf_match_unpost(&port->match);
}

static void self_close(wf_port *port)
{
    if (port == NULL) {
        return;
    }
    self_let_go(port);
    wf_match_fini(&port->match);
    wf_free(port);
}

static weft_status self_check(const wf_port *port, uint32_t rank)
{
    if (rank != port->rank) {
        return wf_fail(WEFT_ERR_INVALID,
                       "transport self of rank %u does not "
                       "reach rank %u",
                       port->rank, rank);
    }
    if (port->going || port->gone) {
        return wf_fail(WEFT_ERR_PEER,
                       "rank %u, the caller itself, has been "
                       "declared gone",
                       rank);
    }
    return WEFT_OK;
}

/* Hand `n` bytes at `data` to the receive `msg`. */
static void self_deliver(wf_port *port, wf_msg *msg, uint64_t tag,
                         const void *data, size_t n)
{
    wf_copy(msg->buf, data, wf_match_fits(msg, n));
    wf_match_describe(msg, port->rank, tag, n);
    wf_match_finish(msg);
}

static weft_status self_keep(wf_port *port, const void *buf, wf_msg *msg)
{
    bool copied = msg->room <= port->eager_bytes;
    self_arrival *a;

    if (!wf_match_wants(&port->match, msg->tag)) {
        if (copied) {
            wf_msg_finish(msg, WEFT_OK);
        }
        return WEFT_OK;
    }
    a = wf_alloc(sizeof(*a) + (copied ? msg->room : 0));
    if (a == NULL) {
        return wf_fail_nomem("keeping a message of %zu bytes", msg->room);
    }
    a->arrival =
        (wf_arrival){.source = SELF_SOURCE, .tag = msg->tag, .n = msg->room};
    a->send = copied ? NULL : msg;
    if (copied) {
        wf_copy(a->data, buf, msg->room);
        wf_msg_finish(msg, WEFT_OK);
    }
    wf_match_keep(&port->match, &a->arrival);
    return WEFT_OK;
}

static weft_status self_send(wf_port *port, uint32_t to, uint64_t tag,
                             const void *buf, size_t n, wf_msg *msg)
{
    weft_status st = self_check(port, to);
    wf_msg *recv;

    if (st != WEFT_OK) {
        return st;
    }
    *msg = (wf_msg){.tag = tag, .buf = (void *)buf, .room = n};
    recv = wf_match_take_posted(&port->match, SELF_SOURCE, tag);
    if (recv == NULL) {
        return self_keep(port, buf, msg);
    }
    self_deliver(port, recv, tag, buf, n);
    wf_msg_finish(msg, WEFT_OK);
    return WEFT_OK;
}

/* Give the receive `msg` what came before it. */
static void self_take(wf_port *port, wf_msg *msg, wf_arrival *arrival)
{
    self_arrival *a = (self_arrival *)arrival;
    wf_msg *send = a->send;

    wf_match_drop(arrival);
    self_deliver(port, msg, arrival->tag, send != NULL ? send->buf : a->data,
                 arrival->n);
    if (send != NULL) {
        wf_msg_finish(send, WEFT_OK);
    }
    wf_free(a);
}

static weft_status self_recv(wf_port *port, uint32_t from, uint64_t tag,
                             uint64_t mask, void *buf, size_t room, wf_msg *msg)
{
    wf_arrival *a = wf_match_find(&port->match, SELF_SOURCE, tag, mask);
    weft_status st = self_check(port, from == WF_FROM_ANY ? port->rank : from);

    if (st != WEFT_OK && (st != WEFT_ERR_PEER || a == NULL)) {
        return st;
    }
    wf_match_fill(msg, from == WF_FROM_ANY ? WF_SOURCE_ANY : SELF_SOURCE, tag,
                  mask, buf, room);
    if (a != NULL) {
        self_take(port, msg, a);
    } else {
        wf_match_post(&port->match, msg);
    }
    return WEFT_OK;
}

static bool self_peek(wf_port *port, uint32_t from, uint64_t tag, uint64_t mask,
                      wf_msg *found)
{
    const wf_arrival *a = wf_match_find(&port->match, SELF_SOURCE, tag, mask);

    if (a == NULL || (from != WF_FROM_ANY && from != port->rank)) {
        return false;
    }
    wf_match_describe(found, port->rank, a->tag, a->n);
    return true;
}

/* A message waits here as a receive, or as a send that an arrival points to. */
static void self_drop(wf_port *port, wf_msg *msg)
{
    wf_arrival *a = NULL;

    if (msg->done || wf_match_cancel(&port->match, msg)) {
        return;
    }
    while ((a = wf_match_walk(&port->match, SELF_SOURCE, a)) != NULL) {
        if (((self_arrival *)a)->send == msg) {
            wf_match_drop(a);
            wf_free(a);
            return;
        }
    }
}

static void self_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    wf_match_forget(&port->match, tag, mask);
}

static void self_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    wf_am_set(&port->handlers, id, fn, ctx);
}

static weft_status self_am_queue(wf_port *port, const wf_am_view *view)
{
    self_am *am = wf_alloc(sizeof(*am) + view->payload_bytes);

    if (am == NULL) {
        return wf_fail_nomem("an active message of %zu bytes",
                             view->payload_bytes);
    }
    wf_copy(am->header, view->header, view->header_bytes);
    wf_copy(am->payload, view->payload, view->payload_bytes);
    am->view = *view;
    am->view.header = am->header;
    am->view.payload = am->payload;
    am->next = NULL;
    *port->am_end = am;
    port->am_end = &am->next;
    port->am_count++;
    return WEFT_OK;
}

static weft_status self_am_send(wf_port *port, uint32_t to, uint32_t id,
                                const void *header, size_t header_bytes,
                                const void *payload, size_t payload_bytes)
{
    wf_am_view view = {id, header, header_bytes, payload, payload_bytes};
    weft_status st = self_check(port, to);

    if (st == WEFT_OK) {
        st = wf_am_check(WF_AM_PAYLOAD_MAX, id, header_bytes, payload_bytes);
    }
    return st == WEFT_OK ? self_am_queue(port, &view) : st;
}

/* Handlers may send more to this rank; those wait for the next call. */
static unsigned self_handle_ams(wf_port *port)
{
    unsigned count = port->am_count;

    for (unsigned i = 0; i < count && port->am_head != NULL; i++) {
        self_am *am = port->am_head;

        port->am_head = am->next;
        if (port->am_head == NULL) {
            port->am_end = &port->am_head;
        }
        port->am_count--;
        wf_am_call(&port->handlers, port->rank, &am->view);
        wf_free(am);
    }
    return count;
}

/* Sends that wait for their receive are over; what was copied aside has
 * arrived whole and stays. */
static void self_end(wf_port *port)
{
    wf_arrival *next;
    wf_msg *msg;

    port->going = false;
    port->gone = true;
    for (wf_arrival *a = wf_match_walk(&port->match, SELF_SOURCE, NULL);
         a != NULL; a = next) {
        self_arrival *own = (self_arrival *)a;

        next = wf_match_walk(&port->match, SELF_SOURCE, a);
        if (own->send != NULL) {
            wf_match_drop(a);
            wf_msg_finish(own->send, WEFT_ERR_PEER);
            wf_free(own);
        }
    }
    while ((msg = wf_match_next_of(&port->match, SELF_SOURCE)) != NULL) {
        wf_msg_finish(msg, WEFT_ERR_PEER);
    }
    if (port->lost != NULL) {
        port->lost(port->ctx, port->rank, WEFT_ERR_PEER);
    }
}

static unsigned self_progress(wf_port *port)
{
    unsigned events = self_handle_ams(port);

    if (port->going && port->am_head == NULL) {
        self_end(port);
        events++;
    }
    return events;
}

static bool self_busy(const wf_port *port)
{
    return port->am_head != NULL || port->going;
}

static void self_gone(wf_port *port, uint32_t rank)
{
    port->going = port->going || (rank == port->rank && !port->gone);
}

const wf_transport wf_transport_self = {
    .abi = WF_TRANSPORT_ABI,
    .name = "self",
    .reaches = self_reaches,
    .open = self_open,
    .close = self_close,
    .send = self_send,
    .recv = self_recv,
    .peek = self_peek,
    .drop = self_drop,
    .forget = self_forget,
    .handle = self_handle,
    .am = self_am_send,
    .progress = self_progress,
    .busy = self_busy,
    .orphan = self_orphan,
    .gone = self_gone,
};
