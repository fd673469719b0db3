/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that are offered first: neither buffer is lent to UCX before a
 * receive has matched. */
#include "base/alloc.h"
#include "base/status.h"
#include "transport/ucx/ucx.h"

/* --- out -------------------------------------------------------------------
 */

weft_status ucx_large_offer(ucx_peer *peer, uint64_t tag, const void *buf,
                            size_t n, wf_msg *msg)
{
    wf_port *port = peer->port;
    ucx_large **at = &peer->offers;
    ucx_large *large = wf_zalloc(sizeof(*large));

    if (large == NULL || !ucx_out_say(peer, UCX_OFFER, tag, n, port->tokens)) {
        wf_free(large);
        return wf_fail_nomem("a message of %zu bytes", n);
    }
    *msg = (wf_msg){.peer = peer->slot, .state = UCX_OFFERED};
    *large =
        (ucx_large){.msg = msg, .buf = buf, .n = n, .token = port->tokens++};
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = large;
    return WEFT_OK;
}

static void large_remove(ucx_peer *peer, ucx_large *large)
{
    ucx_large **at = &peer->offers;

    while (*at != large) {
        at = &(*at)->next;
    }
    *at = large->next;
    wf_free(large);
}

/* The next one that has a piece to give. */
static ucx_large *large_next(const ucx_peer *peer)
{
    ucx_large *large = peer->offers;

    while (large != NULL && (!large->wanted || large->msg == NULL ||
                             large->given == large->want)) {
        large = large->next;
    }
    return large;
}

static bool large_give(ucx_peer *peer, ucx_large *large)
{
    size_t left = large->want - large->given;
    size_t most = peer->port->tcp ? UCX_PIECE_TCP : UCX_PIECE;
    size_t n = left < most ? left : most;
    ucx_out *out = ucx_out_alloc(peer, UCX_DATA, 0);

    if (out == NULL) {
        peer->port->starved = true;
        return false;
    }
    out->large = large;
    out->head.word = large->given;
    out->head.n = n;
    out->head.token = large->theirs;
    large->given += n;
    large->lent++;
    peer->window += n;
    ucx_out_send(out, large->buf + out->head.word, n);
    return true;
}

/* A piece may be over at once, and the message with it: so each turn looks for
 * the next one anew. */
void ucx_large_pump(ucx_peer *peer)
{
    ucx_large *large;

    if (peer->pumping || peer->stand != UCX_HERE) {
        return;
    }
    peer->pumping = true;
    while (peer->window < UCX_WINDOW && (large = large_next(peer)) != NULL &&
           large_give(peer, large)) {
    }
    peer->pumping = false;
}

static void large_check_over(ucx_peer *peer, ucx_large *large)
{
    wf_msg *msg = large->msg;

    if (msg != NULL && large->wanted && large->moved == large->want) {
        large_remove(peer, large);
        wf_msg_finish(msg, WEFT_OK);
    }
}

void ucx_large_moved(ucx_peer *peer, ucx_large *large, size_t n)
{
    large->moved += n;
    if (large->msg != NULL) {
        large->msg->moved = large->moved;
    }
    large_check_over(peer, large);
}

bool ucx_large_wanted(ucx_peer *peer, const ucx_head *head)
{
    ucx_large *large = peer->offers;

    while (large != NULL && large->token != head->token) {
        large = large->next;
    }
    if (large == NULL) { /* it was dropped, if there was such a one */
        return head->token < peer->port->tokens;
    }
    if (large->wanted || head->n > large->n) {
        return false;
    }
    large->wanted = true;
    large->want = head->n;
    large->theirs = head->word;
    large_check_over(peer, large);
    ucx_large_pump(peer);
    return true;
}

void ucx_large_drop_send(ucx_peer *peer, const wf_msg *msg)
{
    ucx_large *large = peer->offers;
    uint64_t token;

    while (large != NULL && large->msg != msg) {
        large = large->next;
    }
    if (large == NULL) {
        return;
    }
    token = large->token;
    large->msg = NULL;
    ucx_peer_let_go(peer, &large->lent);
    large_remove(peer, large);
    if (peer->stand == UCX_HERE) {
        (void)ucx_out_say(peer, UCX_WITHDRAWN, 0, 0, token);
    }
}

/* --- in --------------------------------------------------------------------
 */

static void coming_remove(ucx_peer *peer, ucx_in *in)
{
    ucx_in **at = &peer->coming;

    while (*at != in) {
        at = &(*at)->next;
    }
    *at = in->next;
    ucx_in_free(peer->port, in);
}

static void coming_check_over(ucx_peer *peer, ucx_in *in)
{
    wf_msg *msg = in->msg;

    if (msg != NULL && in->asked && in->moved == in->want) {
        coming_remove(peer, in);
        wf_match_finish(msg);
    }
}

