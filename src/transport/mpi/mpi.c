/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of transports, over MPI. */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "transport/mpi/mp.h"

/* --- prepare and reach ---------------------------------------------------- */

/* Is this transport one of those that WEFT_TRANSPORTS names? */
static bool mp_is_named(const wf_settings *settings)
{
    const char *at = settings->transports;

    while (at != NULL) {
        if (strncmp(at, "mpi", 3) == 0 && (at[3] == ',' || at[3] == '\0')) {
            return true;
        }
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return false;
}

static weft_status mp_prepare(const wf_settings *settings, wf_port **out,
                              wf_address *address)
{
    wf_port *port = wf_zalloc(sizeof(*port));
    weft_status st;

    if (port == NULL) {
        return wf_fail_nomem("the port of transport mpi");
    }
    st = mp_net_start(mp_is_named(settings), &port->address);
    if (st != WEFT_OK) {
        wf_free(port);
        return st;
    }
    port->comm = MPI_COMM_NULL;
    port->timer = -1;
    address->data = &port->address;
    address->n = sizeof(port->address);
    *out = port;
    return WEFT_OK;
}

/* What a rank has published, if it makes sense. */
static bool mp_address_of(const wf_host *host, uint32_t rank, mp_address *out)
{
    wf_address a;

    if (rank >= host->ranks || !wf_join_address(host->table, rank, "mpi", &a) ||
        a.n != sizeof(*out)) {
        return false;
    }
    memcpy(out, a.data, sizeof(*out));
    return out->version == MP_ADDRESS_VERSION;
}

static bool mp_reaches(const wf_host *host, uint32_t rank)
{
    mp_address own;
    mp_address its;

    return rank != host->rank && mp_address_of(host, host->rank, &own) &&
           mp_address_of(host, rank, &its) && own.job == its.job &&
           own.rank != its.rank;
}

/* --- open ----------------------------------------------------------------- */

static weft_status mp_alloc_peers(wf_port *port, const wf_port_setup *setup)
{
    const wf_host *host = setup->host;
    weft_status st;

    port->peer = wf_zalloc((setup->ranks + 1) * sizeof(*port->peer));
    port->of_rank = wf_alloc(host->ranks * sizeof(*port->of_rank));
    port->of_place = wf_alloc(host->ranks * sizeof(*port->of_place));
    if (port->peer == NULL || port->of_rank == NULL || port->of_place == NULL) {
        return wf_fail_nomem("%u peers over MPI", setup->ranks);
    }
    memset(port->of_rank, 0xff, host->ranks * sizeof(*port->of_rank));
    memset(port->of_place, 0xff, host->ranks * sizeof(*port->of_place));
    for (uint32_t i = 0; i < setup->ranks; i++) {
        mp_peer *peer = &port->peer[i];

        *peer =
            (mp_peer){.rank = setup->rank[i], .slot = i, .credits = MP_CREDITS};
        peer->pulls_end = &peer->pulls;
        peer->chunks_end = &peer->chunks;
        port->of_rank[peer->rank] = i;
    }
    port->count = setup->ranks;
    st = wf_match_init(&port->match, setup->ranks);
    port->match.keep = setup->keep;
    port->match.keep_ctx = setup->ctx;
    return st != WEFT_OK ? st : mp_slots_init(port);
}

static weft_status mp_add_place(wf_port *port, const wf_host *host,
                                uint32_t rank, const mp_address *a, int *list,
                                unsigned char *seen)
{
    uint32_t at = port->places;

    if (a->rank >= (uint32_t)mp_net_size()) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u says that it is rank %u of MPI, which has %d",
                       rank, a->rank, mp_net_size());
    }
    if (seen[a->rank] != 0) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "rank %u (pid %d on %s) shares its process with another "
                       "rank; transport mpi needs a process for each rank",
                       rank, host->peer[rank].pid, host->peer[rank].host);
    }
    seen[a->rank] = 1;
    list[at] = (int)a->rank;
    port->of_place[at] = port->of_rank[rank];
    if (port->of_rank[rank] != NOBODY) {
        port->peer[port->of_rank[rank]].place = (int)at;
    }
    port->places++;
    return WEFT_OK;
}

