/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/client.h"

#include <string.h>

#include "agg/quantise.h"
#include "base/num.h"
#include "base/status.h"
#include "base/types.h"

/* --- a call --------------------------------------------------------------- */

uint32_t wf_agg_each(size_t payload, weft_dtype type, bool quantised)
{
    size_t bytes = wf_dtype_bytes(type);
    size_t numbers = wf_quantised_fits(payload);

    if (!quantised) {
        return (uint32_t)(payload / bytes);
    }
    numbers -= numbers > WF_QUANT_BLOCK ? numbers % WF_QUANT_BLOCK : 0;
    return (uint32_t)(numbers * sizeof(float) / bytes);
}

/* How many of the first `chunks` of the call are for a lane. */
static uint64_t lane_share(const wf_agg_client *c, uint32_t lane,
                           uint64_t chunks)
{
    return chunks / c->lanes + (chunks % c->lanes > lane);
}

void wf_agg_client_begin(wf_agg_client *c, const wf_agg_call *call,
                         uint64_t now)
{
    c->call = *call;
    c->each = wf_agg_each(c->options.payload, (weft_dtype)call->type,
                          call->quantised);
    c->chunks = call->piece != NULL ? call->chunks
                                    : (call->count + c->each - 1) / c->each;
    c->ready = UINT64_MAX;
    c->under_way = c->chunks > 0;
    c->missing = WF_AGG_ALL;
    for (uint32_t i = 0; i < c->lanes; i++) {
        wf_agg_window_call(&c->lane[i].window, lane_share(c, i, c->chunks),
                           now);
    }
}

/* A chunk of a lane among those of the call, and its elements. */
static uint64_t index_of(const wf_agg_client *c, uint32_t lane, uint64_t chunk)
{
    return (chunk - c->lane[lane].window.begin) * c->lanes + lane;
}

static wf_agg_piece piece_of(const wf_agg_client *c, uint64_t index)
{
    const wf_agg_call *call = &c->call;
    uint64_t first = index * c->each;
    size_t at = first * wf_dtype_bytes((weft_dtype)call->type);

    if (call->piece != NULL) {
        return call->piece(call->ctx, index);
    }
    return (wf_agg_piece){(const char *)call->src + at, (char *)call->dst + at,
                          (uint32_t)wf_least(c->each, call->count - first)};
}

uint64_t wf_agg_client_first(const wf_agg_client *c)
{
    uint64_t first = c->chunks;

    for (uint32_t i = 0; i < c->lanes; i++) {
        const wf_agg_window *w = &c->lane[i].window;

        if (!wf_agg_window_is_over(w)) {
            first = wf_least(first, (w->first - w->begin) * c->lanes + i);
        }
    }
    return first;
}

/* --- out ------------------------------------------------------------------ */

static const wf_agg_link *link_of(const wf_agg_client *c, uint32_t lane)
{
    return &c->link[c->lane[lane].link];
}

static wf_agg_head head_of(const wf_agg_client *c, uint32_t lane,
                           uint64_t chunk, uint32_t count, bool again)
{
    const wf_agg_window *w = &c->lane[lane].window;
    const wf_agg_joined *joined = &link_of(c, lane)->session.joined;
    uint32_t slots = w->config.slots;

    return (wf_agg_head){
        .kind = WF_AGG_DATA,
        .flags = (uint8_t)((again ? WF_AGG_RESENT : 0) |
                           (c->call.quantised ? WF_AGG_QUANTISED : 0)),
        .version = (uint8_t)wf_agg_version_of(chunk, slots),
        .job = joined->job,
        .epoch = joined->epoch,
        .chunk = chunk,
        .total = c->call.count,
        .hash = c->call.hash,
        .slot = (uint16_t)wf_agg_slot_of(chunk, slots),
        .rank = (uint16_t)c->options.rank,
        .ranks = (uint16_t)c->options.ranks,
        .count = (uint16_t)count,
        .call = c->call.kind,
        .type = c->call.type,
        .op = c->call.op,
        .lane = c->lane[lane].shard,
        .rtt = (uint32_t)wf_least(w->mean_ns / 1000, UINT32_MAX)};
}

static void flush(wf_agg_client *c, const wf_agg_lane *lane)
{
    (void)wf_udp_send(c->link[lane->link].fd, c->batch, &lane->to);
    wf_udp_clear(c->batch);
    c->staged = 0;
}

static bool is_aligned(const void *at)
{
    return (uintptr_t)at % sizeof(float) == 0;
}

