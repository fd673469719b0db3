/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/flow.h"

#include <math.h>

#include "base/num.h"

#define GAIN 2.0
#define BURST_NS 1e6
#define DRAINED 4u /* the part of the window that measures the delay */
#define DRAIN_TRIPS 4u

void wf_flow_init(wf_flow *flow, uint64_t payload)
{
    *flow = (wf_flow){.payload = payload, .window = WF_FLOW_FIRST * payload};
}

static uint64_t open_window(const wf_flow *flow)
{
    return flow->draining > 0 ? flow->window / DRAINED : flow->window;
}

bool wf_flow_room(wf_flow *flow, uint64_t under_way, uint64_t bytes)
{
    bool room = under_way == 0 || under_way + bytes <= open_window(flow);

    flow->full = flow->full || !room;
    return room;
}

void wf_flow_sent(wf_flow *flow, uint64_t bytes, uint64_t now)
{
    uint64_t before = flow->sent - flow->answered;

    flow->sent += bytes;
    if (bytes > 0 && flow->goal == 0 &&
        (flow->draining == 0 || before <= open_window(flow))) {
        flow->goal = flow->sent;
        flow->begun_ns = now;
        flow->begun_answered = flow->answered;
        flow->full = false;
    }
}

static void learn_rate(wf_flow *flow, double rate)
{
    flow->rate = fmax(flow->rate, rate);
    flow->new_rate = fmax(flow->new_rate, rate);
    if (flow->full && ++flow->trips == WF_FLOW_TRIPS) {
        flow->rate = flow->new_rate;
        flow->new_rate = 0;
        flow->trips = 0;
    }
}

static void learn_delay(wf_flow *flow, uint64_t ns, uint64_t now)
{
    bool first = flow->delay_ns == 0 || flow->draining == DRAIN_TRIPS;

    if (first || ns <= flow->delay_ns) {
        flow->delay_ns = ns;
        flow->delay_since = now;
    }
    if (flow->draining > 0) {
        flow->draining--;
    } else if (now - flow->delay_since > WF_FLOW_SPAN_NS) {
        flow->draining = DRAIN_TRIPS;
    }
}

static void set_window(wf_flow *flow)
{
    double payload = (double)flow->payload;
    double burst = fmin(fmax(flow->rate * BURST_NS, WF_FLOW_LEAST * payload),
                        WF_FLOW_FIRST * payload);
    double fills = GAIN * flow->rate * (double)flow->delay_ns;

    flow->window = (uint64_t)fmin(fmax(fills, burst), (double)WF_FLOW_MOST);
}

static void end_trip(wf_flow *flow, uint64_t now)
{
    uint64_t ns = now > flow->begun_ns ? now - flow->begun_ns : 1;
    double bytes = (double)(flow->answered - flow->begun_answered);

    flow->goal = 0;
    if (flow->draining == 0) { /* else it had no chance to be fast */
        learn_rate(flow, bytes / (double)ns);
    }
    learn_delay(flow, ns, now);
    set_window(flow);
}

void wf_flow_answered(wf_flow *flow, uint64_t bytes, uint64_t now)
{
    flow->answered += wf_least(bytes, flow->sent - flow->answered);
    if (flow->goal != 0 && flow->answered >= flow->goal) {
        end_trip(flow, now);
    }
}

void wf_flow_lost(wf_flow *flow, uint64_t bytes)
{
    flow->answered += wf_least(bytes, flow->sent - flow->answered);
    flow->goal = 0;
}
