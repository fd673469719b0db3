/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: carries out a plan, whatever it is, over the transports. */
#ifndef WF_COLL_MESSAGE_RUN_H
#define WF_COLL_MESSAGE_RUN_H

#include "coll/message/data.h"
#include "coll/message/wire.h"

/* A step under way. */
typedef struct wf_flight {
    uint64_t at; /* its number in the plan */
    wf_step step;
    wf_wire send;
    wf_wire recv;
    size_t expects; /* bytes */
} wf_flight;

typedef struct wf_run {
    wf_data *data;
    wf_party party;
    uint64_t next;   /* the step to begin */
    uint64_t length; /* steps of the plan */
    uint64_t open;   /* so many of them may begin now */
    unsigned first;  /* the oldest flight; they follow around the array */
    unsigned count;
    uint64_t moved; /* bytes of these messages, at the last look */
    wf_flight flight[WF_FLIGHTS];
} wf_run;

/* All steps may begin; a caller whose data is not there yet lowers `open`. */
void wf_run_init(wf_run *run, wf_data *data, const wf_party *party);

/* So many steps, from the first one on, have ended. */
static inline uint64_t wf_run_ended(const wf_run *run)
{
    return run->count > 0 ? run->flight[run->first].at : run->next;
}

/* Do what can be done now. WEFT_OK: the plan is carried out. */
weft_status wf_run_step(wf_run *run, wf_coll_op *op);

bool wf_run_awaits(const wf_run *run, uint32_t member);
void wf_run_drop(wf_run *run, const wf_coll_op *op);

#endif
