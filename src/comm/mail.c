/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/mail.h"

#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "base/time.h"
#include "comm/control.h"
#include "comm/ids.h"

typedef struct note {
    int32_t status;
    uint32_t id; /* of the communicator that it is about */
    char text[WF_DETAIL_MAX];
} note;

uint64_t wf_mail_key(const uint32_t *members, uint32_t size, uint64_t salt,
                     enum wf_mail_step step)
{
    /* Not a secret: it only has to tell groups of ranks apart. */
    wf_secret key = {{salt, size}};
    uint64_t hash = wf_keyed_hash(&key, members, size * sizeof(*members));

    hash &= ~(WF_MAIL_CALL | WF_MAIL_NEWEST | 3);
    return hash | (uint64_t)step |
           (step == WF_MAIL_TICKET ? WF_MAIL_NEWEST : 0);
}

weft_status wf_mail_send(weft_world *world, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd)
{
    return wf_host_same_node(world->host, to)
               ? wf_host_post(world->host, to, key, data, n, fd)
               : wf_plane_post(world, to, key, data, n);
}

/* --- among a group -------------------------------------------------------- */

wf_mail_group wf_mail_group_of(weft_comm *comm)
{
    return (wf_mail_group){.world = comm->world,
                           .comm = comm,
                           .member = comm->member,
                           .size = comm->size,
                           .deadline_ns = wf_now_ns() + comm->timeout_ns};
}

weft_status wf_mail_give_up(const wf_mail_group *g, weft_status st)
{
    return g->comm == NULL ? st : wf_comm_give_up(g->comm, st);
}

weft_status wf_mail_post(const wf_mail_group *g, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd)
{
    weft_status st = wf_mail_send(g->world, g->member[to], key, data, n, fd);

    return st == WEFT_OK ? st : wf_mail_give_up(g, st);
}

static weft_status group_check(void *ctx)
{
    return wf_comm_check(ctx);
}

weft_status wf_mail_take(const wf_mail_group *g, uint32_t from, uint64_t key,
                         void *data, size_t *n, int *fd)
{
    wf_await await = {.host = g->world->host,
                      .needs = g->member,
                      .count = g->size,
                      .deadline_ns = g->deadline_ns,
                      .check = g->comm != NULL ? group_check : NULL,
                      .ctx = g->comm};
    weft_status st = wf_await_mail(&await, g->member[from], key, data, n, fd);

    return wf_await_spent(st) ? st : wf_mail_give_up(g, st);
}

bool wf_mail_below(const wf_mail_group *g, const wf_node_tree *tree,
                   uint32_t *next, uint32_t *member)
{
    if (*next < tree->count) {
        *member = tree->below[(*next)++];
        return true;
    }
    if (tree->head != tree->self) {
        return false;
    }
    /* From here on `*next` counts members behind this one as well. */
    for (uint32_t m = tree->self + 1 + *next - tree->count; m < g->size; m++) {
        ++*next;
        if (wf_host_same_node(g->world->host, g->member[m])) {
            *member = m;
            return true;
        }
    }
    return false;
}

weft_status wf_mail_tell(const wf_mail_group *g, const wf_node_tree *tree,
                         uint64_t key, const void *data, size_t n)
{
    wf_failure first = {.status = WEFT_OK};
    uint32_t next = 0;
    uint32_t member;

    while (wf_mail_below(g, tree, &next, &member)) {
        wf_failure_note(&first, wf_mail_post(g, member, key, data, n, -1));
    }
    return first.status == WEFT_OK ? WEFT_OK : wf_failure_again(&first);
}

/* --- a status ------------------------------------------------------------- */

static size_t note_make(uint32_t id, weft_status status, const char *text,
                        note *out)
{
    out->status = (int32_t)status;
    out->id = id;
    snprintf(out->text, sizeof(out->text), "%s", text);
    return offsetof(note, text) + strlen(out->text) + 1;
}

weft_status wf_mail_post_status(const wf_mail_group *g, uint32_t to,
                                uint64_t key, uint32_t id, weft_status status,
                                const char *text)
{
    note n;
    size_t bytes = note_make(id, status, text, &n);

    return wf_mail_post(g, to, key, &n, bytes, -1);
}

