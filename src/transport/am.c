/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/am.h"

#include "base/log.h"
#include "base/status.h"

void wf_am_set(wf_am_table *table, uint32_t id, wf_am_fn *fn, void *ctx)
{
    if (id >= WF_AM_IDS) {
        wf_log(WEFT_LOG_ERROR, "no active message can have the number %u", id);
        return;
    }
    table->at[id].fn = fn;
    table->at[id].ctx = ctx;
}

void wf_am_set_early(wf_am_table *table, uint32_t id, wf_am_early_fn *early)
{
    if (id < WF_AM_IDS) {
        table->at[id].early = early;
    }
}

weft_status wf_am_check(size_t most, uint32_t id, size_t header_bytes,
                        size_t payload_bytes)
{
    if (id >= WF_AM_IDS) {
        return wf_fail(WEFT_ERR_INVALID,
                       "active message %u is out of range (0 to %d)", id,
                       WF_AM_IDS - 1);
    }
    if (header_bytes > WF_AM_HEADER_MAX || payload_bytes > most) {
        return wf_fail(WEFT_ERR_INVALID,
                       "an active message with a header of %zu and a payload "
                       "of %zu bytes; the limits are %d and %zu",
                       header_bytes, payload_bytes, WF_AM_HEADER_MAX, most);
    }
    return WEFT_OK;
}

void wf_am_call(const wf_am_table *table, uint32_t from, const wf_am_view *am)
{
    wf_am_fn *fn = table->at[am->id].fn;

    if (fn == NULL) {
        wf_log(WEFT_LOG_ERROR,
               "an active message from rank %u with number %u, which nobody "
               "handles, is dropped",
               from, am->id);
        return;
    }
    fn(table->at[am->id].ctx, from, am->header, am->header_bytes, am->payload,
       am->payload_bytes);
}
