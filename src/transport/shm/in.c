/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming records. wf_record_parse checks each record first; what it refers to
 * is checked here. Payload is copied out of the ring exactly once, so a peer
 * that changes it meanwhile changes only what it sent. */
#include "base/alloc.h"
#include "base/log.h"
#include "transport/shm/shm.h"

typedef enum in_verdict {
    IN_TAKEN, /* handled: continue with the next one */
    IN_LATER, /* no memory for it now: leave it in the ring */
    IN_BAD    /* no correct peer sends this */
} in_verdict;

/* One record as it lies in the ring. */
typedef struct in_record {
    wf_record is;
    uint64_t word;
    const unsigned char *payload;
} in_record;

static in_verdict in_eager(wf_port *port, shm_peer *peer, const in_record *r)
{
    wf_msg *msg = wf_match_take_posted(&port->match, peer->slot, r->word);
    shm_early *early;

    if (msg != NULL) {
        wf_copy(msg->buf, r->payload, wf_match_fits(msg, r->is.bytes));
        wf_match_describe(msg, peer->rank, r->word, r->is.bytes);
        wf_match_finish(msg);
        return IN_TAKEN;
    }
    if (!wf_match_wants(&port->match, r->word)) {
        return IN_TAKEN;
    }
    early = wf_alloc(sizeof(*early) + r->is.bytes);
    if (early == NULL) {
        return IN_LATER;
    }
    early->arrival = (wf_arrival){.source = peer->slot,
                                  .tag = r->word,
                                  .n = r->is.bytes,
                                  .kind = SHM_ARRIVED_EAGER};
    wf_copy(early->data, r->payload, r->is.bytes);
    wf_match_keep(&port->match, &early->arrival);
    return IN_TAKEN;
}

void shm_in_take_early(wf_port *port, wf_arrival *arrival, wf_msg *msg)
{
    shm_early *early = (shm_early *)arrival;

    wf_match_drop(arrival);
    wf_copy(msg->buf, early->data, wf_match_fits(msg, arrival->n));
    wf_match_describe(msg, port->peer[arrival->source].rank, arrival->tag,
                      arrival->n);
    wf_match_finish(msg);
    wf_free(early);
}

static in_verdict in_offer(wf_port *port, shm_peer *peer, const in_record *r)
{
    wf_offer offer;

    memcpy(&offer, r->payload, sizeof(offer));
    if (offer.n == 0 || offer.n > PTRDIFF_MAX ||
        (offer.place != 0 && shm_large_place(port, peer, &offer) == NULL)) {
        return IN_BAD;
    }
    return shm_large_offered(port, peer, r->word, &offer) ? IN_TAKEN : IN_LATER;
}

/* Remove the message that we offered under `token` from the list. */
static wf_msg *in_find_offered(shm_peer *peer, uint64_t token)
{
    wf_msg *before = NULL;

    for (wf_msg *m = peer->offered.head; m != NULL; before = m, m = m->next) {
        if (m->token == token) {
            wf_queue_cut(&peer->offered, before, m);
            return m;
        }
    }
    return NULL;
}

/* An answer to an offer that does not exist. It may have crossed a withdrawal,
 * but only if there was such an offer. */
static in_verdict in_idle_answer(const wf_port *port, const in_record *r)
{
    return r->word < port->tokens ? IN_TAKEN : IN_BAD;
}

static in_verdict in_taken(wf_port *port, shm_peer *peer, const in_record *r)
{
    wf_msg *msg = in_find_offered(peer, r->word);

    if (msg == NULL) {
        return in_idle_answer(port, r);
    }
    wf_msg_finish(msg, WEFT_OK);
    return IN_TAKEN;
}

static in_verdict in_send(wf_port *port, shm_peer *peer, const in_record *r)
{
    wf_msg *msg = in_find_offered(peer, r->word);
    uint64_t want;

    memcpy(&want, r->payload, sizeof(want));
    if (msg == NULL) {
        return in_idle_answer(port, r);
    }
    if (want == 0 || want > msg->room) {
        wf_queue_push(&peer->offered, msg); /* fails with the peer */
        return IN_BAD;
    }
    msg->room = want;
    shm_out_stream(port, peer, msg);
    return IN_TAKEN;
}

