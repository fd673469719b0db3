/* SPDX-License-Identifier: Apache-2.0 */
#include "aggregate.h"

#include <stdlib.h>

#include "agg/client.h"
#include "agg/quantise.h"
#include "base/num.h"

typedef struct tower { /* a switch */
    wf_agg_pool pool;
    void *memory;
} tower;

typedef struct worker { /* a rank: a window for each switch */
    wf_agg_window *window;
    bool over;
} worker;

typedef struct rack {
    sim sim;
    sim_aggregate how;
    uint32_t ranks;
    uint64_t count;  /* numbers */
    uint64_t chunks; /* of the call */
    uint32_t each;   /* numbers of a chunk */
    worker *worker;
    tower *tower;
    uint64_t dice;
    unsigned char payload[WF_AGG_PAYLOAD_MAX]; /* of every packet */
} rack;

static uint64_t now_ns(const sim *s)
{
    return s->now / 1000;
}

/* Deterministic: a simulation can be repeated. */
static bool is_lost(rack *k)
{
    k->dice = k->dice * 6364136223846793005u + 1442695040888963407u;
    return (double)(k->dice >> 11) / 9007199254740992.0 < k->how.loss;
}

static void post(sim *s, uint32_t from, uint32_t to, const wf_agg_head *head)
{
    sim_message *m = sim_message_new(s, from, to);
    wf_agg_head *copy = sim_alloc(1, sizeof(*copy));

    *copy = *head;
    m->content = (unsigned char *)copy;
    m->bytes = sizeof(*head) + wf_agg_payload(head);
    sim_count_sent(s, from, to, m->bytes);
    sim_post(s, m);
}

/* --- a rank --------------------------------------------------------------- */

static uint64_t share_of(const rack *k, uint32_t lane)
{
    return k->chunks / k->how.switches + (k->chunks % k->how.switches > lane);
}

static void send_chunk(rack *k, uint32_t rank, uint32_t lane, uint64_t chunk,
                       bool again)
{
    uint64_t first = (chunk * k->how.switches + lane) * k->each;
    wf_agg_head head = {
        .kind = WF_AGG_DATA,
        .flags = (uint8_t)(WF_AGG_QUANTISED | (again ? WF_AGG_RESENT : 0)),
        .version = (uint8_t)wf_agg_version_of(chunk, k->how.slots),
        .chunk = chunk,
        .total = k->count,
        .slot = (uint16_t)wf_agg_slot_of(chunk, k->how.slots),
        .rank = (uint16_t)rank,
        .ranks = (uint16_t)k->ranks,
        .count = (uint16_t)wf_least(k->each, k->count - first),
        .call = WF_CALL_ALLREDUCE,
        .type = WEFT_F32,
        .op = WEFT_OP_SUM};

    sim_work(&k->sim, (double)wf_agg_payload(&head) / k->sim.model.copy);
    post(&k->sim, rank, k->ranks + lane, &head);
}

/* As in agg/client.c, no lane goes ahead of another by more than its slots, and
 * lanes take turns. */
static void set_stops(const rack *k, const worker *w)
{
    uint64_t past = UINT64_MAX;

    for (uint32_t i = 0; i < k->how.switches; i++) {
        if (!wf_agg_window_is_over(&w->window[i])) {
            past = wf_least(past, w->window[i].first);
        }
    }
    for (uint32_t i = 0; i < k->how.switches; i++) {
        w->window[i].stop = past < UINT64_MAX ? past + k->how.slots : past;
    }
}

/* Send one batch of what the window has; false: that was all. */
static bool send_batch(rack *k, uint32_t rank, uint32_t lane)
{
    wf_agg_window *w = &k->worker[rank].window[lane];
    size_t most = wf_least(
        WF_UDP_BYTES / (k->how.payload + sizeof(wf_agg_head)), WF_UDP_SEGMENTS);
    uint64_t chunk;
    bool again;
    size_t sent = 0;

    while (sent < most &&
           wf_agg_window_send(w, now_ns(&k->sim), &chunk, &again)) {
        send_chunk(k, rank, lane, chunk, again);
        sent++;
    }
    return sent == most;
}

static void rank_step(rack *k, uint32_t rank)
{
    worker *w = &k->worker[rank];
    uint64_t due = UINT64_MAX;
    bool more = true;

    set_stops(k, w);
    while (more) {
        more = false;
        for (uint32_t i = 0; i < k->how.switches; i++) {
            more = send_batch(k, rank, i) || more;
        }
    }
    w->over = true;
    for (uint32_t i = 0; i < k->how.switches; i++) {
        if (!wf_agg_window_is_over(&w->window[i])) {
            w->over = false;
            due = wf_least(due, wf_agg_window_due(&w->window[i]));
        }
    }
    if (!w->over && due < UINT64_MAX) {
        sim_wake(&k->sim, rank, due * 1000);
    }
}

static void rank_takes(rack *k, uint32_t rank, const wf_agg_head *head,
                       uint32_t lane)
{
    sim *s = &k->sim;
    wf_agg_window *w = &k->worker[rank].window[lane];

    if (head->kind == WF_AGG_WAIT) {
        wf_agg_window_held(w, head->chunk, now_ns(s));
    } else if (wf_agg_window_result(w, head->chunk, now_ns(s)) ==
               WF_AGG_WINDOW_NEW) {
        sim_work(s, (double)wf_agg_payload(head) / s->model.copy);
        s->count[rank].ended = s->now;
    }
}

