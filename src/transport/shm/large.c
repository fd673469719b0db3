/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving a large message. Once a receive matches its offer, the receiver
 * reads the sender's memory in slices, one for each progress(), so that no call
 * takes long: where it lies, if that is in the sender's arena, else by CMA. If
 * that is forbidden or fails later (as for device memory), it requests a stream
 * of pieces through the ring and starts again. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/stream.h"
#include "mem/cma.h"
#include "transport/shm/shm.h"

const unsigned char *shm_large_place(const wf_port *port, const shm_peer *peer,
                                     const wf_offer *offer)
{
    return offer->place != 0 && peer->range != NULL
               ? wf_arena_find(port->host->arena, peer->range, offer->place,
                               offer->n)
               : NULL;
}

bool shm_large_offered(wf_port *port, shm_peer *peer, uint64_t tag,
                       const wf_offer *offer)
{
    shm_large *large = wf_zalloc(sizeof(*large));
    wf_msg *msg;

    if (large == NULL) {
        return false;
    }
    large->source = peer->slot;
    large->lies = shm_large_place(port, peer, offer);
    large->address = offer->address;
    large->token = offer->token;
    large->withdrawn = offer->withdrawn;
    large->arrival = (wf_arrival){.source = peer->slot,
                                  .tag = tag,
                                  .n = offer->n,
                                  .kind = SHM_ARRIVED_LARGE};
    msg = wf_match_take_posted(&port->match, peer->slot, tag);
    if (msg != NULL) {
        shm_large_match(port, large, msg);
    } else if (wf_match_wants(&port->match, tag)) {
        wf_match_keep(&port->match, &large->arrival);
    } else {
        wf_free(large);
    }
    return true;
}

static void larges_push(shm_larges *list, shm_large *large)
{
    large->next = NULL;
    if (list->head == NULL) {
        list->head = large;
    } else {
        list->last->next = large;
    }
    list->last = large;
}

/* Remove `large`, which follows `before` (NULL: it is the head). */
static void larges_cut(shm_larges *list, shm_large *before, shm_large *large)
{
    if (before == NULL) {
        list->head = large->next;
    } else {
        before->next = large->next;
    }
    if (list->last == large) {
        list->last = before;
    }
}

/* The answer to an offer; it may wait for room in the ring. */
static void large_answer(wf_port *port, shm_peer *peer, shm_large *large,
                         shm_state state)
{
    large->note = (wf_msg){.state = state};
    shm_out_submit(port, peer, &large->note);
}

static void large_ask(wf_port *port, shm_peer *peer, shm_large *large)
{
    large->moved = 0;
    large->msg->moved = 0;
    larges_push(&peer->streamed, large);
    large_answer(port, peer, large, SHM_SAY_SEND);
}

/* Is it too large for the caches? */
static bool large_streams(const shm_large *large)
{
    return large->want >= WF_STREAM_FROM_BYTES;
}

static void large_copy(shm_large *large, const void *from, size_t n)
{
    unsigned char *to = (unsigned char *)large->msg->buf + large->moved;

    if (large_streams(large)) {
        wf_copy_stream(to, from, n);
    } else {
        memcpy(to, from, n);
    }
}

/* Is what the sender has there still the message? Asked after reading. */
static bool large_is_whole(const wf_port *port, const shm_large *large)
{
    return wf_ring_withdrawn(&port->in[large->source]) == large->withdrawn;
}

/* Is reading it possible, and faster than the ring? Chosen by measurement, see
 * docs/design/0003-messages.md. */
static bool large_reads(const wf_port *port, const shm_peer *peer,
                        const shm_large *large)
{
    bool pays = large->lies != NULL ? port->reads || large_streams(large)
                                    : peer->readable;

    return pays && large_is_whole(port, large);
}

void shm_large_match(wf_port *port, shm_large *large, wf_msg *msg)
{
    shm_peer *peer = &port->peer[large->source];

    wf_match_describe(msg, peer->rank, large->arrival.tag, large->arrival.n);
    large->msg = msg;
    large->want = wf_match_fits(msg, large->arrival.n);
    if (large->want == 0) {
        wf_match_finish(msg);
        large_answer(port, peer, large, SHM_SAY_TAKEN);
    } else if (large_reads(port, peer, large)) {
        larges_push(&port->pulls, large);
    } else {
        large_ask(port, peer, large);
    }
}

/* --- streamed ------------------------------------------------------------ */

bool shm_large_piece(shm_peer *peer, uint64_t token, const void *data, size_t n)
{
    shm_large *before = NULL;
    shm_large *large = peer->streamed.head;

    while (large != NULL && large->token != token) {
        before = large;
        large = large->next;
    }
    if (large == NULL || !large->answered || n > large->want - large->moved) {
        return false;
    }
    if (large->msg != NULL) {
        large_copy(large, data, n);
        large->msg->moved += n;
    }
    large->moved += n;
    if (large->moved == large->want) {
        larges_cut(&peer->streamed, before, large);
        if (large->msg != NULL) {
            wf_match_finish(large->msg);
        }
        wf_free(large);
    }
    return true;
}

/* --- read from the sender ------------------------------------------------ */

bool shm_large_probe(const wf_port *port, const shm_peer *peer,
                     uint64_t address, uint64_t value)
{
    const char *why = wf_cma_refusal(peer->pid, address, value);

    if (why == NULL) {
        return true;
    }
    wf_log(WEFT_LOG_INFO,
           "rank %u cannot read the memory of rank %u (%s); large messages "
           "from it go through the ring",
           port->host->rank, peer->rank, why);
    return false;
}

/* CMA failed: request a stream, also for later messages if the reason is
 * permanent. */
