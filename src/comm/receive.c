/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/receive.h"

#include <stdio.h>

#include "comm/control.h"

/* --- what is wanted ------------------------------------------------------ */

wf_want wf_want_of(const weft_comm *comm, uint32_t from, uint32_t tag)
{
    wf_want want = {from, wf_port_tag(comm, tag), WF_TAG_EXACT};

    if (tag == WEFT_ANY_TAG) {
        want.mask = ~(uint64_t)UINT32_MAX;
    }
    return want;
}

/* Is there a message that both match? */
static bool overlap(const wf_want *a, const wf_want *b)
{
    bool sender = a->from == b->from || a->from == WEFT_ANY_SOURCE ||
                  b->from == WEFT_ANY_SOURCE;

    return sender && ((a->tag ^ b->tag) & a->mask & b->mask) == 0;
}

bool wf_loss_is_open(const weft_comm *comm, uint32_t member)
{
    const weft_world *world = comm->world;
    uint32_t rank = comm->member[member];

    return !wf_host_same_node(world->host, rank) &&
           atomic_load(&comm->entry[member]->state) == WF_BOARD_HERE &&
           (world->ports.lost[rank] == WEFT_OK ||
            wf_plane_unsettled(world, rank));
}

static bool member_lost(const weft_comm *comm, uint32_t member)
{
    return comm->world->ports.lost[comm->member[member]] != WEFT_OK &&
           !wf_loss_is_open(comm, member);
}

weft_status wf_peer_lost(const weft_comm *comm, uint32_t member)
{
    return wf_ports_fail(comm->world, comm->member[member]);
}

bool wf_loss_is_private(const weft_comm *comm, weft_status st)
{
    for (uint32_t r = 0; r < comm->size && st == WEFT_ERR_PEER; r++) {
        if (atomic_load(&comm->entry[r]->state) == WF_BOARD_DEAD) {
            return false;
        }
    }
    return st == WEFT_ERR_PEER;
}

static weft_status check_any(const weft_comm *comm)
{
    char text[WF_DETAIL_MAX];
    uint32_t other = comm->rank == 0 ? 1 : 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank && !member_lost(comm, r)) {
            return WEFT_OK;
        }
    }
    if (comm->size == 1) {
        return WEFT_OK; /* it may still send itself something */
    }
    wf_peer_lost(comm, other);
    snprintf(text, sizeof(text), "%.600s", weft_error_detail());
    return wf_fail(WEFT_ERR_PEER, "no other rank is left to receive from: %s%s",
                   text, comm->size > 2 ? ", and so did all others" : "");
}

weft_status wf_want_check(const weft_comm *comm, const wf_want *want)
{
    if (want->from == WEFT_ANY_SOURCE) {
        return check_any(comm);
    }
    return member_lost(comm, want->from) ? wf_peer_lost(comm, want->from)
                                         : WEFT_OK;
}

bool wf_want_awaits(const weft_comm *comm, const wf_want *want, uint32_t member)
{
    if (want->from != WEFT_ANY_SOURCE) {
        return member == want->from;
    }
    return member != comm->rank &&
           atomic_load(&comm->entry[member]->state) == WF_BOARD_HERE;
}

/* --- looking at the ports ------------------------------------------------ */

/* Ports take turns: the one after that which was last taken from is the first
 * to be looked at. */
static const wf_route *find_any(const weft_comm *comm, const wf_want *want,
                                wf_msg *found)
{
    const wf_ports *ports = &comm->world->ports;

    for (uint32_t i = 0; i < ports->count; i++) {
        const wf_route *at = &ports->route[(comm->turn + i) % ports->count];

        if (at->transport->peek(at->port, WF_FROM_ANY, want->tag, want->mask,
                                found)) {
            return at;
        }
    }
    return NULL;
}

/* The route on which such a message has arrived, or NULL. */
static const wf_route *find(const weft_comm *comm, const wf_want *want,
                            wf_msg *found)
{
    const wf_route *at;
    uint32_t rank;

    if (want->from == WEFT_ANY_SOURCE) {
        return find_any(comm, want, found);
    }
    rank = comm->member[want->from];
    at = wf_world_route(comm->world, rank);
    return at->transport->peek(at->port, rank, want->tag, want->mask, found)
               ? at
               : NULL;
}

