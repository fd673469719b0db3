/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/link.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"
#include "base/time.h"
#include "boot/conn.h"

#define HEADER_BYTES offsetof(wf_packet, data)

/* Between two tries to send what the kernel has no room for. */
#define FULL_PAUSE_MS 5

/* An abstract name: it lives in the network namespace, not in a file system,
 * and vanishes with the socket. */
static socklen_t link_address(const uint64_t name[2], struct sockaddr_un *out)
{
    int n;

    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
                 "weft-%016llx%016llx", (unsigned long long)name[0],
                 (unsigned long long)name[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

weft_status wf_link_listen(const uint64_t name[2], int *out)
{
    struct sockaddr_un address;
    socklen_t n = link_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return wf_fail_errno("a socket for the ranks of this host");
    }
    if (bind(fd, (struct sockaddr *)&address, n) != 0 ||
        listen(fd, 4096) != 0) {
        weft_status st = wf_fail_errno("listening for the ranks of this host");

        close(fd);
        return st;
    }
    *out = fd;
    return WEFT_OK;
}

static weft_status check_user(int fd)
{
    pid_t pid;
    uid_t user;
    weft_status st = wf_conn_peer(fd, &pid, &user);

    return st != WEFT_OK || user == geteuid()
               ? st
               : wf_fail(WEFT_ERR_DENIED,
                         "user %u tried to join a job of user %u",
                         (unsigned)user, (unsigned)geteuid());
}

weft_status wf_link_connect(const uint64_t name[2], int *out)
{
    struct sockaddr_un address;
    socklen_t n = link_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    weft_status st;

    if (fd < 0) {
        return wf_fail_errno("a socket to a rank of this host");
    }
    while (connect(fd, (struct sockaddr *)&address, n) != 0) {
        if (errno != EINTR) {
            st =
                errno == ECONNREFUSED
                    ? wf_fail(WEFT_ERR_CLOSED, "the peer closed the connection")
                    : wf_fail_errno("connecting to a rank of this host");
            close(fd);
            return st;
        }
    }
    st = check_user(fd);
    if (st != WEFT_OK) {
        close(fd);
        return st;
    }
    *out = fd;
    return WEFT_OK;
}

static weft_status link_poll(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int got = poll(&p, 1, deadline_ns == 0 ? 0 : wf_ms_until(deadline_ns));

        if (got > 0) {
            return WEFT_OK;
        }
        if (got < 0 && errno != EINTR) {
            return wf_fail_errno("poll");
        }
        if (got == 0 && (deadline_ns == 0 || wf_now_ns() >= deadline_ns)) {
            return wf_fail(WEFT_ERR_TIMEOUT, "no answer in time");
        }
    }
}

weft_status wf_link_accept(int listener, uint64_t deadline_ns, int *out)
{
    weft_status st = link_poll(listener, POLLIN, deadline_ns);
    int fd;

    if (st != WEFT_OK) {
        return st;
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return wf_fail_errno("accepting a rank of this host");
    }
    if (check_user(fd) != WEFT_OK) {
        close(fd);
        fd = -1;
    }
    *out = fd;
    return WEFT_OK;
}

/* The kernel is short of memory, or too many descriptors are on their way to
 * processes that have not taken them: both pass. errno stays. */
static bool send_later(uint64_t deadline_ns)
{
    int err = errno;
    bool passes = err == ENOBUFS || err == ENOMEM || err == ETOOMANYREFS;

    if (!passes || wf_now_ns() >= deadline_ns) {
        return false;
    }
    poll(NULL, 0, FULL_PAUSE_MS);
    errno = err;
    return true;
}

weft_status wf_link_send(int link, const wf_packet *p, int fd,
                         uint64_t deadline_ns)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {(void *)(uintptr_t)p, HEADER_BYTES + p->bytes};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    weft_status st;

    if (fd >= 0) {
        struct cmsghdr *c;

        memset(&control, 0, sizeof(control));
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof(control.bytes);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    while (sendmsg(link, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EPIPE || errno == ECONNRESET) {
            return wf_fail(WEFT_ERR_CLOSED, "the peer closed the connection");
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            st = link_poll(link, POLLOUT, deadline_ns);
            if (st != WEFT_OK) {
                return st;
            }
        } else if (errno != EINTR && !send_later(deadline_ns)) {
            return wf_fail_errno("sending to a rank of this host");
        }
    }
    return WEFT_OK;
}

weft_status wf_packet_check(const wf_packet *p, size_t received)
{
    if (received < HEADER_BYTES || p->bytes > WF_PACKET_DATA ||
        received != HEADER_BYTES + p->bytes) {
        return wf_fail(WEFT_ERR_PROTOCOL, "a packet of %zu bytes is malformed",
                       received);
    }
    return WEFT_OK;
}

/* Take the first descriptor that came along; a second one is a stranger's. */
static int take_fd(struct msghdr *m)
{
    int fd = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL;
         c = CMSG_NXTHDR(m, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int got;

            memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (fd < 0) {
                fd = got;
            } else {
                close(got);
            }
        }
    }
    return fd;
}

weft_status wf_link_recv(int link, wf_packet *p, int *fd, uint64_t deadline_ns)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec data = {p, sizeof(*p)};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    weft_status st = link_poll(link, POLLIN, deadline_ns);
    ssize_t got;
    int reset = 0;
    int came;

    if (st != WEFT_OK) {
        return st;
    }
    do {
        got = recvmsg(link, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        /* A peer that went with mail unread resets us, once; what it sent
         * before is still there behind that. */
    } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
    if (got < 0 && errno != ECONNRESET) {
        return wf_fail_errno("receiving from a rank of this host");
    }
    came = got < 0 ? -1 : take_fd(&m);
    if (came < 0 && got > 0 && (m.msg_flags & MSG_CTRUNC) != 0) {
        came = WF_FD_LOST;
    }
    if (got <= 0) {
        st = wf_fail(WEFT_ERR_CLOSED, "the peer closed the connection");
    } else if ((m.msg_flags & MSG_TRUNC) != 0) {
        st = wf_fail(WEFT_ERR_PROTOCOL, "a packet is longer than the limit");
    } else {
        st = wf_packet_check(p, (size_t)got);
    }
    if (came >= 0 && (st != WEFT_OK || fd == NULL)) {
        close(came);
        came = -1;
    }
    if (fd != NULL) {
        *fd = came;
    }
    return st;
}

weft_status wf_link_fail_lost(uint32_t from)
{
    return wf_fail(WEFT_ERR_SYSTEM,
                   "a descriptor from rank %u was lost: this process has "
                   "reached its limit of open files (ulimit -n)",
                   from);
}

weft_status wf_packet_reason(const wf_packet *p)
{
    return wf_fail(WEFT_ERR_PEER, "%.*s", (int)p->bytes, (const char *)p->data);
}

bool wf_link_last_words(int link)
{
    wf_packet p;

    while (wf_link_recv(link, &p, NULL, 0) == WEFT_OK) {
        if (p.kind == WF_PACKET_FAILED) {
            wf_packet_reason(&p);
            return true;
        }
    }
    return false;
}

bool wf_links_last_words(const int *link, size_t count)
{
    static const struct timespec pause = {.tv_nsec = 5 * WF_MS};

    for (unsigned tries = 0; tries < 20; tries++) {
        for (size_t i = 0; i < count; i++) {
            if (link[i] >= 0 && wf_link_last_words(link[i])) {
                return true;
            }
        }
        nanosleep(&pause, NULL);
    }
    return false;
}