static void large_turn(wf_port *port, shm_peer *peer, shm_large *large, int why)
{
    if (wf_cma_forbidden(why)) {
        peer->readable = false;
    }
    wf_log(WEFT_LOG_INFO,
           "reading %zu bytes from the memory of rank %u: %s; they go through "
           "the ring instead",
           large->want, peer->rank, why == 0 ? "no more" : strerror(why));
    large_ask(port, peer, large);
}

/* Bytes read, or -1 with errno. */
static ssize_t large_read(const shm_peer *peer, shm_large *large, size_t n)
{
    if (large->lies == NULL) {
        return wf_cma_read(peer->pid,
                           (unsigned char *)large->msg->buf + large->moved,
                           large->address + large->moved, n);
    }
    large_copy(large, large->lies + large->moved, n);
    return (ssize_t)n;
}

/* All that is wanted was read. */
static void large_end(wf_port *port, shm_peer *peer, shm_large *large)
{
    larges_cut(&port->pulls, NULL, large);
    if (large_is_whole(port, large)) {
        wf_match_finish(large->msg);
        large_answer(port, peer, large, SHM_SAY_TAKEN);
    } else {
        large_ask(port, peer, large);
    }
}

/* Read the next slice of the first message. */
unsigned shm_large_pull(wf_port *port)
{
    shm_large *large = port->pulls.head;
    shm_peer *peer = &port->peer[large->source];
    size_t n = large->want - large->moved;
    ssize_t got = large_read(peer, large, n < SHM_SLICE ? n : SHM_SLICE);

    if (got <= 0) {
        larges_cut(&port->pulls, NULL, large);
        large_turn(port, peer, large, got < 0 ? errno : 0);
        return 1;
    }
    large->moved += (size_t)got;
    large->msg->moved = large->moved;
    if (large->moved == large->want) {
        large_end(port, peer, large);
    }
    return 1;
}

/* --- withdraw and drop --------------------------------------------------- */

static wf_arrival *large_find_offer(const wf_port *port, const shm_peer *peer,
                                    uint64_t token)
{
    wf_arrival *a = wf_match_walk(&port->match, peer->slot, NULL);

    while (a != NULL && (a->kind != SHM_ARRIVED_LARGE ||
                         ((const shm_large *)a)->token != token)) {
        a = wf_match_walk(&port->match, peer->slot, a);
    }
    return a;
}

static shm_large *larges_find(const shm_larges *list, const shm_peer *peer,
                              uint64_t token)
{
    shm_large *large = list->head;

    while (large != NULL &&
           (large->source != peer->slot || large->token != token)) {
        large = large->next;
    }
    return large;
}

static shm_large *larges_find_msg(const shm_larges *list, const wf_msg *msg)
{
    shm_large *large = list->head;

    while (large != NULL && large->msg != msg) {
        large = large->next;
    }
    return large;
}

/* Remove `large` by its address, since the peer may repeat a token. */
static void larges_remove(shm_larges *list, shm_large *large)
{
    shm_large *before = NULL;

    for (shm_large *l = list->head; l != large; l = l->next) {
        before = l;
    }
    larges_cut(list, before, large);
}

/* The sender withdrew the message; the data received so far is discarded. */
void shm_large_withdrawn(wf_port *port, shm_peer *peer, uint64_t token)
{
    wf_arrival *a = large_find_offer(port, peer, token);
    shm_larges *list = &port->pulls;
    shm_large *large = larges_find(list, peer, token);

    if (a != NULL) {
        wf_match_drop(a);
        wf_free(a);
        return;
    }
    if (large == NULL) {
        list = &peer->streamed;
        large = larges_find(list, peer, token);
    }
    if (large == NULL) {
        return;
    }
    larges_remove(list, large);
    if (!large->answered) {
        shm_out_forget(port, peer, &large->note);
    }
    if (large->msg != NULL) {
        wf_msg_finish(large->msg, WEFT_ERR_ABORTED);
    }
    wf_free(large);
}

/* The receiver drops the message: the sender is told that it is complete, and
 * pieces in flight are discarded. */
void shm_large_drop(wf_port *port, const wf_msg *msg)
{
    shm_large *large = larges_find_msg(&port->pulls, msg);

    if (large != NULL) {
        shm_peer *peer = &port->peer[large->source];

        larges_remove(&port->pulls, large);
        large_answer(port, peer, large, SHM_SAY_TAKEN);
        return;
    }
    for (uint32_t i = 0; i < port->count && large == NULL; i++) {
        large = larges_find_msg(&port->peer[i].streamed, msg);
    }
    if (large != NULL) {
        large->msg = NULL;
    }
}

/* --- the end of a peer --------------------------------------------------- */

static void larges_fail(shm_larges *list, const shm_peer *peer, weft_status why)
{
    shm_large *before = NULL;
    shm_large *next;

    for (shm_large *large = list->head; large != NULL; large = next) {
        next = large->next;
        if (large->source == peer->slot) {
            larges_cut(list, before, large);
            if (large->msg != NULL) {
                shm_finish(large->msg, why);
            }
            wf_free(large);
        } else {
            before = large;
        }
    }
}

/* Free the offers that no receive has matched. */
static void large_forget_offers(wf_port *port, const shm_peer *peer)
{
    wf_arrival *a = wf_match_walk(&port->match, peer->slot, NULL);

    while (a != NULL) {
        wf_arrival *next = wf_match_walk(&port->match, peer->slot, a);

        if (a->kind == SHM_ARRIVED_LARGE) {
            wf_match_drop(a);
            wf_free(a);
        }
        a = next;
    }
}

void shm_large_fail(wf_port *port, shm_peer *peer, weft_status why)
{
    larges_fail(&peer->streamed, peer, why);
    larges_fail(&port->pulls, peer, why);
    large_forget_offers(port, peer);
}
