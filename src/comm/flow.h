/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes may be under way between two ranks: sent or asked for, and not
 * answered. Pure arithmetic; the caller says what the time is.
 *
 * A cable is full when its bandwidth times its delay is under way. Less leaves
 * it idle; more waits in queues, in front of all that is sent later. Neither
 * number is known, so both are measured:
 *
 *   1. A trip is the time from sending something until that, and all that was
 *      sent before it, is answered. One trip is measured at a time.
 *   2. The rate is what was answered during a trip, over its time: the best of
 *      the last 8 to 16 trips in which the window was full.
 *   3. The delay is the shortest trip. After WF_FLOW_SPAN_NS without one as
 *      short it is measured again, by a few trips with a quarter of the window,
 *      so that what this rank itself has in queues is not in it.
 *   4. The window is twice the rate times the delay. While it is the window
 *      that bounds the rate it doubles with each trip; once the cable is full
 *      the rate stays, and so does the window. Where trips only get longer,
 *      because others use the cable, it stays, too; where the rate falls it
 *      follows.
 *   5. Where that is little, what a host does between two looks at its network
 *      counts, too: a millisecond's bytes are allowed in any case, within
 *      WF_FLOW_LEAST and WF_FLOW_FIRST messages. */
#ifndef WF_COMM_FLOW_H
#define WF_COMM_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

/* Messages of the greatest length that may be under way at least, and before
 * anything is known. */
#define WF_FLOW_LEAST 4u
#define WF_FLOW_FIRST 16u
/* Bytes that are under way at most: what others must keep for one rank. */
#define WF_FLOW_MOST (64ull << 20)
#define WF_FLOW_TRIPS 8u
#define WF_FLOW_SPAN_NS (10 * WF_SEC)

typedef struct wf_flow {
    uint64_t payload; /* bytes of a message at most */
    uint64_t window;
    uint64_t sent;     /* bytes, since the beginning */
    uint64_t answered; /* of these, or given up */
    /* The trip that is measured: over when so much is answered; 0: none. */
    uint64_t goal;
    uint64_t begun_ns;
    uint64_t begun_answered;
    bool full;       /* something had to wait for room meanwhile */
    double rate;     /* bytes in a nanosecond */
    double new_rate; /* the best since trips was 0 */
    uint32_t trips;  /* with a full window */
    uint64_t delay_ns;
    uint64_t delay_since; /* when a trip was last as short */
    uint32_t draining;    /* trips to come that say what the delay is */
} wf_flow;

void wf_flow_init(wf_flow *flow, uint64_t payload);

/* May `bytes` be sent by who has `under_way` of its own under way? Always, if
 * that is none. */
bool wf_flow_room(wf_flow *flow, uint64_t under_way, uint64_t bytes);

/* Bytes were sent or asked for; so many of these were answered; so many will
 * not be. */
void wf_flow_sent(wf_flow *flow, uint64_t bytes, uint64_t now);
void wf_flow_answered(wf_flow *flow, uint64_t bytes, uint64_t now);
void wf_flow_lost(wf_flow *flow, uint64_t bytes);

#endif
