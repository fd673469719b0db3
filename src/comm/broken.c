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

/* Members that do not know yet may still write to our buffers, as they were
 * told to: nothing else may get that memory. */
static void break_here(weft_comm *comm, weft_status status, const char *text)
{
    wf_arena_hold(comm->world->host->arena);
    adopt(comm, status, text);
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
        break_here(comm, WEFT_ERR_PROTOCOL,
                   "the communicator was broken by a rank that is no member");
        return;
    }
    why = &comm->done[by - 1];
    /* Bounded, though whoever wrote it should have ended it. */
    snprintf(text, sizeof(text), "%.*s", (int)sizeof(why->text) - 1, why->text);
    break_here(comm, wf_status_parse(why->status), text);
}

/* The first of several reasons wins; under comm->lock. */
static void publish(weft_comm *comm, weft_status status, const char *text)
{
    wf_comm_done *own = comm->own_done;
    uint32_t whole = 0;

    own->status = (int32_t)status;
    snprintf(own->text, sizeof(own->text), "%s", text);
    /* Publishes the reason; pairs with the acquire in adopt_shared. */
    if (!atomic_compare_exchange_strong(&comm->shared->broken, &whole,
                                        comm->rank + 1)) {
        adopt_shared(comm);
        return;
    }
    break_here(comm, status, text);
    wf_comm_ring(comm);
}

weft_status wf_comm_break(weft_comm *comm, weft_status status, const char *text)
{
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->failed)) {
        if (comm->shared != NULL) {
            publish(comm, status, text);
        } else {
            break_here(comm, status, text);
            wf_mail_break(comm);
        }
        wf_log(WEFT_LOG_INFO, "communicator %u is broken: %s", comm->id,
               comm->text);
    }
    pthread_mutex_unlock(&comm->lock);
    return wf_fail(comm->status, "%s", comm->text);
}

bool wf_comm_broken_by(weft_comm *comm, weft_status status, const char *text)
{
    bool news;

    pthread_mutex_lock(&comm->lock);
    news = !atomic_load(&comm->failed);
    if (news && status == WEFT_ERR_CLOSED) {
        adopt(comm, status, text); /* by us, and nothing is under way */
    } else if (news) {
        break_here(comm, status, text);
    }
    pthread_mutex_unlock(&comm->lock);
    if (!atomic_load(&comm->world->host->orphan)) {
        wf_board_wake(comm->own);
    }
    return news;
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

weft_status wf_comm_give_up(weft_comm *comm, weft_status why)
{
    if (why == WEFT_ERR_ABORTED) {
        weft_comm_abort(comm, "interrupted");
        return wf_comm_check(comm);
    }
    return wf_comm_break(comm, why, weft_error_detail());
}
