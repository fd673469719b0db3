/* SPDX-License-Identifier: Apache-2.0 */
/* The table for ranks on one host: each rank, rank 0 too, talks to the thread
 * of boot/server.h in rank 0.
 *
 * A rank may come before rank 0 does. set() has no deadline of its own, so it
 * then only keeps the value; the next get() waits for rank 0, as long as that
 * get() may take, and delivers first what was kept. A set() that fails late
 * fails that get(). Waiting ends at once when rank 0 dies. */
#include "boot/local.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/conn.h"
#include "boot/server.h"

/* For what has no deadline from the caller: how long rank 0 may need to come,
 * and to answer once it is there. */
#define COME_NS (300 * WF_SEC)
#define ANSWER_NS (1 * WF_SEC)
#define PROMPT_NS (100 * WF_MS)

/* How often the fallback addresses are searched while nobody listens at the
 * address itself: they are needed only where another user was there first. */
enum { SEARCH_EACH = 16 };

/* A get() with a shorter timeout still allows for one answer. */
#define ROUND_TRIP_MS 50u

typedef struct local {
    wf_boot boot;
    char *name;
    wf_boot_name address;
    unsigned tries;          /* to reach rank 0 */
    wf_boot_holder stranger; /* another user's process at its address */
    wf_conn conn;
    pid_t peer;             /* the process of rank 0 */
    wf_boot_server *server; /* in rank 0 only */
    uint32_t last_id;       /* of the requests made so far */
    uint32_t last_acked;    /* requests up to this one need no answer */
    uint32_t last_set;
    bool gave_up; /* a wait has failed, so the end does not wait again */
    bool done;
} local;

void wf_boot_local_name(const char *name, wf_boot_name *out)
{
    wf_boot_name_of("boot", name, strlen(name), out);
}

/* --- reaching rank 0 ----------------------------------------------------- */

static bool local_connected(const local *l)
{
    return l->conn.fd >= 0;
}

/* Try once. If rank 0 is not there yet, that is no failure. */
static weft_status local_try_connect(local *l)
{
    wf_boot_holder holder;
    weft_status st;
    int fd;

    if (local_connected(l)) {
        return WEFT_OK;
    }
    /* It takes time to go through all names, and it is seldom of use. */
    st = wf_boot_name_connect(&l->address, l->tries++ % SEARCH_EACH == 0, &fd,
                              &holder);
    if (st == WEFT_OK && fd >= 0) {
        l->conn.fd = fd;
        l->peer = holder.pid;
    } else if (st == WEFT_OK && holder.pid != 0) {
        l->stranger = holder;
    }
    return st;
}

static weft_status local_never_came(const local *l)
{
    if (l->stranger.pid != 0) {
        return wf_fail(WEFT_ERR_TIMEOUT,
                       "rank 0 of job '%s' did not join in time; process %d of "
                       "user %u holds its address and was ignored",
                       l->name, (int)l->stranger.pid,
                       (unsigned)l->stranger.uid);
    }
    return wf_fail(WEFT_ERR_TIMEOUT, "rank 0 of job '%s' did not join in time",
                   l->name);
}

