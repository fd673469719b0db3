/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on pretended nodes in which one rank dies. */
#ifndef WT_DOOMED_H
#define WT_DOOMED_H

#include "wt.h"

/* Of the run; set before the ranks are forked. */
typedef struct wt_doomed_job {
    const char *nodes; /* a letter for each rank */
    unsigned victim;
} wt_doomed_job;
extern wt_doomed_job wt_doomed;

/* The settings of a rank, for jobs of other kinds on these nodes. */
const char *wt_doomed_settings(unsigned rank);

/* Ranks as processes, `victim` may be killed. */
void wt_run_doomed(const char *nodes, unsigned victim, wt_body *body);

bool wt_is_victim(void);
/* Was it done? If not it must have failed with the victim's name. */
bool wt_survives(weft_status st);
/* Does another rank of the victim's node live? */
bool wt_victims_node_lives(void);
/* All but the victim meet, for the nth time, at a word of the board. */
void wt_survivors_meet(unsigned word, unsigned nth);

#endif
