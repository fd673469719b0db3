/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/shm.h"

#include <limits.h>

#include "base/alloc.h"
#include "base/secret.h"
#include "base/status.h"
#include "base/time.h"

/* --- open and close ------------------------------------------------------ */

static bool shm_reaches(const wf_host *host, uint32_t rank)
{
    return rank < host->ranks && rank != host->rank &&
           host->peer[rank].local != WF_NOT_HERE;
}

static void shm_init_peers(wf_port *port)
{
    const wf_host *host = port->host;

    for (uint32_t i = 0; i < port->count; i++) {
        shm_peer *peer = &port->peer[i];

        peer->slot = i;
        peer->rank = host->rank_of[i];
        peer->pid = host->peer[peer->rank].pid;
        peer->bell = wf_host_bell(host, peer->rank);
        peer->range = wf_host_range(host, peer->rank);
    }
    /* The ring from this rank to itself is not used. */
    port->peer[port->self].failed = WEFT_ERR_INVALID;
}

static weft_status shm_port_init(wf_port *port, wf_host *host)
{
    weft_status st;

    port->host = host;
    port->count = host->count;
    port->self = host->self;
    port->in = wf_zalloc(host->count * sizeof(*port->in));
    port->peer = wf_zalloc(host->count * sizeof(*port->peer));
    if (port->in == NULL || port->peer == NULL) {
        return wf_fail_nomem("the rings of %u ranks", host->count);
    }
    shm_init_peers(port);
    st = wf_match_init(&port->match, host->count);
    return st == WEFT_OK ? wf_random(&port->probe, sizeof(port->probe)) : st;
}

/* A port without rings. */
weft_status shm_port_create(wf_host *host, wf_port **out)
{
    wf_port *port = wf_zalloc_aligned(alignof(wf_port), sizeof(*port));
    weft_status st;

    if (port == NULL) {
        return wf_fail_nomem("the port of transport shm");
    }
    st = shm_port_init(port, host);
    if (st != WEFT_OK) {
        shm_port_destroy(port);
        return st;
    }
    *out = port;
    return WEFT_OK;
}

static void shm_forget_early(wf_port *port, uint32_t slot)
{
    wf_arrival *a;

    while ((a = wf_match_walk(&port->match, slot, NULL)) != NULL) {
        wf_match_drop(a);
        wf_free(a);
    }
}

/* Free what is pending without telling the peer or the callers. */
static void shm_let_go(wf_port *port, shm_peer *peer)
{
    shm_out_fail(port, peer, SHM_CLOSING);
    shm_large_fail(port, peer, SHM_CLOSING);
    shm_forget_early(port, peer->slot);
}

void shm_port_destroy(wf_port *port)
{
    if (port == NULL) {
        return;
    }
    /* shm_port_init makes the queues last. */
    for (uint32_t i = 0; i < port->match.sources; i++) {
        shm_peer *peer = &port->peer[i];

        shm_let_go(port, peer);
        wf_free(peer->parts);
        wf_segment_close(&peer->inbox);
    }
    wf_match_fini(&port->match);
    wf_segment_close(&port->inbox);
    wf_free(port->in);
    wf_free(port->peer);
    wf_free(port);
}

static void shm_orphan(wf_port *port)
{
    for (uint32_t i = 0; i < port->count; i++) {
        wf_segment_part(&port->peer[i].inbox, 0);
    }
    wf_segment_part(&port->inbox, 0);
    for (uint32_t i = 0; i < port->count; i++) {
        shm_let_go(port, &port->peer[i]);
    }
    wf_match_unpost(&port->match);
}

/* Ranks of the host that use another transport are left out. */
static void shm_take_setup(wf_port *port, const wf_port_setup *setup)
{
    for (uint32_t i = 0; i < port->count; i++) {
        port->peer[i].failed = WEFT_ERR_INVALID;
    }
    for (uint32_t i = 0; i < setup->ranks; i++) {
        port->peer[setup->host->peer[setup->rank[i]].local].failed = WEFT_OK;
    }
    port->match.keep = setup->keep;
    port->match.keep_ctx = setup->ctx;
    port->lost = setup->lost;
    port->ctx = setup->ctx;
}

static weft_status shm_open(const wf_port_setup *setup, wf_port **out)
{
    wf_port *port = NULL;
    weft_status st = shm_port_create(setup->host, &port);

    if (port == NULL) {
        return st;
    }
    shm_take_setup(port, setup);
    st = shm_inbox_create(port, setup->settings);
    if (st == WEFT_OK) {
        st = shm_inbox_swap(port, setup->settings);
    }
    if (st != WEFT_OK) {
        shm_port_destroy(port);
        return st;
    }
    *out = port;
    return WEFT_OK;
}