static weft_status local_connect(local *l, uint64_t deadline)
{
    struct timespec pause = {.tv_nsec = 100000};
    weft_status st = local_try_connect(l);

    while (st == WEFT_OK && !local_connected(l)) {
        if (wf_now_ns() >= deadline) {
            return local_never_came(l);
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < 5000000 ? 2 * pause.tv_nsec : 10000000;
        st = local_try_connect(l);
    }
    return st;
}

/* --- asking it ----------------------------------------------------------- */

static weft_status local_push(local *l, wf_wire_kind kind, const char *key,
                              const void *value, size_t n)
{
    wf_wire_msg msg = {
        .kind = kind, .id = l->last_id + 1, .value = value, .n = n};
    weft_status st;

    snprintf(msg.key, sizeof(msg.key), "%s", key);
    st = wf_conn_push(&l->conn, &msg);
    if (st == WEFT_OK) {
        l->last_id = msg.id;
    }
    return st;
}

/* Write and read as much as can be now, or once the socket is ready. */
static weft_status local_move(local *l, uint64_t deadline)
{
    struct pollfd p = {.fd = l->conn.fd, .events = POLLIN};

    wf_conn_flush(&l->conn);
    if (wf_conn_has_output(&l->conn)) {
        p.events |= POLLOUT;
    }
    if (poll(&p, 1, wf_ms_until(deadline)) > 0 && (p.revents & ~POLLOUT) != 0) {
        return wf_conn_fill(&l->conn);
    }
    return WEFT_OK;
}

static weft_status local_next(local *l, uint64_t deadline, wf_wire_msg *out)
{
    weft_status st = WEFT_OK;

    while (st == WEFT_OK && !wf_conn_next(&l->conn, out)) {
        if (l->conn.ended) {
            return wf_fail(WEFT_ERR_PEER,
                           "rank 0 (pid %d) of job '%s' died or closed its "
                           "table before the job was formed",
                           (int)l->peer, l->name);
        }
        if (wf_now_ns() >= deadline) {
            return wf_fail(WEFT_ERR_TIMEOUT,
                           "rank 0 (pid %d) of job '%s' did not answer in time",
                           (int)l->peer, l->name);
        }
        st = local_move(l, deadline);
    }
    return st;
}

static weft_status answer_status(const wf_wire_msg *msg)
{
    return msg->status == WEFT_OK ? WEFT_OK
                                  : wf_fail(msg->status, "%.*s", (int)msg->n,
                                            (const char *)msg->value);
}

/* Wait for the answer to request `id`. An earlier request of which nothing was
 * heard yet may have failed: that is then the answer. A VALUE that comes for an
 * earlier get() is one that had been given up. */
static weft_status local_await(local *l, uint32_t id, uint64_t deadline,
                               wf_wire_msg *out)
{
    for (;;) {
        weft_status st = local_next(l, deadline, out);

        if (st != WEFT_OK) {
            return st;
        }
        if (out->kind == WF_WIRE_ACK) {
            l->last_acked = out->id;
        } else if (out->kind != WF_WIRE_VALUE) {
            wf_conn_end(&l->conn);
            return wf_fail(WEFT_ERR_PROTOCOL,
                           "rank 0 (pid %d) sent a request of kind %d",
                           (int)l->peer, (int)out->kind);
        }
        if (out->id == id ||
            (out->kind == WF_WIRE_ACK && out->status != WEFT_OK)) {
            return answer_status(out);
        }
    }
}

static weft_status local_set(void *ctx, const char *key, const void *value,
                             size_t n)
{
    local *l = ctx;
    wf_wire_msg answer;
    weft_status st = wf_boot_check_entry(key, value, n);

    if (st == WEFT_OK) {
        st = local_push(l, WF_WIRE_SET, key, value, n);
    }
    if (st != WEFT_OK) {
        return st;
    }
    l->last_set = l->last_id;
    st = local_try_connect(l);
    if (st == WEFT_OK && local_connected(l)) {
        st = local_await(l, l->last_id, wf_now_ns() + PROMPT_NS, &answer);
    }
    if (st == WEFT_ERR_TIMEOUT) {
        st = WEFT_OK; /* it is on its way; the next get has a time of its own */
    }
    l->gave_up = st != WEFT_OK;
    return st;
}

static weft_status local_get(void *ctx, const char *key, void *value, size_t *n,
                             uint32_t timeout_ms)
{
    local *l = ctx;
    wf_wire_msg answer;
    uint64_t deadline =
        wf_now_ns() +
        WF_MS * (timeout_ms > ROUND_TRIP_MS ? timeout_ms : ROUND_TRIP_MS);
    weft_status st = wf_boot_check_room(key, value, n);

    if (st != WEFT_OK) {
        return st;
    }
    st = local_connect(l, deadline);
    if (st == WEFT_OK) {
        st = local_push(l, WF_WIRE_GET, key, NULL, 0);
    }
    if (st == WEFT_OK) {
        st = local_await(l, l->last_id, deadline, &answer);
    }
    l->gave_up = st != WEFT_OK;
    if (st == WEFT_ERR_TIMEOUT && local_connected(l)) {
        return wf_fail(st, "nobody set boot key '%s' of job '%s' within %u ms",
                       key, l->name, timeout_ms);
    }
    return st != WEFT_OK
               ? st
               : wf_boot_copy_out(key, answer.value, answer.n, value, n);
}

/* --- the end ------------------------------------------------------------- */

static void local_drain(local *l, uint64_t deadline)
{
    wf_conn_flush(&l->conn);
    while (wf_conn_has_output(&l->conn) && wf_now_ns() < deadline) {
        struct pollfd p = {.fd = l->conn.fd, .events = POLLOUT};

        poll(&p, 1, wf_ms_until(deadline));
        wf_conn_flush(&l->conn);
    }
}

/* Deliver what is still to be delivered, then say DONE. Nobody is told if that
 * fails: whoever needs the values will miss them and say so. */
static void local_say_done(local *l)
{
    wf_wire_msg answer;
    bool owes = l->last_set > l->last_acked && !l->gave_up;
    uint64_t now = wf_now_ns();
    weft_status st = local_connect(l, owes ? now + COME_NS : now);

    if (st == WEFT_OK && owes) {
        st = local_await(l, l->last_set, wf_now_ns() + ANSWER_NS, &answer);
    }
    if (st == WEFT_OK) {
        st = local_push(l, WF_WIRE_DONE, "", NULL, 0);
    }
    if (st == WEFT_OK) {
        local_drain(l, l->gave_up ? now : wf_now_ns() + ANSWER_NS);
    }
}

/* Rank 0 says it only if it got what it wanted. If it did not, the server is
 * to see that the job is given up, and not to wait for ranks to come. */
static void local_done(void *ctx)
{
    local *l = ctx;
    wf_failure before = wf_failure_of(WEFT_OK);

    if (l->done || (l->server != NULL && l->gave_up)) {
        return;
    }
    l->done = true;
    local_say_done(l);
    wf_failure_again(&before);
}

static void local_close(wf_boot *boot)
{
    local *l = (local *)boot;

    /* Nor does rank 0 say it for a caller that did not. */
    if (l->server == NULL) {
        local_done(l);
    }
    wf_conn_fini(&l->conn);
    wf_boot_server_destroy(l->server);
    wf_free(l->name);
    wf_free(l);
}

/* --- the beginning ------------------------------------------------------- */

static weft_status local_listen(const local *l, int *out)
{
    wf_boot_holder holder;
    weft_status st = wf_boot_name_listen(&l->address, out, &holder);

    if (st == WEFT_OK && *out < 0) {
        st = wf_fail(WEFT_ERR_INVALID,
                     "process %d on this host is already rank 0 of the job "
                     "'%s'; give each job its own name (WEFT_JOB)",
                     (int)holder.pid, l->name);
    }
    return st;
}

static weft_status local_serve(local *l)
{
    int own[2];
    int listener = -1;
    weft_status st = local_listen(l, &listener);

    if (st != WEFT_OK) {
        return st;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   own) != 0) {
        st = wf_fail_errno("boot socket");
        goto close_listener;
    }
    st = wf_boot_server_create(l->name, l->boot.api.ranks, listener, own[1],
                               &l->server);
    if (st != WEFT_OK) {
        goto close_own;
    }
    l->conn.fd = own[0];
    l->peer = getpid();
    return WEFT_OK;

close_own:
    close(own[0]);
    close(own[1]);
close_listener:
    close(listener);
    return st;
}

