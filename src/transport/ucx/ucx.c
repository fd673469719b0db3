/* SPDX-License-Identifier: Apache-2.0 */
/* The contract, over UCX. */
#include "transport/ucx/ucx.h"

#include <poll.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/time.h"

/* How long messages of a rank that is gone may still be on their way through
 * the kernels. The word that it is gone goes over the board, or other hosts. It
 * is also the time that UCX has to finish a connection back to that rank: 1.13
 * cannot end one well before it is made. */
#define HEED_NS (20 * WF_MS)

/* --- open and close --------------------------------------------------------
 */

static void ucx_close(wf_port *port)
{
    ucx_call *call;

    if (port == NULL) {
        return;
    }
    ucx_log_begin();
    port->closing = true;
    for (uint32_t i = 0; i < port->count; i++) {
        if (port->worker != NULL) {
            ucx_peer_close(&port->peer[i]);
        }
        ucx_peer_clear(&port->peer[i], WEFT_OK);
    }
    while ((call = port->calls) != NULL) {
        port->calls = call->next;
        wf_free(call);
    }
    ucx_context_close(port);
    ucx_log_end();
    wf_match_fini(&port->match);
    wf_free(port->slot);
    wf_free(port->peer);
    wf_free(port->asked);
    wf_free(port);
}

static weft_status ucx_prepare(const wf_settings *settings, wf_port **out,
                               wf_address *address)
{
    wf_port *port = wf_zalloc(sizeof(*port));
    weft_status st = WEFT_OK;

    if (port == NULL) {
        return wf_fail_nomem("the port of transport ucx");
    }
    port->calls_end = &port->calls;
    port->eager = settings->ucx_eager_bytes;
    port->resend_ns =
        ucx_sockets_pause(settings->host_timeout_ns, ucx_sockets_retries());
    port->asked = wf_zalloc(sizeof(*port->asked));
    st = port->asked != NULL ? ucx_context_open(port, settings)
                             : wf_fail_nomem("the port of transport ucx");
    if (st != WEFT_OK) {
        ucx_close(port);
        return st;
    }
    address->data = port->published;
    address->n = sizeof(ucx_address) + port->address_bytes;
    *out = port;
    return WEFT_OK;
}

static bool ucx_reaches(const wf_host *host, uint32_t rank)
{
    return rank < host->ranks && rank != host->rank;
}

static weft_status ucx_open_peer(wf_port *port, uint32_t slot, uint32_t rank)
{
    const wf_host *host = port->setup.host;
    const wf_secret *secret = &host->table->head->secret;
    ucx_peer *peer = &port->peer[slot];
    wf_address a;
    ucx_address theirs;

    if (!wf_join_address(host->table, rank, "ucx", &a) ||
        !ucx_wire_address(a.data, a.n, &theirs)) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u on %s has another version of transport ucx: "
                       "use one version of weft on all hosts",
                       rank, host->peer[rank].host);
    }
    *peer = (ucx_peer){
        .port = port,
        .address = (const unsigned char *)a.data + sizeof(theirs),
        .proof_in = ucx_wire_proof(secret, host->job, rank, host->rank,
                                   theirs.nonce, port->nonce),
        .proof_out = ucx_wire_proof(secret, host->job, host->rank, rank,
                                    port->nonce, theirs.nonce),
        .rank = rank,
        .slot = slot};
    port->slot[rank] = slot;
    port->count++;
    return WEFT_OK;
}

