/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "boot/server_state.h"

/* Connections beyond one for each rank; more wait until one of them ends. */
#define SPARE_CLIENTS 64u

/* Connections that are let in or turned away before ranks are served. */
#define ACCEPTS_A_TURN 256u

/* --- connections --------------------------------------------------------- */

static weft_status server_add(wf_boot_server *s, int fd, pid_t pid)
{
    size_t room = s->room > 0 ? 2 * s->room : 8;

    if (s->count == s->room) {
        struct pollfd *polls;
        server_client *clients =
            wf_realloc(s->clients, room * sizeof(*clients));

        if (clients == NULL) {
            return wf_fail_nomem("%zu boot connections", room);
        }
        s->clients = clients;
        polls = wf_realloc(s->polls, (room + 1) * sizeof(*polls));
        if (polls == NULL) {
            return wf_fail_nomem("%zu boot connections", room);
        }
        s->polls = polls;
        s->room = room;
    }
    s->clients[s->count] = (server_client){.pid = pid, .rank = WF_NO_RANK};
    wf_conn_init(&s->clients[s->count].conn, fd);
    s->count++;
    return WEFT_OK;
}

static bool server_is_full(const wf_boot_server *s)
{
    return s->count >= (size_t)s->ranks + SPARE_CLIENTS;
}

/* Rule 1. */
static weft_status server_admit(wf_boot_server *s, int fd)
{
    pid_t pid;
    uid_t uid;
    weft_status st = wf_conn_peer(fd, &pid, &uid);

    if (st != WEFT_OK) {
        return st;
    }
    if (uid != geteuid()) {
        return wf_fail(WEFT_ERR_DENIED, "pid %d belongs to user %u", (int)pid,
                       (unsigned)uid);
    }
    return server_add(s, fd, pid);
}

/* False: nobody waits to be let in. */
static bool server_accept_one(wf_boot_server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    weft_status st;

    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        /* The caller stays in the queue until there is room for it. A short
         * pause keeps us from asking again and again. */
        wf_fail_errno("accept a rank of job '%s'", s->name);
        wf_log(WEFT_LOG_WARN, "boot: %s", weft_error_detail());
        poll(NULL, 0, 100);
    }
    if (fd < 0) {
        return false;
    }
    st = server_admit(s, fd);
    if (st != WEFT_OK) {
        wf_log(s->warned_refused ? WEFT_LOG_DEBUG : WEFT_LOG_WARN,
               "boot: a connection to job '%s' is refused: %s", s->name,
               weft_error_detail());
        s->warned_refused = true;
        s->starved = s->starved || st == WEFT_ERR_NOMEM;
        close(fd);
    }
    return true;
}

/* Another user may keep the queue full, so it is emptied as fast as can be. */
static void server_accept(wf_boot_server *s)
{
    unsigned left = ACCEPTS_A_TURN;

    while (left > 0 && !server_is_full(s) && server_accept_one(s)) {
        left--;
    }
}

/* A rank that does not read its answers is not read from either, so what we
 * hold for it stays bounded. */
static void server_serve(wf_boot_server *s, server_client *c, short events)
{
    wf_wire_msg msg;

    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 &&
        wf_conn_fill(&c->conn) != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR, "boot: pid %d cannot be heard: %s", (int)c->pid,
               weft_error_detail());
        c->starved = true;
        wf_conn_end(&c->conn);
    }
    for (;;) {
        wf_conn_flush(&c->conn);
        if (wf_conn_has_output(&c->conn) || !wf_conn_next(&c->conn, &msg)) {
            return;
        }
        wf_server_take(s, c, &msg);
    }
}

static void server_drop_ended(wf_boot_server *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->count; i++) {
        server_client *c = &s->clients[i];

        if (!c->conn.ended) {
            s->clients[kept++] = *c;
            continue;
        }
        s->starved = s->starved || c->starved;
        if (c->rank != WF_NO_RANK) {
            wf_server_rank_gone(s, c);
        }
        wf_conn_fini(&c->conn);
    }
    s->count = kept;
}

/* --- the thread ---------------------------------------------------------- */

/* Rule 5. Ranks that never came are waited for only if rank 0 is content with
 * what it has; else it leaves because of them. */
