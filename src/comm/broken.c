/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator breaks: on one rank, then on all, with one reason. */
#include <stdio.h>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/mail.h"

/* Remember the reason; under comm->lock. Another rank may have given it, and a
 * broken communicator must not look like a good one. */
static void adopt(weft_comm *comm, weft_status status, const char *text)
{
    comm->status = status != WEFT_OK ? status : WEFT_ERR_PROTOCOL;
    snprintf(comm->text, sizeof(comm->text), "%s",
             text[0] != '\0' ? text : weft_status_text(comm->status));
    /* Publishes status and text to readers without the lock. */
    atomic_store_explicit(&comm->failed, true, memory_order_release);
}

/* What the rank wrote that broke it. */
static void adopt_shared(weft_comm *comm)
{
    /* Pairs with the exchange in publish. */
    uint32_t by =
        atomic_load_explicit(&comm->shared->broken, memory_order_acquire);
    const wf_comm_done *why;
    char text[WF_DETAIL_MAX];

    if (by == 0 || by > comm->size) {
        adopt(comm, WEFT_ERR_PROTOCOL,
              "the communicator was broken by a rank that is no member");
        return;
    }
    why = &comm->done[by - 1];
    /* Bounded, though whoever wrote it should have ended it. */
    snprintf(text, sizeof(text), "%.*s", (int)sizeof(why->text) - 1, why->text);
    adopt(comm, wf_status_told(why->status), text);
}

/* The first of several reasons wins; under comm->lock. */
static void publish(weft_comm *comm, weft_status status, const char *text)
{
    wf_comm_done *own = &comm->done[comm->rank];
    uint32_t whole = 0;

    own->status = (int32_t)status;
    snprintf(own->text, sizeof(own->text), "%s", text);
    /* Publishes the reason; pairs with the acquire in adopt_shared. */
    if (!atomic_compare_exchange_strong(&comm->shared->broken, &whole,
                                        comm->rank + 1)) {
        adopt_shared(comm);
        return;
    }
    adopt(comm, status, text);
    wf_comm_ring(comm);
}

weft_status wf_comm_break(weft_comm *comm, weft_status status, const char *text)
{
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->failed)) {
        if (comm->shared != NULL) {
            publish(comm, status, text);
        } else {
            adopt(comm, status, text);
            wf_mail_break(comm);
        }
        wf_log(WEFT_LOG_INFO, "communicator %u is broken: %s", comm->id,
               comm->text);
    }
    pthread_mutex_unlock(&comm->lock);
    return wf_fail(comm->status, "%s", comm->text);
}

void wf_comm_broken_by(weft_comm *comm, weft_status status, const char *text)
{
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->failed)) {
        adopt(comm, status, text);
    }
    pthread_mutex_unlock(&comm->lock);
    if (!atomic_load(&comm->world->host->orphan)) {
        wf_board_wake(comm->own);
    }
}

weft_status wf_comm_refuse(weft_comm *comm)
{
    if (atomic_load(&comm->world->host->orphan)) {
        return wf_fail(WEFT_ERR_CLOSED, "this process was forked after the "
                                        "job was formed and is not part of it");
    }
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->failed)) {
        adopt_shared(comm);
    }
    pthread_mutex_unlock(&comm->lock);
    return wf_fail(comm->status, "%s", comm->text);
}

weft_status weft_comm_error(const weft_comm *comm)
{
    /* Looking may have to fetch the reason, hence the cast. */
    return comm == NULL ? wf_fail(WEFT_ERR_INVALID, "comm is NULL")
                        : wf_comm_check((weft_comm *)(uintptr_t)comm);
}

void weft_comm_abort(weft_comm *comm, const char *why)
{
    char text[WF_DETAIL_MAX];

    if (comm == NULL || atomic_load(&comm->world->host->orphan)) {
        return;
    }
    snprintf(text, sizeof(text), "rank %u aborted the communicator: %s",
             comm->rank, why != NULL ? why : "no reason given");
    wf_comm_break(comm, WEFT_ERR_ABORTED, text);
    wf_board_wake(comm->own);
}

