/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that come in, and what they say. */
#include "transport/mpi/mp.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"

typedef enum in_verdict {
    IN_READ,
    IN_LATER, /* no memory now */
    IN_BAD    /* no correct peer sends this */
} in_verdict;

/* --- messages ------------------------------------------------------------- */

void mp_in_take(wf_port *port, wf_arrival *a, wf_msg *msg)
{
    mp_early *early = (mp_early *)a;

    wf_match_drop(a);
    if (a->kind == MP_OFFER) {
        mp_large_match(port, (mp_pull *)a, msg);
        return;
    }
    wf_copy(msg->buf, early->data, wf_match_fits(msg, a->n));
    wf_match_describe(msg, port->peer[a->source].rank, a->tag, a->n);
    wf_match_finish(msg);
    wf_free(early);
}

static in_verdict in_eager(wf_port *port, const mp_peer *peer,
                           const mp_head *head, const unsigned char *data)
{
    wf_msg *msg = wf_match_take_posted(&port->match, peer->slot, head->tag);
    mp_early *early;

    if (msg != NULL) {
        wf_copy(msg->buf, data, wf_match_fits(msg, head->n));
        wf_match_describe(msg, peer->rank, head->tag, head->n);
        wf_match_finish(msg);
        return IN_READ;
    }
    if (!wf_match_wants(&port->match, head->tag)) {
        return IN_READ;
    }
    early = wf_alloc(sizeof(*early) + head->n);
    if (early == NULL) {
        return IN_LATER;
    }
    early->arrival = (wf_arrival){
        .source = peer->slot, .tag = head->tag, .n = head->n, .kind = MP_EAGER};
    wf_copy(early->data, data, head->n);
    wf_match_keep(&port->match, &early->arrival);
    return IN_READ;
}

static in_verdict in_offer(wf_port *port, const mp_peer *peer,
                           const mp_head *head)
{
    mp_pull *pull = mp_large_new(peer->slot, head);
    wf_msg *msg;

    if (pull == NULL) {
        return IN_LATER;
    }
    msg = wf_match_take_posted(&port->match, peer->slot, head->tag);
    if (msg != NULL) {
        mp_large_match(port, pull, msg);
    } else if (wf_match_wants(&port->match, head->tag)) {
        wf_match_keep(&port->match, &pull->arrival);
    } else {
        wf_free(pull);
    }
    return IN_READ;
}

static in_verdict in_am(wf_port *port, const mp_peer *peer, const mp_head *head,
                        const unsigned char *data)
{
    size_t header = mp_am_header(head);
    wf_am_view am = {mp_am_id(head), data, header, data + mp_am_payload(header),
                     head->n};

    wf_am_call(&port->handlers, peer->rank, &am);
    return IN_READ;
}

/* An answer to a question that was not asked is none. */
static in_verdict in_answer(mp_peer *peer, const mp_head *head)
{
    if (head->token > peer->asks) {
        return IN_BAD;
    }
    if (head->token != 0) {
        peer->answers = (uint32_t)head->token;
    }
    return IN_READ;
}

/* --- frames --------------------------------------------------------------- */

static in_verdict in_frame(wf_port *port, mp_peer *peer, const mp_head *head,
                           const unsigned char *data, size_t n)
{
    bool bad = false;

    if (!mp_wire_check(head, n - sizeof(*head), peer->credits)) {
        return IN_BAD;
    }
    switch ((mp_kind)head->kind) {
    case MP_EAGER:
        return in_eager(port, peer, head, data);
    case MP_OFFER:
        return in_offer(port, peer, head);
    case MP_WANT:
        return mp_large_wanted(port, peer, head, &bad) ? IN_READ
               : bad                                   ? IN_BAD
                                                       : IN_LATER;
    case MP_AM:
        return in_am(port, peer, head, data);
    case MP_CREDIT:
        return in_answer(peer, head);
    case MP_ASK:
        peer->question = (uint32_t)head->token;
        mp_peer_wake(port, peer);
        break;
    case MP_BYE:
        peer->deaf = true;
        break;
    }
    return IN_READ;
}

/* The frame was read. Who has to send has its credits first, or else could
 * wait for them without end. */
static void in_account(wf_port *port, mp_peer *peer, const mp_head *head)
{
    peer->seq_in++;
    peer->credits += head->credits;
    peer->owed += mp_costs_credit(head->kind);
    if (peer->queue.head != NULL || peer->owed >= MP_CREDITS / 2) {
        mp_peer_wake(port, peer);
    }
}

/* A frame of the peer is the next one; true if it was read. */
static bool in_next(wf_port *port, mp_peer *peer, const mp_slot *slot)
{
    const mp_head *head = (const mp_head *)slot->data;
    in_verdict v =
        in_frame(port, peer, head, slot->data + sizeof(*head), slot->n);

    if (v == IN_READ) {
        in_account(port, peer, head);
    } else if (v == IN_BAD) {
        mp_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
    }
    return v == IN_READ;
}