static bool server_is_over(const wf_boot_server *s)
{
    if (s->here > 0 || (s->absent > 0 && !s->closing)) {
        return s->closing && wf_now_ns() >= s->leave_by;
    }
    return s->absent == 0 || s->closing_early || wf_now_ns() >= s->leave_by;
}

static int server_poll_ms(const wf_boot_server *s)
{
    uint64_t wake = UINT64_MAX;

    if (s->closing) {
        wake = s->leave_by;
    }
    if (s->dead != WF_NO_RANK && s->tell_at < wake &&
        wf_now_ns() < s->tell_at) {
        wake = s->tell_at;
    }
    return wf_ms_until(wake);
}

/* The shorter of two times, of which -1 is the longest. */
static int shorter_ms(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

bool wf_boot_server_turn(wf_boot_server *s, int wait_ms)
{
    int ms = shorter_ms(server_poll_ms(s), wait_ms);
    size_t count = s->count;

    s->polls[0] = (struct pollfd){.fd = server_is_full(s) ? -1 : s->listener,
                                  .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        const wf_conn *conn = &s->clients[i].conn;

        s->polls[i + 1] = (struct pollfd){
            .fd = conn->fd,
            .events = wf_conn_has_output(conn) ? POLLOUT : POLLIN,
        };
    }
    if (poll(s->polls, count + 1, ms) > 0) {
        for (size_t i = 0; i < count; i++) {
            if (s->polls[i + 1].revents != 0) {
                server_serve(s, &s->clients[i], s->polls[i + 1].revents);
            }
        }
        if (s->listener >= 0 && s->polls[0].revents != 0) {
            server_accept(s);
        }
    }
    server_drop_ended(s);
    wf_server_tell_of_failure(s);
    return !server_is_over(s);
}

/* The others learn then that there is no table any more. */
static void server_hang_up(wf_boot_server *s)
{
    for (size_t i = 0; i < s->count; i++) {
        wf_conn_fini(&s->clients[i].conn);
    }
    s->count = 0;
    wf_server_stop_listening(s);
}

static void *server_main(void *arg)
{
    wf_boot_server *s = arg;

    while (wf_boot_server_turn(s, -1)) {
    }
    server_hang_up(s);
    return NULL;
}

/* Leaves the sockets to the caller. */
static void server_let_go(wf_boot_server *s)
{
    wf_boot_table_fini(&s->table);
    wf_free(s->clients);
    wf_free(s->polls);
    wf_free(s->state);
    wf_free(s->name);
    wf_free(s);
}

void wf_boot_server_free(wf_boot_server *server)
{
    server_hang_up(server);
    server_let_go(server);
}

weft_status wf_boot_server_open(const char *name, uint32_t ranks, int listener,
                                int own, wf_boot_server **out)
{
    weft_status st;
    wf_boot_server *s = wf_zalloc(sizeof(*s));

    if (s == NULL) {
        return wf_fail_nomem("the boot server");
    }
    s->ranks = ranks;
    s->absent = ranks;
    s->dead = WF_NO_RANK;
    s->listener = listener;
    s->name = wf_strdup(name);
    s->state = wf_zalloc(ranks);
    st = s->name == NULL || s->state == NULL
             ? wf_fail_nomem("the boot server of %u ranks", ranks)
             : server_add(s, own, getpid());
    if (st != WEFT_OK) {
        server_let_go(s);
        return st;
    }
    wf_server_join(s, &s->clients[0], 0);
    *out = s;
    return WEFT_OK;
}

weft_status wf_boot_server_create(const char *name, uint32_t ranks,
                                  int listener, int own, wf_boot_server **out)
{
    wf_boot_server *s = NULL;
    weft_status st = wf_boot_server_open(name, ranks, listener, own, &s);

    if (st != WEFT_OK) {
        return st;
    }
    st = wf_thread_start("the thread that ranks meet at", server_main, s,
                         &s->thread);
    if (st != WEFT_OK) {
        server_let_go(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

void wf_boot_server_destroy(wf_boot_server *server)
{
    if (server != NULL) {
        pthread_join(server->thread, NULL);
        server_let_go(server);
    }
}
