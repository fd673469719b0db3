/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of communicators with one member. */
#include <string.h>

#include "coll/engine.h"

static wf_offer alone_offer(const weft_comm *comm, wf_call_kind kind)
{
    (void)kind;
    return wf_offer_all(comm->size == 1 ? 100 : 0);
}

/* The only block is that from this rank to itself. */
static weft_status alone_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    uint8_t kind = base->call.kind;
    wf_block from = {(unsigned char *)(uintptr_t)op->src, op->bytes};
    void *to = op->dst;

    if (!wf_coll_moves(op) || wf_call_is(kind, WF_EXCLUSIVE)) {
        return WEFT_OK;
    }
    if (wf_call_is(kind, WF_SRC_BLOCKS)) {
        from = wf_coll_src(op, 0);
    }
    if (wf_call_is(kind, WF_DST_BLOCKS)) {
        to = wf_coll_dst(op, 0).at;
    }
    if (from.bytes == 0) {
        return WEFT_OK;
    }
    if (wf_call_is(kind, WF_REDUCES)) {
        const void *src = from.at;

        op->reducer.fold(&op->reducer, &to, 1, &src, 1,
                         from.bytes / op->reducer.elem);
    } else if (to != from.at) {
        memcpy(to, from.at, from.bytes);
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
    .offer = alone_offer,
    .begin = alone_begin,
};