/* So many bytes more are in their place. */
static void coming_moved(ucx_peer *peer, ucx_in *in, size_t n)
{
    in->moved += n;
    if (peer->port->closing) {
        return;
    }
    if (in->msg != NULL) {
        in->msg->moved = in->moved;
    }
    coming_check_over(peer, in);
}

static void coming_ask(ucx_peer *peer, ucx_in *in)
{
    if (ucx_out_say(peer, UCX_WANT, in->token, in->want, in->head.token)) {
        in->asked = true;
        coming_check_over(peer, in);
    } else {
        peer->port->starved = true;
    }
}

void ucx_large_want(wf_port *port, ucx_in *in, wf_msg *msg)
{
    ucx_peer *peer = in->peer;

    wf_match_describe(msg, peer->rank, in->head.word, in->head.n);
    in->msg = msg;
    in->want = wf_match_fits(msg, in->head.n);
    in->token = port->tokens++;
    in->next = peer->coming;
    peer->coming = in;
    coming_ask(peer, in);
}

/* UCX has written a piece to its place. */
static void on_pulled(void *request, ucs_status_t status, size_t n, void *ctx)
{
    ucx_in *in = ctx;
    ucx_peer *peer = in->peer;

    ucp_request_free(request);
    in->lent--;
    peer->pulls--;
    if (status != UCS_OK) {
        if (!peer->port->closing) {
            ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        }
        return;
    }
    coming_moved(peer, in, n);
}

/* Have UCX move a piece straight to its place. */
static ucs_status_t piece_pull(ucx_peer *peer, ucx_in *in, const ucx_head *head,
                               void *data)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK |
                                           UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv_am = on_pulled,
                                       .user_data = in};
    ucs_status_ptr_t pull;

    in->lent++;
    peer->pulls++;
    pull = ucp_am_recv_data_nbx(peer->port->worker, data,
                                (unsigned char *)in->msg->buf + head->word,
                                head->n, &param);
    if (UCS_PTR_IS_PTR(pull)) {
        return UCS_INPROGRESS;
    }
    in->lent--;
    peer->pulls--;
    if (UCS_PTR_IS_ERR(pull)) {
        ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        return UCS_OK;
    }
    coming_moved(peer, in, head->n);
    return UCS_INPROGRESS;
}

ucs_status_t ucx_large_piece(ucx_peer *peer, const ucx_head *head, void *data,
                             bool rendezvous)
{
    ucx_in *in = peer->coming;

    while (in != NULL && in->token != head->token) {
        in = in->next;
    }
    if (in == NULL || in->msg == NULL) { /* dropped, if there was such a one */
        return head->token < peer->port->tokens ? UCS_OK
                                                : ucx_in_nonsense(peer);
    }
    if (!in->asked || head->word + head->n > in->want) {
        return ucx_in_nonsense(peer);
    }
    if (rendezvous) {
        return piece_pull(peer, in, head, data);
    }
    wf_copy((unsigned char *)in->msg->buf + head->word, data, head->n);
    coming_moved(peer, in, head->n);
    return UCS_OK;
}

/* The sender has dropped it. If no receive has matched, it never was; else the
 * receive goes on waiting. */
void ucx_large_withdrawn(ucx_peer *peer, uint64_t token)
{
    wf_match *m = &peer->port->match;
    wf_arrival *a = wf_match_walk(m, peer->slot, NULL);

    while (a != NULL &&
           (a->kind != UCX_OFFER || ((ucx_in *)a)->head.token != token)) {
        a = wf_match_walk(m, peer->slot, a);
    }
    if (a != NULL) {
        wf_match_drop(a);
        ucx_in_free(peer->port, (ucx_in *)a);
    }
}

void ucx_large_drop_receive(ucx_peer *peer, const wf_msg *msg)
{
    ucx_in *in = peer->coming;

    while (in != NULL && in->msg != msg) {
        in = in->next;
    }
    if (in != NULL) {
        in->msg = NULL;
        ucx_peer_let_go(peer, &in->lent);
        coming_remove(peer, in);
    }
}

/* --- both ------------------------------------------------------------------
 */

void ucx_large_retry(wf_port *port)
{
    port->starved = false;
    for (uint32_t i = 0; i < port->count; i++) {
        ucx_peer *peer = &port->peer[i];
        ucx_in *next;

        for (ucx_in *in = peer->coming; in != NULL; in = next) {
            next = in->next;
            if (!in->asked) {
                coming_ask(peer, in);
            }
        }
        ucx_large_pump(peer);
    }
}

void ucx_large_clear(ucx_peer *peer, weft_status why)
{
    ucx_large *large;
    ucx_in *in;

    while ((large = peer->offers) != NULL) {
        if (large->msg != NULL && why != WEFT_OK) {
            wf_msg_finish(large->msg, why);
        }
        peer->offers = large->next;
        wf_free(large);
    }
    while ((in = peer->coming) != NULL) {
        if (in->msg != NULL && why != WEFT_OK) {
            wf_msg_finish(in->msg, why);
        }
        peer->coming = in->next;
        ucx_in_free(peer->port, in);
    }
}
