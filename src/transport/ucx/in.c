/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in. */
#include "base/alloc.h"
#include "base/log.h"
#include "transport/ucx/ucx.h"

/* One message as UCX hands it over. */
typedef struct in_bytes {
    void *data;
    size_t n;
    bool ours; /* it may be kept, and is then released */
} in_bytes;

/* What UCX hands over cannot be refused: a rank that has no memory for it, not
 * at the second attempt either, loses the peer. */
static void *in_alloc(ucx_peer *peer, size_t bytes)
{
    void *p = wf_alloc(bytes);

    p = p != NULL ? p : wf_alloc(bytes);
    if (p == NULL) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u has no memory for a message of rank %u and gives up "
               "the connection",
               peer->port->setup.host->rank, peer->rank);
        ucx_peer_end(peer, UCX_DEAF, WEFT_ERR_PEER);
    }
    return p;
}

void ucx_in_free(const wf_port *port, ucx_in *in)
{
    if (in->kept != NULL && port->worker != NULL) {
        ucp_am_data_release(port->worker, in->kept);
    }
    wf_free(in);
}

/* Keep a message: in UCX's memory if that may be, else in our own. */
static ucx_in *in_keep(ucx_peer *peer, const ucx_head *head, in_bytes *bytes)
{
    ucx_in *in = in_alloc(peer, sizeof(*in) + (bytes->ours ? 0 : bytes->n));

    if (in == NULL) {
        return NULL;
    }
    *in = (ucx_in){.peer = peer,
                   .head = *head,
                   .arrival = {.source = peer->slot,
                               .tag = head->word,
                               .n = head->n,
                               .kind = head->kind}};
    if (bytes->ours) {
        in->kept = bytes->data;
        bytes->data = NULL;
    } else {
        wf_copy(in->data, bytes->data, bytes->n);
    }
    return in;
}

static const void *in_data(const ucx_in *in)
{
    return in->kept != NULL ? in->kept : in->data;
}

/* --- whose turn it is ------------------------------------------------------
 */

static void in_finish(const ucx_peer *peer, const ucx_head *head,
                      const void *data, wf_msg *msg)
{
    wf_copy(msg->buf, data, wf_match_fits(msg, head->n));
    wf_match_describe(msg, peer->rank, head->word, head->n);
    wf_match_finish(msg);
}

void ucx_in_take(wf_port *port, ucx_in *in, wf_msg *msg)
{
    if (in->head.kind == UCX_OFFER) {
        ucx_large_want(port, in, msg);
        return;
    }
    in_finish(&port->peer[in->arrival.source], &in->head, in_data(in), msg);
    ucx_in_free(port, in);
}

/* Offer it to whoever handles it where UCX has it, unless another one has to be
 * handled before. */
static bool in_am_early(const ucx_peer *peer, const ucx_head *head,
                        const unsigned char *data)
{
    const wf_port *port = peer->port;
    size_t header = ucx_am_header(head);
    wf_am_view am = {ucx_am_id(head), data, header, data + header,
                     head->n - header};

    return port->calls == NULL &&
           wf_am_call_early(&port->handlers, peer->rank, &am);
}

static void in_am(ucx_peer *peer, const ucx_head *head,
                  const unsigned char *data)
{
    wf_port *port = peer->port;
    size_t header = ucx_am_header(head);
    size_t payload = head->n - header;
    ucx_call *call;

    if (in_am_early(peer, head, data)) {
        return;
    }
    call = in_alloc(peer, sizeof(*call) + payload);
    if (call == NULL) {
        return;
    }
    call->next = NULL;
    call->peer = peer;
    call->id = ucx_am_id(head);
    call->header_bytes = header;
    call->payload_bytes = payload;
    wf_copy(call->header, data, header);
    wf_copy(call->payload, data + header, payload);
    *port->calls_end = call;
    port->calls_end = &call->next;
}

/* A tagged message, or the offer of one: `in` if it was kept before. */
static void in_tagged(ucx_peer *peer, const ucx_head *head, in_bytes *bytes,
                      ucx_in *in)
{
    wf_port *port = peer->port;
    wf_msg *msg = wf_match_take_posted(&port->match, peer->slot, head->word);

    if (msg != NULL && head->kind == UCX_EAGER) {
        in_finish(peer, head, in != NULL ? in_data(in) : bytes->data, msg);
    } else if (msg != NULL || wf_match_wants(&port->match, head->word)) {
        in = in != NULL ? in : in_keep(peer, head, bytes);
        if (in != NULL && msg != NULL) {
            ucx_large_want(port, in, msg);
        } else if (in != NULL) {
            wf_match_keep(&port->match, &in->arrival);
        } else if (msg != NULL) {
            wf_match_post(&port->match, msg);
        }
        return;
    }
    if (in != NULL) {
        ucx_in_free(port, in);
    }
}