static weft_status note_read(const void *data, size_t n, note *out)
{
    if (n <= offsetof(note, text) || n > sizeof(*out) ||
        ((const char *)data)[n - 1] != '\0') {
        return wf_fail(WEFT_ERR_PROTOCOL, "mail of %zu bytes is malformed", n);
    }
    memcpy(out, data, n);
    out->status = (int32_t)wf_status_parse(out->status);
    return WEFT_OK;
}

weft_status wf_mail_take_status(const wf_mail_group *g, uint32_t from,
                                uint64_t key, uint32_t id, weft_status *theirs)
{
    unsigned char data[WF_MAIL_MAX];
    note got;
    weft_status st;

    do {
        size_t n = sizeof(data);

        st = wf_mail_take(g, from, key, data, &n, NULL);
        if (!wf_await_spent(st)) {
            return st;
        }
        if (st == WEFT_OK) {
            st = note_read(data, n, &got);
        }
    } while (st == WEFT_OK && got.id != id);
    *theirs = st != WEFT_OK ? st
              : got.status != (int)WEFT_OK
                  ? wf_fail((weft_status)got.status, "%s", got.text)
                  : WEFT_OK;
    return WEFT_OK;
}

/* --- the end of a communicator -------------------------------------------- */

void wf_mail_break(weft_comm *comm)
{
    uint32_t far[WF_NODE_TREE_NEIGHBOURS];
    uint32_t count =
        wf_node_tree_neighbours(comm->world, comm->member, comm->size, far);
    note n;
    size_t bytes = note_make(comm->id, comm->status, comm->text, &n);

    for (uint32_t i = 0; i < count; i++) {
        (void)wf_mail_send(comm->world, comm->member[far[i]],
                           WF_MAIL_CALL | comm->id, &n, bytes, -1);
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank && comm->local[r] != WF_NOT_HERE) {
            (void)wf_mail_send(comm->world, comm->member[r],
                               WF_MAIL_CALL | comm->id, &n, bytes, -1);
        }
    }
}

void wf_mail_ask(weft_comm *comm, uint32_t member)
{
    (void)wf_mail_send(comm->world, comm->member[member],
                       WF_MAIL_CALL | WF_MAIL_ASK | comm->id, NULL, 0, -1);
}

/* Of those that exist, whether they are broken or not; under comms_lock. */
static weft_comm *find_comm(const weft_world *world, uint32_t id)
{
    weft_comm *c = world->comms;

    while (c != NULL && c->id != id) {
        c = c->next;
    }
    return c;
}

/* The reason that is remembered for it, or NULL; under comms_lock. */
static wf_closed *find_closed(weft_world *world, uint32_t id)
{
    for (unsigned i = 0; i < WF_CLOSED_KEPT; i++) {
        wf_closed *c = &world->closed[i];

        if (c->status != WEFT_OK && c->id == id) {
            return c;
        }
    }
    return NULL;
}

/* Is it broken, for a reason that others should have? */
static bool is_broken(weft_comm *comm)
{
    return atomic_load_explicit(&comm->failed, memory_order_acquire) &&
           comm->status != WEFT_ERR_CLOSED;
}

/* Remember the reason for those who ask; under comms_lock. */
static void keep_closed(weft_world *world, uint32_t id, weft_status status,
                        const char *text)
{
    wf_closed *c = find_closed(world, id);

    if (c == NULL && status != WEFT_OK) {
        c = &world->closed[world->closings++ % WF_CLOSED_KEPT];
    }
    if (c != NULL) {
        c->id = id;
        c->status = status;
        snprintf(c->text, sizeof(c->text), "%s", text);
    }
}

void wf_mail_closed(weft_comm *comm)
{
    weft_world *world = comm->world;
    bool broken = is_broken(comm);

    if (comm->shared != NULL) {
        return; /* nobody asks */
    }
    pthread_mutex_lock(&world->comms_lock);
    keep_closed(world, comm->id, broken ? comm->status : WEFT_OK, comm->text);
    pthread_mutex_unlock(&world->comms_lock);
}

