/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of communicators with one member. */
#include <string.h>

#include "coll/engine.h"

static int alone_score(const weft_comm *comm)
{
    return comm->size == 1 ? 100 : 0;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0) {
        memcpy(to, from, bytes);
    }
}

static void fold_one(wf_coll_op *op, const void *src)
{
    void *dst = op->dst;

    if (op->bytes > 0) {
        op->reducer.fold(&op->reducer, &dst, 1, &src, 1,
                         op->bytes / op->reducer.elem);
    }
}

static weft_status alone_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;

    switch ((wf_call_kind)base->call.kind) {
    case WF_CALL_ALLREDUCE:
    case WF_CALL_REDUCE:
    case WF_CALL_SCAN:
        fold_one(op, op->src);
        break;
    case WF_CALL_REDUCE_SCATTER:
    case WF_CALL_REDUCE_SCATTERV:
        fold_one(op, wf_coll_src(op, 0).at);
        break;
    case WF_CALL_ALLGATHER:
    case WF_CALL_ALLGATHERV:
    case WF_CALL_GATHER:
    case WF_CALL_GATHERV:
        copy(wf_coll_dst(op, 0).at, op->src, op->bytes);
        break;
    case WF_CALL_SCATTER:
    case WF_CALL_SCATTERV:
        copy(op->dst, wf_coll_src(op, 0).at, op->bytes);
        break;
    case WF_CALL_ALLTOALL:
    case WF_CALL_ALLTOALLV:
        copy(wf_coll_dst(op, 0).at, wf_coll_src(op, 0).at,
             wf_coll_src(op, 0).bytes);
        break;
    default: /* nothing moves */
        break;
    }
    return WEFT_OK;
}

static void alone_begin(wf_coll_op *op)
{
    op->op.step = alone_step;
}

const wf_engine wf_engine_alone = {
    .name = "alone",
    .what = "there is nobody to talk to",
    .score = alone_score,
    .begin = alone_begin,
};
