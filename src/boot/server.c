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
#include "boot/conn.h"
#include "boot/table.h"

/* Rule 5: how long the others may go on when rank 0 has closed the table. */
#define LINGER_NS (1 * WF_SEC)

/* Rule 3: how long a death goes unmentioned. */
#define MOURN_NS (500 * WF_MS)

/* Connections beyond one for each rank; more wait until one of them ends. */
#define SPARE_CLIENTS 64u

/* Connections that are let in or turned away before ranks are served. */
#define ACCEPTS_A_TURN 256u

#define NO_RANK UINT32_MAX

typedef enum rank_state { RANK_ABSENT, RANK_HERE, RANK_DONE } rank_state;

typedef struct server_client {
    wf_conn conn;
    pid_t pid;
    uint32_t rank; /* NO_RANK until its HELLO is accepted */
    bool refused;
    bool waits; /* for `key`, in request `wait_id` */
    uint32_t wait_id;
    char key[WF_BOOT_KEY_MAX + 1];
} server_client;

struct wf_boot_server {
    pthread_t thread;
    char *name;
    uint32_t ranks;
    int listener; /* -1 once all ranks are here */
    wf_boot_table table;
    unsigned char *state; /* rank_state of each rank */
    uint32_t absent;
    uint32_t here; /* and not done */

    server_client *clients;
    struct pollfd *polls; /* the listener, then one for each client */
    size_t count;
    size_t room;

    bool told_refused; /* another user could fill the log otherwise */

    bool closing;       /* rank 0 has closed its connection */
    bool closing_early; /* without having said DONE */
    uint64_t leave_by;

    uint32_t dead; /* the first rank that died, or NO_RANK */
    pid_t dead_pid;
    uint64_t tell_at;
};

/* --- answers ------------------------------------------------------------- */

static void client_answer(server_client *c, wf_wire_kind kind, uint32_t id,
                          weft_status status, const void *value, size_t n)
{
    wf_wire_msg msg = {
        .kind = kind, .id = id, .status = status, .value = value, .n = n};

    if (wf_conn_push(&c->conn, &msg) != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR, "boot: rank %u gets no answer: %s", c->rank,
               weft_error_detail());
        wf_conn_end(&c->conn);
    }
}

static void client_answer_failure(server_client *c, wf_wire_kind kind,
                                  uint32_t id, weft_status status)
{
    const char *why = weft_error_detail();

    client_answer(c, kind, id, status, why, strlen(why));
}

/* --- ranks come and go --------------------------------------------------- */

static weft_status server_check_hello(const wf_boot_server *s,
                                      const server_client *c,
                                      const wf_wire_hello *hello)
{
    if (hello->ranks != s->ranks || hello->rank >= s->ranks) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "pid %d is rank %u of %u, but rank 0 (pid %d) says that "
                       "the job '%s' has %u ranks",
                       (int)c->pid, hello->rank, hello->ranks, (int)getpid(),
                       s->name, s->ranks);
    }
    if (s->state[hello->rank] != RANK_ABSENT) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "rank %u of job '%s' is there already, and pid %d says "
                       "it is that rank too; do two jobs share the name "
                       "(WEFT_JOB)?",
                       hello->rank, s->name, (int)c->pid);
    }
    return WEFT_OK;
}

static void server_join(wf_boot_server *s, server_client *c, uint32_t rank)
{
    c->rank = rank;
    s->state[rank] = RANK_HERE;
    s->absent--;
    s->here++;
}

static void server_stop_listening(wf_boot_server *s)
{
    if (s->listener >= 0) {
        close(s->listener);
        s->listener = -1;
    }
}

static void server_hello(wf_boot_server *s, server_client *c,
                         const wf_wire_msg *msg)
{
    wf_wire_hello hello;
    weft_status st;

    memcpy(&hello, msg->value, sizeof(hello));
    st = server_check_hello(s, c, &hello);
    if (st != WEFT_OK) {
        c->refused = true;
        client_answer_failure(c, WF_WIRE_ACK, msg->id, st);
        return;
    }
    server_join(s, c, hello.rank);
    client_answer(c, WF_WIRE_ACK, msg->id, WEFT_OK, NULL, 0);
    if (s->absent == 0) {
        server_stop_listening(s);
    }
}

