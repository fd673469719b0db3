/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alloc and weft_free where members share memory. */
#include "base/log.h"
#include "base/status.h"
#include "coll/shm/area.h"
#include "comm/mail.h"

weft_status shm_alloc(weft_comm *comm, void *of, size_t bytes, uint64_t salt,
                      void **out)
{
    shm_state *state = of;
    uint64_t key = wf_mail_key(comm->member, comm->size, salt, WF_MAIL_TICKET);
    shm_shared *s = NULL;
    weft_status own;
    weft_status st;

    /* Other threads look buffers up in weft_free and when they step
     * requests. */
    pthread_mutex_lock(&comm->world->drive);
    shm_shared_sweep(&state->shared, comm->size);
    pthread_mutex_unlock(&comm->world->drive);
    own = shm_shared_make(comm, bytes, key, &s);
    st = wf_coll_all_or_none(comm, own);
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

/* The entry is only marked, because a blocking collective on another thread may
 * walk the list without a lock. The next weft_alloc, which is between
 * collectives, removes it. */
static void free_locked(weft_comm *comm, const shm_state *state, void *buffer)
{
    shm_shared *s = (shm_shared *)(uintptr_t)shm_shared_find(
        state->shared, comm->rank, buffer, 0);
    if (s == NULL || shm_shared_part(s, comm->rank) != buffer) {
        wf_log(WEFT_LOG_ERROR,
               "weft_free: %p is no buffer of communicator %u; nothing done",
               buffer, comm->id);
        return;
    }
    shm_shared_give_back(s, comm->rank);
}

void shm_free(weft_comm *comm, void *of, void *buffer)
{
    if (atomic_load(&comm->world->host->orphan)) {
        return; /* the parent's; the communicator unmaps it */
    }
    pthread_mutex_lock(&comm->world->drive);
    free_locked(comm, of, buffer);
    pthread_mutex_unlock(&comm->world->drive);
}
