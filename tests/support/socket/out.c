/* SPDX-License-Identifier: Apache-2.0 */
/* What goes out through the sockets. */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/status.h"
#include "socket.h"

void socket_out_push(wf_port *port, socket_peer *peer, socket_out *out)
{
    out->next = NULL;
    *peer->out_end = out;
    peer->out_end = &out->next;
    (void)socket_out_pump(port, peer);
}

weft_status socket_out_add(wf_port *port, socket_peer *peer, socket_head head,
                           const void *body, size_t bytes, wf_msg *msg)
{
    socket_out *out = wf_alloc(sizeof(*out) + (msg == NULL ? bytes : 0));

    if (out == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a frame of %zu bytes", bytes);
    }
    *out = (socket_out){.head = head, .body = body, .bytes = bytes, .msg = msg};
    if (msg == NULL) {
        out->body = (unsigned char *)(out + 1);
        wf_copy(out + 1, body, bytes);
    }
    socket_out_push(port, peer, out);
    return WEFT_OK;
}

static void out_remove(socket_peer *peer, socket_out **at)
{
    socket_out *out = *at;

    *at = out->next;
    if (out->next == NULL) {
        peer->out_end = at;
    }
    wf_free(out);
}

/* Once it has begun, a frame goes on, from a copy. */
bool socket_out_drop(wf_port *port, socket_peer *peer, wf_msg *msg)
{
    socket_out **at = &peer->out;
    socket_out *copy;

    while (*at != NULL && (*at)->msg != msg) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return false;
    }
    if ((*at)->sent == 0) {
        out_remove(peer, at);
        return true;
    }
    copy = wf_alloc(sizeof(*copy) + (*at)->bytes);
    if (copy == NULL) {
        out_remove(peer, at);
        wt_socket_cut(port, peer->rank);
        return true;
    }
    *copy = **at;
    copy->msg = NULL;
    copy->body = (unsigned char *)(copy + 1);
    wf_copy(copy + 1, (*at)->body, copy->bytes);
    out_remove(peer, at);
    copy->next = *at;
    if (*at == NULL) {
        peer->out_end = &copy->next;
    }
    *at = copy;
    return true;
}

void socket_out_clear(socket_peer *peer, weft_status why)
{
    wf_msg *msg;

    while (peer->out != NULL) {
        if (peer->out->msg != NULL && why != WEFT_OK) {
            wf_msg_finish(peer->out->msg, why);
        }
        out_remove(peer, &peer->out);
    }
    while ((msg = wf_queue_pop(&peer->offered)) != NULL) {
        if (why != WEFT_OK) {
            wf_msg_finish(msg, why);
        }
    }
}

/* Send some of a frame; false if the socket takes no more now. */
static bool out_some(wf_port *port, const socket_peer *peer, socket_out *out)
{
    size_t head = sizeof(out->head);
    const unsigned char *from = out->sent < head
                                    ? (unsigned char *)&out->head + out->sent
                                    : out->body + (out->sent - head);
    size_t left =
        out->sent < head ? head - out->sent : head + out->bytes - out->sent;
    ssize_t n = send(peer->fd, from, socket_stride(port, left),
                     MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n > 0) {
        out->sent += (size_t)n;
    }
    if (out->msg != NULL) {
        out->msg->moved = out->sent;
    }
    return n > 0;
}

static void out_watch(const wf_port *port, socket_peer *peer)
{
    bool writing = peer->out != NULL;
    struct epoll_event e = {.events = EPOLLIN | (writing ? EPOLLOUT : 0),
                            .data.u32 = peer->slot};

    if (writing != peer->writing && peer->fd >= 0) {
        epoll_ctl(port->epoll, EPOLL_CTL_MOD, peer->fd, &e);
    }
    peer->writing = writing;
}

/* A connection that has ended is found out by reading. */
unsigned socket_out_pump(wf_port *port, socket_peer *peer)
{
    unsigned events = 0;
    socket_out *out;

    while (peer->fd >= 0 && (out = peer->out) != NULL &&
           out_some(port, peer, out)) {
        events++;
        if (out->sent == sizeof(out->head) + out->bytes) {
            if (out->msg != NULL) {
                wf_msg_finish(out->msg, WEFT_OK);
            }
            out_remove(peer, &peer->out);
        }
    }
    out_watch(port, peer);
    return events;
}
