/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for mail that depends on several ranks.
 *
 * Whoever sends it may itself wait for others: if one of them dies, or the
 * whole undertaking is given up, the mail never comes although its sender is
 * there. So every wait looks at all of them, ten times a second, and asks
 * whether the caller wants to give up. */
#ifndef WF_MEM_AWAIT_H
#define WF_MEM_AWAIT_H

#include "mem/host.h"

typedef struct wf_await {
    wf_host *host;
    const uint32_t *needs; /* ranks in the job */
    uint32_t count;
    uint64_t deadline_ns; /* monotonic */
    /* NULL, or: can the mail still come? WEFT_OK, or why not. */
    weft_status (*check)(void *ctx);
    void *ctx;
} wf_await;

/* Wait for the oldest mail with `key` from rank `from`, as wf_host_take does.
 * Fails with what `check` says; with WEFT_ERR_PEER if one of those it needs
 * dies, or if `from` leaves; with WEFT_ERR_NOMEM if there is no memory to
 * receive mail; with WEFT_ERR_ABORTED if the caller was interrupted; with
 * WEFT_ERR_TIMEOUT. After any of these the mail may still come. Any other
 * failure is of mail that came and is gone (wf_await_spent). */
weft_status wf_await_mail(const wf_await *a, uint32_t from, uint64_t key,
                          void *data, size_t *n, int *fd);

/* Did mail come, whether it could be used or not? */
static inline bool wf_await_spent(weft_status st)
{
    return st == WEFT_OK || st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_SYSTEM;
}

#endif
