/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alloc: memory of the engine that has some, else ordinary memory. */
#include <weft/memory.h>

#include <string.h>

#include "base/alloc.h"
#include "coll/choose.h"
#include "coll/coll.h"

weft_status wf_coll_all_or_none(weft_comm *comm, weft_status own)
{
    char why[WF_DETAIL_MAX];
    /* Failures are negative, so that the least has the status and the rank. */
    int64_t worst =
        own == WEFT_OK ? 0 : (int64_t)own * (INT64_C(1) << 32) + comm->rank;
    weft_status st;

    memcpy(why, weft_error_detail(), sizeof(why));
    st = weft_allreduce(comm, &worst, &worst, 1, WEFT_I64, WEFT_MIN);
    if (st != WEFT_OK) {
        return st;
    }
    if (own != WEFT_OK) {
        return wf_fail(own, "%s", why);
    }
    st = wf_status_parse((int32_t)(worst >> 32));
    return st == WEFT_OK
               ? WEFT_OK
               : wf_fail(st,
                         "rank %u could not allocate its shared buffer (%s)",
                         (uint32_t)worst, weft_status_text(st));
}

static weft_status alloc_private(weft_comm *comm, size_t bytes, void **out)
{
    /* A kernel that promises more than it has would let us fill it. */
    weft_status st = wf_memory_check("a buffer", bytes);
    void *p = NULL;

    if (st == WEFT_OK) {
        p = wf_zalloc_aligned(wf_segment_page(), bytes > 0 ? bytes : 1);
        st = p != NULL ? WEFT_OK : wf_fail_nomem("%zu bytes", bytes);
    }
    st = wf_coll_all_or_none(comm, st);
    if (st != WEFT_OK) {
        wf_free(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

weft_status weft_alloc(weft_comm *comm, size_t bytes, void **out)
{
    wf_call call = {.kind = WF_CALL_ALLOC, .count = bytes};
    const wf_coll_seat *seat;
    uint32_t sequence;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    if (bytes > SIZE_MAX / 2 / comm->size) {
        return wf_fail(WEFT_ERR_INVALID, "%zu bytes a rank are too many",
                       bytes);
    }
    st = wf_coll_agree(comm, &call, &sequence);
    if (st != WEFT_OK) {
        return st;
    }
    seat = wf_coll_of(comm)->memory;
    return seat->engine->alloc != NULL
               ? seat->engine->alloc(comm, seat->state, bytes,
                                     (uint64_t)comm->id << 32 | sequence, out)
               : alloc_private(comm, bytes, out);
}

void weft_free(weft_comm *comm, void *buffer)
{
    const wf_coll_seat *seat;

    if (buffer == NULL) {
        return;
    }
    seat = wf_coll_of(comm)->memory;
    if (seat->engine->free != NULL) {
        seat->engine->free(comm, seat->state, buffer);
    } else {
        wf_free(buffer);
    }
}
