/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in through the sockets. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "base/alloc.h"
#include "base/status.h"
#include "socket.h"

typedef enum in_verdict {
    IN_MORE,  /* go on */
    IN_LATER, /* no memory now */
    IN_EMPTY, /* nothing more to read now */
    IN_BAD,   /* no correct peer sends this */
    IN_END    /* the connection has ended */
} in_verdict;

static wf_msg *take_token(wf_queue *q, uint64_t token)
{
    wf_msg *before = NULL;

    for (wf_msg *m = q->head; m != NULL; before = m, m = m->next) {
        if (m->token == token) {
            wf_queue_cut(q, before, m);
            return m;
        }
    }
    return NULL;
}

/* --- messages ------------------------------------------------------------- */

/* The offer is taken up; its memory becomes the answer. */
static void in_want(wf_port *port, socket_early *early, wf_msg *msg)
{
    socket_peer *peer = &port->peer[early->arrival.source];
    uint64_t token = early->token;

    wf_match_describe(msg, peer->rank, early->arrival.tag, early->arrival.n);
    msg->peer = peer->slot;
    msg->token = token;
    wf_queue_push(&peer->wanted, msg);
    early->want = (socket_out){.head = {.kind = SOCKET_WANT,
                                        .n = wf_match_fits(msg, msg->n),
                                        .token = token}};
    socket_out_push(port, peer, &early->want);
}

void socket_in_take(wf_port *port, socket_early *early, wf_msg *msg)
{
    const wf_arrival *a = &early->arrival;

    wf_match_drop(&early->arrival);
    if (a->kind == SOCKET_OFFER) {
        in_want(port, early, msg);
        return;
    }
    wf_copy(msg->buf, early->data, wf_match_fits(msg, a->n));
    wf_match_describe(msg, port->peer[a->source].rank, a->tag, a->n);
    wf_match_finish(msg);
    wf_free(early);
}

/* A message is here, or is offered: to whom does it go? */
static void in_arrived(wf_port *port, socket_peer *peer)
{
    socket_early *early = peer->early;
    wf_msg *msg =
        wf_match_take_posted(&port->match, peer->slot, early->arrival.tag);

    peer->early = NULL;
    if (msg == NULL && !wf_match_wants(&port->match, early->arrival.tag)) {
        wf_free(early);
        return;
    }
    wf_match_keep(&port->match, &early->arrival);
    if (msg != NULL) {
        socket_in_take(port, early, msg);
    }
}

static void in_am(wf_port *port, socket_peer *peer)
{
    size_t header = peer->head.word >> 8;
    wf_am_view am = {peer->head.word & 0xff, port->am_header, header,
                     port->am_payload, peer->head.n - header};
    unsigned char *data = peer->early->data;

    wf_copy(port->am_header, data, header);
    wf_copy(port->am_payload, data + header, am.payload_bytes);
    wf_free(peer->early);
    peer->early = NULL;
    wf_am_call(&port->handlers, peer->rank, &am);
}

/* The peer wants what we have offered. */
static in_verdict in_wanted(wf_port *port, socket_peer *peer)
{
    wf_msg *msg = take_token(&peer->offered, peer->head.token);
    socket_head head = {
        .kind = SOCKET_DATA, .n = peer->head.n, .token = peer->head.token};
    in_verdict v = IN_MORE;

    if (msg == NULL) { /* it was dropped, if there was such a one */
        return head.token < port->tokens ? IN_MORE : IN_BAD;
    }
    if (head.n > msg->room) {
        v = IN_BAD;
    } else if (socket_out_add(port, peer, head, msg->buf, head.n, msg) !=
               WEFT_OK) {
        v = IN_LATER;
    }
    if (v != IN_MORE) {
        wf_queue_push(&peer->offered, msg);
    }
    return v;
}

/* --- frames --------------------------------------------------------------- */

/* Does this head make sense here? */
static bool head_is_good(const wf_port *port, const socket_head *h)
{
    size_t header = h->word >> 8;

    switch (h->kind) {
    case SOCKET_EAGER:
        return h->n <= port->setup.settings->eager_bytes;
    case SOCKET_OFFER:
    case SOCKET_WANT:
    case SOCKET_DATA:
        return h->n <= PTRDIFF_MAX;
    case SOCKET_AM:
        return (h->word & 0xff) < WF_AM_IDS && header <= WF_AM_HEADER_MAX &&
               h->n >= header && h->n - header <= WF_AM_PAYLOAD_MAX;
    default:
        return false;
    }
}

