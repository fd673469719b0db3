/* SPDX-License-Identifier: Apache-2.0 */
/* UCX's TCP sockets, for what UCX has no calls for. They are found by what its
 * worker's descriptor watches. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "transport/ucx/ucx.h"

/* Of linux/tcp.h, since 6.15. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
/* What the kernel takes. */
#define PAUSE_MIN_NS WF_SEC
#define PAUSE_MAX_NS (120 * WF_SEC)
/* Its first pause on a network without delay, and its tcp_retries2. */
#define PAUSE_FIRST_NS (200 * WF_MS)
#define RETRIES 15u
/* Several connections that are made at about the same time are looked for
 * together. */
#define GATHER_NS (200 * WF_MS)
/* Descriptors that one other watches, and how deep that goes. */
#define WATCHED_MAX 1024
#define DEPTH_MAX 4

typedef void visit_fn(int fd, void *arg);

/* Call `visit` for what the epoll descriptor `fd` watches, after what that
 * watches. */
static void visit_watched(int fd, int depth, visit_fn *visit, void *arg)
{
    char path[64];
    char line[256];
    FILE *f;
    int watched[WATCHED_MAX];
    size_t n = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    f = fopen(path, "re");
    while (f != NULL && n < WATCHED_MAX &&
           fgets(line, sizeof(line), f) != NULL) {
        n += sscanf(line, "tfd: %d", &watched[n]) == 1;
    }
    if (f != NULL) {
        fclose(f);
    }
    for (size_t i = 0; i < n; i++) {
        if (depth < DEPTH_MAX) {
            visit_watched(watched[i], depth + 1, visit, arg);
        }
        visit(watched[i], arg);
    }
}

/* --- pauses ----------------------------------------------------------------
 * What TCP has not delivered it sends again after pauses that double, without
 * an end that matters here: after a cable was mended a host is not heard for up
 * to as long as the cable was cut, and so may be given up although the cable
 * was cut for less than WEFT_HOST_TIMEOUT. The pauses are bounded by an eighth
 * of that time. Not by less: the kernel gives up a connection when it has sent
 * tcp_retries2 times, fifteen by default, which then takes 1.05 times
 * WEFT_HOST_TIMEOUT or more. Where that is fewer, pauses may be longer, so that
 * no connection ends before that time. */

/* How long the kernel keeps a connection over which nothing comes back. */
static uint64_t kept_for(uint64_t pause_ns, unsigned retries)
{
    uint64_t next = PAUSE_FIRST_NS;
    uint64_t sum = 0;

    for (unsigned i = 0; i <= retries; i++) {
        sum += next;
        next = wf_least(2 * next, pause_ns);
    }
    return sum;
}

uint64_t ucx_sockets_pause(uint64_t silence_ns, unsigned retries)
{
    uint64_t pause =
        wf_least(wf_most(silence_ns / 8, PAUSE_MIN_NS), PAUSE_MAX_NS);

    while (pause < PAUSE_MAX_NS && kept_for(pause, retries) < silence_ns) {
        pause = wf_least(2 * pause, PAUSE_MAX_NS);
    }
    return kept_for(pause, retries) < silence_ns ? 0 : pause;
}

unsigned ucx_sockets_retries(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_retries2", "re");
    unsigned retries = RETRIES;

    if (f != NULL) {
        if (fscanf(f, "%u", &retries) != 1) {
            retries = RETRIES;
        }
        fclose(f);
    }
    return (unsigned)wf_least(retries, UINT8_MAX);
}

void ucx_sockets_added(wf_port *port)
{
    if (port->tcp && port->resend_ns != 0 && port->bound_ns == 0) {
        port->bound_ns = wf_now_ns() + GATHER_NS;
    }
}

typedef struct bounding {
    int pause_ms;
    int error;
} bounding;

/* Others than TCP sockets refuse it. */
static void bound_one(int fd, void *arg)
{
    bounding *b = arg;
    int type = 0;
    socklen_t n = sizeof(type);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 &&
        type == SOCK_STREAM &&
        setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &b->pause_ms,
                   sizeof(b->pause_ms)) != 0) {
        b->error = errno;
    }
}

void ucx_sockets_bound(wf_port *port)
{
    bounding b = {.pause_ms = (int)(port->resend_ns / WF_MS)};

    if (wf_now_ns() < port->bound_ns) {
        return;
    }
    port->bound_ns = 0;
    visit_watched(port->fd, 0, bound_one, &b);
    if (b.error != 0) {
        wf_log(WEFT_LOG_DEBUG,
               "the pauses before TCP sends again are not bounded: %s",
               strerror(b.error));
    }
}

/* --- forked children -------------------------------------------------------
 */

static void close_one(int fd, void *arg)
{
    (void)arg;
    close(fd);
}

/* The connections are the parent's: while the child has them open, the peers
 * would not see the parent's death. UCX itself cannot be used in the child, nor
 * be ended there; its memory is left as it is. */
void ucx_sockets_orphan(wf_port *port)
{
    if (port->fd >= 0) {
        visit_watched(port->fd, 0, close_one, NULL);
    }
    port->fd = -1;
    port->worker = NULL;
    port->context = NULL;
    port->address = NULL;
}