/* Collect a part of an active message that takes several records. */
static in_verdict in_am_part(shm_peer *peer, const in_record *r)
{
    const size_t most = WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX;

    if (r->is.bytes > most - peer->parts_bytes) {
        return IN_BAD;
    }
    if (peer->parts == NULL) {
        peer->parts = wf_alloc(most);
        if (peer->parts == NULL) {
            return IN_LATER;
        }
    }
    wf_copy(peer->parts + peer->parts_bytes, r->payload, r->is.bytes);
    peer->parts_bytes += r->is.bytes;
    return IN_TAKEN;
}

/* Copy an active message for its handler, so that the peer cannot change it
 * meanwhile and both parts are aligned. */
static void in_am_split(wf_port *port, const unsigned char *data,
                        const wf_am_view *am)
{
    wf_copy(port->am_header, data, am->header_bytes);
    wf_copy(port->am_payload, data + am->header_bytes, am->payload_bytes);
}

static in_verdict in_am(wf_port *port, shm_peer *peer, const in_record *r)
{
    size_t n = r->is.bytes;
    const unsigned char *data = r->payload;
    wf_am_view am = {r->is.am_id, port->am_header, r->is.am_header_bytes,
                     port->am_payload, 0};

    if (peer->parts_bytes > 0) {
        in_verdict v = in_am_part(peer, r);

        if (v != IN_TAKEN) {
            return v;
        }
        data = peer->parts;
        n = peer->parts_bytes;
        peer->parts_bytes = 0;
    }
    if (am.header_bytes > n || n - am.header_bytes > WF_AM_PAYLOAD_MAX) {
        return IN_BAD;
    }
    am.payload_bytes = n - am.header_bytes;
    in_am_split(port, data, &am);
    wf_am_call(&port->handlers, peer->rank, &am);
    return IN_TAKEN;
}

static in_verdict in_dispatch(wf_port *port, shm_peer *peer, const in_record *r)
{
    switch (r->is.kind) {
    case WF_RECORD_SKIP:
        return IN_TAKEN;
    case WF_RECORD_EAGER:
        return in_eager(port, peer, r);
    case WF_RECORD_OFFER:
        return in_offer(port, peer, r);
    case WF_RECORD_SEND:
        return in_send(port, peer, r);
    case WF_RECORD_PIECE:
        return shm_large_piece(peer, r->word, r->payload, r->is.bytes)
                   ? IN_TAKEN
                   : IN_BAD;
    case WF_RECORD_TAKEN:
        return in_taken(port, peer, r);
    case WF_RECORD_WITHDRAWN:
        shm_large_withdrawn(port, peer, r->word);
        return IN_TAKEN;
    case WF_RECORD_AM:
        return in_am(port, peer, r);
    case WF_RECORD_AM_PART:
        return in_am_part(peer, r);
    case WF_RECORD_KINDS:
        break;
    }
    return IN_BAD;
}

/* Handle the record whose commit word is `commit`. */
static in_verdict in_take(wf_port *port, shm_peer *peer, wf_ring_reader *in,
                          uint64_t commit)
{
    in_record r = {.payload = in->at + WF_RING_HEADER};
    in_verdict v;

    if (!wf_record_parse(commit, wf_ring_index(in), in->lines, &r.is)) {
        return IN_BAD;
    }
    memcpy(&r.word, in->at + sizeof(commit), sizeof(r.word));
    v = in_dispatch(port, peer, &r);
    if (v == IN_TAKEN) {
        wf_ring_consume(in, r.is.lines);
    }
    return v;
}

static void in_tell(shm_peer *peer, wf_ring_reader *in)
{
    if (wf_ring_tell(in, peer->bell)) {
        wf_board_ring(peer->bell);
    }
}

/* Handles at most one ring full, however fast the peer writes. */
unsigned shm_in_poll(wf_port *port, shm_peer *peer, unsigned limit)
{
    wf_ring_reader *in = &port->in[peer->slot];
    uint64_t until = in->head + in->lines;
    unsigned taken = 0;
    in_verdict v = IN_TAKEN;
    uint64_t commit;

    while (taken < limit && v == IN_TAKEN && in->head < until &&
           (commit = wf_ring_poll(in)) != 0) {
        v = in_take(port, peer, in, commit);
        taken += v == IN_TAKEN;
        if (wf_ring_should_tell(in)) {
            in_tell(peer, in);
        }
    }
    in_tell(peer, in);
    if (v == IN_BAD) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u over shm wrote a record with commit word %#llx, which "
               "makes "
               "no sense; nothing more is taken from it",
               peer->rank, (unsigned long long)commit);
        shm_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
    }
    return taken;
}