/* --- a switch ------------------------------------------------------------- */

static void reply_to(rack *k, uint32_t lane, uint32_t rank,
                     const wf_agg_head *head)
{
    if (!is_lost(k)) {
        post(&k->sim, k->ranks + lane, rank, head);
    }
}

static void switch_takes(rack *k, uint32_t lane, const wf_agg_head *head)
{
    wf_agg_reply reply;

    if (is_lost(k)) {
        return;
    }
    sim_work(&k->sim, (double)wf_agg_payload(head) / k->sim.model.fold);
    switch (wf_agg_take(&k->tower[lane].pool, head, k->payload, &reply)) {
    case WF_AGG_ANSWER:
        reply_to(k, lane, head->rank, &reply.head);
        break;
    case WF_AGG_BROADCAST:
        for (uint32_t r = 0; r < k->ranks; r++) {
            reply_to(k, lane, r, &reply.head);
        }
        break;
    default:
        break;
    }
}

/* --- all of them ---------------------------------------------------------- */

static bool rack_arrived(sim *s, uint32_t to, sim_message *m)
{
    rack *k = s->state;
    const wf_agg_head *head = (const wf_agg_head *)(const void *)m->content;

    sim_count_received(s, to, m->bytes);
    if (to >= k->ranks) {
        switch_takes(k, to - k->ranks, head);
    } else {
        rank_takes(k, to, head, m->from - k->ranks);
    }
    return true;
}

static void rack_step(sim *s, uint32_t rank)
{
    rack *k = s->state;

    if (rank < k->ranks && !k->worker[rank].over) {
        rank_step(k, rank);
    }
}

static const sim_actor rack_actor = {rack_arrived, rack_step, NULL};

static void worker_init(const rack *k, worker *w)
{
    const wf_agg_window_config config = {.slots = k->how.slots,
                                         .limit = k->how.slots,
                                         .least_ns = WF_AGG_WINDOW_LEAST_NS,
                                         .most_ns = WF_AGG_WINDOW_MOST_NS};

    w->window = sim_alloc(k->how.switches, sizeof(*w->window));
    for (uint32_t i = 0; i < k->how.switches; i++) {
        wf_agg_window_init(
            &w->window[i], &config,
            sim_alloc(k->how.slots, sizeof(wf_agg_window_chunk)));
        wf_agg_window_call(&w->window[i], share_of(k, i), 0);
    }
}

static void rack_fini(rack *k)
{
    for (uint32_t r = 0; r < k->ranks; r++) {
        for (uint32_t i = 0; i < k->how.switches; i++) {
            free(k->worker[r].window[i].entry);
        }
        free(k->worker[r].window);
    }
    for (uint32_t i = 0; i < k->how.switches; i++) {
        free(k->tower[i].memory);
    }
    free(k->worker);
    free(k->tower);
    sim_fini(&k->sim);
    free(k);
}

static void rack_init(rack *k, const sim_model *model, const wf_agg_shape *like)
{
    sim_model with = *model; /* the switches are ranks behind the ranks */
    double links = k->how.links > 0 ? k->how.links : k->ranks;

    with.ranks = k->ranks + k->how.switches;
    with.per_host = 1;
    sim_init(&k->sim, &with, &rack_actor, k);
    for (uint32_t i = 0; i < k->how.switches; i++) {
        k->sim.links[k->ranks + i] = links;
    }
    k->worker = sim_alloc(k->ranks, sizeof(*k->worker));
    for (uint32_t r = 0; r < k->ranks; r++) {
        worker_init(k, &k->worker[r]);
    }
    k->tower = sim_alloc(k->how.switches, sizeof(*k->tower));
    for (uint32_t i = 0; i < k->how.switches; i++) {
        k->tower[i].memory =
            sim_alloc(wf_round_up(wf_agg_pool_bytes(like), 64), 1);
        wf_agg_pool_init(&k->tower[i].pool, like, k->tower[i].memory);
    }
}

bool sim_aggregate_run(const sim_model *model, const sim_aggregate *how,
                       uint64_t bytes, sim_result *out)
{
    const wf_agg_shape like = {.ranks = sim_model_hosts(model),
                               .slots = how->slots,
                               .payload = how->payload};
    rack *k;

    if (wf_agg_pool_bytes(&like) == 0 || how->switches == 0 ||
        how->switches > WF_AGG_SWITCHES) {
        return false;
    }
    k = sim_alloc(1, sizeof(*k));
    k->how = *how;
    k->ranks = like.ranks;
    k->count = bytes / sizeof(float);
    k->each = wf_agg_each(how->payload, WEFT_F32, true);
    k->chunks = (k->count + k->each - 1) / k->each;
    rack_init(k, model, &like);
    sim_run(&k->sim);
    *out = (sim_result){.summary = sim_summarize(k->sim.count, k->ranks),
                        .how = "switch",
                        .among = "hosts",
                        .part = 1,
                        .happened = k->sim.happened};
    for (uint32_t r = 0; r < k->ranks; r++) {
        out->stuck += !k->worker[r].over;
    }
    rack_fini(k);
    return true;
}
