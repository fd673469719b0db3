/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for messages without receiving them. */
#include <weft/message.h>

#include "comm/receive.h"
#include "comm/wait.h"

typedef struct probe_op {
    wf_op op;
    wf_want want;
    weft_message_info found;
} probe_op;

static weft_status probe_step(wf_op *op)
{
    probe_op *p = (probe_op *)(void *)op;
    wf_msg msg;
    weft_status st;

    if (wf_want_peek(op->comm, &p->want, &msg)) {
        return wf_message_describe(op->comm, &p->want, &msg, &p->found);
    }
    st = wf_want_check(op->comm, &p->want);
    op->private_failure = wf_loss_is_private(op->comm, st);
    return st == WEFT_OK ? WF_PENDING : st;
}

static bool probe_awaits(const wf_op *op, uint32_t member)
{
    const probe_op *p = (const probe_op *)(const void *)op;

    return wf_want_awaits(op->comm, &p->want, member);
}

static weft_status probe_init(probe_op *p, weft_comm *comm, uint32_t from,
                              uint32_t tag)
{
    if (comm == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm is NULL");
    }
    if (from != WEFT_ANY_SOURCE && wf_comm_check_rank(comm, from) != WEFT_OK) {
        return WEFT_ERR_INVALID;
    }
    *p = (probe_op){.op = {.comm = comm,
                           .step = probe_step,
                           .awaits = probe_awaits,
                           .driven = true,
                           .sequence = tag,
                           .call = {.kind = WF_CALL_PROBE, .root = from}},
                    .want = wf_want_of(comm, from, tag)};
    return wf_comm_check(comm);
}

static void probe_tell(const probe_op *p, weft_message_info *info)
{
    if (info != NULL) {
        *info = p->found;
    }
}

weft_status weft_probe(weft_comm *comm, uint32_t from, uint32_t tag,
                       weft_message_info *info)
{
    probe_op p;
    weft_status st = probe_init(&p, comm, from, tag);

    if (st != WEFT_OK) {
        return st;
    }
    wf_comm_show(comm, &p.op);
    st = wf_op_run(&p.op);
    if (st == WEFT_OK) {
        probe_tell(&p, info);
    }
    return st;
}

weft_status weft_iprobe(weft_comm *comm, uint32_t from, uint32_t tag,
                        int *found, weft_message_info *info)
{
    probe_op p;
    weft_status st;

    if (found == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "found is NULL");
    }
    st = probe_init(&p, comm, from, tag);
    if (st == WEFT_OK) {
        st = wf_op_try(&p.op);
    }
    if (st == WF_PENDING) {
        *found = 0;
        return WEFT_OK;
    }
    if (st == WEFT_OK) {
        *found = 1;
        probe_tell(&p, info);
    }
    return st;
}