static weft_status local_hello(local *l)
{
    wf_wire_hello hello = {l->boot.api.rank, l->boot.api.ranks};

    return local_push(l, WF_WIRE_HELLO, "", &hello, sizeof(hello));
}

static weft_status local_open(const char *name, uint32_t rank, uint32_t ranks,
                              weft_boot **out)
{
    weft_status st;
    local *l = wf_zalloc(sizeof(*l));

    if (l == NULL) {
        return wf_fail_nomem("the boot table");
    }
    l->boot.close = local_close;
    l->boot.api = (weft_boot){
        .size = sizeof(weft_boot),
        .rank = rank,
        .ranks = ranks,
        .ctx = l,
        .set = local_set,
        .get = local_get,
        .done = local_done,
        .one_host = 1,
    };
    wf_conn_init(&l->conn, -1);
    wf_boot_local_name(name, &l->address);
    l->name = wf_strdup(name);
    st = l->name == NULL ? wf_fail_nomem("the boot table")
                         : wf_conn_prepare(&l->conn);
    if (st == WEFT_OK) {
        st = rank == 0 ? local_serve(l) : local_hello(l);
    }
    if (st != WEFT_OK) {
        wf_conn_fini(&l->conn);
        wf_free(l->name);
        wf_free(l);
        return st;
    }
    *out = &l->boot.api;
    return WEFT_OK;
}

weft_status weft_boot_open_local(const char *name, uint32_t rank,
                                 uint32_t ranks, weft_boot **out)
{
    weft_status st = wf_boot_check_rank(rank, ranks, out);

    if (st != WEFT_OK) {
        return st;
    }
    if (name == NULL || name[0] == '\0') {
        return wf_fail(WEFT_ERR_INVALID,
                       "the name of the job is NULL or empty");
    }
    return ranks == 1 ? wf_boot_open_alone(out)
                      : local_open(name, rank, ranks, out);
}
