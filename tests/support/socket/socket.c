/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"

#define OPEN_MS 60000

/* --- prepare, open and close ---------------------------------------------- */

static bool socket_reaches(const wf_host *host, uint32_t rank)
{
    return rank < host->ranks && rank != host->rank;
}

static bool socket_reaches_far(const wf_host *host, uint32_t rank)
{
    return socket_reaches(host, rank) &&
           host->peer[rank].node != host->peer[host->rank].node;
}

/* The abstract name that an address means. */
static socklen_t socket_name(const void *address, size_t n,
                             struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    wf_copy(out->sun_path + 1, address, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static void socket_close(wf_port *port)
{
    if (port == NULL) {
        return;
    }
    for (uint32_t i = 0; i < port->count; i++) {
        socket_peer *peer = &port->peer[i];
        wf_arrival *a;

        socket_out_clear(peer, WEFT_OK);
        while ((a = wf_match_walk(&port->match, i, NULL)) != NULL) {
            wf_match_drop(a);
            wf_free(a);
        }
        wf_free(peer->early);
        if (peer->fd >= 0) {
            close(peer->fd);
        }
    }
    wf_match_fini(&port->match);
    if (port->epoll >= 0) {
        close(port->epoll);
    }
    if (port->listener >= 0) {
        close(port->listener);
    }
    wf_free(port->peer);
    wf_free(port);
}

static weft_status socket_prepare(const wf_settings *settings, wf_port **out,
                                  wf_address *address)
{
    wf_port *port = wf_zalloc(sizeof(*port));
    static _Atomic unsigned made;
    struct sockaddr_un name;
    socklen_t n;

    (void)settings;
    if (port == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a port of sockets");
    }
    port->epoll = epoll_create1(EPOLL_CLOEXEC);
    port->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(port->name, sizeof(port->name), "weft-test-%d-%u", (int)getpid(),
             atomic_fetch_add(&made, 1));
    n = socket_name(port->name, strlen(port->name), &name);
    if (port->epoll < 0 || port->listener < 0 ||
        bind(port->listener, (struct sockaddr *)&name, n) != 0 ||
        listen(port->listener, 64) != 0) {
        weft_status st = wf_fail_errno("a socket to listen on");

        socket_close(port);
        return st;
    }
    address->data = port->name;
    address->n = strlen(port->name);
    *out = port;
    return WEFT_OK;
}

static socket_peer *socket_peer_of(const wf_port *port, uint32_t rank)
{
    for (uint32_t i = 0; i < port->count; i++) {
        if (port->peer[i].rank == rank) {
            return &port->peer[i];
        }
    }
    return NULL;
}

/* Take `fd`, which is connected with `rank`. */
static weft_status socket_link(wf_port *port, uint32_t rank, int fd)
{
    socket_peer *peer = socket_peer_of(port, rank);
    struct epoll_event e = {.events = EPOLLIN};

    if (peer == NULL || peer->fd >= 0) {
        close(fd);
        return wf_fail(WEFT_ERR_PROTOCOL, "rank %u connected unasked", rank);
    }
    peer->fd = fd;
    e.data.u32 = peer->slot;
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &e) == 0
               ? WEFT_OK
               : wf_fail_errno("watching rank %u", rank);
}

static weft_status socket_connect(wf_port *port, uint32_t rank)
{
    const wf_host *host = port->setup.host;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un name;
    wf_address a;
    socklen_t n;

    if (!wf_join_address(host->table, rank, "socket", &a) ||
        a.n >= sizeof(port->name)) {
        close(fd);
        return wf_fail(WEFT_ERR_PROTOCOL, "rank %u has no address", rank);
    }
    n = socket_name(a.data, a.n, &name);
    if (connect(fd, (struct sockaddr *)&name, n) != 0 ||
        write(fd, &host->rank, sizeof(host->rank)) != sizeof(host->rank)) {
        weft_status st = wf_fail_errno("connecting with rank %u", rank);

        close(fd);
        return st;
    }
    return socket_link(port, rank, fd);
}

static weft_status socket_accept(wf_port *port)
{
    struct pollfd p = {.fd = port->listener, .events = POLLIN};
    uint32_t rank = 0;
    int fd = poll(&p, 1, OPEN_MS) == 1
                 ? accept4(port->listener, NULL, NULL, SOCK_CLOEXEC)
                 : -1;

    if (fd < 0 || recv(fd, &rank, sizeof(rank), MSG_WAITALL) != sizeof(rank)) {
        weft_status st = wf_fail_errno("waiting for a rank to connect");

        if (fd >= 0) {
            close(fd);
        }
        return st;
    }
    return socket_link(port, rank, fd);
}

/* Ranks connect with those below them. */
static weft_status socket_open(const wf_port_setup *setup, wf_port **out)
{
    wf_port *port = *out;
    weft_status st = wf_match_init(&port->match, setup->ranks);

    port->setup = *setup;
    port->match.keep = setup->keep;
    port->match.keep_ctx = setup->ctx;
    port->stride = 300;
    port->peer = wf_zalloc((setup->ranks + 1) * sizeof(*port->peer));
    if (port->peer == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "%u peers", setup->ranks);
    }
    for (uint32_t i = 0; i < setup->ranks && st == WEFT_OK; i++) {
        port->peer[i] =
            (socket_peer){.rank = setup->rank[i], .slot = i, .fd = -1};
        port->peer[i].out_end = &port->peer[i].out;
        port->count++;
    }
    for (uint32_t i = 0; i < setup->ranks && st == WEFT_OK; i++) {
        st = setup->rank[i] < setup->host->rank
                 ? socket_connect(port, setup->rank[i])
                 : socket_accept(port);
    }
    return st;
}

