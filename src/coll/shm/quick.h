/* SPDX-License-Identifier: Apache-2.0 */
/* What the fast paths share. */
#ifndef WF_COLL_SHM_QUICK_H
#define WF_COLL_SHM_QUICK_H

#include "coll/shm/area.h"

/* Like wf_reducer_init, for a call that was checked before. */
static inline wf_reducer shm_quick_reducer(const wf_coll_op *op,
                                           const shm_state *s)
{
    const wf_call *call = &op->op.call;

    return (wf_reducer){.fold = s->kernels->fold[call->type][call->op],
                        .factor = call->factor,
                        .ranks = op->op.comm->size,
                        .elem = wf_dtype_bytes(call->type)};
}

/* Can it be run by shm_pair? */
bool shm_pairs(const wf_coll_op *op, const shm_state *s);
/* All of it, as wf_engine.quick promises. */
weft_status shm_pair(wf_coll_op *op);

#endif
