/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for mail that depends on several ranks.
 *
 * Its sender may itself wait for others: if one of them dies, or the collective
 * call is abandoned, the mail never comes although its sender is alive. So
 * every wait checks all of these ranks ten times a second, and whether the
 * caller was interrupted. */
#ifndef WF_MEM_AWAIT_H
#define WF_MEM_AWAIT_H

#include "mem/host.h"

typedef struct wf_await {
    wf_host *host;
    const uint32_t *needs; /* ranks in the job */
    uint32_t count;
    uint64_t deadline_ns; /* monotonic */
    /* Optional: WEFT_OK while the mail can still come, else why it cannot. */
    weft_status (*check)(void *ctx);
    void *ctx;
    /* The mail comes by socket also from ranks of other nodes, whose end is
     * then the sender's: nothing else tells of it while the ports open. */
    bool by_socket;
} wf_await;

/* Wait for the oldest mail with `key` from rank `from`, as wf_host_take does.
 * Fails with what `check` returns; with WEFT_ERR_PEER if one of `needs` dies,
 * or if `from` leaves; with WEFT_ERR_NOMEM if there is no memory to receive
 * mail; with WEFT_ERR_ABORTED if the caller was interrupted; with
 * WEFT_ERR_TIMEOUT. After any of these the mail may still come. Any other
 * failure means that the mail came and was consumed (wf_await_spent). */
weft_status wf_await_mail(const wf_await *a, uint32_t from, uint64_t key,
                          void *data, size_t *n, int *fd);

/* Was mail consumed, whether it could be used or not? */
static inline bool wf_await_spent(weft_status st)
{
    return st == WEFT_OK || st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_SYSTEM;
}

#endif