/* The parent's connections stay open, and its list of them is its own. */
static void socket_orphan(wf_port *port)
{
    for (uint32_t i = 0; i < port->count; i++) {
        close(port->peer[i].fd);
        port->peer[i].fd = -1;
        socket_out_clear(&port->peer[i], WEFT_OK);
        port->peer[i].wanted = (wf_queue){0};
        port->peer[i].into = NULL;
    }
    close(port->epoll);
    close(port->listener);
    port->epoll = -1;
    port->listener = -1;
    wf_match_unpost(&port->match);
}

/* --- peers ---------------------------------------------------------------- */

void wt_socket_cut(wf_port *port, uint32_t rank)
{
    shutdown(socket_peer_of(port, rank)->fd, SHUT_RDWR);
}

static void socket_forget_offers(wf_port *port, const socket_peer *peer)
{
    wf_arrival *next;

    for (wf_arrival *a = wf_match_walk(&port->match, peer->slot, NULL);
         a != NULL; a = next) {
        next = wf_match_walk(&port->match, peer->slot, a);
        if (a->kind == SOCKET_OFFER) {
            wf_match_drop(a);
            wf_free(a);
        }
    }
}

void socket_peer_fail(wf_port *port, socket_peer *peer, weft_status why)
{
    wf_msg *msg = peer->into;

    close(peer->fd);
    peer->fd = -1;
    peer->failed = why;
    peer->going = false;
    socket_out_clear(peer, why);
    socket_forget_offers(port, peer);
    wf_free(peer->early);
    peer->early = NULL;
    peer->into = NULL;
    do {
        if (msg != NULL) {
            wf_msg_finish(msg, why);
        }
        msg = wf_queue_pop(&peer->wanted);
    } while (msg != NULL);
    while ((msg = wf_match_next_of(&port->match, peer->slot)) != NULL) {
        wf_msg_finish(msg, why);
    }
    if (port->setup.lost != NULL) {
        port->setup.lost(port->setup.ctx, peer->rank, why);
    }
}

static void socket_gone(wf_port *port, uint32_t rank)
{
    socket_peer *peer = socket_peer_of(port, rank);

    if (peer != NULL && peer->failed == WEFT_OK) {
        peer->going = true;
    }
}

static weft_status socket_check(const wf_port *port, uint32_t rank,
                                socket_peer **out)
{
    const char *is = "is gone";

    *out = socket_peer_of(port, rank);
    if (*out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "sockets do not lead to rank %u",
                       rank);
    }
    if ((*out)->failed == WEFT_OK && !(*out)->going) {
        return WEFT_OK;
    }
    if ((*out)->failed == WEFT_ERR_PROTOCOL) {
        is = "sent something malformed before";
    }
    return wf_fail((*out)->going ? WEFT_ERR_PEER : (*out)->failed, "rank %u %s",
                   rank, is);
}

/* --- messages ------------------------------------------------------------- */

static weft_status socket_send(wf_port *port, uint32_t to, uint64_t tag,
                               const void *buf, size_t n, wf_msg *msg)
{
    bool whole = n <= port->setup.settings->eager_bytes;
    socket_head head = {.kind = whole ? SOCKET_EAGER : SOCKET_OFFER,
                        .word = tag,
                        .n = n,
                        .token = port->tokens};
    socket_peer *peer;
    weft_status st = socket_check(port, to, &peer);

    if (st == WEFT_OK) {
        st = socket_out_add(port, peer, head, buf, whole ? n : 0, NULL);
    }
    if (st != WEFT_OK) {
        return st;
    }
    *msg = (wf_msg){.peer = peer->slot,
                    .buf = (void *)buf,
                    .room = n,
                    .token = port->tokens++};
    if (whole) {
        wf_msg_finish(msg, WEFT_OK);
    } else {
        wf_queue_push(&peer->offered, msg);
    }
    return WEFT_OK;
}