static void server_rank_done(wf_boot_server *s, uint32_t rank)
{
    if (s->state[rank] == RANK_HERE) {
        s->state[rank] = RANK_DONE;
        s->here--;
    }
}

/* The connection of a rank has ended. */
static void server_rank_gone(wf_boot_server *s, const server_client *c)
{
    bool done = s->state[c->rank] == RANK_DONE;

    server_rank_done(s, c->rank);
    if (c->rank == 0) {
        s->closing = true;
        s->closing_early = !done;
        s->leave_by = wf_now_ns() + LINGER_NS;
    } else if (!done && s->dead == NO_RANK) {
        s->dead = c->rank;
        s->dead_pid = c->pid;
        s->tell_at = wf_now_ns() + MOURN_NS;
    }
}

/* --- requests ------------------------------------------------------------ */

static void server_wake(wf_boot_server *s, const wf_boot_entry *e)
{
    for (size_t i = 0; i < s->count; i++) {
        server_client *c = &s->clients[i];

        if (c->waits && strcmp(c->key, e->key) == 0) {
            c->waits = false;
            client_answer(c, WF_WIRE_VALUE, c->wait_id, WEFT_OK, e->value,
                          e->n);
        }
    }
}

static void server_set(wf_boot_server *s, server_client *c,
                       const wf_wire_msg *msg)
{
    weft_status st = wf_boot_table_put(&s->table, msg->key, msg->value, msg->n);

    if (st != WEFT_OK) {
        client_answer_failure(c, WF_WIRE_ACK, msg->id, st);
        return;
    }
    client_answer(c, WF_WIRE_ACK, msg->id, WEFT_OK, NULL, 0);
    server_wake(s, wf_boot_table_find(&s->table, msg->key));
}

static void server_get(wf_boot_server *s, server_client *c,
                       const wf_wire_msg *msg)
{
    const wf_boot_entry *e = wf_boot_table_find(&s->table, msg->key);

    c->waits = e == NULL;
    if (e != NULL) {
        client_answer(c, WF_WIRE_VALUE, msg->id, WEFT_OK, e->value, e->n);
        return;
    }
    c->wait_id = msg->id;
    snprintf(c->key, sizeof(c->key), "%s", msg->key);
}

static void server_take(wf_boot_server *s, server_client *c,
                        const wf_wire_msg *msg)
{
    bool known = c->rank != NO_RANK;

    if (c->refused) {
        return;
    }
    if (msg->kind == WF_WIRE_HELLO && !known) {
        server_hello(s, c, msg);
    } else if (msg->kind == WF_WIRE_SET && known) {
        server_set(s, c, msg);
    } else if (msg->kind == WF_WIRE_GET && known) {
        server_get(s, c, msg);
    } else if (msg->kind == WF_WIRE_DONE && known) {
        server_rank_done(s, c->rank);
    } else {
        wf_log(WEFT_LOG_WARN,
               "boot: pid %d speaks out of turn; its connection "
               "is closed",
               (int)c->pid);
        wf_conn_end(&c->conn);
    }
}

/* --- connections --------------------------------------------------------- */

