/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/ids.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "comm/drive.h"
#include "comm/mail.h"

/* An answer comes in as many letters as it needs; one that is not full is the
 * last. */
#define IDS_A_LETTER (WF_MAIL_MAX / sizeof(uint32_t))
#define ANSWER_KEY (WF_MAIL_IDS | 0x6964735f61726520ull)

uint32_t wf_ids_limit(uint32_t ranks)
{
    return (1u << 31) / ranks;
}

uint32_t wf_ids_number(uint32_t rank, uint32_t ranks, uint32_t k)
{
    return 2 * (rank + ranks * k);
}

uint32_t wf_ids_leader(uint32_t id, uint32_t ranks)
{
    return id / 2 % ranks;
}

/* --- ids that are open ---------------------------------------------------- */

static weft_comm **bucket_of(weft_world *world, uint32_t id)
{
    return &world->open[id / 2 / world->host->ranks % WF_WORLD_BUCKETS];
}

/* Under world->drive. */
static weft_comm **open_find(weft_world *world, uint32_t id)
{
    weft_comm **at = bucket_of(world, id);

    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next_open;
    }
    return at;
}

weft_comm *wf_ids_find(weft_world *world, uint32_t id)
{
    return *open_find(world, id);
}

/* From progress(), which runs under world->drive. */
bool wf_ids_wanted(void *ctx, uint64_t tag)
{
    const weft_comm *comm = *open_find(ctx, (uint32_t)(tag >> 32) & ~1u);

    return comm != NULL && comm->is_open;
}

/* A round takes something of each ring that is not empty, so that as many as a
 * ring has lines take all that was there. */
static void read_rings(weft_world *world)
{
    uint64_t rounds = world->settings.ring_bytes / 64 + 1;

    while (rounds-- > 0 && wf_world_drive_now(world)) {
    }
}

/* From here on its id is not given to another. */
static void list(weft_comm *comm)
{
    weft_world *world = comm->world;
    weft_comm **bucket = bucket_of(world, comm->id);

    pthread_mutex_lock(&world->drive);
    comm->next_open = *bucket;
    *bucket = comm;
    comm->listed = true;
    pthread_mutex_unlock(&world->drive);
}

void wf_ids_open(weft_comm *comm)
{
    weft_world *world = comm->world;

    if (!comm->listed) {
        list(comm);
    }
    read_rings(world);
    pthread_mutex_lock(&world->drive);
    comm->is_open = true;
    pthread_mutex_unlock(&world->drive);
}

static void forget_messages(const weft_comm *comm)
{
    const wf_ports *ports = &comm->world->ports;

    for (uint32_t i = 0; i < ports->count; i++) {
        const wf_route *r = &ports->route[i];

        r->transport->forget(r->port, (uint64_t)comm->id << 32,
                             (uint64_t)~1u << 32);
    }
}

void wf_ids_close(weft_comm *comm)
{
    weft_world *world = comm->world;

    if (!comm->listed) {
        return;
    }
    pthread_mutex_lock(&world->drive);
    for (weft_comm **at = bucket_of(world, comm->id); *at != NULL;
         at = &(*at)->next_open) {
        if (*at == comm) {
            *at = comm->next_open;
            break;
        }
    }
    comm->listed = false;
    comm->is_open = false;
    forget_messages(comm);
    pthread_mutex_unlock(&world->drive);
}

/* --- which ids are in use --------------------------------------------------
 */

/* The ids led by `leader` that this rank has, from number `skip` on. */
static uint32_t list_own(weft_world *world, uint32_t leader, uint32_t skip,
                         uint32_t *out, uint32_t room)
{
    uint32_t n = 0;

    pthread_mutex_lock(&world->comms_lock);
    for (weft_comm *c = world->comms; c != NULL && n < room; c = c->next) {
        if (wf_ids_leader(c->id, world->host->ranks) == leader) {
            if (skip > 0) {
                skip--;
            } else {
                out[n++] = c->id;
            }
        }
    }
    pthread_mutex_unlock(&world->comms_lock);
    return n;
}

void wf_ids_asked(weft_world *world, uint32_t by)
{
    uint32_t ids[IDS_A_LETTER];
    uint32_t sent = 0;
    uint32_t n;
    weft_status st;

    do {
        n = list_own(world, by, sent, ids, IDS_A_LETTER);
        st = wf_mail_send(world, by, ANSWER_KEY, ids, n * sizeof(*ids), -1);
        sent += n;
    } while (st == WEFT_OK && n == IDS_A_LETTER);
}