/* The communicator of all ranks of the job that are of this MPI job, also those
 * that are reached in another way: all make the same list. */
static weft_status mp_make_comm(wf_port *port, const wf_host *host)
{
    int *list = wf_alloc(host->ranks * sizeof(*list));
    unsigned char *seen = wf_zalloc((size_t)mp_net_size());
    weft_status st = list != NULL && seen != NULL
                         ? WEFT_OK
                         : wf_fail_nomem("the ranks of MPI");

    for (uint32_t r = 0; r < host->ranks && st == WEFT_OK; r++) {
        mp_address a;

        if (mp_address_of(host, r, &a) && a.job == port->address.job) {
            st = mp_add_place(port, host, r, &a, list, seen);
        }
    }
    if (st == WEFT_OK) {
        st = mp_net_group(list, (int)port->places, &port->comm);
    }
    wf_free(seen);
    wf_free(list);
    return st;
}

static void mp_set_timer(const wf_port *port, uint64_t ns)
{
    struct itimerspec t = {.it_value = {.tv_sec = (time_t)(ns / WF_SEC),
                                        .tv_nsec = (long)(ns % WF_SEC)}};

    (void)timerfd_settime(port->timer, 0, &t, NULL);
}

/* To ask first takes longer than inside a host, so more goes without. */
static size_t mp_eager(const wf_settings *settings)
{
    return settings->eager_bytes < EAGER_MOST / 4 ? 4 * settings->eager_bytes
                                                  : EAGER_MOST;
}

/* The first line of what the library says of itself; some say a page. */
static void tell_library(const wf_port *port)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;

    MPI_Get_library_version(version, &n);
    version[strcspn(version, "\n,")] = '\0';
    wf_log(WEFT_LOG_INFO, "rank %u uses MPI: %s", port->self, version);
}

static weft_status mp_open(const wf_port_setup *setup, wf_port **out)
{
    wf_port *port = *out;
    size_t am = WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX;
    weft_status st;

    port->setup = *setup;
    port->job = setup->host->job;
    port->self = setup->host->rank;
    port->ranks = setup->host->ranks;
    port->eager = mp_eager(setup->settings);
    port->frame_bytes = sizeof(mp_head) + (port->eager > am ? port->eager : am);
    port->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (port->timer < 0) {
        return wf_fail_errno("a timer");
    }
    st = mp_alloc_peers(port, setup);
    if (st == WEFT_OK) {
        st = mp_make_comm(port, setup->host);
    }
    if (st == WEFT_OK) {
        st = mp_slots_start(port);
    }
    port->active_ns = wf_now_ns();
    mp_set_timer(port, NAP_LEAST_NS);
    if (st == WEFT_OK) {
        tell_library(port);
    }
    return st;
}

static void mp_close(wf_port *port)
{
    if (port == NULL) {
        return;
    }
    if (port->leaving_ns != 0 && !port->orphan) {
        mp_out_bye(port);
    }
    for (uint32_t i = 0; i < port->match.sources; i++) {
        mp_peer_let_go(port, &port->peer[i], MP_CLOSING);
    }
    mp_slots_fini(port);
    mp_flights_fini(port);
    if (!port->orphan) {
        mp_net_free(&port->comm);
    }
    wf_match_fini(&port->match);
    if (port->timer >= 0) {
        close(port->timer);
    }
    wf_free(port->of_rank);
    wf_free(port->of_place);
    wf_free(port->peer);
    wf_free(port);
}

/* MPI is the parent's. */
static void mp_orphan(wf_port *port)
{
    port->orphan = true;
    for (uint32_t i = 0; i < port->count; i++) {
        mp_peer_let_go(port, &port->peer[i], MP_CLOSING);
    }
    wf_match_unpost(&port->match);
    if (port->timer >= 0) {
        close(port->timer);
    }
    port->timer = -1;
}

