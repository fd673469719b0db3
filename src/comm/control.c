/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/control.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/mail.h"
#include "mem/mailbox.h"

/* Letters of any length that are there before they are needed: whoever has no
 * memory for an operation must be able to say so. */
#define SPARE_LETTERS 16u

/* Mail on its way out. */
struct wf_letter {
    wf_letter *next;
    uint32_t to;
    uint32_t bytes;
    uint64_t key;
    bool is_spare;
    unsigned char data[];
};

/* --- messages ------------------------------------------------------------- */

void wf_plane_refuse(wf_plane *p, uint32_t from)
{
    if (p->refused++ == 0) {
        wf_log(WEFT_LOG_WARN,
               "rank %u ignores a control message from rank %u that it does "
               "not understand; do all ranks use the same weft?",
               p->world->host->rank, from);
    }
}

const wf_plane_head *wf_plane_read(wf_plane *p, uint32_t from,
                                   const void *header, size_t n)
{
    const wf_host *host = p->world->host;
    const wf_plane_head *head = header;

    p->came++;
    if (n == sizeof(*head) && from < host->ranks &&
        !wf_host_same_node(host, from) && head->job == host->job &&
        head->to == host->rank) {
        return head;
    }
    wf_plane_refuse(p, from);
    return NULL;
}

weft_status wf_plane_send(wf_plane *p, uint32_t to,
                          enum wf_plane_message message, wf_plane_head *head,
                          const void *payload, size_t n)
{
    head->job = p->world->host->job;
    head->to = to;
    return wf_ports_am(p->world, to, WF_LAYER_MESSAGE(0, message), head,
                       sizeof(*head), payload, n);
}

/* --- mail ----------------------------------------------------------------- */

void wf_plane_mail_came(void *ctx, uint32_t from, const void *header,
                        size_t header_bytes, const void *payload, size_t n)
{
    weft_world *world = ctx;
    const wf_plane_head *head =
        wf_plane_read(world->plane, from, header, header_bytes);
    wf_packet p;

    if (head == NULL) {
        return;
    }
    if (n > WF_MAIL_MAX) {
        wf_plane_refuse(world->plane, from);
        return;
    }
    p.kind = WF_PACKET_MAIL;
    p.from = from;
    p.to = world->host->rank;
    p.bytes = (uint32_t)n;
    p.key = head->key;
    if (n > 0) {
        memcpy(p.data, payload, n);
    }
    wf_mailbox_deliver(world->host->mailbox, &p, -1);
}

static weft_status make_spares(wf_plane *p)
{
    for (unsigned i = 0; i < SPARE_LETTERS; i++) {
        wf_letter *l = wf_alloc(sizeof(*l) + WF_MAIL_MAX);

        if (l == NULL) {
            return wf_fail_nomem("mail to other hosts");
        }
        l->next = p->spare;
        p->spare = l;
    }
    return WEFT_OK;
}

/* A letter that nobody has; NULL: there is no memory, and no spare one. */
static wf_letter *letter_new(wf_plane *p, size_t n)
{
    wf_letter *l = wf_alloc(sizeof(*l) + n);

    if (l != NULL) {
        l->is_spare = false;
        return l;
    }
    pthread_mutex_lock(&p->outbox);
    l = p->spare;
    if (l != NULL) {
        p->spare = l->next;
        l->is_spare = true;
    }
    pthread_mutex_unlock(&p->outbox);
    return l;
}

static void letter_free(wf_plane *p, wf_letter *l)
{
    if (!l->is_spare) {
        wf_free(l);
        return;
    }
    pthread_mutex_lock(&p->outbox);
    l->next = p->spare;
    p->spare = l;
    pthread_mutex_unlock(&p->outbox);
}

static void letters_free(wf_letter *l)
{
    for (wf_letter *next; l != NULL; l = next) {
        next = l->next;
        wf_free(l);
    }
}

static void append(wf_plane *p, wf_letter *l)
{
    l->next = NULL;
    pthread_mutex_lock(&p->outbox);
    *p->last = l;
    p->last = &l->next;
    atomic_fetch_add(&p->letters, 1);
    pthread_mutex_unlock(&p->outbox);
}

/* A question can wait until the node is not wary any more, if it would open a
 * connection: whoever asks asks again. */
static bool is_better_dropped(const wf_plane *p, const wf_letter *l)
{
    const uint64_t question = WF_MAIL_CALL | WF_MAIL_ASK;

    return (l->key & question) == question && wf_beat_is_wary(p) &&
           wf_beat_opens(p, l->to);
}