/* "it was last in allreduce of 4 f32, sum, number 7 on communicator 2" */
static void last_act(const weft_comm *comm, uint32_t member, char *text,
                     size_t room)
{
    const wf_board_rank *e = comm->entry[member];
    char shown[192];

    if (!wf_comm_shown_text(e, shown, sizeof(shown))) {
        snprintf(text, room, "it has called nothing yet");
        return;
    }
    snprintf(text, room, "%s %s",
             atomic_load_explicit(&e->waiting, memory_order_relaxed) != 0
                 ? "it is in"
                 : "it was last in",
             shown);
}

static bool finished(const weft_comm *comm, uint32_t member, const wf_op *op)
{
    uint32_t count =
        atomic_load_explicit(&comm->done[member].count, memory_order_acquire);

    return (int32_t)(count - op->sequence) > 0;
}

/* Has it closed the communicator, so that it will never join in `op`? */
static weft_status check_closed(weft_comm *comm, uint32_t member,
                                const wf_op *op)
{
    const wf_peer *peer = &comm->world->host->peer[comm->member[member]];

    /* In this order: what it finished, it finished before it closed. */
    if (atomic_load(&comm->done[member].closed) == 0 ||
        finished(comm, member, op)) {
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) has closed communicator %u", member,
                   peer->pid, peer->host, comm->id);
}

weft_status wf_comm_check_members(weft_comm *comm, const wf_op *op)
{
    char text[WF_DETAIL_MAX];
    char last[256];

    if (comm->done == NULL || wf_call_is(op->call.kind, WF_MESSAGE)) {
        return WEFT_OK; /* the transport tells of those who went */
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        weft_status st = r != comm->rank ? check_closed(comm, r, op) : WEFT_OK;

        /* Of deaths the transport tells those who use it. */
        if (st == WEFT_OK && !op->driven) {
            st = wf_host_check(comm->world->host, comm->member[r]);
        }
        if (st != WEFT_OK && !finished(comm, r, op)) {
            last_act(comm, r, last, sizeof(last));
            snprintf(text, sizeof(text), "%.600s; %s", weft_error_detail(),
                     last);
            return wf_comm_break(comm, st, text);
        }
    }
    return WEFT_OK;
}

weft_status wf_comm_timed_out(weft_comm *comm, const wf_op *op,
                              uint64_t waited_ns)
{
    char text[WF_DETAIL_MAX];
    char name[128];
    char number[64];
    unsigned named = 0;
    size_t n;

    wf_call_text(&op->call, name, sizeof(name));
    wf_call_number_text(op->call.kind, op->sequence, comm->id, number,
                        sizeof(number));
    n = (size_t)snprintf(text, sizeof(text),
                         "rank %u: no progress for %.3g s in %s (%s), waiting "
                         "for",
                         comm->rank, (double)waited_ns / 1e9, name, number);
    for (uint32_t r = 0; r < comm->size && n < sizeof(text) - 200; r++) {
        const wf_peer *p = &comm->world->host->peer[comm->member[r]];
        /* A rank that is stopped may keep us waiting through others. */
        bool stopped = wf_host_stopped(comm->world->host, comm->member[r]);

        if (r != comm->rank &&
            (stopped || (op->awaits != NULL && op->awaits(op, r)))) {
            last_act(comm, r, name, sizeof(name));
            n += (size_t)snprintf(text + n, sizeof(text) - n,
                                  "%s rank %u (pid %d on %s%s; %s)",
                                  named++ > 0 ? "," : "", r, p->pid, p->host,
                                  stopped ? ", stopped" : "", name);
        }
    }
    return wf_comm_break(comm, WEFT_ERR_TIMEOUT, text);
}
