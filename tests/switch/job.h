/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of real ranks, as processes, with a switch that is a child of rank 0.
 * All ranks have one host, so that the engine is asked for by name. */
#ifndef WT_SWITCH_JOB_H
#define WT_SWITCH_JOB_H

#include "rig.h"
#include "wt.h"

typedef struct job_plan {
    unsigned ranks;
    const char *const *options; /* of the switch; NULL: there is none */
    const char *key_file;       /* of the ranks; NULL: the switch's */
    const char *settings;       /* more of them, or NULL */
    wt_body *body;
    uint32_t doomed; /* as in wt_job; not under TSan */
    double deadline;
} job_plan;

/* The switch, for rank 0. */
extern rig job_switch;

void job_run_as(const job_plan *plan);
void job_run(unsigned ranks, const char *const *options, const char *settings,
             wt_body *body);

/* Start it again, with the same options, on the same port. */
void job_restart(void);

/* Chunks that the switch has reduced for the jobs that it has now. */
double job_chunks(void);

#endif
