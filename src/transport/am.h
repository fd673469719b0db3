/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of a port's active messages. */
#ifndef WF_TRANSPORT_AM_H
#define WF_TRANSPORT_AM_H

#include "transport/transport.h"

typedef struct wf_am_table {
    struct {
        wf_am_fn *fn;
        wf_am_early_fn *early; /* may be NULL */
        void *ctx;             /* of both */
    } at[WF_AM_IDS];
} wf_am_table;

/* One active message, in memory that no peer can change any more. */
typedef struct wf_am_view {
    uint32_t id;
    const void *header;
    size_t header_bytes;
    const void *payload;
    size_t payload_bytes;
} wf_am_view;

WF_API void wf_am_set(wf_am_table *table, uint32_t id, wf_am_fn *fn, void *ctx);

/* From now on, once it has a handler. */
WF_API void wf_am_set_early(wf_am_table *table, uint32_t id,
                            wf_am_early_fn *early);

/* WEFT_ERR_INVALID if an active message like this, with `most` bytes of payload
 * at most, cannot be sent. */
WF_API weft_status wf_am_check(size_t most, uint32_t id, size_t header_bytes,
                               size_t payload_bytes);

/* Offer it early; true: it is done with. */
static inline bool wf_am_call_early(const wf_am_table *table, uint32_t from,
                                    const wf_am_view *am)
{
    wf_am_early_fn *early = table->at[am->id].early;

    return early != NULL &&
           early(table->at[am->id].ctx, from, am->header, am->header_bytes,
                 am->payload, am->payload_bytes);
}

/* Call the handler; a message without one is logged and dropped. */
WF_API void wf_am_call(const wf_am_table *table, uint32_t from,
                       const wf_am_view *am);

#endif
