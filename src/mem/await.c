/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/await.h"

#include <string.h>

#include "base/patience.h"

/* How long a lack of memory may last before a wait for mail fails of it. */
#define HOPE_NS WF_SEC

static weft_status parted(const wf_host *host, uint32_t rank)
{
    const wf_peer *p = &host->peer[rank];

    return wf_fail(WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) went away while the job was forming",
                   rank, p->pid, p->host);
}

/* Death only: one that has left in good order may have done its part. */
static weft_status check_deaths(const wf_await *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const wf_board_rank *e = wf_host_entry(a->host, a->needs[i]);

        if (atomic_load_explicit(&e->state, memory_order_acquire) ==
            WF_BOARD_DEAD) {
            return wf_host_check(a->host, a->needs[i]);
        }
        if (a->by_socket && atomic_load(&a->host->peer[a->needs[i]].parted)) {
            return parted(a->host, a->needs[i]);
        }
    }
    return WEFT_OK;
}

/* Mail cannot be received here, and has not been for a while. */
static weft_status check_memory(const wf_await *a, uint64_t began)
{
    uint64_t since = wf_host_starved_ns(a->host);

    if (since == 0 || wf_now_ns() - (since > began ? since : began) < HOPE_NS) {
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_NOMEM,
                   "rank %u ran out of memory for mail from other ranks",
                   a->host->rank);
}

/* The reason that others gave tells more than the end of one of them. */
static weft_status await_check(const wf_await *a, uint64_t began)
{
    weft_status st = a->check != NULL ? a->check(a->ctx) : WEFT_OK;

    st = st == WEFT_OK ? check_deaths(a) : st;
    return st == WEFT_OK ? check_memory(a, began) : st;
}

static weft_status await_mail(const wf_await *a, uint32_t from, uint64_t key,
                              void *data, size_t *n, int *fd)
{
    const wf_peer *sender = &a->host->peer[from];
    size_t room = *n;
    uint64_t began = wf_now_ns();
    uint64_t until = 0; /* what is there, and what is known, comes first */
    weft_status st;

    do {
        weft_status why;

        *n = room;
        st = wf_host_take(a->host, from, key, data, n, fd, until);
        if (wf_await_spent(st)) {
            return st;
        }
        why = await_check(a, began);
        if (why == WEFT_OK && until != 0) {
            why = wf_interrupt_check(&a->host->interrupt);
        }
        if (why != WEFT_OK) {
            return why;
        }
        until = wf_slice_end(a->deadline_ns);
    } while (st == WEFT_ERR_TIMEOUT && wf_now_ns() < a->deadline_ns);
    return st != WEFT_ERR_TIMEOUT
               ? st
               : wf_fail(WEFT_ERR_TIMEOUT,
                         "rank %u (pid %d on %s) did not answer in time", from,
                         sender->pid, sender->host);
}

weft_status wf_await_mail(const wf_await *a, uint32_t from, uint64_t key,
                          void *data, size_t *n, int *fd)
{
    wf_failure before = wf_failure_of(WEFT_OK);
    weft_status st = await_mail(a, from, key, data, n, fd);

    /* A slice that passed without mail is not a failure to report. */
    return st == WEFT_OK ? wf_failure_again(&before) : st;
}