static weft_status ucx_open(const wf_port_setup *setup, wf_port **out)
{
    wf_port *port = *out;
    uint32_t ranks = setup->host->ranks;
    weft_status st = wf_match_init(&port->match, setup->ranks);

    port->setup = *setup;
    port->match.keep = setup->keep;
    port->match.keep_ctx = setup->ctx;
    port->slot = wf_alloc(ranks * sizeof(*port->slot));
    port->peer = wf_zalloc((setup->ranks + 1) * sizeof(*port->peer));
    if (st == WEFT_OK && (port->slot == NULL || port->peer == NULL)) {
        st = wf_fail_nomem("%u peers of transport ucx", setup->ranks);
    }
    for (uint32_t i = 0; i < ranks && st == WEFT_OK; i++) {
        port->slot[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < setup->ranks && st == WEFT_OK; i++) {
        st = ucx_open_peer(port, i, setup->rank[i]);
    }
    return st;
}

static void ucx_orphan(wf_port *port)
{
    ucx_sockets_orphan(port);
    port->closing = true;
    for (uint32_t i = 0; i < port->count; i++) {
        ucx_peer *peer = &port->peer[i];

        peer->ep = NULL;
        peer->stand = UCX_LOST;
        peer->why = WEFT_ERR_PEER;
        ucx_peer_clear(peer, WEFT_OK);
    }
    wf_match_unpost(&port->match);
}

static void ucx_gone(wf_port *port, uint32_t rank)
{
    ucx_peer *peer = ucx_peer_of(port, rank);

    if (peer != NULL) {
        peer->heed_ns = wf_now_ns() + HEED_NS;
        ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
    }
}

static bool ucx_connected(const wf_port *port, uint32_t rank)
{
    const ucx_peer *peer = ucx_peer_of(port, rank);

    return peer != NULL && peer->stand == UCX_HERE && peer->ep != NULL;
}

/* --- messages --------------------------------------------------------------
 */

static weft_status ucx_fail_rank(const wf_port *port, uint32_t rank)
{
    return wf_fail(WEFT_ERR_INVALID,
                   "transport ucx of rank %u does not reach rank %u",
                   port->setup.host->rank, rank);
}

/* The peer for a message to `rank`, with an endpoint; else NULL and `*why`. */
static ucx_peer *ucx_target(const wf_port *port, uint32_t rank,
                            weft_status *why)
{
    ucx_peer *peer = ucx_peer_of(port, rank);

    if (peer == NULL) {
        *why = ucx_fail_rank(port, rank);
        return NULL;
    }
    *why = ucx_peer_check(peer);
    if (*why == WEFT_OK) {
        *why = ucx_peer_connect(peer);
    }
    return *why == WEFT_OK ? peer : NULL;
}

static weft_status ucx_send(wf_port *port, uint32_t to, uint64_t tag,
                            const void *buf, size_t n, wf_msg *msg)
{
    weft_status st;
    ucx_peer *peer = ucx_target(port, to, &st);

    if (peer == NULL) {
        return st;
    }
    return n <= port->eager ? ucx_out_eager(peer, tag, buf, n, msg)
                            : ucx_large_offer(peer, tag, buf, n, msg);
}

static weft_status ucx_recv(wf_port *port, uint32_t from, uint64_t tag,
                            uint64_t mask, void *buf, size_t room, wf_msg *msg)
{
    const ucx_peer *peer = ucx_peer_of(port, from);
    uint32_t source = peer != NULL ? peer->slot : WF_SOURCE_ANY;
    wf_arrival *a;

    if (peer == NULL && from != WF_FROM_ANY) {
        return ucx_fail_rank(port, from);
    }
    a = wf_match_find(&port->match, source, tag, mask);
    if (a == NULL && peer != NULL && peer->stand == UCX_LOST) {
        return ucx_peer_check(peer);
    }
    wf_match_fill(msg, source, tag, mask, buf, room);
    if (a == NULL) {
        wf_match_post(&port->match, msg);
    } else {
        wf_match_drop(a);
        ucx_in_take(port, (ucx_in *)a, msg);
    }
    return WEFT_OK;
}

static bool ucx_peek(wf_port *port, uint32_t from, uint64_t tag, uint64_t mask,
                     wf_msg *found)
{
    const ucx_peer *peer = ucx_peer_of(port, from);
    const wf_arrival *a =
        peer == NULL && from != WF_FROM_ANY
            ? NULL
            : wf_match_find(&port->match,
                            peer != NULL ? peer->slot : WF_SOURCE_ANY, tag,
                            mask);

    if (a != NULL) {
        wf_match_describe(found, port->peer[a->source].rank, a->tag, a->n);
    }
    return a != NULL;
}

/* A receive that has not matched and a send that was only offered are taken
 * back. What UCX has is waited for, for as long as it moves; then the
 * connection is cut. */
static void ucx_drop(wf_port *port, wf_msg *msg)
{
    ucx_peer *peer;

    if (msg->done || wf_match_cancel(&port->match, msg)) {
        return;
    }
    peer = msg->state == UCX_RECEIVE ? ucx_peer_of(port, msg->from)
                                     : &port->peer[msg->peer];
    if (peer == NULL) {
        return;
    }
    if (msg->state == UCX_RECEIVE) {
        ucx_large_drop_receive(peer, msg);
    } else if (msg->state == UCX_OFFERED) {
        ucx_large_drop_send(peer, msg);
    } else {
        ucx_out_drop(peer, msg);
    }
}

static void ucx_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    wf_arrival *a;

    while ((a = wf_match_find(&port->match, WF_SOURCE_ANY, tag, mask)) !=
           NULL) {
        wf_match_drop(a);
        ucx_in_free(port, (ucx_in *)a);
    }
}

static void ucx_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    wf_am_set(&port->handlers, id, fn, ctx);
}

static void ucx_handle_early(wf_port *port, uint32_t id, wf_am_early_fn *fn)
{
    wf_am_set_early(&port->handlers, id, fn);
}

