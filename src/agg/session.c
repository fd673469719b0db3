/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

void wf_agg_keep_alive(int fd)
{
    const int one = 1;
    const int idle = 4;
    const int interval = 2;
    const int count = 3;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval,
                     sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

weft_status wf_agg_connect(const wf_udp_address *to, int *fd)
{
    weft_status st;

    *fd =
        socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) {
        return wf_fail_errno("a socket to the switch");
    }
    wf_agg_keep_alive(*fd);
    if (connect(*fd, (const struct sockaddr *)&to->at, to->length) != 0 &&
        errno != EINPROGRESS) {
        st = wf_fail_errno("connect to the switch");
        close(*fd);
        *fd = -1;
        return st;
    }
    return WEFT_OK;
}

/* A connection to a port of this host where nobody listens may have been made
 * from that very port: then it leads to itself. */
static bool leads_to_itself(int fd)
{
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t n = sizeof(here);
    socklen_t m = sizeof(there);

    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &m) == 0 && n == m &&
           memcmp(&here, &there, n) == 0;
}

weft_status wf_agg_connected(int fd, bool *done)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof(error);

    *done = poll(&p, 1, 0) != 0;
    if (!*done) {
        return WEFT_OK;
    }
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error == 0 && leads_to_itself(fd) ? ECONNREFUSED : error;
    return errno == 0 ? WEFT_OK : wf_fail_errno("connect to the switch");
}

weft_status wf_agg_session_open(wf_agg_session *s, const wf_udp_address *to,
                                const wf_secret *key, const wf_agg_join *join)
{
    weft_status st;

    *s = (wf_agg_session){.fd = -1, .key = *key, .join = *join};
    st = wf_random(s->join.nonce, sizeof(s->join.nonce));
    if (st != WEFT_OK) {
        return st;
    }
    st = wf_agg_connect(to, &s->fd);
    if (st != WEFT_OK) {
        return st;
    }
    s->state = WF_AGG_SESSION_CONNECTING;
    return WEFT_OK;
}

void wf_agg_session_close(wf_agg_session *s)
{
    if (s->state != WF_AGG_SESSION_CLOSED || s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
    s->state = WF_AGG_SESSION_CLOSED;
}

/* Read on at a message; true when it is whole. A connection that has ended is
 * a failure. */
static weft_status read_on(wf_agg_session *s, void *message, size_t bytes,
                           bool *whole)
{
    ssize_t n =
        recv(s->fd, (char *)message + s->got, bytes - s->got, MSG_DONTWAIT);

    *whole = false;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return WEFT_OK;
    }
    if (n <= 0) {
        return wf_fail(WEFT_ERR_PEER, "the switch has closed the connection");
    }
    s->got += (size_t)n;
    *whole = s->got == bytes;
    s->got = *whole ? 0 : s->got;
    return WEFT_OK;
}

static weft_status connected(wf_agg_session *s)
{
    bool done;
    weft_status st = wf_agg_connected(s->fd, &done);

    if (st == WEFT_OK && done) {
        s->state = WF_AGG_SESSION_GREETING;
    }
    return st;
}

static weft_status greeted(wf_agg_session *s)
{
    bool whole;
    weft_status st = read_on(s, &s->hello, sizeof(s->hello), &whole);

    if (st != WEFT_OK || !whole) {
        return st;
    }
    if (s->hello.magic != WF_AGG_CONTROL_MAGIC ||
        s->hello.format != WF_AGG_CONTROL_FORMAT) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "what answers is no switch of this version");
    }
    wf_agg_join_prove(&s->key, s->hello.nonce, &s->join);
    if (send(s->fd, &s->join, sizeof(s->join), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(s->join)) {
        return wf_fail(WEFT_ERR_PEER, "the switch has closed the connection");
    }
    s->state = WF_AGG_SESSION_JOINING;
    return WEFT_OK;
}

static weft_status answered(wf_agg_session *s)
{
    bool whole;
    weft_status st = read_on(s, &s->joined, sizeof(s->joined), &whole);

    if (st != WEFT_OK || !whole) {
        return st;
    }
    if (!wf_agg_joined_check(&s->key, s->join.nonce, &s->join, &s->joined)) {
        return wf_fail(WEFT_ERR_DENIED,
                       "the switch does not prove that it knows the key");
    }
    if (s->joined.status != WF_AGG_JOINED_OK) {
        return wf_fail(WEFT_ERR_DENIED, "the switch refuses: %s",
                       wf_agg_status_text(s->joined.status));
    }
    s->state = WF_AGG_SESSION_JOINED;
    return WEFT_OK;
}

/* A switch says nothing more; only the end can come. */
static weft_status alive(wf_agg_session *s)
{
    char byte;
    bool whole;
    weft_status st = read_on(s, &byte, sizeof(byte), &whole);

    return st == WEFT_OK && whole
               ? wf_fail(WEFT_ERR_PROTOCOL, "the switch says what it must not")
               : st;
}

weft_status wf_agg_session_step(wf_agg_session *s)
{
    wf_agg_session_state before;
    weft_status st = WEFT_OK;

    do {
        before = s->state;
        switch (s->state) {
        case WF_AGG_SESSION_CLOSED:
            return wf_fail(WEFT_ERR_CLOSED, "no connection to the switch");
        case WF_AGG_SESSION_CONNECTING:
            st = connected(s);
            break;
        case WF_AGG_SESSION_GREETING:
            st = greeted(s);
            break;
        case WF_AGG_SESSION_JOINING:
            st = answered(s);
            break;
        case WF_AGG_SESSION_JOINED:
            st = alive(s);
            break;
        }
    } while (st == WEFT_OK && s->state != before);
    if (st != WEFT_OK) {
        wf_agg_session_close(s);
    }
    return st;
}