/* Quantise a payload into the room of those that are about to be sent. */
static const void *stage(wf_agg_client *c, const void *src, size_t numbers)
{
    unsigned char *to = c->stage + c->staged;

    if (!is_aligned(src)) {
        memcpy(c->aligned, src, numbers * sizeof(float));
        src = c->aligned;
    }
    wf_quantise(src, numbers, c->options.ranks, to);
    c->staged += wf_round_up(wf_quantised_bytes(numbers), 64);
    return to;
}

static void send_chunk(wf_agg_client *c, uint32_t number, uint64_t chunk,
                       bool again)
{
    const wf_agg_lane *lane = &c->lane[number];
    wf_agg_piece piece = piece_of(c, index_of(c, number, chunk));
    wf_agg_head head = head_of(c, number, chunk, piece.count, again);
    size_t bytes = wf_agg_payload(&head);
    const void *payload = piece.src;

    if (!wf_udp_fits(c->batch, sizeof(head) + bytes)) {
        flush(c, lane);
    }
    if (c->call.quantised) {
        payload = stage(c, payload, wf_agg_numbers(&head));
    }
    wf_agg_seal(&link_of(c, number)->key, &head, payload);
    wf_udp_add(c->batch, &head, sizeof(head), payload, bytes);
}

/* Send one batch of what the window has; false: that was all. */
static bool send_batch(wf_agg_client *c, uint32_t number, uint64_t now)
{
    const wf_agg_options *o = &c->options;
    wf_agg_window *w = &c->lane[number].window;
    size_t most = wf_least(WF_UDP_BYTES / (sizeof(wf_agg_head) + o->payload),
                           WF_UDP_SEGMENTS);
    uint64_t chunk;
    bool again;
    size_t sent = 0;

    while (sent < most && wf_agg_window_send(w, now, &chunk, &again)) {
        send_chunk(c, number, chunk, again);
        sent++;
    }
    flush(c, &c->lane[number]);
    return sent == most;
}

/* --- in ------------------------------------------------------------------- */

typedef struct arrival {
    wf_agg_client *client;
    const wf_agg_link *link;
    uint64_t now;
} arrival;

static void write_numbers(wf_agg_client *c, const wf_agg_head *head,
                          const void *payload, void *dst)
{
    size_t numbers = wf_agg_numbers(head);
    void *to = is_aligned(dst) ? dst : c->aligned;

    if (!is_aligned(payload)) {
        memcpy(c->scratch, payload, wf_agg_payload(head));
        payload = c->scratch;
    }
    wf_dequantise(payload, numbers, c->options.ranks,
                  head->op == WEFT_OP_AVG ? c->options.ranks : 1, to);
    if (to != dst) {
        memcpy(dst, to, numbers * sizeof(float));
    }
}

static void write_result(wf_agg_client *c, const wf_agg_head *head,
                         uint64_t index, const void *payload)
{
    size_t bytes = head->count * wf_dtype_bytes((weft_dtype)head->type);
    void *dst = piece_of(c, index).dst;

    if (c->call.before != NULL) {
        c->call.before(c->call.ctx, index, dst, bytes);
    }
    if (c->call.quantised) {
        write_numbers(c, head, payload, dst);
    } else {
        memcpy(dst, payload, bytes);
    }
    c->results++;
    c->missing = WF_AGG_ALL;
}

/* Is it about this call, as this rank made it? */
static bool is_ours(const wf_agg_client *c, const wf_agg_head *head)
{
    return head->hash == c->call.hash && head->total == c->call.count &&
           head->type == c->call.type && head->op == c->call.op &&
           ((head->flags & WF_AGG_QUANTISED) != 0) == c->call.quantised;
}

static void take_result(wf_agg_client *c, const wf_agg_head *head,
                        uint32_t lane, const void *payload, uint64_t now)
{
    wf_agg_window *w = &c->lane[lane].window;
    uint64_t index = index_of(c, lane, head->chunk);

    if (head->chunk >= w->begin &&
        (head->chunk >= w->end || !is_ours(c, head) ||
         head->count != piece_of(c, index).count)) {
        c->refused++;
        return;
    }
    if (wf_agg_window_result(w, head->chunk, now) == WF_AGG_WINDOW_NEW) {
        write_result(c, head, index, payload);
    }
}

/* One of a call that others have begun, and this rank has not, comes again when
 * it is asked for. */
static void take_mismatch(wf_agg_client *c, const wf_agg_head *head,
                          uint32_t lane, const void *payload)
{
    const wf_agg_window *w = &c->lane[lane].window;

    if (head->chunk >= w->begin && head->chunk < w->end) {
        c->disagrees = true;
        memcpy(c->called, payload, sizeof(c->called));
    }
}

