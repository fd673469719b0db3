/* SPDX-License-Identifier: Apache-2.0 */
/* Where a switch pays. Pure.
 *
 * Counted is what the busiest link carries, each way, for each byte of the
 * tensor, among h hosts with any number of ranks each, which are added up in
 * shared memory before anything is sent:
 *
 *                        allreduce              reduce_scatter
 *                        out and in             out            in
 *   between hosts        2 (h - 1) / h          (h - 1) / h    (h - 1) / h
 *   through a switch     1                      1              1 / h
 *
 * The tensor of a reduce_scatter is its input, of which each rank keeps a part.
 * A link takes as long as the busier of its two directions. So an allreduce
 * through a switch takes h / (2 (h - 1)) of the time without: it pays from
 * three hosts on, up to half of the time. A reduce_scatter takes h / (h - 1):
 * it never pays, since without a switch a host sends all but what it keeps
 * itself, and to a switch it has to send all.
 *
 * That is if the links of the switches together carry what those of all hosts
 * do; with fewer, each way through them is h / links instead of 1. */
#ifndef WF_AGG_PAYS_H
#define WF_AGG_PAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/call.h"

typedef struct wf_agg_site {
    uint32_t hosts;
    double host_rate;   /* of each host's link, in any unit */
    double switch_rate; /* of all links of the switches together; 0: as many as
                         * there are hosts */
} wf_agg_site;

/* The time of such a call with much data through a switch, by that of the best
 * way without: below 1 it pays. 1 for a single host, and for calls that no
 * switch could serve. */
double wf_agg_pays_ratio(const wf_agg_site *site, wf_call_kind kind);

static inline bool wf_agg_pays(uint32_t hosts, wf_call_kind kind)
{
    return wf_agg_pays_ratio(&(wf_agg_site){hosts, 1, 0}, kind) < 1;
}

#endif
