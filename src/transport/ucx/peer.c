/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints, and the end of a peer. */
#include <sched.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "transport/ucx/ucx.h"

/* Far longer than UCX takes to close an endpoint by force. */
#define CLOSE_NS (10 * WF_SEC)
/* How often UCX is asked for what a rank that is gone has left. */
#define DRAIN_TURNS 4096

ucx_peer *ucx_peer_of(const wf_port *port, uint32_t rank)
{
    return rank < port->setup.host->ranks && port->slot[rank] != UINT32_MAX
               ? &port->peer[port->slot[rank]]
               : NULL;
}

weft_status ucx_peer_check(const ucx_peer *peer)
{
    const wf_peer *who = &peer->port->setup.host->peer[peer->rank];
    bool wrong = peer->why == WEFT_ERR_PROTOCOL;

    return peer->stand == UCX_HERE
               ? WEFT_OK
               : wf_fail(wrong ? WEFT_ERR_PROTOCOL : WEFT_ERR_PEER,
                         "rank %u (pid %d on %s) %s", peer->rank, who->pid,
                         who->host,
                         wrong ? "sent something malformed before" : "is gone");
}

/* --- endpoints -------------------------------------------------------------
 */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ucx_peer *peer = arg;

    (void)ep;
    wf_log(WEFT_LOG_DEBUG, "UCX: the connection with rank %u: %s", peer->rank,
           ucs_status_string(status));
    ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
}

weft_status ucx_peer_connect(ucx_peer *peer)
{
    const ucp_ep_params_t params = {.field_mask =
                                        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = peer->address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {on_error, peer}};
    ucs_status_t st;

    if (peer->ep != NULL) {
        return WEFT_OK;
    }
    ucx_log_begin();
    st = ucp_ep_create(peer->port->worker, &params, &peer->ep);
    ucx_log_end();
    if (st != UCS_OK) {
        peer->ep = NULL;
        ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        return wf_fail(WEFT_ERR_PEER, "UCX does not reach rank %u on %s: %s",
                       peer->rank,
                       peer->port->setup.host->peer[peer->rank].host,
                       ucs_status_string(st));
    }
    ucx_sockets_added(peer->port);
    ucx_context_tell(peer->port, peer);
    return WEFT_OK;
}

void ucx_peer_end(ucx_peer *peer, ucx_stand stand, weft_status why)
{
    if (peer->stand == UCX_HERE) {
        peer->port->ending++;
        peer->why = why;
        peer->stand = stand;
    } else if (peer->stand == UCX_GOING && stand == UCX_DEAF) {
        peer->stand = stand;
    }
}

static bool still_lent(const ucx_peer *peer, void *request)
{
    return peer->lent > 0 || peer->pulls > 0 ||
           (request != NULL &&
            ucp_request_check_status(request) == UCS_INPROGRESS);
}

void ucx_peer_close(ucx_peer *peer)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    uint64_t deadline = wf_now_ns() + CLOSE_NS;
    ucs_status_ptr_t request;

    if (peer->ep == NULL) {
        return;
    }
    request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    request = UCS_PTR_IS_PTR(request) ? request : NULL;
    while (still_lent(peer, request) && wf_now_ns() < deadline) {
        if (ucp_worker_progress(peer->port->worker) == 0) {
            sched_yield();
        }
    }
    if (still_lent(peer, request)) {
        wf_log(WEFT_LOG_ERROR,
               "UCX has not let go of %zu messages with rank %u, whose "
               "connection is closed",
               peer->lent + peer->pulls, peer->rank);
    }
    if (request != NULL) {
        ucp_request_free(request);
    }
}

/* Both sides of what is lent have agreed to move it, so that it is over soon if
 * the peer lives and listens. Else the connection is cut. */
void ucx_peer_let_go(ucx_peer *peer, const size_t *lent)
{
    wf_port *port = peer->port;
    bool holding = port->holding;
    size_t left = *lent;
    uint64_t deadline = wf_now_ns() + UCX_PATIENCE_NS;

    port->holding = true;
    while (*lent > 0 && peer->stand == UCX_HERE && wf_now_ns() < deadline) {
        if (ucp_worker_progress(port->worker) == 0) {
            sched_yield();
        }
        if (*lent != left) {
            left = *lent;
            deadline = wf_now_ns() + UCX_PATIENCE_NS;
        }
    }
    if (*lent > 0) {
        wf_log(WEFT_LOG_INFO,
               "rank %u cuts its connection with rank %u, which does not take "
               "or give what a failed operation needs back",
               port->setup.host->rank, peer->rank);
        (void)ucx_out_say(peer, UCX_CUT, 0, 0, 0);
        ucx_peer_end(peer, UCX_GOING, WEFT_ERR_PEER);
        ucx_peer_close(peer);
    }
    port->holding = holding;
}

/* --- the end ---------------------------------------------------------------
 */

static void clear_arrivals(ucx_peer *peer, bool all)
{
    wf_match *m = &peer->port->match;
    wf_arrival *next;

    for (wf_arrival *a = wf_match_walk(m, peer->slot, NULL); a != NULL;
         a = next) {
        next = wf_match_walk(m, peer->slot, a);
        if (all || a->kind == UCX_OFFER) {
            wf_match_drop(a);
            ucx_in_free(peer->port, (ucx_in *)a);
        }
    }
}

void ucx_peer_clear(ucx_peer *peer, weft_status why)
{
    wf_msg *msg;
    ucx_in *in;

    while ((msg = wf_queue_pop(&peer->eager)) != NULL) {
        if (why != WEFT_OK) {
            wf_msg_finish(msg, why);
        }
    }
    ucx_large_clear(peer, why);
    clear_arrivals(peer, why == WEFT_OK);
    while ((in = peer->early) != NULL) {
        peer->early = in->next;
        ucx_in_free(peer->port, in);
    }
    while (why != WEFT_OK &&
           (msg = wf_match_next_of(&peer->port->match, peer->slot)) != NULL) {
        wf_msg_finish(msg, why);
    }
}

static void peer_bury(wf_port *port, ucx_peer *peer)
{
    ucx_peer_close(peer);
    (void)ucx_in_resume(peer);
    (void)ucx_in_call(port);
    peer->stand = UCX_LOST;
    port->ending--;
    ucx_peer_clear(peer, peer->why);
    if (port->setup.lost != NULL) {
        port->setup.lost(port->setup.ctx, peer->rank, peer->why);
    }
}

/* Nothing more is waited for from it. */
static bool is_over(const ucx_peer *peer, uint64_t now)
{
    return peer->stand == UCX_DEAF ||
           (peer->stand == UCX_GOING && now >= peer->heed_ns);
}

/* What has arrived is read first. */
unsigned ucx_peer_bury(wf_port *port)
{
    uint64_t now = wf_now_ns();
    unsigned events = 0;

    for (unsigned i = 0; i < DRAIN_TURNS; i++) {
        unsigned came = ucp_worker_progress(port->worker) +
                        ucp_worker_progress(port->worker);

        events += came;
        if (came == 0) {
            break;
        }
    }
    for (uint32_t i = 0; i < port->count; i++) {
        ucx_peer *peer = &port->peer[i];

        if (is_over(peer, now)) {
            peer_bury(port, peer);
            events++;
        }
    }
    return events;
}
