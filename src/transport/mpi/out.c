/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that go out. */
#include "transport/mpi/mp.h"

#include "base/alloc.h"
#include "base/status.h"

/* A buffer for a frame, with the head's place at its front; NULL: not now. */
static mp_buf *frame_begin(wf_port *port)
{
    return mp_flights_room(port) ? mp_frame_take(port) : NULL;
}

static unsigned char *frame_body(mp_buf *buf)
{
    return buf->data + sizeof(mp_head);
}

static void frame_send(wf_port *port, mp_peer *peer, mp_buf *buf, mp_head head,
                       size_t body)
{
    head.job = port->job;
    head.seq = peer->seq_out++;
    head.credits = peer->owed;
    peer->owed = 0;
    if (mp_costs_credit(head.kind)) {
        peer->credits--;
        peer->sent++;
    }
    wf_copy(buf->data, &head, sizeof(head));
    mp_flight_send(port, peer, buf, MP_OUT_FRAME, sizeof(head) + body);
}

/* --- what waits ----------------------------------------------------------- */

/* Make the frame that `msg` stands for; it has been taken from the queue. */
static void out_one(wf_port *port, mp_peer *peer, wf_msg *msg, mp_buf *buf)
{
    mp_head head = {.tag = msg->tag, .n = msg->room, .token = msg->token};
    mp_am *am = (mp_am *)msg;
    mp_pull *pull;
    size_t body = 0;

    switch ((mp_state)msg->state) {
    case MP_SEND_EAGER:
        head.kind = MP_EAGER;
        body = msg->room;
        wf_copy(frame_body(buf), msg->buf, body);
        wf_msg_finish(msg, WEFT_OK);
        break;
    case MP_SAY_AM:
        head.kind = MP_AM;
        head.word = am->word;
        body = am->n;
        wf_copy(frame_body(buf), am->data, body);
        wf_free(am);
        break;
    case MP_SAY_WANT:
        head.kind = MP_WANT;
        pull = mp_pull_of_note(msg);
        if (pull->want == 0) {
            wf_free(pull);
        }
        break;
    default:
        head.kind = MP_OFFER;
        msg->state = MP_OFFERED;
        wf_queue_push(&peer->offered, msg);
        break;
    }
    frame_send(port, peer, buf, head, body);
}

/* A frame without a body; false: not now. */
static bool out_word(wf_port *port, mp_peer *peer, mp_kind kind, uint32_t token)
{
    mp_buf *buf = frame_begin(port);

    if (buf == NULL) {
        mp_peer_wake(port, peer);
        return false;
    }
    frame_send(port, peer, buf, (mp_head){.kind = kind, .token = token}, 0);
    return true;
}

/* Return credits if the peer may be short of them and nothing else does, or if
 * it asked; then chunks that it has sent may still be on their way. */
static void out_credit(wf_port *port, mp_peer *peer)
{
    uint32_t question = peer->pulls == NULL ? peer->question : 0;

    if ((peer->owed >= MP_CREDITS / 2 || question != 0) &&
        out_word(port, peer, MP_CREDIT, question) && question != 0) {
        peer->question = 0;
    }
}

/* Before leaving: was all read? Not before it was sent. */
static void out_ask(wf_port *port, mp_peer *peer)
{
    if (peer->sent != peer->asked_at && peer->queue.head == NULL &&
        peer->streams.head == NULL &&
        out_word(port, peer, MP_ASK, peer->asks + 1)) {
        peer->asks++;
        peer->asked_at = peer->sent;
    }
}

bool mp_out_is_read(const mp_peer *peer)
{
    return peer->deaf ||
           (peer->sent == peer->asked_at && peer->asks == peer->answers);
}

void mp_out_bye(wf_port *port)
{
    for (uint32_t i = 0; i < port->count; i++) {
        mp_peer *peer = &port->peer[i];

        if (peer->failed == WEFT_OK && !peer->going && !peer->cut &&
            !peer->deaf && (peer->seq_in != 0 || peer->seq_out != 0)) {
            (void)out_word(port, peer, MP_BYE, 0);
        }
    }
}

void mp_out_pump(wf_port *port, mp_peer *peer)
{
    while (peer->queue.head != NULL && peer->credits > 0 && !peer->cut) {
        mp_buf *buf = frame_begin(port);

        if (buf == NULL) {
            mp_peer_wake(port, peer);
            return;
        }
        port->waiting--;
        out_one(port, peer, wf_queue_pop(&peer->queue), buf);
    }
    out_credit(port, peer);
    if (port->leaving_ns != 0 && !peer->cut) {
        out_ask(port, peer);
    }
}

void mp_out_push(wf_port *port, mp_peer *peer, wf_msg *msg)
{
    wf_queue_push(&peer->queue, msg);
    port->waiting++;
    mp_out_pump(port, peer);
}

/* --- active messages ------------------------------------------------------ */

static size_t am_fill(unsigned char *to, const wf_am_view *am)
{
    size_t at = mp_am_payload(am->header_bytes);

    memset(to, 0, at);
    wf_copy(to, am->header, am->header_bytes);
    wf_copy(to + at, am->payload, am->payload_bytes);
    return at + am->payload_bytes;
}

static weft_status am_later(wf_port *port, mp_peer *peer, const wf_am_view *am,
                            uint32_t word)
{
    size_t n = mp_am_payload(am->header_bytes) + am->payload_bytes;
    mp_am *later = wf_alloc(sizeof(*later) + n);

    if (later == NULL) {
        return wf_fail_nomem("an active message of %zu bytes", n);
    }
    *later = (mp_am){.msg = {.state = MP_SAY_AM, .room = am->payload_bytes},
                     .word = word,
                     .n = am_fill(later->data, am)};
    mp_out_push(port, peer, &later->msg);
    return WEFT_OK;
}

weft_status mp_out_am(wf_port *port, mp_peer *peer, const wf_am_view *am)
{
    uint32_t word = am->id | (uint32_t)am->header_bytes << 8;
    mp_head head = {.kind = MP_AM, .word = word, .n = am->payload_bytes};
    mp_buf *buf = NULL;

    if (peer->queue.head == NULL && peer->credits > 0 && !peer->cut) {
        buf = frame_begin(port);
    }
    if (buf == NULL) {
        return am_later(port, peer, am, word);
    }
    frame_send(port, peer, buf, head, am_fill(frame_body(buf), am));
    return WEFT_OK;
}

/* --- the end of messages -------------------------------------------------- */

bool mp_out_drop(wf_port *port, mp_peer *peer, wf_msg *msg)
{
    if (wf_queue_remove(&peer->queue, msg)) {
        port->waiting--;
        return true;
    }
    return wf_queue_remove(&peer->offered, msg);
}

void mp_out_fail(wf_port *port, mp_peer *peer, weft_status why)
{
    wf_msg *msg;

    while ((msg = wf_queue_pop(&peer->queue)) != NULL) {
        port->waiting--;
        if (msg->state == MP_SAY_AM) {
            wf_free(msg);
        } else if (msg->state != MP_SAY_WANT) {
            mp_finish(msg, why);
        } else if (mp_pull_of_note(msg)->want == 0) {
            wf_free(mp_pull_of_note(msg));
        }
    }
    while ((msg = wf_queue_pop(&peer->offered)) != NULL) {
        mp_finish(msg, why);
    }
}
