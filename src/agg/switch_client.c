/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's client of its switches, and the memory that goes with it. */
#include "agg/switch.h"
#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/time.h"
#include "comm/ports.h"

/* Chunks under way, unless settings say how many. */
#define SLOTS 256u
#define BYTES (512u << 10)

void switch_close_client(switch_state *s)
{
    if (!s->has_client) {
        return;
    }
    for (uint32_t i = 0; i < s->watches; i++) {
        wf_ports_unwatch(s->comm->world, s->watched[i]);
    }
    wf_agg_client_close(&s->client);
    s->has_client = false;
}

/* The same on all members, or on those of a rail, and new for every epoch. */
static void group_of(const switch_state *s, uint64_t group[2])
{
    uint64_t rail = s->shares ? s->rail + 1 : 0;

    group[0] = s->comm->world->host->job ^ rail << 56;
    group[1] = (uint64_t)s->comm->id << 32 | s->epoch;
}

static weft_status watch_client(switch_state *s)
{
    weft_status st = WEFT_OK;

    s->watches = 0;
    for (uint32_t i = 0; i < s->client.links; i++) {
        s->watched[s->watches++] = s->client.link[i].fd;
        s->watched[s->watches++] = s->client.link[i].session.fd;
    }
    for (uint32_t i = 0; i < s->watches && st == WEFT_OK; i++) {
        st = wf_ports_watch(s->comm->world, s->watched[i]);
    }
    return st;
}

void switch_heed_client(const switch_state *s, bool heeded)
{
    for (uint32_t i = 0; s->has_client && i < s->watches; i++) {
        wf_ports_heed(s->comm->world, s->watched[i], heeded);
    }
}

/* More than half a MiB under way fills no link of today any better, and the
 * buffers it passes through no longer stay in a core's cache. */
static uint32_t window_of(const wf_settings *set)
{
    return set->switch_slots > 0
               ? set->switch_slots
               : (uint32_t)wf_least(SLOTS, BYTES / set->switch_payload);
}

/* While a chunk that was lost is sent again, those behind it go on until its
 * slot is needed: about as long as a window takes to come back, and the gap to
 * show. */
static uint32_t slots_for(uint32_t window)
{
    return (uint32_t)wf_least(window + window / 2, WF_AGG_SLOTS);
}

weft_status switch_open_client(switch_state *s)
{
    const wf_settings *set = &s->comm->world->settings;
    uint32_t window = window_of(set);
    wf_agg_options o = {.switches = s->switches,
                        .rank = s->shares ? s->layout.node : s->comm->rank,
                        .ranks =
                            s->shares ? s->comm->tree.nodes : s->comm->size,
                        .slots = slots_for(window),
                        .window = window,
                        .payload = (uint32_t)set->switch_payload,
                        .least_ns = WF_AGG_WINDOW_LEAST_NS,
                        .most_ns = WF_AGG_WINDOW_MOST_NS,
                        .patience_ns = SWITCH_PATIENCE_NS};
    weft_status st;

    group_of(s, o.group);
    st = wf_agg_client_open(&s->client, s->at, &s->key, &o);
    s->has_client = st == WEFT_OK;
    return st == WEFT_OK ? watch_client(s) : st;
}

weft_status switch_get_rings(switch_state *s)
{
    uint64_t ring =
        s->shares ? WF_ROUNDS_WORKS : wf_agg_client_reach(&s->client);
    size_t each = s->shares ? s->rounds.slot : s->client.options.payload;
    size_t bytes = ring * each;

    if (ring <= s->ring) {
        return WEFT_OK;
    }
    wf_free(s->inputs);
    wf_free(s->input_of);
    wf_free(s->kept);
    s->inputs = wf_alloc(bytes);
    s->input_of = wf_alloc(ring * sizeof(*s->input_of));
    s->kept = wf_alloc(bytes);
    s->kept_op = SWITCH_NEVER;
    s->ring = ring;
    s->payload = each;
    if (s->inputs == NULL || s->input_of == NULL || s->kept == NULL) {
        s->ring = 0;
        return wf_fail_nomem("the last packets to a switch");
    }
    return WEFT_OK;
}