static void answer(weft_world *world, uint32_t by, uint32_t id)
{
    const wf_closed *why;
    weft_comm *comm;
    bool exists;
    note n;
    size_t bytes = 0;

    pthread_mutex_lock(&world->comms_lock);
    comm = find_comm(world, id);
    exists = comm != NULL;
    why = find_closed(world, id);
    if (exists && is_broken(comm)) {
        bytes = note_make(id, comm->status, comm->text, &n);
    } else if (!exists && why != NULL) {
        bytes = note_make(id, why->status, why->text, &n);
    }
    pthread_mutex_unlock(&world->comms_lock);
    if (!exists || bytes > 0) {
        (void)wf_mail_send(world, by, WF_MAIL_CALL | WF_MAIL_CLOSED | id, &n,
                           bytes, -1);
    }
}

/* Who hears it from another node, or for a mate who did, is one of few there
 * who do. Under comms_lock, so that it stays. */
static void hear_broken(weft_comm *comm, uint32_t from, bool relayed,
                        const note *why)
{
    if (wf_comm_broken_by(comm, (weft_status)why->status, why->text) &&
        (relayed || !wf_host_same_node(comm->world->host, from))) {
        wf_mail_break(comm);
    }
}

/* This rank was to tell its mates of it, and has closed it before: without
 * their list, all ranks of this node are told. */
static void relay(weft_world *world, uint64_t key, const void *data, size_t n)
{
    const wf_host *host = world->host;

    for (uint32_t r = 0; r < host->ranks; r++) {
        if (r != host->rank && wf_host_same_node(host, r) &&
            atomic_load(&wf_host_entry(host, r)->state) == WF_BOARD_HERE) {
            (void)wf_mail_send(world, r, key | WF_MAIL_RELAYED, data, n, -1);
        }
    }
}

static void hear_closed(weft_world *world, uint32_t by, uint32_t id,
                        const void *data, size_t n)
{
    weft_comm *comm;
    note why;

    if (n > 0 && note_read(data, n, &why) != WEFT_OK) {
        return;
    }
    pthread_mutex_lock(&world->comms_lock);
    comm = find_comm(world, id);
    if (comm != NULL && n > 0) {
        hear_broken(comm, by, false, &why);
    } else if (comm != NULL) {
        atomic_store(&comm->closed_by, by + 1);
    }
    pthread_mutex_unlock(&world->comms_lock);
    if (comm != NULL) {
        wf_host_alarm(world->host);
    }
}

/* On the watching thread, or by whoever drives. */
static void on_mail(void *ctx, uint32_t from, uint64_t key, const void *data,
                    size_t n)
{
    weft_world *world = ctx;
    weft_comm *comm;
    bool relayed = (key & WF_MAIL_RELAYED) != 0;
    bool relays = false;
    note got;

    if ((key & WF_MAIL_IDS) != 0) {
        wf_ids_asked(world, from);
        return;
    }
    if ((key & WF_MAIL_ASK) != 0) {
        answer(world, from, (uint32_t)key);
        return;
    }
    if ((key & WF_MAIL_CLOSED) != 0) {
        hear_closed(world, from, (uint32_t)key, data, n);
        return;
    }
    if (note_read(data, n, &got) != WEFT_OK) {
        return;
    }
    pthread_mutex_lock(&world->comms_lock);
    comm = find_comm(world, (uint32_t)key);
    if (comm != NULL) {
        hear_broken(comm, from, relayed, &got);
    } else if (find_closed(world, (uint32_t)key) == NULL) {
        keep_closed(world, (uint32_t)key, (weft_status)got.status, got.text);
        relays = !relayed && !wf_host_same_node(world->host, from);
    }
    pthread_mutex_unlock(&world->comms_lock);
    if (relays) {
        relay(world, key, data, n);
    }
}

void wf_mail_listen(weft_world *world)
{
    wf_host_on_mail(world->host, on_mail, world);
}