/* Under world->drive, so that nobody else takes from the front. */
static void flush(wf_plane *p)
{
    for (;;) {
        wf_plane_head head = {0};
        wf_letter *l;
        weft_status st;

        pthread_mutex_lock(&p->outbox);
        l = p->first;
        pthread_mutex_unlock(&p->outbox);
        if (l == NULL) {
            return;
        }
        head.key = l->key;
        st = is_better_dropped(p, l) ? WEFT_OK
                                     : wf_plane_send(p, l->to, WF_PLANE_MAIL,
                                                     &head, l->data, l->bytes);
        if (st == WEFT_ERR_NOMEM) {
            return; /* later */
        }
        if (st != WEFT_OK && st != WEFT_ERR_PEER && st != WEFT_ERR_CLOSED) {
            wf_log(WEFT_LOG_ERROR, "mail to rank %u was lost: %s", l->to,
                   weft_error_detail());
        }
        pthread_mutex_lock(&p->outbox);
        p->first = l->next;
        if (p->first == NULL) {
            p->last = &p->first;
        }
        atomic_fetch_sub(&p->letters, 1);
        pthread_mutex_unlock(&p->outbox);
        letter_free(p, l);
    }
}

bool wf_plane_busy(const weft_world *world)
{
    return world->plane != NULL && atomic_load(&world->plane->letters) > 0;
}

weft_status wf_plane_post(weft_world *world, uint32_t to, uint64_t key,
                          const void *data, size_t n)
{
    wf_plane *p = world->plane;
    wf_letter *l;
    weft_status st;

    if (atomic_load(&world->host->orphan)) {
        return WEFT_OK; /* it is nobody's */
    }
    st = wf_host_check(world->host, to);
    if (st != WEFT_OK) {
        return st;
    }
    if (p == NULL || n > WF_MAIL_MAX) {
        return wf_fail(WEFT_ERR_INVALID, "mail of %zu bytes to rank %u", n, to);
    }
    l = letter_new(p, n);
    if (l == NULL) {
        return wf_fail_nomem("mail of %zu bytes to rank %u", n, to);
    }
    l->to = to;
    l->bytes = (uint32_t)n;
    l->key = key;
    if (n > 0) {
        memcpy(l->data, data, n);
    }
    append(p, l);
    if (pthread_mutex_trylock(&world->drive) == 0) {
        flush(p);
        pthread_mutex_unlock(&world->drive);
    } else {
        /* Whoever has the lock may have looked before: somebody does again. */
        wf_board_ring_all(wf_host_own(world->host));
    }
    return WEFT_OK;
}

/* --- the plane ------------------------------------------------------------ */

static void handle(weft_world *world, enum wf_plane_message message,
                   wf_am_fn *fn)
{
    for (uint32_t i = 0; i < world->ports.count; i++) {
        const wf_route *r = &world->ports.route[i];

        r->transport->handle(r->port, WF_LAYER_MESSAGE(0, message), fn, world);
    }
}

weft_status wf_plane_create(weft_world *world)
{
    wf_plane *p;
    weft_status st;

    if (world->host->nodes == 1) {
        return WEFT_OK;
    }
    p = wf_zalloc(sizeof(*p));
    if (p == NULL) {
        return wf_fail_nomem("the control plane");
    }
    p->world = world;
    p->last = &p->first;
    st = make_spares(p);
    if (st != WEFT_OK) {
        goto free_plane;
    }
    st = wf_node_tree_init(&p->notes, world->host->nodes);
    if (st != WEFT_OK) {
        goto free_plane;
    }
    st = wf_beat_init(p);
    if (st != WEFT_OK) {
        goto free_notes;
    }
    pthread_mutex_init(&p->outbox, NULL);
    pthread_mutex_lock(&world->drive);
    world->plane = p;
    handle(world, WF_PLANE_MAIL, wf_plane_mail_came);
    handle(world, WF_PLANE_BEAT, wf_beat_came);
    pthread_mutex_unlock(&world->drive);
    return WEFT_OK;

free_notes:
    wf_node_tree_fini(&p->notes);
free_plane:
    letters_free(p->spare);
    wf_free(p);
    return st;
}

void wf_plane_destroy(weft_world *world)
{
    wf_plane *p = world->plane;

    if (p == NULL) {
        return;
    }
    letters_free(p->first);
    letters_free(p->spare);
    pthread_mutex_destroy(&p->outbox);
    wf_beat_fini(p);
    wf_node_tree_fini(&p->notes);
    wf_free(p);
    world->plane = NULL;
}

void wf_plane_orphan(weft_world *world)
{
    if (world->plane != NULL) {
        /* Another thread may have had them. */
        pthread_mutex_init(&world->plane->outbox, NULL);
        pthread_mutex_init(&world->plane->notes.lock, NULL);
    }
}

void wf_plane_do(weft_world *world)
{
    wf_plane *p = world->plane;

    wf_beat_do(p);
    if (atomic_load_explicit(&p->letters, memory_order_relaxed) > 0) {
        flush(p);
    }
}
