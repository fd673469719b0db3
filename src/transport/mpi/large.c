/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages, which go in chunks through memory of ours. */
#include "transport/mpi/mp.h"

#include "base/alloc.h"
#include "base/status.h"

static size_t chunks_of(size_t bytes)
{
    return (bytes + MP_CHUNK_BYTES - 1) / MP_CHUNK_BYTES;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- coming in ------------------------------------------------------------ */

mp_pull *mp_large_new(uint32_t source, const mp_head *head)
{
    mp_pull *pull = wf_alloc(sizeof(*pull));

    if (pull != NULL) {
        *pull = (mp_pull){.arrival = {.source = source,
                                      .tag = head->tag,
                                      .n = head->n,
                                      .kind = MP_OFFER},
                          .token = head->token};
    }
    return pull;
}

void mp_large_match(wf_port *port, mp_pull *pull, wf_msg *msg)
{
    mp_peer *peer = &port->peer[pull->arrival.source];

    wf_match_describe(msg, peer->rank, pull->arrival.tag, pull->arrival.n);
    msg->peer = peer->slot;
    pull->msg = msg;
    pull->want = wf_match_fits(msg, msg->n);
    pull->note = (wf_msg){
        .state = MP_SAY_WANT, .room = pull->want, .token = pull->token};
    if (pull->want == 0) {
        wf_match_finish(msg);
    } else {
        *peer->pulls_end = pull;
        peer->pulls_end = &pull->next;
        peer->need += chunks_of(pull->want);
        mp_peer_wake(port, peer);
    }
    mp_out_push(port, peer, &pull->note);
}

static void pulls_pop(mp_peer *peer)
{
    mp_pull *pull = peer->pulls;

    peer->pulls = pull->next;
    if (peer->pulls == NULL) {
        peer->pulls_end = &peer->pulls;
    }
    wf_free(pull);
}

/* Has the word that it is wanted left? Until then no chunk of it can come. */
static bool pull_is_asked(const mp_peer *peer, const mp_pull *pull)
{
    for (const wf_msg *m = peer->queue.head; m != NULL; m = m->next) {
        if (m == &pull->note) {
            return false;
        }
    }
    return true;
}

/* One chunk of `n` bytes of the first pull; false if it is none. */
static bool chunk_read(mp_peer *peer, const mp_chunk_head *head,
                       const unsigned char *data, size_t n)
{
    mp_pull *pull = peer->pulls;

    if (pull == NULL ||
        !mp_wire_check_chunk(head, n, pull->token, pull->want - pull->moved) ||
        (pull->moved == 0 && !pull_is_asked(peer, pull))) {
        return false;
    }
    if (n == 0) { /* it was dropped; whoever waits goes on waiting */
        peer->need -= chunks_of(pull->want - pull->moved);
        pulls_pop(peer);
        return true;
    }
    if (pull->msg != NULL) {
        wf_copy((unsigned char *)pull->msg->buf + pull->moved, data, n);
    }
    pull->moved += n;
    if (pull->msg != NULL) {
        pull->msg->moved = pull->moved;
    }
    peer->need--;
    if (pull->moved == pull->want) {
        if (pull->msg != NULL) {
            wf_match_finish(pull->msg);
        }
        pulls_pop(peer);
    }
    return true;
}

static unsigned chunks_take(wf_port *port, mp_peer *peer)
{
    unsigned events = 0;
    mp_buf *buf;

    while ((buf = peer->chunks) != NULL && buf->done) {
        const mp_chunk_head *head = (const mp_chunk_head *)buf->data;
        bool fits = buf->n <= sizeof(*head) + MP_CHUNK_BYTES;
        bool good = fits && (!mp_wire_is_chunk(head, buf->n, port->job) ||
                             chunk_read(peer, head, buf->data + sizeof(*head),
                                        buf->n - sizeof(*head)));

        peer->chunks = buf->next;
        if (buf->next == NULL) {
            peer->chunks_end = &peer->chunks;
        }
        peer->posted--;
        mp_buf_give(port, buf, MP_IN_CHUNK);
        events++;
        if (!good) {
            mp_peer_fail(port, peer, WEFT_ERR_PROTOCOL);
            return events;
        }
    }
    return events;
}

/* Post receives for chunks that are to come. */
static void chunks_post(wf_port *port, mp_peer *peer)
{
    while (peer->posted < peer->need && peer->posted < CHUNKS_PEER &&
           !peer->cut) {
        mp_buf *buf = NULL;

        if (peer->posted == 0 || port->chunks_in < CHUNKS_ALL) {
            buf = mp_flights_room(port) ? mp_chunk_take(port) : NULL;
        }
        if (buf == NULL) {
            mp_peer_wake(port, peer);
            return;
        }
        mp_flight_recv(port, peer, buf);
    }
}

/* Its chunks come all the same, and are thrown away. */
bool mp_large_drop(mp_peer *peer, const wf_msg *msg)
{
    for (mp_pull *p = peer->pulls; p != NULL; p = p->next) {
        if (p->msg == msg) {
            p->msg = NULL;
            return true;
        }
    }
    return false;
}

/* --- going out ------------------------------------------------------------ */

static wf_msg *take_token(wf_queue *q, uint64_t token)
{
    wf_msg *before = NULL;

    for (wf_msg *m = q->head; m != NULL; before = m, m = m->next) {
        if (m->token == token) {
            wf_queue_cut(q, before, m);
            return m;
        }
    }
    return NULL;
}

static wf_msg *end_new(uint64_t token)
{
    wf_msg *end = wf_alloc(sizeof(*end));

    if (end != NULL) {
        *end = (wf_msg){.state = MP_SAY_ENDED, .token = token};
    }
    return end;
}

bool mp_large_wanted(wf_port *port, mp_peer *peer, const mp_head *head,
                     bool *bad)
{
    wf_msg *msg = take_token(&peer->offered, head->token);

    if (msg != NULL && head->n > msg->room) {
        wf_queue_push(&peer->offered, msg);
        msg = NULL;
        *bad = true;
        return false;
    }
    if (msg == NULL && head->token >= port->tokens) {
        *bad = true;
        return false;
    }
    if (head->n == 0) {
        if (msg != NULL) {
            wf_msg_finish(msg, WEFT_OK);
        }
        return true;
    }
    if (msg == NULL) { /* it was dropped */
        msg = end_new(head->token);
        if (msg == NULL) {
            return false;
        }
    } else {
        msg->state = MP_STREAM;
        msg->room = head->n;
        msg->moved = 0;
    }
    wf_queue_push(&peer->streams, msg);
    port->waiting++;
    mp_peer_wake(port, peer);
    return true;
}

/* What was sent of it stays sent. In its place a chunk tells the receiver that
 * nothing more comes; without memory for that, the peer is lost. */
bool mp_large_drop_stream(wf_port *port, mp_peer *peer, wf_msg *msg)
{
    wf_msg *before = NULL;
    wf_msg *at = peer->streams.head;
    wf_msg *end;

    while (at != NULL && at != msg) {
        before = at;
        at = at->next;
    }
    if (at == NULL) {
        return false;
    }
    end = end_new(msg->token);
    if (end == NULL) {
        wf_queue_cut(&peer->streams, before, msg);
        port->waiting--;
        mp_peer_cut(port, peer, "dropping a message", MPI_ERR_NO_MEM);
        return true;
    }
    end->next = msg->next;
    if (before == NULL) {
        peer->streams.head = end;
    } else {
        before->next = end;
    }
    if (peer->streams.last == msg) {
        peer->streams.last = end;
    }
    return true;
}

/* Send the next chunk of the first stream. */
static void stream_chunk(wf_port *port, mp_peer *peer, mp_buf *buf)
{
    wf_msg *msg = peer->streams.head;
    mp_chunk_head head = {.job = port->job, .token = msg->token};
    size_t n = msg->state == MP_STREAM
                   ? least(MP_CHUNK_BYTES, msg->room - msg->moved)
                   : 0;

    wf_copy(buf->data, &head, sizeof(head));
    if (n > 0) {
        wf_copy(buf->data + sizeof(head),
                (const unsigned char *)msg->buf + msg->moved, n);
    }
    msg->moved += n;
    if (n == 0 || msg->moved == msg->room) {
        port->waiting--;
        (void)wf_queue_pop(&peer->streams);
        if (msg->state == MP_STREAM) {
            wf_msg_finish(msg, WEFT_OK);
        } else {
            wf_free(msg);
        }
    }
    mp_flight_send(port, peer, buf, MP_OUT_CHUNK, sizeof(head) + n);
}

static unsigned streams_pump(wf_port *port, mp_peer *peer)
{
    unsigned events = 0;

    while (peer->streams.head != NULL && peer->chunks_out < CHUNKS_PEER &&
           events < CHUNKS_PEER && !peer->cut) {
        mp_buf *buf = NULL;

        if (peer->chunks_out == 0 || port->chunks_out < CHUNKS_ALL) {
            buf = mp_flights_room(port) ? mp_chunk_take(port) : NULL;
        }
        if (buf == NULL) {
            break;
        }
        stream_chunk(port, peer, buf);
        events++;
    }
    if (peer->streams.head != NULL && peer->chunks_out < CHUNKS_PEER) {
        mp_peer_wake(port, peer);
    }
    return events;
}

unsigned mp_large_pump(wf_port *port, mp_peer *peer)
{
    unsigned events = chunks_take(port, peer);

    if (peer->failed == WEFT_OK) {
        chunks_post(port, peer);
        events += streams_pump(port, peer);
    }
    return events;
}

void mp_large_fail(wf_port *port, mp_peer *peer, weft_status why)
{
    wf_msg *msg;

    while ((msg = wf_queue_pop(&peer->streams)) != NULL) {
        port->waiting--;
        if (msg->state == MP_STREAM) {
            mp_finish(msg, why);
        } else {
            wf_free(msg);
        }
    }
    while (peer->pulls != NULL) {
        if (peer->pulls->msg != NULL) {
            mp_finish(peer->pulls->msg, why);
        }
        pulls_pop(peer);
    }
    while (peer->chunks != NULL) {
        mp_buf *buf = peer->chunks;

        peer->chunks = buf->next;
        if (buf->done) {
            mp_buf_give(port, buf, MP_IN_CHUNK);
        }
    }
    peer->chunks_end = &peer->chunks;
    peer->posted = 0;
    peer->need = 0;
}