static void held_add(mp_peer *peer, mp_slot *slot)
{
    slot->next = peer->held;
    peer->held = slot;
}

/* The frame that is the next one, taken from those that are held. */
static mp_slot *held_take(mp_peer *peer)
{
    mp_slot **at = &peer->held;
    mp_slot *slot;

    while (*at != NULL && ((const mp_head *)(*at)->data)->seq != peer->seq_in) {
        at = &(*at)->next;
    }
    slot = *at;
    if (slot != NULL) {
        *at = slot->next;
    }
    return slot;
}

unsigned mp_in_held(wf_port *port, mp_peer *peer)
{
    unsigned events = 0;
    bool read = true;
    mp_slot *slot;

    while (read && peer->failed == WEFT_OK &&
           (slot = held_take(peer)) != NULL) {
        read = in_next(port, peer, slot);
        if (read || peer->failed != WEFT_OK) {
            mp_slot_restart(port, slot);
            events++;
        } else {
            held_add(peer, slot);
            mp_peer_wake(port, peer);
        }
    }
    return events;
}

/* A frame of `n` bytes came from `place`. */
static void in_arrived(wf_port *port, mp_slot *slot, int place)
{
    const mp_head *head = (const mp_head *)slot->data;
    uint32_t index = place >= 0 && (uint32_t)place < port->places
                         ? port->of_place[place]
                         : NOBODY;
    mp_peer *peer = index != NOBODY ? &port->peer[index] : NULL;

    if (peer == NULL || peer->failed != WEFT_OK ||
        !mp_wire_is_frame(head, slot->n, port->job)) {
        wf_log(WEFT_LOG_DEBUG, "a stray frame of %zu bytes over MPI", slot->n);
        mp_slot_restart(port, slot);
        return;
    }
    if (!mp_wire_is_near(head, peer->seq_in)) {
        mp_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
        mp_slot_restart(port, slot);
        return;
    }
    held_add(peer, slot);
    (void)mp_in_held(port, peer);
}

/* A receive from anybody has failed: of whom, MPI may not know. */
static void in_failed(wf_port *port, mp_slot *slot, const MPI_Status *status)
{
    int place = status->MPI_SOURCE;
    mp_peer *peer = place >= 0 && (uint32_t)place < port->places &&
                            port->of_place[place] != NOBODY
                        ? &port->peer[port->of_place[place]]
                        : NULL;

    if (peer != NULL && peer->failed == WEFT_OK &&
        mp_net_is_too_long(status->MPI_ERROR)) {
        mp_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
    } else if (peer != NULL) {
        mp_peer_cut(port, peer, "MPI_Testsome", status->MPI_ERROR);
    }
    mp_slot_restart(port, slot);
}

/* Is the next frame of this peer here, and waits for memory? */
static bool held_has_next(const mp_peer *peer)
{
    const mp_slot *slot = peer->held;

    while (slot != NULL && ((const mp_head *)slot->data)->seq != peer->seq_in) {
        slot = slot->next;
    }
    return slot != NULL;
}

/* All receives are taken by frames that are held. MPI gives the frames of a
 * rank to receives in the order in which they were sent. So a frame that others
 * wait for was not sent before them, and would never be received. */
static void in_blocked(wf_port *port)
{
    for (uint32_t i = 0; i < port->count; i++) {
        mp_peer *peer = &port->peer[i];

        if (peer->held != NULL && !held_has_next(peer)) {
            mp_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
        }
    }
}

/* Open MPI looks at the requests first and at the network then, so that what
 * the network has is seen by the second look only. */
#ifdef OPEN_MPI
enum { LOOKS = 2 };
#else
enum { LOOKS = 1 };
#endif

unsigned mp_in_poll(wf_port *port)
{
    int over = 0;
    int code = MPI_SUCCESS;

    mp_net_lock();
    for (int look = 0; look < LOOKS && over == 0; look++) {
        code = MPI_Testsome((int)port->slots, port->slot_request, &over,
                            port->slot_index, port->slot_status);
    }
    mp_net_unlock();
    if (over == MPI_UNDEFINED || over <= 0) {
        return 0;
    }
    for (int i = 0; i < over; i++) {
        port->slot[port->slot_index[i]].posted = false;
    }
    port->slots_posted -= (uint32_t)over;
    for (int i = 0; i < over; i++) {
        mp_slot *slot = &port->slot[port->slot_index[i]];
        const MPI_Status *status = &port->slot_status[i];
        int n = 0;

        MPI_Get_count(status, MPI_BYTE, &n);
        slot->n = n > 0 ? (size_t)n : 0;
        if (code == MPI_ERR_IN_STATUS && status->MPI_ERROR != MPI_SUCCESS) {
            in_failed(port, slot, status);
        } else {
            in_arrived(port, slot, status->MPI_SOURCE);
        }
    }
    if (port->slots_posted == 0) {
        in_blocked(port);
    }
    return (unsigned)over;
}
