/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that have work, and the end of a peer. */
#include "transport/mpi/mp.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"

/* What a peer sent may be in the network's hands for a while, and MPI looks
 * into some networks only now and then: so often in a row must there be
 * nothing before a peer that is gone has said its last. */
#define QUIET_POLLS 200
#define LAST_POLLS 20000

void mp_peer_wake(wf_port *port, mp_peer *peer)
{
    if (!peer->due) {
        peer->due = true;
        peer->next_due = port->due;
        port->due = peer;
    }
}

/* Only progress() tells of losses. */
void mp_peer_cut(wf_port *port, mp_peer *peer, const char *what, int code)
{
    if (peer->cut || peer->failed != WEFT_OK) {
        return;
    }
    (void)mp_net_fail(WEFT_ERR_PEER, what, code);
    wf_log(WEFT_LOG_INFO, "rank %u lost rank %u: %s", port->self, peer->rank,
           weft_error_detail());
    peer->cut = true;
    port->going += !peer->going;
}

unsigned mp_peers_work(wf_port *port)
{
    mp_peer *peer = port->due;
    unsigned events = 0;

    port->due = NULL;
    while (peer != NULL) {
        mp_peer *next = peer->next_due;

        peer->due = false;
        if (peer->failed == WEFT_OK) {
            events += mp_in_held(port, peer);
        }
        if (peer->failed == WEFT_OK) {
            mp_out_pump(port, peer);
            events += mp_large_pump(port, peer);
        }
        if (peer->question != 0 && peer->pulls == NULL) {
            mp_peer_wake(port, peer); /* can be answered by now */
        }
        peer = next;
    }
    return events;
}

static void forget_offers(wf_port *port, const mp_peer *peer, bool all)
{
    wf_arrival *next;

    for (wf_arrival *a = wf_match_walk(&port->match, peer->slot, NULL);
         a != NULL; a = next) {
        next = wf_match_walk(&port->match, peer->slot, a);
        if (all || a->kind == MP_OFFER) {
            wf_match_drop(a);
            wf_free(a);
        }
    }
}

void mp_peer_let_go(wf_port *port, mp_peer *peer, weft_status why)
{
    mp_out_fail(port, peer, why);
    mp_large_fail(port, peer, why);
    mp_flights_part(port, peer);
    forget_offers(port, peer, why == MP_CLOSING);
    while (peer->held != NULL) {
        mp_slot *slot = peer->held;

        peer->held = slot->next;
        if (why != MP_CLOSING) {
            mp_slot_restart(port, slot);
        }
    }
}

void mp_peer_fail(wf_port *port, mp_peer *peer, weft_status why)
{
    wf_msg *msg;

    port->going -= peer->going || peer->cut;
    peer->going = false;
    peer->cut = false;
    peer->failed = why;
    mp_peer_let_go(port, peer, why);
    while ((msg = wf_match_next_of(&port->match, peer->slot)) != NULL) {
        wf_msg_finish(msg, why);
    }
    if (port->setup.lost != NULL) {
        port->setup.lost(port->setup.ctx, peer->rank, why);
    }
}

unsigned mp_peers_end(wf_port *port)
{
    unsigned events = 0;
    unsigned quiet = 0;

    for (unsigned i = 0; i < LAST_POLLS && quiet < QUIET_POLLS; i++) {
        unsigned now = mp_in_poll(port) + mp_flights_test(port);

        now += mp_peers_work(port);
        quiet = now == 0 ? quiet + 1 : 0;
    }
    for (uint32_t i = 0; i < port->count; i++) {
        mp_peer *peer = &port->peer[i];

        if (peer->going || peer->cut) {
            mp_peer_fail(port, peer, WEFT_ERR_PEER);
            events++;
        }
    }
    return events;
}