/* --- peers ---------------------------------------------------------------- */

static mp_peer *mp_peer_of(const wf_port *port, uint32_t rank)
{
    return rank < port->ranks && port->of_rank[rank] != NOBODY
               ? &port->peer[port->of_rank[rank]]
               : NULL;
}

static weft_status mp_fail_rank(const wf_port *port, uint32_t rank)
{
    return wf_fail(WEFT_ERR_INVALID,
                   "transport mpi of rank %u does not reach rank %u",
                   port->self, rank);
}

static weft_status mp_fail_peer(const wf_port *port, const mp_peer *peer)
{
    const wf_peer *who = &port->setup.host->peer[peer->rank];
    bool wrong = peer->failed == WEFT_ERR_PROTOCOL;

    return wf_fail(wrong ? WEFT_ERR_PROTOCOL : WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) %s", peer->rank, who->pid, who->host,
                   wrong ? "sent something malformed before" : "is gone");
}

/* The peer for a message to `rank`; NULL, and `*why`, if it cannot be sent. */
static mp_peer *mp_target(const wf_port *port, uint32_t rank, weft_status *why)
{
    mp_peer *peer = mp_peer_of(port, rank);

    if (peer == NULL) {
        *why = mp_fail_rank(port, rank);
    } else if (peer->failed != WEFT_OK || peer->going || peer->cut) {
        *why = mp_fail_peer(port, peer);
        peer = NULL;
    }
    return peer;
}

static void mp_gone(wf_port *port, uint32_t rank)
{
    mp_peer *peer = mp_peer_of(port, rank);

    if (peer != NULL && peer->failed == WEFT_OK && !peer->going) {
        port->going += !peer->cut;
        peer->going = true;
    }
}

/* --- messages ------------------------------------------------------------- */

static weft_status mp_send(wf_port *port, uint32_t to, uint64_t tag,
                           const void *buf, size_t n, wf_msg *msg)
{
    weft_status st = WEFT_OK;
    mp_peer *peer = mp_target(port, to, &st);

    if (peer == NULL) {
        return st;
    }
    *msg = (wf_msg){.tag = tag,
                    .peer = peer->slot,
                    .buf = (void *)buf,
                    .room = n,
                    .state = n <= port->eager ? MP_SEND_EAGER : MP_SEND_OFFER,
                    .token = port->tokens++};
    mp_out_push(port, peer, msg);
    return WEFT_OK;
}

/* The number of the source of a receive or a peek; false if it is invalid. */
static bool mp_source(const wf_port *port, uint32_t from, uint32_t *out)
{
    const mp_peer *peer = mp_peer_of(port, from);

    *out = peer != NULL ? peer->slot : WF_SOURCE_ANY;
    return peer != NULL || from == WF_FROM_ANY;
}

static weft_status mp_recv(wf_port *port, uint32_t from, uint64_t tag,
                           uint64_t mask, void *buf, size_t room, wf_msg *msg)
{
    uint32_t source;
    wf_arrival *a;

    if (!mp_source(port, from, &source)) {
        return mp_fail_rank(port, from);
    }
    a = wf_match_find(&port->match, source, tag, mask);
    if (a == NULL && source != WF_SOURCE_ANY &&
        port->peer[source].failed != WEFT_OK) {
        return mp_fail_peer(port, &port->peer[source]);
    }
    wf_match_fill(msg, source, tag, mask, buf, room);
    if (a != NULL) {
        mp_in_take(port, a, msg);
    } else {
        wf_match_post(&port->match, msg);
    }
    return WEFT_OK;
}

static bool mp_peek(wf_port *port, uint32_t from, uint64_t tag, uint64_t mask,
                    wf_msg *found)
{
    uint32_t source;
    const wf_arrival *a = NULL;

    if (mp_source(port, from, &source)) {
        a = wf_match_find(&port->match, source, tag, mask);
    }
    if (a != NULL) {
        wf_match_describe(found, port->peer[a->source].rank, a->tag, a->n);
    }
    return a != NULL;
}

