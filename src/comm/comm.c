/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator is to its rank, and how it ends; build.c makes them. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "comm/drive.h"
#include "comm/ids.h"
#include "comm/mail.h"

weft_status wf_comm_alloc(weft_world *world, const uint32_t *members,
                          uint32_t size, weft_comm **out)
{
    const uint32_t node = world->host->peer[world->host->rank].node;
    weft_comm *comm = wf_zalloc(sizeof(*comm));

    if (comm != NULL) {
        pthread_mutex_init(&comm->lock, NULL);
        comm->segment.fd = -1;
        comm->member = wf_alloc(size * sizeof(*comm->member));
        comm->entry = wf_alloc(size * sizeof(wf_board_rank *));
        comm->local = wf_alloc(size * sizeof(*comm->local));
    }
    if (comm != NULL && comm->member != NULL) {
        memcpy(comm->member, members, size * sizeof(*members));
        comm->world = world;
        comm->size = size;
    }
    if (comm == NULL || comm->member == NULL || comm->entry == NULL ||
        comm->local == NULL) {
        if (comm != NULL) {
            wf_comm_free(comm);
        }
        return wf_fail_nomem("a communicator of %u ranks", size);
    }
    wf_node_tree_find(world, members, size, &comm->tree);
    atomic_store(&comm->users, 1);
    wf_requests_init(&comm->ordered);
    wf_requests_init(&comm->loose);
    comm->own = wf_host_own(world->host);
    for (uint32_t r = 0; r < size; r++) {
        const wf_peer *p = &world->host->peer[members[r]];

        comm->entry[r] = wf_host_entry(world->host, members[r]);
        if (members[r] == world->host->rank) {
            comm->rank = r;
        }
        comm->local[r] = p->node == node ? comm->mates++ : WF_NOT_HERE;
    }
    comm->one_node = comm->mates == size;
    *out = comm;
    return WEFT_OK;
}

void wf_comm_free(weft_comm *comm)
{
    wf_segment_close(&comm->segment);
    pthread_mutex_destroy(&comm->lock);
    wf_free(comm->member);
    wf_free(comm->entry);
    wf_free(comm->local);
    wf_free(comm);
}

void wf_comm_list(weft_comm *comm)
{
    weft_world *world = comm->world;

    pthread_mutex_lock(&world->comms_lock);
    comm->next = world->comms;
    world->comms = comm;
    pthread_mutex_unlock(&world->comms_lock);
}

void wf_comm_unlist(weft_comm *comm)
{
    weft_world *world = comm->world;
    weft_comm **at = &world->comms;

    pthread_mutex_lock(&world->comms_lock);
    while (*at != NULL && *at != comm) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = comm->next;
    }
    pthread_mutex_unlock(&world->comms_lock);
}

void wf_comm_acquire(weft_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void wf_comm_release(weft_comm *comm)
{
    weft_world *world = comm->world;

    if (atomic_fetch_sub(&comm->users, 1) == 1) {
        wf_comm_free(comm);
        wf_world_release(world);
    }
}

/* The others would wait in vain for operations that this rank has begun. Our
 * own requests end first: the reason that the others read is not for them. */
void wf_comm_abandon(weft_comm *comm, const char *how, const char *why)
{
    char text[WF_DETAIL_MAX];

    wf_world_drive(comm->world); /* what only has to be noticed is over now */
    if (wf_requests_fail(comm, WEFT_ERR_CLOSED, why) &&
        wf_comm_check(comm) == WEFT_OK) {
        snprintf(text, sizeof(text),
                 "rank %u (pid %d) %s with operations under way on "
                 "communicator %u",
                 comm->rank,
                 comm->world->host->peer[comm->member[comm->rank]].pid, how,
                 comm->id);
        wf_comm_break(comm, WEFT_ERR_PEER, text);
    }
}

/* Collectives that others begin from here on would wait for us in vain. */
static void tell_closed(weft_comm *comm)
{
    if (comm->own_done != NULL) {
        /* Without a segment for all, those here may not know yet why. */
        if (comm->shared == NULL && atomic_load(&comm->failed) &&
            comm->status != WEFT_ERR_CLOSED) {
            comm->own_done->status = (int32_t)comm->status;
            snprintf(comm->own_done->text, sizeof(comm->own_done->text), "%s",
                     comm->text);
        }
        /* Publishes the reason; pairs with the load in op_gone. */
        atomic_store(&comm->own_done->closed, 1);
        wf_host_alarm(comm->world->host);
    }
}

void wf_comm_close(weft_comm *comm)
{
    const char *why = "the communicator was closed";

    if (!atomic_load(&comm->world->host->orphan)) {
        wf_comm_abandon(comm, "closed its communicator", why);
        tell_closed(comm);
    }
    wf_mail_closed(comm);
    wf_comm_broken_by(comm, WEFT_ERR_CLOSED, why);
    wf_ids_close(comm);
    wf_comm_unlist(comm);
    wf_layers_detach(comm);
    wf_comm_release(comm);
}

void weft_comm_destroy(weft_comm *comm)
{
    if (comm != NULL && comm != comm->world->comm) {
        wf_comm_close(comm);
    }
}

uint32_t weft_comm_rank(const weft_comm *comm)
{
    return comm->rank;
}

uint32_t weft_comm_size(const weft_comm *comm)
{
    return comm->size;
}

weft_world *weft_comm_world(const weft_comm *comm)
{
    return comm->world;
}

uint32_t weft_comm_world_rank(const weft_comm *comm, uint32_t rank)
{
    return rank < comm->size ? comm->member[rank] : UINT32_MAX;
}

void weft_comm_set_timeout(weft_comm *comm, double seconds)
{
    comm->timeout_ns = wf_timeout_ns(seconds, comm->world->settings.timeout_ns);
}

void weft_comm_set_mark(weft_comm *comm, uint64_t mark)
{
    comm->mark = mark;
}

double weft_comm_timeout(const weft_comm *comm)
{
    return (double)comm->timeout_ns / 1e9;
}
