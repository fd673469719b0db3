/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/client.h"

#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "agg/quantise.h"
#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/types.h"

/* --- from open to close --------------------------------------------------- */

static uint16_t *port_in(wf_udp_address *a)
{
    return a->at.ss_family == AF_INET6
               ? &((struct sockaddr_in6 *)&a->at)->sin6_port
               : &((struct sockaddr_in *)&a->at)->sin_port;
}

/* Packets leave from any port, which the switch is told. */
static weft_status open_socket(wf_agg_client *c, uint16_t *port)
{
    wf_udp_address own = {.length = c->at.length};
    weft_status st;

    own.at.ss_family = c->at.at.ss_family;
    st = wf_udp_open(&own, true, &c->fd);
    *port = st == WEFT_OK ? ntohs(*port_in(&own)) : 0;
    return st;
}

static weft_status begin_session(wf_agg_client *c, const wf_secret *key)
{
    const wf_agg_options *o = &c->options;
    wf_agg_join join = {.group = {o->group[0], o->group[1]},
                        .rank = (uint16_t)o->rank,
                        .ranks = (uint16_t)o->ranks,
                        .slots = (uint16_t)o->slots,
                        .payload = (uint16_t)o->payload,
                        .whole = o->whole};
    weft_status st = open_socket(c, &join.port);

    return st == WEFT_OK ? wf_agg_session_open(&c->session, &c->at, key, &join)
                         : st;
}

weft_status wf_agg_client_open(wf_agg_client *c, const wf_udp_address *at,
                               const wf_secret *key,
                               const wf_agg_options *options)
{
    weft_status st;

    *c = (wf_agg_client){.options = *options,
                         .at = *at,
                         .fd = -1,
                         .session = {.fd = -1},
                         .missing = WF_AGG_ALL};
    c->inbox = wf_alloc(sizeof(*c->inbox));
    c->scratch = wf_zalloc_aligned(64, WF_AGG_PAYLOAD_MAX);
    c->aligned = wf_zalloc_aligned(64, WF_AGG_PAYLOAD_MAX);
    st = c->inbox != NULL && c->scratch != NULL && c->aligned != NULL
             ? begin_session(c, key)
             : wf_fail_nomem("packets of a switch");
    if (st != WEFT_OK) {
        wf_agg_client_close(c);
    }
    return st;
}

void wf_agg_client_close(wf_agg_client *c)
{
    wf_agg_session_close(&c->session);
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
    for (uint32_t i = 0; i < WF_AGG_LANES; i++) {
        wf_free(c->lane[i].entries);
        wf_free(c->lane[i].batch);
        c->lane[i] = (wf_agg_lane){.entries = NULL};
    }
    wf_free(c->inbox);
    wf_free(c->scratch);
    wf_free(c->aligned);
    c->inbox = NULL;
    c->scratch = NULL;
    c->aligned = NULL;
    c->joined = false;
    c->under_way = false;
}

static weft_status open_lane(wf_agg_client *c, uint32_t i)
{
    const wf_agg_options *o = &c->options;
    uint32_t slots = c->session.joined.slots;
    uint32_t window = o->window == 0 ? slots : o->window;
    const wf_agg_window_config config = {.slots = slots,
                                         .limit =
                                             (uint32_t)wf_least(window, slots),
                                         .least_ns = o->least_ns,
                                         .most_ns = o->most_ns,
                                         .patience_ns = o->patience_ns};
    wf_agg_lane *lane = &c->lane[i];

    lane->to = c->at;
    *port_in(&lane->to) = htons(c->session.joined.port[i]);
    lane->entries = wf_alloc(slots * sizeof(*lane->entries));
    lane->batch = wf_zalloc(sizeof(*lane->batch));
    if (lane->entries == NULL || lane->batch == NULL) {
        return wf_fail_nomem("the window of a switch");
    }
    wf_agg_window_init(&lane->window, &config, lane->entries);
    return WEFT_OK;
}

static weft_status join(wf_agg_client *c)
{
    weft_status st = WEFT_OK;

    c->key =
        (wf_agg_key){.secret = wf_agg_derive(&c->session.key, c->options.group,
                                             &c->session.joined),
                     .whole = c->options.whole};
    c->lanes = c->session.joined.shards;
    for (uint32_t i = 0; i < c->lanes && st == WEFT_OK; i++) {
        st = open_lane(c, i);
    }
    c->joined = st == WEFT_OK;
    return st;
}

/* --- a call --------------------------------------------------------------- */

/* Elements in a chunk: as many as the payload holds, and in whole blocks where
 * they are quantised, so that all packets but the last have one length. */
