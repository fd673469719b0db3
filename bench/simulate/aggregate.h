/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce through switches: the windows of ranks (agg/window.h) and the slots
 * of switches (agg/slot.h) run for every rank and switch, and packets cross the
 * simulated network. Each rank has a host of its own: those that share one are
 * added up before anything is sent. */
#ifndef SIM_AGGREGATE_H
#define SIM_AGGREGATE_H

#include "replay.h"

typedef struct sim_aggregate {
    uint32_t switches; /* each has its share of the chunks */
    double links;      /* of a switch, as wide as a host's; 0: one a host */
    uint32_t payload;  /* as WEFT_SWITCH_PAYLOAD */
    uint32_t slots;    /* as WEFT_SWITCH_SLOTS */
    double loss;       /* of all packets, each way, before or after a switch */
} sim_aggregate;

/* The result's messages are packets. False: no pool can be like that. */
bool sim_aggregate_run(const sim_model *model, const sim_aggregate *how,
                       uint64_t bytes, sim_result *out);

#endif
