/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of real ranks, as processes, with switches that are children of rank 0.
 * The engine is asked for by name. */
#ifndef WT_SWITCH_JOB_H
#define WT_SWITCH_JOB_H

#include "rig.h"
#include "wt.h"

enum { JOB_SWITCHES = 3 };

typedef struct job_plan {
    unsigned ranks;
    unsigned switches; /* up to JOB_SWITCHES; 0: one */
    const char *nodes; /* a letter for each rank; NULL: all are on one */
    const char *const *options; /* of the switch; NULL: there is none */
    const char *key_file;       /* of the ranks; NULL: the switch's */
    const char *settings;       /* more of them, or NULL */
    wt_body *body;
    uint32_t doomed; /* as in wt_job; not under TSan */
    double deadline;
} job_plan;

/* The switches, for rank 0; the first of them, where it is the only one. */
extern rig job_switches[JOB_SWITCHES];
#define job_switch job_switches[0]

void job_run_as(const job_plan *plan);
void job_run(unsigned ranks, const char *const *options, const char *settings,
             wt_body *body);

/* Start one again, with the same options, on the same port. */
void job_restart(unsigned which);

/* Chunks that the switches have reduced for the jobs that they have now; and
 * one of them has. */
double job_chunks(void);
double job_chunks_of(unsigned which);

#endif
