/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose collectives are replayed: what the engines of the library look at
 * and keep. There is one communicator, one call and one port, which stand for
 * the rank on whose behalf the library's code runs; each rank has the rest. */
#ifndef SIM_JOB_H
#define SIM_JOB_H

#include "coll/hosts/area.h"
#include "coll/message/check.h"
#include "coll/message/run.h"
#include "port.h"
#include "replay.h"

enum { SIM_START, SIM_MEET, SIM_MOVE, SIM_OVER };

/* One rank. Calls are compared before data moves, so these share memory. */
typedef struct sim_member {
    uint32_t phase;
    uint32_t sequence;
    sim_count before; /* what had happened before data moved */
    wf_plan plan;
    wf_data data;
    union {
        wf_check check;
        wf_run run;
    };
    /* Of the hierarchy, as in hosts_state. */
    uint32_t rail;
    bool comparing;
    uint64_t at[WF_ROUNDS_STEPS];
} sim_member;

/* How many members of a node have come through a step of a round, and when the
 * last one of them did. */
typedef struct sim_tally {
    uint64_t rounds; /* that are through, with this one, of all calls */
    uint32_t count;
    sim_time when;
} sim_tally;

/* Rounds of one node are never further apart. */
#define SIM_TALLIES 8u

/* What the members of a node share. */
typedef struct sim_node {
    sim_tally call; /* members that have made a call */
    sim_tally go;   /* all nodes have */
    sim_tally tally[WF_ROUNDS_STEPS][SIM_TALLIES];
} sim_node;

typedef struct sim_job {
    sim sim;
    wf_port port;
    sim_call call;
    sim_member *member;
    weft_world world;
    wf_route route;
    weft_comm comm;
    wf_coll_op op;

    /* Between all ranks. */
    bool along; /* data goes along when calls are compared */
    bool moves; /* there is a plan */
    wf_algorithm how;
    void *scratch; /* of all ranks: nobody looks at what is in it */
    size_t room;

    /* Of the hierarchy. */
    bool layered;
    wf_layout layout;
    wf_shape shape;
    uint32_t *speaker;
    uint32_t *driver; /* rail * nodes + node -> rank */
    sim_node *node;
    double part; /* of the plan that is carried out */
} sim_job;

/* The job on whose behalf the library's kernels are called: they have no
 * argument for it. */
void sim_job_speak_for(sim_job *job, uint32_t rank);

/* Folds nothing, but takes the time for it. */
wf_reduce_fn sim_job_fold;

/* How many steps of a plan are carried out. */
uint64_t sim_job_cut(const sim_job *job, wf_algorithm how, uint64_t length);

/* --- by messages between all ranks (flat.c) ------------------------------- */

void sim_flat_choose(sim_job *job);
/* Get the plan ready; returns bytes of memory that it takes. */
size_t sim_flat_start(sim_job *job, sim_member *m);
/* Compare calls, with the small data that goes along; true when it is over. */
void sim_flat_compare(sim_job *job, sim_member *m);
bool sim_flat_compared(sim_job *job, sim_member *m);
void sim_flat_begin(sim_job *job, sim_member *m);
bool sim_flat_step(sim_job *job, sim_member *m);

/* --- inside nodes and between them (layers.c) ----------------------------- */

void sim_layers_init(sim_job *job);
void sim_layers_fini(sim_job *job);
size_t sim_layers_start(sim_job *job, sim_member *m);
bool sim_layers_meet(sim_job *job, sim_member *m);
bool sim_layers_move(sim_job *job, sim_member *m);
/* Something that the members of a node wait for can be seen. */
void sim_layers_later(sim *s, uint32_t node);

#endif