static uint32_t elements(const wf_agg_client *c, const wf_agg_call *call)
{
    size_t bytes = wf_dtype_bytes((weft_dtype)call->type);
    size_t numbers = wf_quantised_fits(c->options.payload);

    if (!call->quantised) {
        return (uint32_t)(c->options.payload / bytes);
    }
    numbers -= numbers > WF_QUANT_BLOCK ? numbers % WF_QUANT_BLOCK : 0;
    return (uint32_t)(numbers * sizeof(float) / bytes);
}

void wf_agg_client_begin(wf_agg_client *c, const wf_agg_call *call,
                         uint64_t now)
{
    c->call = *call;
    c->each = elements(c, call);
    c->chunks = (call->count + c->each - 1) / c->each;
    c->under_way = c->chunks > 0;
    c->missing = WF_AGG_ALL;
    for (uint32_t i = 0; i < c->lanes; i++) {
        wf_agg_window_call(&c->lane[i].window,
                           (c->chunks + c->lanes - 1 - i) / c->lanes, now);
    }
}

/* The elements of a lane's chunk: where they begin, and how many. */
static uint64_t first_of(const wf_agg_client *c, uint32_t lane, uint64_t chunk)
{
    uint64_t i = chunk - c->lane[lane].window.begin;

    return (i * c->lanes + lane) * c->each;
}