static weft_status am_to(wf_port *port, uint32_t to, const wf_am_view *am,
                         wf_am_fill_fn *fill, void *ctx)
{
    weft_status st = wf_am_check(UCX_AM_PAYLOAD, am->id, am->header_bytes,
                                 am->payload_bytes);
    ucx_peer *peer = st == WEFT_OK ? ucx_target(port, to, &st) : NULL;

    return peer != NULL ? ucx_out_am(peer, am, fill, ctx) : st;
}

static weft_status ucx_am(wf_port *port, uint32_t to, uint32_t id,
                          const void *header, size_t header_bytes,
                          const void *payload, size_t payload_bytes)
{
    wf_am_view am = {id, header, header_bytes, payload, payload_bytes};

    return am_to(port, to, &am, NULL, NULL);
}

static weft_status ucx_am_fill(wf_port *port, uint32_t to, uint32_t id,
                               const void *header, size_t header_bytes,
                               size_t payload_bytes, wf_am_fill_fn *fill,
                               void *ctx)
{
    wf_am_view am = {id, header, header_bytes, NULL, payload_bytes};

    return am_to(port, to, &am, fill, ctx);
}

/* --- progress --------------------------------------------------------------
 */

static unsigned ucx_resume(wf_port *port)
{
    unsigned events = 0;

    port->waiting = 0;
    for (uint32_t i = 0; i < port->count; i++) {
        events += ucx_in_resume(&port->peer[i]);
    }
    return events;
}

static unsigned progress(wf_port *port)
{
    unsigned events = 0;

    /* A look finds what has arrived, not only the first of it. */
    while (events < UCX_TURNS && ucp_worker_progress(port->worker) != 0) {
        events++;
    }
    if (port->waiting > 0) {
        events += ucx_resume(port);
    }
    if (port->calls != NULL) {
        /* They were counted as they came, several of them perhaps as one. */
        events = (unsigned)wf_most(events, ucx_in_call(port));
    }
    if (port->starved) {
        ucx_large_retry(port);
    }
    if (port->ending > 0) {
        events += ucx_peer_bury(port);
    }
    if (port->leaving) {
        events += ucx_out_ask(port);
    }
    if (port->bound_ns != 0) {
        ucx_sockets_bound(port);
    }
    return events + ucx_out_flush(port);
}

static unsigned ucx_progress(wf_port *port)
{
    unsigned events;

    ucx_log_begin();
    events = progress(port);
    ucx_log_end();
    return events;
}

/* Is there something that UCX does not know of? A rank that leaves does not
 * wait for what others who left may have sent it. */
static bool ucx_has_work(const wf_port *port)
{
    return port->calls != NULL || port->waiting > 0 || port->starved ||
           (port->ending > 0 && !port->leaving);
}

static bool ucx_busy(const wf_port *port)
{
    bool busy = ucx_has_work(port) || port->lent > 0 || port->dirty ||
                port->flush != NULL;

    if (port->dirty) {
        *port->asked = true;
    }
    for (uint32_t i = 0; port->leaving && i < port->count && !busy; i++) {
        busy = !ucx_out_is_taken(&port->peer[i]);
    }
    return busy;
}

static void ucx_leaving(wf_port *port)
{
    port->leaving = true;
}

static int ucx_descriptor(const wf_port *port)
{
    return port->fd;
}

static bool ucx_arm(wf_port *port)
{
    struct pollfd p = {.fd = port->fd, .events = POLLIN};

    return !ucx_has_work(port) && (!*port->asked || !port->dirty) &&
           ucp_worker_arm(port->worker) == UCS_OK && poll(&p, 1, 0) == 0;
}

/* The one symbol that the library exports. */
WF_API extern const wf_transport wf_transport_module;
const wf_transport wf_transport_module = {
    .abi = WF_TRANSPORT_ABI,
    .name = "ucx",
    .am_payload = UCX_AM_PAYLOAD,
    .prepare = ucx_prepare,
    .reaches = ucx_reaches,
    .open = ucx_open,
    .close = ucx_close,
    .send = ucx_send,
    .recv = ucx_recv,
    .peek = ucx_peek,
    .drop = ucx_drop,
    .forget = ucx_forget,
    .handle = ucx_handle,
    .handle_early = ucx_handle_early,
    .am = ucx_am,
    .am_fill = ucx_am_fill,
    .progress = ucx_progress,
    .busy = ucx_busy,
    .leaving = ucx_leaving,
    .orphan = ucx_orphan,
    .gone = ucx_gone,
    .connected = ucx_connected,
    .descriptor = ucx_descriptor,
    .arm = ucx_arm,
};
