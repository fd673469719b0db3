/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, replayed: the library's own comparison of calls (check.c),
 * choosers, layouts and shapes, plans (plan_*.c) and executor (run.c) run for
 * every rank, over the simulated transport. Nothing is stored or folded; the
 * time that copying and folding would take passes. */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include "coll/message/table.h"
#include "network.h"

typedef struct sim_call {
    wf_call_kind kind;
    uint64_t bytes;    /* of the buffer, or of one rank's block */
    wf_algorithm how;  /* WF_ALGORITHMS: what the library chooses */
    uint32_t repeat;   /* calls one after the other; the time is of one */
    uint64_t steps;    /* of all ranks: more are not carried out */
    uint64_t in_chunk; /* bytes, as WEFT_CHUNK_BYTES; 0: the default */
    bool flat;         /* one group of all ranks, although hosts are several */
} sim_call;

typedef struct sim_result {
    sim_summary summary;
    const char *how;   /* the algorithm */
    const char *among; /* whom: all ranks, hosts */
    double part;       /* of the steps that was carried out, from the first */
    uint64_t happened; /* events */
    uint32_t stuck;    /* ranks that did not come to an end */
    uint64_t too_many; /* not 0: nothing was done, for it takes so many steps */
} sim_result;

/* False: there is no such algorithm for this. Of a ring, whose steps are all
 * alike, only those are carried out that call->steps allows; all else is
 * carried out or not, as a whole. */
bool sim_replay(const sim_model *model, const sim_call *call, sim_result *out);

#endif