static uint32_t count_of(const wf_agg_client *c, uint64_t first)
{
    return (uint32_t)wf_least(c->each, c->call.count - first);
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

static wf_agg_head head_of(const wf_agg_client *c, uint32_t lane,
                           uint64_t chunk, bool again)
{
    const wf_agg_window *w = &c->lane[lane].window;
    uint32_t slots = w->config.slots;

    return (wf_agg_head){
        .kind = WF_AGG_DATA,
        .flags = (uint8_t)((again ? WF_AGG_RESENT : 0) |
                           (c->call.quantised ? WF_AGG_QUANTISED : 0)),
        .version = (uint8_t)wf_agg_version_of(chunk, slots),
        .job = c->session.joined.job,
        .epoch = c->session.joined.epoch,
        .chunk = chunk,
        .total = c->call.count,
        .hash = c->call.hash,
        .slot = (uint16_t)wf_agg_slot_of(chunk, slots),
        .rank = (uint16_t)c->options.rank,
        .ranks = (uint16_t)c->options.ranks,
        .count = (uint16_t)count_of(c, first_of(c, lane, chunk)),
        .call = c->call.kind,
        .type = c->call.type,
        .op = c->call.op,
        .lane = (uint8_t)lane,
        .rtt = (uint32_t)wf_least(w->mean_ns / 1000, UINT32_MAX)};
}

static void flush(const wf_agg_client *c, wf_agg_lane *lane)
{
    (void)wf_udp_send(c->fd, lane->batch, &lane->to);
    wf_udp_clear(lane->batch);
}

static bool is_aligned(const void *at)
{
    return (uintptr_t)at % sizeof(float) == 0;
}

static void send_chunk(wf_agg_client *c, uint32_t number, uint64_t chunk,
                       bool again)
{
    wf_agg_lane *lane = &c->lane[number];
    wf_agg_head head = head_of(c, number, chunk, again);
    size_t bytes = wf_agg_payload(&head);
    const void *payload =
        (const char *)c->call.src +
        first_of(c, number, chunk) * wf_dtype_bytes((weft_dtype)c->call.type);

    if (c->call.quantised) {
        size_t numbers = wf_agg_numbers(&head);

        if (!is_aligned(payload)) {
            memcpy(c->aligned, payload, numbers * sizeof(float));
            payload = c->aligned;
        }
        wf_quantise(payload, numbers, c->options.ranks, c->scratch);
        payload = c->scratch;
    }
    wf_agg_seal(&c->key, &head, payload);
    if (!wf_udp_fits(lane->batch, sizeof(head) + bytes)) {
        flush(c, lane);
    }
    wf_udp_add(lane->batch, &head, sizeof(head), payload, bytes);
}

static void send_lane(wf_agg_client *c, uint32_t number, uint64_t now)
{
    uint64_t chunk;
    bool again;

    while (wf_agg_window_send(&c->lane[number].window, now, &chunk, &again)) {
        send_chunk(c, number, chunk, again);
    }
    flush(c, &c->lane[number]);
}

/* --- in ------------------------------------------------------------------- */

typedef struct arrival {
    wf_agg_client *client;
    uint64_t now;
} arrival;

static void write_numbers(wf_agg_client *c, const wf_agg_head *head,
                          const void *payload, void *dst)
{
    size_t numbers = wf_agg_numbers(head);
    void *to = is_aligned(dst) ? dst : c->aligned;

    memcpy(c->scratch, payload, wf_agg_payload(head));
    wf_dequantise(c->scratch, numbers, c->options.ranks,
                  head->op == WEFT_OP_AVG ? c->options.ranks : 1, to);
    if (to != dst) {
        memcpy(dst, to, numbers * sizeof(float));
    }
}

static void write_result(wf_agg_client *c, const wf_agg_head *head,
                         const void *payload)
{
    size_t element = wf_dtype_bytes((weft_dtype)head->type);
    uint64_t first = first_of(c, head->lane, head->chunk);
    char *dst = (char *)c->call.dst + first * element;

    if (c->call.before != NULL) {
        c->call.before(c->call.ctx, first / c->each, dst,
                       head->count * element);
    }
    if (c->call.quantised) {
        write_numbers(c, head, payload, dst);
    } else {
        memcpy(dst, payload, head->count * element);
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
                        const void *payload, uint64_t now)
{
    wf_agg_window *w = &c->lane[head->lane].window;

    if (head->chunk >= w->begin &&
        (head->chunk >= w->end || !is_ours(c, head) ||
         head->count != count_of(c, first_of(c, head->lane, head->chunk)))) {
        c->refused++;
        return;
    }
    if (wf_agg_window_result(w, head->chunk, now) == WF_AGG_WINDOW_NEW) {
        write_result(c, head, payload);
    }
}

/* One of a call that others have begun, and this rank has not, comes again when
 * it is asked for. */
static void take_mismatch(wf_agg_client *c, const wf_agg_head *head,
                          const void *payload)
{
    const wf_agg_window *w = &c->lane[head->lane].window;

    if (head->chunk >= w->begin && head->chunk < w->end) {
        c->disagrees = true;
        memcpy(c->called, payload, sizeof(c->called));
    }
}

static void take_packet(void *ctx, const void *packet, size_t bytes)
{
    const arrival *a = ctx;
    wf_agg_client *c = a->client;
    const char *payload = (const char *)packet + sizeof(wf_agg_head);
    wf_agg_head head;

    if (wf_agg_open(&c->key, packet, bytes, &head) != WF_AGG_GOOD ||
        head.job != c->session.joined.job ||
        head.epoch != c->session.joined.epoch || head.lane >= c->lanes ||
        head.ranks != c->options.ranks) {
        c->refused++;
        return;
    }
    switch (head.kind) {
    case WF_AGG_RESULT:
        take_result(c, &head, payload, a->now);
        break;
    case WF_AGG_WAIT:
        c->missing = head.rank;
        wf_agg_window_held(&c->lane[head.lane].window, head.chunk, a->now);
        break;
    case WF_AGG_MISMATCH:
        take_mismatch(c, &head, payload);
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
            return wf_fail(WEFT_ERR_TIMEOUT, "the switch does not answer");
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

static void send_lanes(wf_agg_client *c, uint64_t now)
{
    uint64_t past = least_past(c);

    for (uint32_t i = 0; i < c->lanes; i++) {
        wf_agg_window *w = &c->lane[i].window;

        if (!wf_agg_window_is_over(w)) {
            w->stop = w->begin + past + w->config.slots;
            /* One that another lane keeps waiting has asked for nothing. */
            w->heard_ns = w->under_way > 0 ? w->heard_ns : now;
            send_lane(c, i, now);
        }
    }
}

static weft_status call_step(wf_agg_client *c, uint64_t now)
{
    arrival a = {c, now};
    int came = wf_udp_recv(c->fd, c->inbox, take_packet, &a);

    c->moved += came > 0 ? (uint64_t)came : 0;
    if (c->disagrees) {
        return wf_fail(WEFT_ERR_MISMATCH, "ranks %u and %u called differently",
                       c->called[0].rank, c->called[1].rank);
    }
    send_lanes(c, now);
    return lanes_over(c, now);
}

weft_status wf_agg_client_step(wf_agg_client *c, uint64_t now)
{
    uint64_t moved = c->moved;
    weft_status st;

    if (c->joined && c->under_way) {
        st = call_step(c, now);
        if (st != WEFT_OK || c->moved != moved) {
            return st;
        }
    }
    /* A switch from which packets come lives. */
    st = wf_agg_session_step(&c->session);
    if (st == WEFT_OK && !c->joined &&
        c->session.state == WF_AGG_SESSION_JOINED) {
        st = join(c);
    }
    return st;
}

uint64_t wf_agg_client_due(const wf_agg_client *c)
{
    uint64_t due = UINT64_MAX;

    for (uint32_t i = 0; c->under_way && i < c->lanes; i++) {
        due = wf_least(due, wf_agg_window_due(&c->lane[i].window));
    }
    return due;
}
