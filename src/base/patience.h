/* SPDX-License-Identifier: Apache-2.0 */
/* Patience: the deadline of a wait and the callback that can interrupt it. A
 * wait that can be interrupted sleeps in slices and asks after each:
 *
 *     do {
 *         st = wf_link_recv(link, &p, &fd, wf_patience_slice(&patience));
 *     } while (wf_patience_lasts(&patience, &st));
 */
#ifndef WF_BASE_PATIENCE_H
#define WF_BASE_PATIENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/num.h"
#include "base/status.h"
#include "base/time.h"

/* An interruption is noticed within this time. */
#define WF_SLICE_NS (100 * WF_MS)

/* weft_world_options.interrupted and its argument. */
typedef struct wf_interrupt {
    int (*asked)(void *ctx); /* NULL: nobody interrupts */
    void *ctx;
} wf_interrupt;

typedef struct wf_patience {
    uint64_t deadline_ns; /* monotonic */
    wf_interrupt interrupt;
} wf_patience;

/* When the next slice ends. */
static inline uint64_t wf_slice_end(uint64_t deadline_ns)
{
    uint64_t end = wf_now_ns() + WF_SLICE_NS;

    return wf_least(end, deadline_ns);
}

static inline uint64_t wf_patience_slice(const wf_patience *p)
{
    return p->interrupt.asked == NULL ? p->deadline_ns
                                      : wf_slice_end(p->deadline_ns);
}

/* WEFT_OK, or WEFT_ERR_ABORTED if the caller was interrupted. */
static inline weft_status wf_interrupt_check(const wf_interrupt *i)
{
    return i->asked != NULL && i->asked(i->ctx) != 0
               ? wf_fail(WEFT_ERR_ABORTED, "interrupted")
               : WEFT_OK;
}

/* Shall the wait go on after a slice that returned `*st`? If the caller was
 * interrupted, `*st` becomes WEFT_ERR_ABORTED. */
static inline bool wf_patience_lasts(const wf_patience *p, weft_status *st)
{
    if (*st != WEFT_ERR_TIMEOUT || wf_now_ns() >= p->deadline_ns) {
        return false;
    }
    if (wf_interrupt_check(&p->interrupt) != WEFT_OK) {
        *st = WEFT_ERR_ABORTED;
        return false;
    }
    return true;
}

#endif
