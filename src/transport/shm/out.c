/* SPDX-License-Identifier: Apache-2.0 */
/* Outgoing messages. A message goes into the ring at once if there is room and
 * the peer's queue is empty; else it waits in that queue until progress() finds
 * room. Tagged messages wait in the caller's own wf_msg, and answers in their
 * large message; only active messages are copied. */
#include "base/alloc.h"
#include "base/status.h"
#include "transport/shm/shm.h"

/* Copy one payload into the ring as a record. */
static bool out_record(shm_peer *peer, uint64_t commit, uint64_t word,
                       const void *payload, size_t n)
{
    unsigned char *record = wf_ring_claim(&peer->out, n);

    if (record == NULL) {
        return false;
    }
    wf_copy(record + WF_RING_HEADER, payload, n);
    wf_ring_publish(&peer->out, record, commit, word, n);
    return true;
}

static bool out_eager(shm_peer *peer, wf_msg *msg)
{
    if (!out_record(peer, wf_record_commit(WF_RECORD_EAGER, msg->room),
                    msg->tag, msg->buf, msg->room)) {
        return false;
    }
    wf_msg_finish(msg, WEFT_OK);
    return true;
}

static bool out_offer(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    wf_offer offer = {.n = msg->room,
                      .address = (uint64_t)(uintptr_t)msg->buf,
                      .token = port->tokens,
                      .withdrawn = peer->out.withdrawn};

    if (peer->range != NULL) {
        offer.place = wf_arena_place(port->host->arena, msg->buf, msg->room);
    }

    if (!out_record(peer, wf_record_commit(WF_RECORD_OFFER, sizeof(offer)),
                    msg->tag, &offer, sizeof(offer))) {
        return false;
    }
    msg->token = port->tokens++;
    msg->state = SHM_OFFERED;
    wf_queue_push(&peer->offered, msg);
    return true;
}

static bool out_say_send(shm_peer *peer, wf_msg *note)
{
    shm_large *large = shm_large_of_note(note);
    uint64_t want = large->want;

    if (!out_record(peer, wf_record_commit(WF_RECORD_SEND, sizeof(want)),
                    large->token, &want, sizeof(want))) {
        return false;
    }
    large->answered = true;
    return true;
}

static bool out_say_taken(shm_peer *peer, wf_msg *note)
{
    shm_large *large = shm_large_of_note(note);

    if (!out_record(peer, wf_record_commit(WF_RECORD_TAKEN, 0), large->token,
                    NULL, 0)) {
        return false;
    }
    wf_free(large);
    return true;
}

static bool out_say_withdrawn(shm_peer *peer, wf_msg *note)
{
    if (!out_record(peer, wf_record_commit(WF_RECORD_WITHDRAWN, 0), note->token,
                    NULL, 0)) {
        return false;
    }
    wf_free(note);
    return true;
}

/* An active message that is too long for one record goes in parts, of which
 * the last one is the record that names it. */
static bool out_am(shm_peer *peer, wf_msg *msg)
{
    shm_am *am = (shm_am *)msg;
    size_t most = wf_ring_payload_max(peer->out.lines);

    while (msg->room - msg->moved > most) {
        if (!out_record(peer, wf_record_commit(WF_RECORD_AM_PART, most), 0,
                        am->data + msg->moved, most)) {
            return false;
        }
        msg->moved += most;
    }
    if (!out_record(peer,
                    wf_record_am_commit(am->id, am->header_bytes,
                                        msg->room - msg->moved),
                    0, am->data + msg->moved, msg->room - msg->moved)) {
        return false;
    }
    wf_free(am);
    return true;
}

/* True once `msg` is in the ring; it may be complete or freed by then, so it
 * must have left the queue. */
static bool out_try(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    switch ((shm_state)msg->state) {
    case SHM_EAGER:
        return out_eager(peer, msg);
    case SHM_OFFER:
        return out_offer(port, peer, msg);
    case SHM_AM:
        return out_am(peer, msg);
    case SHM_SAY_SEND:
        return out_say_send(peer, msg);
    case SHM_SAY_TAKEN:
        return out_say_taken(peer, msg);
    case SHM_SAY_WITHDRAWN:
        return out_say_withdrawn(peer, msg);
    case SHM_RECEIVE:
    case SHM_OFFERED:
    case SHM_STREAM:
        break;
    }
    return false;
}

static bool out_waits(const shm_peer *peer)
{
    return peer->queue.head != NULL || peer->streams.head != NULL;
}

/* Update the count of waiting messages after a change of the queue. */
static void out_recount(wf_port *port, shm_peer *peer, bool waited)
{
    bool waits = out_waits(peer);

    if (waits != waited) {
        port->waiting += waits ? 1u : -1u;
        wf_ring_block(&peer->out, waits);
    }
}

static void out_wait(wf_port *port, shm_peer *peer, wf_queue *queue,
                     wf_msg *msg)
{
    bool waited = out_waits(peer);

    wf_queue_push(queue, msg);
    out_recount(port, peer, waited);
}

/* Wake the peer, and its server if an active message was sent. */
static void out_ring(shm_peer *peer, bool active)
{
    wf_board_ring(peer->bell);
    if (active && wf_board_listens(peer->bell)) {
        wf_board_wake_listener(peer->bell);
    }
}

void shm_out_submit(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    bool active = msg->state == SHM_AM;

    if (peer->queue.head == NULL && out_try(port, peer, msg)) {
        out_ring(peer, active);
        return;
    }
    out_wait(port, peer, &peer->queue, msg);
}

