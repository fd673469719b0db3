/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread: it accepts connections, reads what they send, and ends on
 * SIGTERM or SIGINT. */
#include "server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agg/key.h"
#include "agg/session.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"

/* A connection that has not joined, or asked for a page, by then is closed. */
#define SILENCE_NS (10 * WF_SEC)

/* So many may be open that have not; above, the oldest is closed. A stranger
 * who opens many then disturbs no job that runs. */
#define STRANGERS 256u

/* --- sockets -------------------------------------------------------------- */

static weft_status resolve(const char *host, uint16_t port, wf_udp_address *out)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char text[8];
    int rc;

    (void)snprintf(text, sizeof(text), "%u", port);
    rc = getaddrinfo(host, text, &hints, &found);
    if (rc != 0) {
        return wf_fail(WEFT_ERR_INVALID, "no address for %s: %s",
                       host != NULL ? host : "any interface", gai_strerror(rc));
    }
    memset(out, 0, sizeof(*out));
    memcpy(&out->at, found->ai_addr, found->ai_addrlen);
    out->length = found->ai_addrlen;
    freeaddrinfo(found);
    return WEFT_OK;
}

static uint16_t port_of(const wf_udp_address *a)
{
    return ntohs(a->at.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)&a->at)->sin6_port
                     : ((const struct sockaddr_in *)&a->at)->sin_port);
}

static void set_port(wf_udp_address *a, uint16_t port)
{
    if (a->at.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)&a->at)->sin_port = htons(port);
    }
}

static weft_status listen_at(wf_udp_address *a, int *out)
{
    int fd =
        socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int one = 1;
    weft_status st;

    if (fd < 0) {
        return wf_fail_errno("a socket");
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&a->at, a->length) != 0 ||
        listen(fd, 256) != 0 ||
        getsockname(fd, (struct sockaddr *)&a->at, &a->length) != 0) {
        st = wf_fail_errno("listen on port %u", port_of(a));
        close(fd);
        return st;
    }
    *out = fd;
    return WEFT_OK;
}

static weft_status watch(const sw_server *s, int fd, uint32_t events, void *ptr)
{
    struct epoll_event e = {.events = events, .data = {.ptr = ptr}};

    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0
               ? WEFT_OK
               : wf_fail_errno("epoll_ctl");
}

/* --- connections ---------------------------------------------------------- */

static void close_conn(sw_server *s, sw_conn *conn)
{
    sw_conn **at = &s->conns;

    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
    if (conn->kind == SW_CONN_RANK) {
        sw_rank_left(s, conn);
    }
    close(conn->fd);
    free(conn->answer);
    wf_free(conn);
}

/* New ones are put in front, so the last one is the oldest. */
static void limit_strangers(sw_server *s)
{
    sw_conn *oldest = NULL;
    uint32_t n = 0;

    for (sw_conn *conn = s->conns; conn != NULL; conn = conn->next) {
        if (conn->job == NULL) {
            oldest = conn;
            n++;
        }
    }
    if (n > STRANGERS) {
        close_conn(s, oldest);
    }
}