/* The head is here: make a place for what follows. */
static in_verdict in_begin(wf_port *port, socket_peer *peer)
{
    const socket_head *h = &peer->head;
    bool body = h->kind == SOCKET_EAGER || h->kind == SOCKET_AM;

    if (!head_is_good(port, h)) {
        return IN_BAD;
    }
    if (h->kind == SOCKET_DATA) {
        peer->into = take_token(&peer->wanted, h->token);
        if (peer->into != NULL && h->n > peer->into->room) {
            wf_queue_push(&peer->wanted, peer->into);
            peer->into = NULL;
            return IN_BAD;
        }
    } else if (h->kind != SOCKET_WANT) {
        peer->early = wf_alloc(sizeof(*peer->early) + (body ? h->n : 0));
        if (peer->early == NULL) {
            return IN_LATER;
        }
        peer->early->arrival = (wf_arrival){.source = peer->slot,
                                            .tag = h->word,
                                            .n = h->n,
                                            .kind = (uint32_t)h->kind};
        peer->early->token = h->token;
    }
    peer->begun = true;
    return IN_MORE;
}

static in_verdict in_finish(wf_port *port, socket_peer *peer)
{
    in_verdict v = IN_MORE;

    switch ((socket_kind)peer->head.kind) {
    case SOCKET_EAGER:
    case SOCKET_OFFER:
        in_arrived(port, peer);
        break;
    case SOCKET_AM:
        in_am(port, peer);
        break;
    case SOCKET_WANT:
        v = in_wanted(port, peer);
        break;
    case SOCKET_DATA:
        if (peer->into != NULL) {
            wf_match_finish(peer->into);
            peer->into = NULL;
        }
        break;
    }
    if (v == IN_MORE) {
        peer->got = 0;
        peer->begun = false;
    }
    return v;
}

/* Where the next bytes go, and how many. */
static unsigned char *in_place(wf_port *port, socket_peer *peer, size_t *left)
{
    size_t head = sizeof(peer->head);
    size_t at = peer->got - head;

    if (peer->got < head) {
        *left = head - peer->got;
        return (unsigned char *)&peer->head + peer->got;
    }
    *left = peer->head.kind == SOCKET_WANT || peer->head.kind == SOCKET_OFFER
                ? 0
                : peer->head.n - at;
    if (peer->head.kind == SOCKET_DATA && peer->into == NULL) {
        *left = *left < sizeof(port->scrap) ? *left : sizeof(port->scrap);
        return port->scrap;
    }
    return peer->head.kind == SOCKET_DATA
               ? (unsigned char *)peer->into->buf + at
           : peer->early != NULL ? peer->early->data + at
                                 : NULL;
}

static in_verdict in_some(wf_port *port, socket_peer *peer)
{
    size_t left;
    unsigned char *to;
    ssize_t n;

    if (peer->got == sizeof(peer->head) && !peer->begun) {
        in_verdict v = in_begin(port, peer);

        if (v != IN_MORE) {
            return v;
        }
    }
    to = in_place(port, peer, &left);
    if (left == 0) {
        return in_finish(port, peer);
    }
    n = recv(peer->fd, to, socket_stride(port, left), MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? IN_EMPTY : IN_END;
    }
    peer->got += (size_t)n;
    if (peer->begun && peer->into != NULL) {
        peer->into->moved = peer->got - sizeof(peer->head);
    }
    return IN_MORE;
}

unsigned wt_socket_delay;

/* Is it too early to read from this rank? Each time is drawn when the last is
 * over, so that messages of two ranks overtake each other. */
static bool in_held(wf_port *port, socket_peer *peer)
{
    double now;
    struct timespec t;

    if (wt_socket_delay == 0 || peer->going) {
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    if (now < peer->held) {
        port->later = true;
        return true;
    }
    port->draws = port->draws * 6364136223846793005ull + 1442695040888963407ull;
    peer->held =
        now + 1e-6 * (double)((port->draws >> 33) % (wt_socket_delay + 1));
    return false;
}

unsigned socket_in_poll(wf_port *port, socket_peer *peer)
{
    unsigned events = 0;
    in_verdict v = IN_MORE;

    if (in_held(port, peer)) {
        return 0;
    }
    while (v == IN_MORE && peer->fd >= 0 && (events < 64 || peer->going)) {
        v = in_some(port, peer);
        events += v == IN_MORE;
    }
    port->later = port->later || v == IN_LATER || v == IN_MORE;
    if (v == IN_BAD) {
        socket_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
    } else if (v == IN_END || (v == IN_EMPTY && peer->going)) {
        socket_peer_fail(port, peer, WEFT_ERR_PEER);
        events++;
    }
    return events;
}