/* Its turn has come. */
static void in_turn(ucx_peer *peer, const ucx_head *head, in_bytes *bytes,
                    ucx_in *in)
{
    peer->heard++;
    switch (head->kind) {
    case UCX_EAGER:
    case UCX_OFFER:
        in_tagged(peer, head, bytes, in);
        return;
    case UCX_AM:
        in_am(peer, head, in != NULL ? in_data(in) : bytes->data);
        break;
    case UCX_ASK:
        (void)ucx_out_say(peer, UCX_TAKEN, peer->heard, 0, 0);
        break;
    default: /* UCX_WITHDRAWN */
        ucx_large_withdrawn(peer, head->token);
        break;
    }
    if (in != NULL) {
        ucx_in_free(peer->port, in);
    }
}

/* It has to wait: until those before it have come, or until somebody may be
 * called back. False if there is such a one already. */
static bool in_wait(ucx_peer *peer, const ucx_head *head, in_bytes *bytes)
{
    ucx_in **at = &peer->early;
    ucx_in *in;

    while (*at != NULL && (*at)->head.number < head->number) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->head.number == head->number) {
        return false;
    }
    in = in_keep(peer, head, bytes);
    if (in != NULL) {
        in->next = *at;
        *at = in;
    }
    return true;
}

unsigned ucx_in_resume(ucx_peer *peer)
{
    unsigned events = 0;
    ucx_in *in;

    while ((in = peer->early) != NULL && in->head.number == peer->heard &&
           peer->stand <= UCX_GOING && !peer->port->holding) {
        ucx_head head = in->head;
        in_bytes none = {0};

        peer->early = in->next;
        in_turn(peer, &head, &none, in);
        events++;
    }
    return events;
}

/* --- from UCX --------------------------------------------------------------
 */

static ucs_status_t in_stranger(wf_port *port)
{
    if (port->strangers++ == 0) {
        wf_log(WEFT_LOG_WARN,
               "rank %u hears somebody over UCX who does not know the secret "
               "of this job; this is ignored and not told again",
               port->setup.host->rank);
    }
    return UCS_OK;
}

ucs_status_t ucx_in_nonsense(ucx_peer *peer)
{
    wf_log(WEFT_LOG_ERROR, "rank %u sent something malformed over UCX",
           peer->rank);
    ucx_peer_end(peer, UCX_DEAF, WEFT_ERR_PROTOCOL);
    return UCS_OK;
}

/* The peer that proves to have sent this; NULL: a stranger. */
static ucx_peer *in_sender(const wf_port *port, const ucx_head *head)
{
    ucx_peer *peer = ucx_peer_of(port, head->from);

    return peer != NULL && peer->proof_in == head->proof ? peer : NULL;
}

static ucs_status_t in_ordered(ucx_peer *peer, const ucx_head *head,
                               in_bytes *bytes)
{
    void *data = bytes->data;

    if (head->number < peer->heard) {
        return ucx_in_nonsense(peer);
    }
    if (head->number > peer->heard || peer->port->holding) {
        peer->port->waiting += peer->port->holding;
        if (!in_wait(peer, head, bytes)) {
            return ucx_in_nonsense(peer);
        }
    } else {
        in_turn(peer, head, bytes, NULL);
        ucx_in_resume(peer);
    }
    /* UCS_INPROGRESS: we keep its memory. */
    return data != NULL && bytes->data == NULL ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t ucx_in_arrived(void *arg, const void *header, size_t header_bytes,
                            void *data, size_t n,
                            const ucp_am_recv_param_t *param)
{
    wf_port *port = arg;
    bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    in_bytes bytes = {
        data, n, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && n > 0};
    ucx_head head;
    ucx_peer *peer;

    if (!ucx_wire_read(header, header_bytes, &head) ||
        (peer = in_sender(port, &head)) == NULL) {
        return in_stranger(port);
    }
    if (peer->stand > UCX_GOING || port->closing) {
        return UCS_OK;
    }
    if (!ucx_wire_check(&head, n) || (rendezvous && head.kind != UCX_DATA)) {
        return ucx_in_nonsense(peer);
    }
    if (peer->stand == UCX_HERE && ucx_peer_connect(peer) != WEFT_OK) {
        return UCS_OK;
    }
    if (peer->heard == 0) {
        ucx_sockets_added(port); /* UCX may have taken the peer's one */
    }
    if (ucx_has_order(&head)) {
        return in_ordered(peer, &head, &bytes);
    }
    if (head.kind == UCX_DATA) {
        return ucx_large_piece(peer, &head, data, rendezvous);
    }
    if (head.kind == UCX_CUT) {
        ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        return UCS_OK;
    }
    return (head.kind == UCX_TAKEN ? ucx_out_taken(peer, &head)
                                   : ucx_large_wanted(peer, &head))
               ? UCS_OK
               : ucx_in_nonsense(peer);
}

/* --- handlers --------------------------------------------------------------
 */

/* They are called when UCX is left, so that they may do anything. */
unsigned ucx_in_call(wf_port *port)
{
    unsigned events = 0;
    ucx_call *call;

    while ((call = port->calls) != NULL) {
        wf_am_view am = {call->id, call->header, call->header_bytes,
                         call->payload, call->payload_bytes};

        port->calls = call->next;
        if (port->calls == NULL) {
            port->calls_end = &port->calls;
        }
        if (call->peer->stand != UCX_LOST) {
            wf_am_call(&port->handlers, call->peer->rank, &am);
        }
        wf_free(call);
        events++;
    }
    return events;
}