static void accept_one(sw_server *s, int listener, sw_conn_kind kind)
{
    sw_conn *conn = wf_zalloc(sizeof(*conn));

    if (conn == NULL) {
        return;
    }
    conn->kind = kind;
    conn->since_ns = wf_now_ns();
    conn->peer.length = sizeof(conn->peer.at);
    conn->fd = accept4(listener, (struct sockaddr *)&conn->peer.at,
                       &conn->peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (conn->fd < 0) {
        wf_free(conn);
        return;
    }
    if (kind == SW_CONN_RANK) {
        wf_agg_keep_alive(conn->fd);
    }
    if ((kind == SW_CONN_RANK && !sw_rank_greet(conn)) ||
        watch(s, conn->fd, EPOLLIN, conn) != WEFT_OK) {
        close(conn->fd);
        wf_free(conn);
        return;
    }
    conn->next = s->conns;
    s->conns = conn;
    limit_strangers(s);
}

static void serve_conn(sw_server *s, sw_conn *conn)
{
    bool stays = conn->kind == SW_CONN_RANK ? sw_rank_read(s, conn)
                 : conn->answer == NULL     ? sw_http_read(s, conn)
                                            : sw_http_write(conn);

    if (!stays) {
        close_conn(s, conn);
    } else if (conn->answer != NULL) {
        struct epoll_event e = {.events = EPOLLOUT, .data = {.ptr = conn}};

        (void)epoll_ctl(s->epoll, EPOLL_CTL_MOD, conn->fd, &e);
    }
}

/* Once a second. */
static void look_around(sw_server *s)
{
    uint64_t now = wf_now_ns();
    uint64_t ticks;

    (void)!read(s->timer, &ticks, sizeof(ticks));
    sw_jobs_expire(s);
    for (sw_conn *conn = s->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        if (conn->job == NULL && now - conn->since_ns > SILENCE_NS) {
            close_conn(s, conn);
        }
    }
}

/* --- from start to stop --------------------------------------------------- */

static weft_status open_shards(sw_server *s, wf_udp_address *at)
{
    for (; s->shards < s->options.shards; s->shards++) {
        sw_shard *shard = &s->shard[s->shards];
        weft_status st;

        set_port(at, s->shards == 0 ? s->port : 0);
        st = sw_shard_start(shard, s->shards, &s->options, at, &s->stop);
        if (st != WEFT_OK) {
            return st;
        }
        shard->port = port_of(at);
    }
    return WEFT_OK;
}

static weft_status open_ports(sw_server *s)
{
    const sw_options *o = &s->options;
    wf_udp_address at;
    weft_status st = resolve(o->host, o->port, &at);

    if (st == WEFT_OK) {
        st = listen_at(&at, &s->listen);
    }
    if (st == WEFT_OK) {
        s->port = port_of(&at);
        st = open_shards(s, &at);
    }
    if (st == WEFT_OK && o->http) {
        uint16_t port = o->http_port;

        if (o->http_beside && o->port != 0) {
            port = (uint16_t)(s->port + 1);
        }
        st = resolve(o->http_host, port, &at);
        st = st == WEFT_OK ? listen_at(&at, &s->http) : st;
        s->http_port = st == WEFT_OK ? port_of(&at) : 0;
    }
    return st;
}

static weft_status open_events(sw_server *s)
{
    const struct itimerspec second = {{.tv_sec = 1}, {.tv_sec = 1}};
    sigset_t set;
    weft_status st;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->signals < 0 || s->timer < 0 || s->epoll < 0 ||
        timerfd_settime(s->timer, 0, &second, NULL) != 0) {
        return wf_fail_errno("signals and timers");
    }
    st = watch(s, s->listen, EPOLLIN, &s->listen);
    st = st == WEFT_OK && s->http >= 0 ? watch(s, s->http, EPOLLIN, &s->http)
                                       : st;
    st = st == WEFT_OK ? watch(s, s->signals, EPOLLIN, &s->signals) : st;
    return st == WEFT_OK ? watch(s, s->timer, EPOLLIN, &s->timer) : st;
}

/* One event at a time: handling one may close the connection of another. */
static bool serve_one(sw_server *s)
{
    struct epoll_event e;

    if (epoll_wait(s->epoll, &e, 1, -1) != 1) {
        return errno == EINTR;
    }
    if (e.data.ptr == &s->signals) {
        return false;
    }
    if (e.data.ptr == &s->listen) {
        accept_one(s, s->listen, SW_CONN_RANK);
    } else if (e.data.ptr == &s->http) {
        accept_one(s, s->http, SW_CONN_HTTP);
    } else if (e.data.ptr == &s->timer) {
        look_around(s);
    } else {
        serve_conn(s, e.data.ptr);
    }
    return true;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void server_stop(sw_server *s)
{
    sw_jobs_end(s);
    while (s->conns != NULL) {
        close_conn(s, s->conns);
    }
    atomic_store(&s->stop, true);
    for (uint32_t i = 0; i < s->shards; i++) {
        sw_shard_join(&s->shard[i]);
    }
    close_fd(s->listen);
    close_fd(s->http);
    close_fd(s->signals);
    close_fd(s->timer);
    close_fd(s->epoll);
    wf_free(s);
}

/* A connection for each rank of each job may be more than the usual limit. */
static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Scripts wait for this line, so that they need no fixed ports. */
static void say_ready(const sw_server *s)
{
    printf("weft-switch: ready on port %u", s->port);
    if (s->http >= 0) {
        printf(", http://%s:%u/",
               s->options.http_host != NULL ? s->options.http_host : "[::]",
               s->http_port);
    }
    printf("\n");
    fflush(stdout);
}

weft_status sw_server_run(const sw_options *options)
{
    sw_server *s = wf_zalloc(sizeof(*s));
    weft_status st;

    if (s == NULL) {
        return wf_fail_nomem("the switch");
    }
    s->options = *options;
    s->listen = s->http = s->signals = s->timer = s->epoll = -1;
    s->since_ns = wf_now_ns();
    raise_limits();
    st = wf_agg_key_read(options->key_file, &s->key);
    if (st == WEFT_OK) {
        st = open_ports(s);
    }
    if (st == WEFT_OK) {
        st = open_events(s);
    }
    if (st == WEFT_OK) {
        say_ready(s);
        while (serve_one(s)) {
        }
        wf_log(WEFT_LOG_INFO, "stopped by a signal");
    }
    server_stop(s);
    return st;
}