bool shm_out_am(shm_peer *peer, const wf_am_view *am)
{
    size_t n = am->header_bytes + am->payload_bytes;
    unsigned char *record;

    if (peer->queue.head != NULL || n > wf_ring_payload_max(peer->out.lines)) {
        return false;
    }
    record = wf_ring_claim(&peer->out, n);
    if (record == NULL) {
        return false;
    }
    wf_copy(record + WF_RING_HEADER, am->header, am->header_bytes);
    wf_copy(record + WF_RING_HEADER + am->header_bytes, am->payload,
            am->payload_bytes);
    wf_ring_publish(&peer->out, record,
                    wf_record_am_commit(am->id, am->header_bytes, n), 0, n);
    wf_board_ring_listener(peer->bell);
    return true;
}

weft_status shm_out_am_later(wf_port *port, shm_peer *peer,
                             const wf_am_view *view)
{
    size_t n = view->header_bytes + view->payload_bytes;
    shm_am *am = wf_alloc(sizeof(*am) + n);

    if (am == NULL) {
        return wf_fail_nomem("an active message of %zu bytes", n);
    }
    am->msg = (wf_msg){.state = SHM_AM, .room = n};
    am->id = view->id;
    am->header_bytes = (uint32_t)view->header_bytes;
    wf_copy(am->data, view->header, view->header_bytes);
    wf_copy(am->data + view->header_bytes, view->payload, view->payload_bytes);
    shm_out_submit(port, peer, &am->msg);
    return WEFT_OK;
}

void shm_out_stream(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    msg->state = SHM_STREAM;
    msg->moved = 0;
    out_wait(port, peer, &peer->streams, msg);
}

/* Write the next piece of a stream; the receiver wants `room` bytes of it. */
static bool out_piece(shm_peer *peer, wf_msg *msg)
{
    size_t most = wf_ring_payload_max(peer->out.lines);
    size_t n = msg->room - msg->moved;

    most = most < SHM_PIECE ? most : SHM_PIECE;
    n = n < most ? n : most;
    if (!out_record(peer, wf_record_commit(WF_RECORD_PIECE, n), msg->token,
                    (const unsigned char *)msg->buf + msg->moved, n)) {
        return false;
    }
    msg->moved += n;
    return true;
}

/* Write as much of the first streams as fits, up to a limit. */
static unsigned out_pump_streams(shm_peer *peer)
{
    unsigned pieces = 0;
    wf_msg *msg;

    while ((msg = peer->streams.head) != NULL && pieces < SHM_PIECES &&
           out_piece(peer, msg)) {
        pieces++;
        if (msg->moved == msg->room) {
            wf_queue_pop(&peer->streams);
            wf_msg_finish(msg, WEFT_OK);
        }
    }
    return pieces;
}

unsigned shm_out_pump(wf_port *port, shm_peer *peer)
{
    unsigned events = 0;
    bool active = false;
    wf_msg *msg;

    if (!out_waits(peer)) {
        return 0;
    }
    while ((msg = peer->queue.head) != NULL) {
        wf_msg *next = msg->next;
        bool is_active = msg->state == SHM_AM;

        if (!out_try(port, peer, msg)) {
            break;
        }
        active = active || is_active;
        peer->queue.head = next;
        events++;
    }
    if (peer->queue.head == NULL) {
        events += out_pump_streams(peer);
    }
    if (events > 0) {
        out_recount(port, peer, true);
        out_ring(peer, active);
    }
    if (peer->out.broken) {
        shm_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
    }
    return events;
}

/* Remove a message from the queue; false if it is not there. */
bool shm_out_forget(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    bool waited = out_waits(peer);

    if (!wf_queue_remove(&peer->queue, msg)) {
        return false;
    }
    out_recount(port, peer, waited);
    return true;
}

/* Tell the peer that the offer of `msg` is withdrawn. */
static void out_unoffer(wf_port *port, shm_peer *peer, const wf_msg *msg)
{
    wf_msg *note = wf_alloc(sizeof(*note));

    wf_ring_withdraw(&peer->out);
    if (note == NULL) {
        return; /* The peer is not told; its own deadline ends its wait. */
    }
    *note = (wf_msg){.state = SHM_SAY_WITHDRAWN, .token = msg->token};
    shm_out_submit(port, peer, note);
}

void shm_out_withdraw(wf_port *port, shm_peer *peer, wf_msg *msg)
{
    bool waited = out_waits(peer);

    if (shm_out_forget(port, peer, msg)) {
        return;
    }
    if (wf_queue_remove(&peer->streams, msg)) {
        out_recount(port, peer, waited);
        out_unoffer(port, peer, msg);
    } else if (wf_queue_remove(&peer->offered, msg)) {
        out_unoffer(port, peer, msg);
    }
}

/* A note that says SEND belongs to a large message that is listed elsewhere. */
static void out_drop(wf_msg *msg, weft_status why)
{
    switch ((shm_state)msg->state) {
    case SHM_AM:
    case SHM_SAY_WITHDRAWN:
        wf_free(msg);
        break;
    case SHM_SAY_TAKEN:
        wf_free(shm_large_of_note(msg));
        break;
    case SHM_SAY_SEND:
    case SHM_RECEIVE:
        break;
    case SHM_EAGER:
    case SHM_OFFER:
    case SHM_OFFERED:
    case SHM_STREAM:
        shm_finish(msg, why);
        break;
    }
}

void shm_out_fail(wf_port *port, shm_peer *peer, weft_status why)
{
    bool waited = out_waits(peer);
    wf_queue *const lists[] = {&peer->queue, &peer->streams, &peer->offered};
    wf_msg *msg;

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        while ((msg = wf_queue_pop(lists[i])) != NULL) {
            out_drop(msg, why);
        }
    }
    out_recount(port, peer, waited);
}