/* --- the queue ----------------------------------------------------------- */

static weft_status post(wf_receive *r, const wf_route *at, uint32_t rank,
                        uint64_t tag, uint64_t mask)
{
    weft_status st = at->transport->recv(at->port, rank, tag, mask, r->buf,
                                         r->room, &r->msg);

    if (st == WEFT_OK) {
        r->route = at;
    }
    return st;
}

/* Receive a message that matches, if one has arrived. It is the oldest one of
 * its sender and tag, so naming these two gets it. */
static bool serve(weft_comm *comm, wf_receive *r)
{
    wf_msg found;
    const wf_route *at = find(comm, &r->want, &found);
    weft_status st;

    if (at == NULL) {
        return false;
    }
    if (r->want.from == WEFT_ANY_SOURCE) {
        comm->turn = (uint32_t)(at - comm->world->ports.route) + 1;
    }
    st = post(r, at, found.from, found.tag, WF_TAG_EXACT);
    if (st != WEFT_OK) {
        r->msg = (wf_msg){.done = true, .status = st, .from = found.from};
    }
    return true;
}

static void queue_serve(weft_comm *comm)
{
    bool served = false;

    if (comm->queue_news == comm->world->news) {
        return;
    }
    comm->queue_news = comm->world->news;
    for (wf_receive **at = &comm->receive_queue; *at != NULL;) {
        wf_receive *r = *at;

        if (serve(comm, r)) {
            *at = r->next;
            r->queued = false;
            served = true;
        } else {
            at = &r->next;
        }
    }
    if (served) {
        wf_board_ring(comm->own); /* a thread that waits for it may sleep */
    }
}

bool wf_want_peek(weft_comm *comm, const wf_want *want, wf_msg *found)
{
    queue_serve(comm);
    return find(comm, want, found) != NULL;
}

/* --- receives ------------------------------------------------------------ */

static weft_status post_directly(weft_comm *comm, wf_receive *r)
{
    uint32_t rank = comm->member[r->want.from];
    weft_status st = post(r, wf_world_route(comm->world, rank), rank,
                          r->want.tag, r->want.mask);

    if (st == WEFT_ERR_PEER && wf_loss_is_open(comm, r->want.from)) {
        r->msg = (wf_msg){.done = true, .status = st, .from = rank};
        return WEFT_OK;
    }
    return st == WEFT_ERR_PEER ? wf_peer_lost(comm, r->want.from) : st;
}

weft_status wf_receive_begin(weft_comm *comm, wf_receive *r)
{
    bool waits = r->want.from == WEFT_ANY_SOURCE;
    wf_receive **end = &comm->receive_queue;

    queue_serve(comm);
    for (; *end != NULL; end = &(*end)->next) {
        waits = waits || overlap(&(*end)->want, &r->want);
    }
    if (!waits) {
        return post_directly(comm, r);
    }
    if (!serve(comm, r)) {
        r->queued = true;
        r->next = NULL;
        *end = r;
    }
    return WEFT_OK;
}

bool wf_receive_over(weft_comm *comm, wf_receive *r)
{
    if (r->queued) {
        queue_serve(comm);
    }
    return !r->queued && r->msg.done;
}

void wf_receive_drop(weft_comm *comm, wf_receive *r)
{
    if (r->queued) {
        wf_receive **at = &comm->receive_queue;

        while (*at != r) {
            at = &(*at)->next;
        }
        *at = r->next;
        r->queued = false;
    } else if (r->route != NULL && !r->msg.done) {
        r->route->transport->drop(r->route->port, &r->msg);
    }
}

/* --- what came ----------------------------------------------------------- */

weft_status wf_message_describe(const weft_comm *comm, const wf_want *want,
                                const wf_msg *msg, weft_message_info *out)
{
    uint32_t from = want->from;

    if (from == WEFT_ANY_SOURCE) {
        from = 0;
        while (from < comm->size && comm->member[from] != msg->from) {
            from++;
        }
    }
    if (from == comm->size) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u of the job sent a message on communicator %u, "
                       "but is not a member of it",
                       msg->from, comm->id);
    }
    *out = (weft_message_info){from, (uint32_t)msg->tag, msg->n};
    return WEFT_OK;
}
