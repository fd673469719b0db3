/* SPDX-License-Identifier: Apache-2.0 */
/* Where a switch pays. Pure.
 *
 * Counted is what the busiest link carries, each way, for each byte of an
 * allreduce among h hosts with m ranks each:
 *
 *   ring, one rank a host       2 (h - 1) / h
 *   shared memory inside hosts
 *   and rails between them      2 (h - 1) / h
 *   a switch                    m: every rank sends by itself
 *
 * if the links of the switch together carry what those of all hosts do; one of
 * fewer links is what bounds it: m h / links. So a switch pays with one rank a
 * host, from three hosts on: at most half of the time, for many hosts. Where
 * two ranks share a host it is a loss, or no gain. */
#ifndef WF_AGG_PAYS_H
#define WF_AGG_PAYS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct wf_agg_site {
    uint32_t ranks;
    uint32_t hosts;
    double host_rate;   /* of each host's link, in any unit */
    double switch_rate; /* of all links of the switch together; 0: as many as
                         * there are hosts */
} wf_agg_site;

/* The time of an allreduce of much data through a switch, by that of the best
 * way without: below 1 it pays. 1 for a single host. */
double wf_agg_pays_ratio(const wf_agg_site *site);

static inline bool wf_agg_pays(uint32_t ranks, uint32_t hosts)
{
    return wf_agg_pays_ratio(&(wf_agg_site){ranks, hosts, 1, 0}) < 1;
}

#endif
