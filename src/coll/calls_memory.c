/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alloc: shared where the engine can share, else ordinary memory. */
#include <weft/memory.h>

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "coll/coll.h"
#include "coll/shm/area.h"
#include "comm/mail.h"
#include <weft/coll.h>

static bool shares(const weft_comm *comm)
{
    return wf_coll_of(comm)->engine == &wf_engine_shm;
}

/* Did everybody get its part? One who did not must not be the only one. */
static weft_status all_or_none(weft_comm *comm, weft_status own)
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
    st = wf_status_told((int32_t)(worst >> 32));
    return st == WEFT_OK
               ? WEFT_OK
               : wf_fail(st, "rank %u could not have its shared buffer (%s)",
                         (uint32_t)worst, weft_status_text(st));
}

static weft_status alloc_shared(weft_comm *comm, size_t bytes, uint64_t salt,
                                void **out)
{
    shm_state *state = wf_coll_state(comm);
    uint64_t key = wf_mail_key(comm->member, comm->size, salt, WF_MAIL_TICKET);
    shm_shared *s = NULL;
    weft_status own;
    weft_status st;

    /* Requests of this communicator, which another thread may be stepping, and
     * weft_free look buffers up. */
    pthread_mutex_lock(&comm->world->drive);
    shm_shared_sweep(&state->shared, comm->size);
    pthread_mutex_unlock(&comm->world->drive);
    own = shm_shared_make(comm, bytes, key, &s);
    st = all_or_none(comm, own);
    if (st != WEFT_OK) {
        if (s != NULL) {
            shm_shared_end(s);
        }
        return st;
    }
    state->shared_made += state->shared_made == UINT32_MAX ? 2 : 1;
    s->id = state->shared_made; /* 0 means: not shared */
    pthread_mutex_lock(&comm->world->drive);
    s->next = state->shared;
    state->shared = s;
    state->has_shared = true;
    pthread_mutex_unlock(&comm->world->drive);
    *out = shm_shared_part(s, comm->rank);
    return WEFT_OK;
}

static weft_status alloc_private(weft_comm *comm, size_t bytes, void **out)
{
    /* A kernel that promises more than it has would let us fill it. */
    weft_status st = wf_memory_check("a buffer", bytes);
    void *p = NULL;

    if (st == WEFT_OK) {
        p = wf_zalloc_aligned(wf_segment_page(), bytes > 0 ? bytes : 1);
        st = p != NULL ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "%zu bytes", bytes);
    }
    st = all_or_none(comm, st);
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
    return shares(comm) ? alloc_shared(comm, bytes,
                                       (uint64_t)comm->id << 32 | sequence, out)
                        : alloc_private(comm, bytes, out);
}

/* Only marks it: a blocking collective on another thread may be walking the
 * list, without a lock. The next weft_alloc, which comes between collectives,
 * takes it out. */
static void free_shared(weft_comm *comm, void *buffer)
{
    shm_state *state = wf_coll_state(comm);
    shm_shared *s;

    s = (shm_shared *)(uintptr_t)shm_shared_find(state->shared, comm->rank,
                                                 buffer, 0);
    if (s == NULL || shm_shared_part(s, comm->rank) != buffer) {
        wf_log(WEFT_LOG_ERROR,
               "weft_free: %p is no buffer of communicator %u; nothing done",
               buffer, comm->id);
        return;
    }
    shm_shared_give_back(s, comm->rank);
}

void weft_free(weft_comm *comm, void *buffer)
{
    if (buffer == NULL) {
        return;
    }
    if (!shares(comm)) {
        wf_free(buffer);
        return;
    }
    if (atomic_load(&comm->world->host->orphan)) {
        return; /* it is its parent's; the mapping goes with the communicator */
    }
    pthread_mutex_lock(&comm->world->drive);
    free_shared(comm, buffer);
    pthread_mutex_unlock(&comm->world->drive);
}
