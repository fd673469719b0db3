/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0's table does with each message and each end of a connection. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/server_state.h"

/* Rule 5: how long the others may go on when rank 0 has closed the table. */
#define LINGER_NS (1 * WF_SEC)

/* Rule 3: how long a death goes unmentioned. */
#define MOURN_NS (500 * WF_MS)

/* --- answers ------------------------------------------------------------- */

static void client_answer(server_client *c, wf_wire_kind kind, uint32_t id,
                          weft_status status, const void *value, size_t n)
{
    wf_wire_msg msg = {
        .kind = kind, .id = id, .status = status, .value = value, .n = n};

    if (wf_conn_push(&c->conn, &msg) != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR, "boot: rank %u gets no answer: %s", c->rank,
               weft_error_detail());
        c->starved = true;
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
                       "rank %u of job '%s' has already joined, and pid %d "
                       "claims that rank, too; do two jobs use the same name "
                       "(WEFT_JOB)?",
                       hello->rank, s->name, (int)c->pid);
    }
    return WEFT_OK;
}

void wf_server_join(wf_boot_server *s, server_client *c, uint32_t rank)
{
    c->rank = rank;
    s->state[rank] = RANK_HERE;
    s->absent--;
    s->here++;
}

void wf_server_stop_listening(wf_boot_server *s)
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
    wf_server_join(s, c, hello.rank);
    client_answer(c, WF_WIRE_ACK, msg->id, WEFT_OK, NULL, 0);
    if (s->absent == 0) {
        wf_server_stop_listening(s);
    }
}

static void server_rank_done(wf_boot_server *s, uint32_t rank)
{
    if (s->state[rank] == RANK_HERE) {
        s->state[rank] = RANK_DONE;
        s->here--;
    }
}

void wf_server_rank_gone(wf_boot_server *s, const server_client *c)
{
    bool done = s->state[c->rank] == RANK_DONE;

    server_rank_done(s, c->rank);
    if (c->rank == 0) {
        s->closing = true;
        s->closing_early = !done;
        s->leave_by = wf_now_ns() + LINGER_NS;
    } else if (!done && s->dead == WF_NO_RANK) {
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

void wf_server_take(wf_boot_server *s, server_client *c, const wf_wire_msg *msg)
{
    bool known = c->rank != WF_NO_RANK;

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

/* Why the job cannot form any more; WEFT_OK if it can. */
static weft_status server_verdict(const wf_boot_server *s)
{
    if (s->starved) {
        return wf_fail(WEFT_ERR_NOMEM,
                       "rank 0 (pid %d) ran out of memory for the boot table",
                       (int)getpid());
    }
    if (s->dead == WF_NO_RANK || wf_now_ns() < s->tell_at) {
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_PEER,
                   "rank %u (pid %d) died before the job was formed", s->dead,
                   (int)s->dead_pid);
}

void wf_server_tell_of_failure(wf_boot_server *s)
{
    for (size_t i = 0; i < s->count; i++) {
        server_client *c = &s->clients[i];
        weft_status st = c->waits ? server_verdict(s) : WEFT_OK;

        if (st != WEFT_OK) {
            c->waits = false;
            client_answer_failure(c, WF_WIRE_VALUE, c->wait_id, st);
        }
    }
}
