/* SPDX-License-Identifier: Apache-2.0 */
/* What goes out. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/ucx.h"

ucx_out *ucx_out_alloc(ucx_peer *peer, ucx_kind kind, size_t bytes)
{
    ucx_out *out = wf_alloc(sizeof(*out) + bytes);

    if (out != NULL) {
        out->peer = peer;
        out->msg = NULL;
        out->large = NULL;
        out->head = (ucx_head){.proof = peer->proof_out,
                               .from = peer->port->setup.host->rank,
                               .kind = kind};
    }
    return out;
}

/* UCX has let go of the message. One that it could not send is not over: the
 * end of the connection ends it. */
static void out_over(ucx_out *out, ucs_status_t status)
{
    ucx_peer *peer = out->peer;
    wf_port *port = peer->port;
    wf_msg *msg = out->msg;
    ucx_large *large = out->large;
    size_t n = out->head.n;

    peer->lent--;
    port->lent--;
    wf_free(out);
    if (large != NULL) {
        large->lent--;
        peer->window -= n;
    }
    if (msg != NULL) {
        msg->room = 0;
        msg->state = UCX_OVER;
    }
    if (status != UCS_OK) {
        if (!port->closing) {
            ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        }
        return;
    }
    if (msg != NULL && !port->closing && wf_queue_remove(&peer->eager, msg)) {
        wf_msg_finish(msg, WEFT_OK);
    }
    if (large != NULL && !port->closing) {
        ucx_large_moved(peer, large, n);
        ucx_large_pump(peer);
    }
}

static void on_sent(void *request, ucs_status_t status, void *ctx)
{
    ucp_request_free(request);
    out_over(ctx, status);
}

/* A piece of a large message has its place already. Over TCP UCX can only copy
 * it there, so that its rendezvous would be another round trip for nothing. */
static uint32_t send_flags(const ucx_out *out)
{
    return out->large == NULL || out->peer->port->tcp ? UCP_AM_SEND_FLAG_EAGER
                                                      : 0;
}

void ucx_out_send(ucx_out *out, const void *body, size_t n)
{
    ucx_peer *peer = out->peer;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = send_flags(out),
        .cb.send = on_sent,
        .user_data = out};
    ucs_status_ptr_t sent;

    if (ucx_has_order(&out->head)) {
        out->head.number = peer->sent++;
    }
    peer->lent++;
    peer->port->lent++;
    peer->port->dirty = true;
    sent = peer->ep == NULL
               ? UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED)
               : ucp_am_send_nbx(peer->ep, UCX_HANDLER, &out->head,
                                 sizeof(out->head), body, n, &param);
    if (!UCS_PTR_IS_PTR(sent)) {
        out_over(out, UCS_PTR_STATUS(sent));
    }
}

bool ucx_out_say(ucx_peer *peer, ucx_kind kind, uint64_t word, uint64_t n,
                 uint64_t token)
{
    ucx_out *out = ucx_out_alloc(peer, kind, 0);

    if (out != NULL) {
        out->head.word = word;
        out->head.n = n;
        out->head.token = token;
        ucx_out_send(out, NULL, 0);
    }
    return out != NULL;
}

/* A message that was copied is not lent, but it is over only when UCX has sent
 * it all the same: the first one has to wait for the connection, which needs
 * progress(), and a rank that has nothing to wait for does not call that. */
weft_status ucx_out_eager(ucx_peer *peer, uint64_t tag, const void *buf,
                          size_t n, wf_msg *msg)
{
    bool copied = n <= UCX_COPIED;
    ucx_out *out = ucx_out_alloc(peer, UCX_EAGER, copied ? n : 0);

    if (out == NULL) {
        return wf_fail_nomem("a message of %zu bytes", n);
    }
    *msg = (wf_msg){.peer = peer->slot,
                    .state = UCX_SENT,
                    .buf = out,
                    .room = copied ? 0 : 1}; /* lent until this is 0 */
    out->msg = msg;
    out->head.word = tag;
    out->head.n = n;
    if (copied) {
        wf_copy(out->data, buf, n);
    }
    wf_queue_push(&peer->eager, msg);
    ucx_out_send(out, copied ? out->data : buf, n);
    return WEFT_OK;
}

void ucx_out_drop(ucx_peer *peer, wf_msg *msg)
{
    ucx_out *out = msg->buf;

    if (wf_queue_remove(&peer->eager, msg)) {
        ucx_peer_let_go(peer, &msg->room);
        if (msg->state == UCX_SENT) {
            out->msg = NULL;
        }
    }
}

/* Where a payload that has so many bytes of header before it begins. */
static unsigned char *payload_of(ucx_out *out, size_t header_bytes)
{
    size_t past = ((uintptr_t)out->data + header_bytes) % UCX_LINE;

    return out->data + header_bytes + (past > 0 ? UCX_LINE - past : 0);
}

weft_status ucx_out_am(ucx_peer *peer, const wf_am_view *am,
                       wf_am_fill_fn *fill, void *ctx)
{
    size_t n = am->header_bytes + am->payload_bytes;
    ucx_out *out = ucx_out_alloc(peer, UCX_AM, n + UCX_LINE);
    unsigned char *payload;

    if (out == NULL) {
        return wf_fail_nomem("an active message of %zu bytes", n);
    }
    out->head.word = am->id | (uint64_t)am->header_bytes << 8;
    out->head.n = n;
    payload = payload_of(out, am->header_bytes);
    wf_copy(payload - am->header_bytes, am->header, am->header_bytes);
    if (fill != NULL) {
        fill(ctx, payload);
    } else {
        wf_copy(payload, am->payload, am->payload_bytes);
    }
    ucx_out_send(out, payload - am->header_bytes, n);
    return WEFT_OK;
}

/* --- before leaving --------------------------------------------------------
 */

static void on_flushed(void *request, ucs_status_t status, void *ctx)
{
    wf_port *port = ctx;

    (void)status;
    ucp_request_free(request);
    port->flush = NULL;
}

/* UCX says that a message is sent once it has a copy. Somebody who is about to
 * leave asks whether all is out: then it is flushed. */
unsigned ucx_out_flush(wf_port *port)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK |
                                           UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_flushed,
                                       .user_data = port};
    ucs_status_ptr_t flush;

    if (!*port->asked || !port->dirty || port->flush != NULL ||
        port->lent > 0) {
        return 0;
    }
    *port->asked = false;
    port->dirty = false;
    flush = ucp_worker_flush_nbx(port->worker, &param);
    port->flush = UCS_PTR_IS_PTR(flush) ? flush : NULL;
    return 1;
}

/* What UCX has flushed is on its way. It may arrive later than the goodbye,
 * which goes over the board or another connection, and who has heard that
 * closes the connection: so this rank stays until all was taken. */
unsigned ucx_out_ask(wf_port *port)
{
    unsigned events = 0;

    for (uint32_t i = 0; i < port->count; i++) {
        ucx_peer *peer = &port->peer[i];

        if (peer->stand == UCX_HERE && peer->asked != peer->sent &&
            ucx_out_say(peer, UCX_ASK, 0, 0, 0)) {
            peer->asked = peer->sent;
            events++;
        }
    }
    return events;
}

bool ucx_out_is_taken(const ucx_peer *peer)
{
    return peer->stand != UCX_HERE || peer->taken == peer->sent;
}

bool ucx_out_taken(ucx_peer *peer, const ucx_head *head)
{
    if (head->word > peer->asked) {
        return false;
    }
    if (head->word > peer->taken) {
        peer->taken = head->word;
    }
    return true;
}