/* MPI has copies only, so nothing is waited for. */
static void mp_drop(wf_port *port, wf_msg *msg)
{
    mp_peer *peer;

    if (msg->done || wf_match_cancel(&port->match, msg) ||
        msg->peer >= port->count) {
        return;
    }
    peer = &port->peer[msg->peer];
    (void)(mp_out_drop(port, peer, msg) ||
           mp_large_drop_stream(port, peer, msg) || mp_large_drop(peer, msg));
}

static void mp_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    wf_match_forget(&port->match, tag, mask);
}

static void mp_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    wf_am_set(&port->handlers, id, fn, ctx);
}

static weft_status mp_active(wf_port *port, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes,
                             const void *payload, size_t payload_bytes)
{
    wf_am_view am = {id, header, header_bytes, payload, payload_bytes};
    weft_status st =
        wf_am_check(WF_AM_PAYLOAD_MAX, id, header_bytes, payload_bytes);
    mp_peer *peer = st == WEFT_OK ? mp_target(port, to, &st) : NULL;

    return peer != NULL ? mp_out_am(port, peer, &am) : st;
}

/* --- progress and sleep --------------------------------------------------- */

static unsigned mp_progress(wf_port *port)
{
    unsigned events = mp_in_poll(port) + mp_flights_test(port);

    events += mp_peers_work(port);
    if (port->going > 0) {
        events += mp_peers_end(port);
    }
    port->polled = true;
    port->stirred = port->stirred || events > 0;
    return events;
}

static bool mp_busy(const wf_port *port)
{
    bool busy = port->sending > 0 || port->waiting > 0 || port->going > 0;
    bool asks =
        port->leaving_ns != 0 && wf_now_ns() - port->leaving_ns < ANSWER_NS;

    for (uint32_t i = 0; asks && i < port->count && !busy; i++) {
        const mp_peer *peer = &port->peer[i];

        busy = peer->failed == WEFT_OK && !mp_out_is_read(peer);
    }
    return busy;
}

static void mp_leaving(wf_port *port)
{
    port->leaving_ns = wf_now_ns();
    for (uint32_t i = 0; i < port->count; i++) {
        mp_peer_wake(port, &port->peer[i]);
    }
}

static int mp_descriptor(const wf_port *port)
{
    return port->timer;
}

/* Nobody can ring, so the timer does: soon after something has happened, and
 * more and more seldom. */
static bool mp_arm(wf_port *port)
{
    uint64_t now = wf_now_ns();
    uint64_t nap;

    if (!port->polled || port->due != NULL || port->going > 0) {
        return false;
    }
    if (port->stirred) {
        port->active_ns = now;
    }
    port->polled = false;
    port->stirred = false;
    nap = (now - port->active_ns) / 2;
    nap = nap < NAP_LEAST_NS ? NAP_LEAST_NS : nap;
    mp_set_timer(port, nap < NAP_MOST_NS ? nap : NAP_MOST_NS);
    return true;
}

/* The one symbol that the library exports as a transport. */
WF_API extern const wf_transport wf_transport_module;
const wf_transport wf_transport_module = {
    .abi = WF_TRANSPORT_ABI,
    .name = "mpi",
    .prepare = mp_prepare,
    .reaches = mp_reaches,
    .open = mp_open,
    .close = mp_close,
    .send = mp_send,
    .recv = mp_recv,
    .peek = mp_peek,
    .drop = mp_drop,
    .forget = mp_forget,
    .handle = mp_handle,
    .am = mp_active,
    .progress = mp_progress,
    .busy = mp_busy,
    .leaving = mp_leaving,
    .orphan = mp_orphan,
    .gone = mp_gone,
    .descriptor = mp_descriptor,
    .arm = mp_arm,
};
