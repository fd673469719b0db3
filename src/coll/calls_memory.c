/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alloc: memory of the engine that has some, else of the arena, else
 * ordinary memory. */
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

/* Is there the memory that all members need together? None of them could tell
 * by itself. */
static weft_status check_all(weft_comm *comm, wf_arena *arena, size_t fresh)
{
    int64_t all = (int64_t)fresh;
    weft_status st = weft_allreduce(comm, &all, &all, 1, WEFT_I64, WEFT_SUM);

    if (st == WEFT_OK && all > 0) {
        st = wf_arena_check(arena, (uint64_t)all);
    }
    return st;
}

/* Members of one node, all of which have an arena. */
static weft_status alloc_arena(weft_comm *comm, size_t bytes, void **out)
{
    wf_arena *arena = comm->world->host->arena;
    wf_arena_block block = {.bytes = 0};
    weft_status own = wf_arena_reserve(arena, bytes, &block);
    bool reserved = own == WEFT_OK;
    void *at = NULL;
    weft_status st = wf_coll_all_or_none(comm, own);

    if (st == WEFT_OK) {
        st = wf_coll_all_or_none(comm, check_all(comm, arena, block.fresh));
    }
    if (st != WEFT_OK) {
        if (reserved) {
            wf_arena_cancel(arena, &block);
        }
        return st;
    }
    own = wf_arena_fill(arena, &block, true, &at);
    st = wf_coll_all_or_none(comm, own);
    if (st != WEFT_OK) {
        weft_arena_free(own == WEFT_OK ? at : NULL);
        return st;
    }
    *out = at;
    return WEFT_OK;
}

static weft_status alloc_private(size_t bytes, void **out)
{
    /* A kernel that promises more than it has would let us fill it. */
    weft_status st = wf_memory_check("a buffer", bytes);

    if (st == WEFT_OK) {
        *out = wf_zalloc_aligned(wf_segment_page(), bytes > 0 ? bytes : 1);
        st = *out != NULL ? WEFT_OK : wf_fail_nomem("%zu bytes", bytes);
    }
    return st;
}

static void free_local(weft_comm *comm, void *buffer)
{
    if (comm->world->host->arena != NULL) {
        weft_arena_free(buffer);
    } else {
        wf_free(buffer);
    }
}

/* Members of several nodes, of which not all may have an arena. */
static weft_status alloc_each(weft_comm *comm, size_t bytes, void **out)
{
    wf_arena *arena = comm->world->host->arena;
    void *at = NULL;
    weft_status st = arena != NULL ? wf_arena_take(arena, bytes, true, &at)
                                   : alloc_private(bytes, &at);

    st = wf_coll_all_or_none(comm, st);
    if (st != WEFT_OK) {
        free_local(comm, at);
        return st;
    }
    *out = at;
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
    if (seat->engine->alloc != NULL) {
        return seat->engine->alloc(comm, seat->state, bytes,
                                   (uint64_t)comm->id << 32 | sequence, out);
    }
    return comm->one_node && comm->world->host->arena != NULL
               ? alloc_arena(comm, bytes, out)
               : alloc_each(comm, bytes, out);
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
        free_local(comm, buffer);
    }
}