static void take_packet(void *ctx, const void *packet, size_t bytes)
{
    const arrival *a = ctx;
    wf_agg_client *c = a->client;
    const wf_agg_joined *joined = &a->link->session.joined;
    const char *payload = (const char *)packet + sizeof(wf_agg_head);
    wf_agg_head head;
    uint32_t lane;

    if (wf_agg_open(&a->link->key, packet, bytes, &head) != WF_AGG_GOOD ||
        head.job != joined->job || head.epoch != joined->epoch ||
        head.lane >= joined->shards || head.ranks != c->options.ranks) {
        c->refused++;
        return;
    }
    lane = a->link->first + head.lane;
    switch (head.kind) {
    case WF_AGG_RESULT:
        take_result(c, &head, lane, payload, a->now);
        break;
    case WF_AGG_WAIT:
        c->missing = head.rank;
        wf_agg_window_held(&c->lane[lane].window, head.chunk, a->now);
        break;
    case WF_AGG_MISMATCH:
        take_mismatch(c, &head, lane, payload);
        break;
    default:
        c->refused++;
        break;
    }
}

/* --- a step --------------------------------------------------------------- */

static weft_status lanes_over(wf_agg_client *c, uint64_t now)
{
    bool over = true;

    for (uint32_t i = 0; i < c->lanes; i++) {
        over = over && wf_agg_window_is_over(&c->lane[i].window);
        if (wf_agg_window_gives_up(&c->lane[i].window, now)) {
            return wf_agg_link_fail(
                link_of(c, i),
                wf_fail(WEFT_ERR_TIMEOUT, "the switch does not answer"));
        }
    }
    c->under_way = c->under_way && !over;
    return WEFT_OK;
}

/* How many chunks of the call all lanes that have more are past. */
static uint64_t least_past(const wf_agg_client *c)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < c->lanes; i++) {
        const wf_agg_window *w = &c->lane[i].window;

        if (!wf_agg_window_is_over(w)) {
            least = wf_least(least, w->first - w->begin);
        }
    }
    return least;
}

static void open_windows(wf_agg_client *c, uint64_t now)
{
    uint64_t past = least_past(c);

    for (uint32_t i = 0; i < c->lanes; i++) {
        wf_agg_window *w = &c->lane[i].window;

        if (!wf_agg_window_is_over(w)) {
            w->stop = w->begin + wf_least(past + w->config.slots,
                                          lane_share(c, i, c->ready));
            /* One that another lane keeps waiting has asked for nothing. */
            w->heard_ns = w->under_way > 0 ? w->heard_ns : now;
        }
    }
}

/* Lanes take turns: if all ranks filled the window of one lane before they went
 * on to the next, its switch would be busy while the others wait. */
static void send_lanes(wf_agg_client *c, uint64_t now)
{
    bool more = true;

    open_windows(c, now);
    while (more) {
        more = false;
        for (uint32_t i = 0; i < c->lanes; i++) {
            if (!wf_agg_window_is_over(&c->lane[i].window)) {
                more = send_batch(c, i, now) || more;
            }
        }
    }
}

/* Read what there is; a bit for each switch that something came from. */
static uint32_t receive(wf_agg_client *c, uint64_t now)
{
    uint32_t heard = 0;

    for (uint32_t i = 0; i < c->links; i++) {
        arrival a = {c, &c->link[i], now};
        int came = wf_udp_recv(c->link[i].fd, c->inbox, take_packet, &a);

        if (came > 0) {
            c->moved += (uint64_t)came;
            heard |= 1u << i;
        }
    }
    return heard;
}

static weft_status call_step(wf_agg_client *c, uint64_t now, uint32_t *heard)
{
    *heard = receive(c, now);
    if (c->disagrees) {
        return wf_fail(WEFT_ERR_MISMATCH, "ranks %u and %u called differently",
                       c->called[0].rank, c->called[1].rank);
    }
    send_lanes(c, now);
    return lanes_over(c, now);
}

weft_status wf_agg_client_step(wf_agg_client *c, uint64_t now)
{
    uint32_t heard = 0;
    weft_status st =
        c->joined && c->under_way ? call_step(c, now, &heard) : WEFT_OK;

    /* A switch from which packets come lives. */
    return st == WEFT_OK ? wf_agg_client_meet(c, heard) : st;
}

uint64_t wf_agg_client_due(const wf_agg_client *c)
{
    uint64_t due = UINT64_MAX;

    for (uint32_t i = 0; c->under_way && i < c->lanes; i++) {
        due = wf_least(due, wf_agg_window_due(&c->lane[i].window));
    }
    return due;
}