static weft_status socket_recv(wf_port *port, uint32_t from, uint64_t tag,
                               uint64_t mask, void *buf, size_t room,
                               wf_msg *msg)
{
    uint32_t source = WF_SOURCE_ANY;
    socket_peer *peer = NULL;
    weft_status st = WEFT_OK;
    wf_arrival *a;

    if (from != WF_FROM_ANY) {
        st = socket_check(port, from, &peer);
        source = peer != NULL ? peer->slot : 0;
        st = peer != NULL && peer->going ? WEFT_OK : st;
    }
    a = peer != NULL || from == WF_FROM_ANY
            ? wf_match_find(&port->match, source, tag, mask)
            : NULL;
    if (st != WEFT_OK && a == NULL) {
        return st;
    }
    wf_match_fill(msg, source, tag, mask, buf, room);
    if (a != NULL) {
        socket_in_take(port, (socket_early *)a, msg);
    } else {
        wf_match_post(&port->match, msg);
    }
    return WEFT_OK;
}

static bool socket_peek(wf_port *port, uint32_t from, uint64_t tag,
                        uint64_t mask, wf_msg *found)
{
    const socket_peer *peer = socket_peer_of(port, from);
    const wf_arrival *a =
        from == WF_FROM_ANY
            ? wf_match_find(&port->match, WF_SOURCE_ANY, tag, mask)
        : peer != NULL ? wf_match_find(&port->match, peer->slot, tag, mask)
                       : NULL;

    if (a != NULL) {
        wf_match_describe(found, port->peer[a->source].rank, a->tag, a->n);
    }
    return a != NULL;
}

/* What is still to come of a dropped receive is read and thrown away. */
static void socket_drop(wf_port *port, wf_msg *msg)
{
    socket_peer *peer = &port->peer[msg->peer];

    if (msg->done || wf_match_cancel(&port->match, msg) ||
        socket_out_drop(port, peer, msg) ||
        wf_queue_remove(&peer->offered, msg) ||
        wf_queue_remove(&peer->wanted, msg)) {
        return;
    }
    if (peer->into == msg) {
        peer->into = NULL;
    }
}

static void socket_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    wf_match_forget(&port->match, tag, mask);
}

static void socket_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    wf_am_set(&port->handlers, id, fn, ctx);
}

static weft_status socket_am(wf_port *port, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes,
                             const void *payload, size_t payload_bytes)
{
    unsigned char both[WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX];
    socket_head head = {.kind = SOCKET_AM,
                        .word = (uint64_t)header_bytes << 8 | id,
                        .n = header_bytes + payload_bytes};
    socket_peer *peer;
    weft_status st =
        wf_am_check(WF_AM_PAYLOAD_MAX, id, header_bytes, payload_bytes);

    if (st == WEFT_OK) {
        st = socket_check(port, to, &peer);
    }
    if (st != WEFT_OK) {
        return st;
    }
    wf_copy(both, header, header_bytes);
    wf_copy(both + header_bytes, payload, payload_bytes);
    return socket_out_add(port, peer, head, both, head.n, NULL);
}

/* --- progress ------------------------------------------------------------- */

static unsigned socket_progress(wf_port *port)
{
    unsigned events = 0;

    port->later = false;
    for (uint32_t i = 0; i < port->count; i++) {
        socket_peer *peer = &port->peer[i];

        if (peer->fd >= 0) {
            events += socket_out_pump(port, peer);
            events += socket_in_poll(port, peer);
        }
    }
    return events;
}

static bool socket_busy(const wf_port *port)
{
    bool busy = port->later;

    for (uint32_t i = 0; i < port->count; i++) {
        const socket_peer *peer = &port->peer[i];

        busy = busy || peer->out != NULL || peer->going;
    }
    return busy;
}

static int socket_descriptor(const wf_port *port)
{
    return port->epoll;
}

static bool socket_arm(wf_port *port)
{
    struct epoll_event e;

    for (uint32_t i = 0; i < port->count; i++) {
        if (port->peer[i].going) {
            return false;
        }
    }
    return !port->later && epoll_wait(port->epoll, &e, 1, 0) == 0;
}

#define SOCKET(its_name, its_reach)                                            \
    {                                                                          \
        .abi = WF_TRANSPORT_ABI, .name = its_name, .prepare = socket_prepare,  \
        .reaches = its_reach, .open = socket_open, .close = socket_close,      \
        .send = socket_send, .recv = socket_recv, .peek = socket_peek,         \
        .drop = socket_drop, .forget = socket_forget, .handle = socket_handle, \
        .am = socket_am, .progress = socket_progress, .busy = socket_busy,     \
        .orphan = socket_orphan, .gone = socket_gone,                          \
        .descriptor = socket_descriptor, .arm = socket_arm                     \
    }

const wf_transport wt_transport_socket = SOCKET("socket", socket_reaches);
const wf_transport wt_transport_far = SOCKET("socket", socket_reaches_far);

#ifdef WF_MODULE
/* The one symbol that the library exports. */
WF_API extern const wf_transport wf_transport_module;
const wf_transport wf_transport_module = SOCKET("socket", socket_reaches);
#else
const wf_transport wt_transport_library = {
    .abi = WF_TRANSPORT_ABI, .name = "socket", .library = WT_SOCKET_LIBRARY};
#endif