static weft_status server_add(wf_boot_server *s, int fd, pid_t pid)
{
    size_t room = s->room > 0 ? 2 * s->room : 8;

    if (s->count == s->room) {
        struct pollfd *polls;
        server_client *clients =
            wf_realloc(s->clients, room * sizeof(*clients));

        if (clients == NULL) {
            return wf_fail(WEFT_ERR_NOMEM, "%zu boot connections", room);
        }
        s->clients = clients;
        polls = wf_realloc(s->polls, (room + 1) * sizeof(*polls));
        if (polls == NULL) {
            return wf_fail(WEFT_ERR_NOMEM, "%zu boot connections", room);
        }
        s->polls = polls;
        s->room = room;
    }
    s->clients[s->count] = (server_client){.pid = pid, .rank = NO_RANK};
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

    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        /* The caller stays in the queue until there is room for it. A short
         * pause keeps us from asking again and again. */
        wf_fail_errno("accept a rank of job '%s'", s->name);
        wf_log(WEFT_LOG_WARN, "boot: %s", weft_error_detail());
        poll(NULL, 0, 100);
    }
    if (fd >= 0 && server_admit(s, fd) != WEFT_OK) {
        wf_log(s->told_refused ? WEFT_LOG_DEBUG : WEFT_LOG_WARN,
               "boot: a connection to job '%s' is refused: %s", s->name,
               weft_error_detail());
        s->told_refused = true;
        close(fd);
    }
    return fd >= 0;
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
        wf_conn_end(&c->conn);
    }
    for (;;) {
        wf_conn_flush(&c->conn);
        if (wf_conn_has_output(&c->conn) || !wf_conn_next(&c->conn, &msg)) {
            return;
        }
        server_take(s, c, &msg);
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
        if (c->rank != NO_RANK) {
            server_rank_gone(s, c);
        }
        wf_conn_fini(&c->conn);
    }
    s->count = kept;
}

/* --- the thread ---------------------------------------------------------- */

static void server_tell_of_death(wf_boot_server *s)
{
    if (s->dead == NO_RANK || wf_now_ns() < s->tell_at) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        server_client *c = &s->clients[i];

        if (c->waits) {
            c->waits = false;
            wf_fail(WEFT_ERR_PEER,
                    "rank %u (pid %d) died before the job was formed", s->dead,
                    (int)s->dead_pid);
            client_answer_failure(c, WF_WIRE_VALUE, c->wait_id, WEFT_ERR_PEER);
        }
    }
}

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
    if (s->dead != NO_RANK && s->tell_at < wake && wf_now_ns() < s->tell_at) {
        wake = s->tell_at;
    }
    return wf_ms_until(wake);
}

static void server_turn(wf_boot_server *s)
{
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
    if (poll(s->polls, count + 1, server_poll_ms(s)) > 0) {
        for (size_t i = 0; i < count; i++) {
            if (s->polls[i + 1].revents != 0) {
                server_serve(s, &s->clients[i], s->polls[i + 1].revents);
            }
        }
        if (s->listener >= 0 && s->polls[0].revents != 0) {
            server_accept(s);
        }
    }
    server_tell_of_death(s);
    server_drop_ended(s);
}

static void *server_main(void *arg)
{
    wf_boot_server *s = arg;

    while (!server_is_over(s)) {
        server_turn(s);
    }
    /* The others learn now that there is no table any more. */
    for (size_t i = 0; i < s->count; i++) {
        wf_conn_fini(&s->clients[i].conn);
    }
    s->count = 0;
    server_stop_listening(s);
    return NULL;
}

static void server_free(wf_boot_server *s)
{
    wf_boot_table_fini(&s->table);
    wf_free(s->clients);
    wf_free(s->polls);
    wf_free(s->state);
    wf_free(s->name);
    wf_free(s);
}

weft_status wf_boot_server_create(const char *name, uint32_t ranks,
                                  int listener, int own, wf_boot_server **out)
{
    weft_status st = WEFT_ERR_NOMEM;
    wf_boot_server *s = wf_zalloc(sizeof(*s));

    if (s == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "boot server");
    }
    s->ranks = ranks;
    s->absent = ranks;
    s->dead = NO_RANK;
    s->listener = listener;
    s->name = wf_strdup(name);
    s->state = wf_zalloc(ranks);
    if (s->name == NULL || s->state == NULL) {
        wf_fail(WEFT_ERR_NOMEM, "boot server of %u ranks", ranks);
        goto free_server;
    }
    st = server_add(s, own, getpid());
    if (st != WEFT_OK) {
        goto free_server;
    }
    server_join(s, &s->clients[0], 0);
    st = wf_thread_start("the thread that ranks meet at", server_main, s,
                         &s->thread);
    if (st != WEFT_OK) {
        goto free_server;
    }
    *out = s;
    return WEFT_OK;

free_server:
    server_free(s);
    return st;
}

void wf_boot_server_destroy(wf_boot_server *server)
{
    if (server != NULL) {
        pthread_join(server->thread, NULL);
        server_free(server);
    }
}