static weft_status note_taken(wf_ids *ids, const uint32_t *more, size_t n)
{
    uint32_t *grown =
        wf_realloc(ids->taken, (ids->count + n + 1) * sizeof(*ids->taken));

    if (grown == NULL) {
        return wf_fail_nomem("ids of %zu communicators", ids->count + n);
    }
    ids->taken = grown;
    for (size_t i = 0; i < n; i++) {
        ids->taken[ids->count++] = more[i];
    }
    return WEFT_OK;
}

/* A rank that is gone has none. */
static weft_status take_answer(weft_world *world, uint32_t from,
                               uint64_t deadline)
{
    uint32_t ids[IDS_A_LETTER];
    size_t n;
    weft_status st;

    do {
        n = sizeof(ids);
        st = wf_host_take(world->host, from, ANSWER_KEY, ids, &n, NULL,
                          deadline);
        if (st == WEFT_OK) {
            st = note_taken(&world->ids, ids, n / sizeof(*ids));
        }
    } while (st == WEFT_OK && n == sizeof(ids));
    return st == WEFT_ERR_PEER ? WEFT_OK : st;
}

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Those that are being made are not in the list of communicators yet. */
static weft_status take_own(weft_world *world)
{
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&world->drive);
    for (uint32_t i = 0; i < WF_WORLD_BUCKETS; i++) {
        for (weft_comm *c = world->open[i]; c != NULL && st == WEFT_OK;
             c = c->next_open) {
            st = note_taken(&world->ids, &c->id, 1);
        }
    }
    pthread_mutex_unlock(&world->drive);
    return st;
}

static weft_status ask_all(weft_world *world, uint64_t deadline)
{
    wf_host *host = world->host;
    weft_status st = WEFT_OK;

    for (uint32_t r = 0; r < host->ranks && st == WEFT_OK; r++) {
        if (r != host->rank) {
            st =
                wf_mail_send(world, r, WF_MAIL_CALL | WF_MAIL_IDS, NULL, 0, -1);
            st = st == WEFT_ERR_PEER ? WEFT_OK : st;
        }
    }
    for (uint32_t r = 0; r < host->ranks && st == WEFT_OK; r++) {
        if (r != host->rank) {
            st = take_answer(world, r, deadline);
        }
    }
    return st;
}

/* All ids have been used: find out which are still in use, and begin anew. */
static weft_status begin_anew(weft_world *world, uint64_t deadline)
{
    wf_ids *ids = &world->ids;
    weft_status st;

    ids->count = 0;
    st = take_own(world);
    if (st == WEFT_OK) {
        st = ask_all(world, deadline);
    }
    if (st != WEFT_OK) {
        return st;
    }
    qsort(ids->taken, ids->count, sizeof(*ids->taken), by_id);
    ids->next = 0;
    wf_log(WEFT_LOG_INFO,
           "rank %u uses the ids of communicators again, but for %zu",
           world->host->rank, ids->count);
    return WEFT_OK;
}

static bool is_taken(const wf_ids *ids, uint32_t id)
{
    return ids->count > 0 && bsearch(&id, ids->taken, ids->count,
                                     sizeof(*ids->taken), by_id) != NULL;
}

/* Under the lock of the ids. */
static weft_status pick(weft_comm *comm, uint64_t deadline)
{
    weft_world *world = comm->world;
    wf_ids *ids = &world->ids;
    uint32_t limit = wf_ids_limit(world->host->ranks);
    weft_status st = WEFT_OK;

    for (unsigned turns = 0; turns < 2 && st == WEFT_OK;) {
        if (ids->next >= limit) {
            st = begin_anew(world, deadline);
            turns++;
        } else {
            comm->id = wf_ids_number(world->host->rank, world->host->ranks,
                                     ids->next++);
            if (!is_taken(ids, comm->id)) {
                return WEFT_OK;
            }
        }
    }
    return st != WEFT_OK
               ? st
               : wf_fail(WEFT_ERR_NOMEM,
                         "rank %u leads %u communicators, which is the limit",
                         world->host->rank, limit);
}

weft_status wf_ids_pick(weft_comm *comm)
{
    wf_ids *ids = &comm->world->ids;
    weft_status st;

    pthread_mutex_lock(&ids->lock);
    st = pick(comm, wf_now_ns() + comm->timeout_ns);
    if (st == WEFT_OK) {
        list(comm);
    }
    pthread_mutex_unlock(&ids->lock);
    if (st == WEFT_OK) {
        wf_ids_open(comm); /* runs callbacks: without the lock */
    }
    return st;
}

void wf_ids_fini(weft_world *world)
{
    wf_free(world->ids.taken);
    pthread_mutex_destroy(&world->ids.lock);
}