/* --- peers --------------------------------------------------------------- */

static shm_peer *shm_peer_of(const wf_port *port, uint32_t rank)
{
    shm_peer *peer = shm_reaches(port->host, rank)
                         ? &port->peer[port->host->peer[rank].local]
                         : NULL;

    return peer != NULL && peer->failed != WEFT_ERR_INVALID ? peer : NULL;
}

static weft_status shm_fail_rank(const wf_port *port, uint32_t rank)
{
    return wf_fail(WEFT_ERR_INVALID,
                   "transport shm of rank %u does not reach rank %u",
                   port->host->rank, rank);
}

static weft_status shm_fail_peer(const wf_port *port, const shm_peer *peer)
{
    const wf_peer *who = &port->host->peer[peer->rank];
    bool wrong = peer->failed == WEFT_ERR_PROTOCOL;

    return wf_fail(wrong ? WEFT_ERR_PROTOCOL : WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) %s", peer->rank, who->pid, who->host,
                   wrong ? "sent something malformed before" : "is gone");
}

/* The peer for a message to `rank`; NULL, and `*why`, if it cannot be sent. */
static shm_peer *shm_target(const wf_port *port, uint32_t rank,
                            weft_status *why)
{
    shm_peer *peer = shm_peer_of(port, rank);

    if (peer == NULL) {
        *why = shm_fail_rank(port, rank);
        return NULL;
    }
    if (peer->failed != WEFT_OK || peer->going) {
        *why = shm_fail_peer(port, peer);
        return NULL;
    }
    return peer;
}

void shm_peer_fail(wf_port *port, shm_peer *peer, weft_status why)
{
    wf_msg *msg;

    if (peer->going) {
        peer->going = false;
        port->going--;
    }
    peer->failed = why;
    shm_out_fail(port, peer, why);
    shm_large_fail(port, peer, why);
    while ((msg = wf_match_next_of(&port->match, peer->slot)) != NULL) {
        wf_msg_finish(msg, why);
    }
    if (port->lost != NULL) {
        port->lost(port->ctx, peer->rank, why);
    }
}

/* Complete messages of the rank are still in its ring, and only progress() may
 * call handlers of active messages; so it cleans up there. */
static void shm_gone(wf_port *port, uint32_t rank)
{
    shm_peer *peer = shm_peer_of(port, rank);

    if (peer != NULL && peer->failed == WEFT_OK && !peer->going) {
        peer->going = true;
        port->going++;
    }
}

/* --- messages ------------------------------------------------------------ */

static weft_status shm_send(wf_port *port, uint32_t to, uint64_t tag,
                            const void *buf, size_t n, wf_msg *msg)
{
    weft_status st = WEFT_OK;
    shm_peer *peer = shm_target(port, to, &st);

    if (peer == NULL) {
        return st;
    }
    *msg = (wf_msg){.tag = tag,
                    .peer = peer->slot,
                    .buf = (void *)buf,
                    .room = n,
                    .state = n <= peer->eager_bytes ? SHM_EAGER : SHM_OFFER};
    shm_out_submit(port, peer, msg);
    return WEFT_OK;
}

/* The index of the source of a receive or a peek; false if it is invalid. */
static bool shm_source(const wf_port *port, uint32_t from, uint32_t *out)
{
    const shm_peer *peer;

    if (from == WF_FROM_ANY) {
        *out = WF_SOURCE_ANY;
        return true;
    }
    peer = shm_peer_of(port, from);
    if (peer == NULL) {
        return false;
    }
    *out = peer->slot;
    return true;
}

static weft_status shm_recv(wf_port *port, uint32_t from, uint64_t tag,
                            uint64_t mask, void *buf, size_t room, wf_msg *msg)
{
    uint32_t source;
    wf_arrival *a;

    if (!shm_source(port, from, &source)) {
        return shm_fail_rank(port, from);
    }
    a = wf_match_find(&port->match, source, tag, mask);
    if (a == NULL && source != WF_SOURCE_ANY &&
        port->peer[source].failed != WEFT_OK) {
        return shm_fail_peer(port, &port->peer[source]);
    }
    wf_match_fill(msg, source, tag, mask, buf, room);
    if (a == NULL) {
        wf_match_post(&port->match, msg);
    } else if (a->kind == SHM_ARRIVED_EAGER) {
        shm_in_take_early(port, a, msg);
    } else {
        wf_match_drop(a);
        shm_large_match(port, (shm_large *)a, msg);
    }
    return WEFT_OK;
}

static bool shm_peek(wf_port *port, uint32_t from, uint64_t tag, uint64_t mask,
                     wf_msg *found)
{
    uint32_t source;
    const wf_arrival *a;

    if (!shm_source(port, from, &source)) {
        return false;
    }
    a = wf_match_find(&port->match, source, tag, mask);
    if (a == NULL) {
        return false;
    }
    wf_match_describe(found, port->peer[a->source].rank, a->tag, a->n);
    return true;
}

static void shm_drop(wf_port *port, wf_msg *msg)
{
    if (msg->done || wf_match_cancel(&port->match, msg)) {
        return;
    }
    if (msg->state == SHM_RECEIVE) {
        shm_large_drop(port, msg);
    } else {
        shm_out_withdraw(port, &port->peer[msg->peer], msg);
    }
}

static void shm_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    wf_match_forget(&port->match, tag, mask);
}

static void shm_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    wf_am_set(&port->handlers, id, fn, ctx);
}

static weft_status shm_am_send(wf_port *port, uint32_t to, uint32_t id,
                               const void *header, size_t header_bytes,
                               const void *payload, size_t payload_bytes)
{
    wf_am_view am = {id, header, header_bytes, payload, payload_bytes};
    weft_status st =
        wf_am_check(WF_AM_PAYLOAD_MAX, id, header_bytes, payload_bytes);
    shm_peer *peer = st == WEFT_OK ? shm_target(port, to, &st) : NULL;

    if (peer == NULL || shm_out_am(peer, &am)) {
        return st;
    }
    return shm_out_am_later(port, peer, &am);
}

/* --- progress ------------------------------------------------------------ */

/* Read the rest of the rings of ranks that are gone, and fail what is
 * pending. */
static unsigned shm_bury(wf_port *port)
{
    unsigned events = 0;

    for (uint32_t i = 0; i < port->count; i++) {
        shm_peer *peer = &port->peer[i];

        if (peer->going) {
            events += shm_in_poll(port, peer, UINT_MAX) + 1;
            if (peer->going && wf_ring_poll(&port->in[i]) == 0) {
                shm_peer_fail(port, peer, WEFT_ERR_PEER);
            }
        }
    }
    return events;
}

/* Ranks of other nodes of this host whose sockets have ended are lost, as over
 * a network; but the news of how they went is better, and may come first. */
static void shm_look_parted(wf_port *port)
{
    uint32_t parted = atomic_load(&port->host->parted);
    uint64_t now = wf_now_ns();

    port->parting = 0;
    for (uint32_t i = 0; i < port->count; i++) {
        shm_peer *peer = &port->peer[i];

        if (peer->failed != WEFT_OK || peer->going ||
            !atomic_load(&port->host->peer[peer->rank].parted)) {
            continue;
        }
        if (peer->parted_ns == 0) {
            peer->parted_ns = now;
        }
        if (now - peer->parted_ns >= WF_LOSS_GRACE_NS) {
            shm_gone(port, peer->rank);
        } else {
            port->parting++;
        }
    }
    port->parted = parted;
}

static unsigned shm_pump(wf_port *port)
{
    unsigned events = 0;

    for (uint32_t i = 0; i < port->count; i++) {
        events += shm_out_pump(port, &port->peer[i]);
    }
    return events;
}

static unsigned shm_progress(wf_port *port)
{
    unsigned events = 0;

    for (uint32_t i = 0; i < port->count; i++) {
        if (wf_ring_poll(&port->in[i]) != 0 &&
            port->peer[i].failed == WEFT_OK) {
            events += shm_in_poll(port, &port->peer[i], SHM_BATCH);
        }
    }
    if (port->waiting > 0) {
        events += shm_pump(port);
    }
    if (port->pulls.head != NULL) {
        events += shm_large_pull(port);
    }
    if (port->parting > 0 ||
        atomic_load_explicit(&port->host->parted, memory_order_relaxed) !=
            port->parted) {
        shm_look_parted(port);
    }
    if (port->going > 0) {
        events += shm_bury(port);
    }
    /* Each call does a bounded amount of work, so there may be more after any
     * event: the caller must poll again before it sleeps. */
    if (events > 0) {
        wf_board_ring(port->peer[port->self].bell);
    }
    return events;
}

static bool shm_busy(const wf_port *port)
{
    return port->waiting > 0 || port->pulls.head != NULL || port->going > 0;
}

const wf_transport wf_transport_shm = {
    .abi = WF_TRANSPORT_ABI,
    .name = "shm",
    .reaches = shm_reaches,
    .open = shm_open,
    .close = shm_port_destroy,
    .send = shm_send,
    .recv = shm_recv,
    .peek = shm_peek,
    .drop = shm_drop,
    .forget = shm_forget,
    .handle = shm_handle,
    .am = shm_am_send,
    .progress = shm_progress,
    .busy = shm_busy,
    .orphan = shm_orphan,
    .gone = shm_gone,
};
