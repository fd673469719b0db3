/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/call.h"

#include <stdio.h>
#include <weft/message.h>

static const char *const names[WF_CALL_KINDS] = {
    [WF_CALL_BARRIER] = "barrier",
    [WF_CALL_BROADCAST] = "broadcast",
    [WF_CALL_ALLREDUCE] = "allreduce",
    [WF_CALL_REDUCE] = "reduce",
    [WF_CALL_SCAN] = "scan",
    [WF_CALL_EXSCAN] = "exscan",
    [WF_CALL_REDUCE_SCATTER] = "reduce_scatter",
    [WF_CALL_REDUCE_SCATTERV] = "reduce_scatterv",
    [WF_CALL_ALLGATHER] = "allgather",
    [WF_CALL_ALLGATHERV] = "allgatherv",
    [WF_CALL_GATHER] = "gather",
    [WF_CALL_GATHERV] = "gatherv",
    [WF_CALL_SCATTER] = "scatter",
    [WF_CALL_SCATTERV] = "scatterv",
    [WF_CALL_ALLTOALL] = "alltoall",
    [WF_CALL_ALLTOALLV] = "alltoallv",
};

const char *wf_call_name(uint8_t kind)
{
    return kind < WF_CALL_KINDS && names[kind] != NULL ? names[kind] : "?";
}

/* ", sum", ", premul_sum by 0.5", or nothing. */
static void op_text(const wf_call *call, char *text, size_t room)
{
    text[0] = '\0';
    if (wf_call_reduces(call->kind)) {
        const char *op = weft_op_name((weft_op_kind)call->op);

        if (call->op == WEFT_OP_PREMUL_SUM) {
            snprintf(text, room, ", %s by %.17g", op, call->factor);
        } else {
            snprintf(text, room, ", %s", op);
        }
    }
}

static void collective_text(const wf_call *call, char *text, size_t room)
{
    unsigned long long n = call->count;
    const char *name = wf_call_name(call->kind);
    const char *type = weft_dtype_name((weft_dtype)call->type);
    char op[64];

    op_text(call, op, sizeof(op));
    switch ((wf_call_kind)call->kind) {
    case WF_CALL_BROADCAST:
    case WF_CALL_SCATTER:
        snprintf(text, room, "%s of %llu %s from rank %u", name, n, type,
                 call->root);
        return;
    case WF_CALL_SCATTERV:
        snprintf(text, room, "%s of %s from rank %u", name, type, call->root);
        return;
    case WF_CALL_REDUCE:
    case WF_CALL_GATHER:
        snprintf(text, room, "%s of %llu %s%s to rank %u", name, n, type, op,
                 call->root);
        return;
    case WF_CALL_GATHERV:
        snprintf(text, room, "%s of %s to rank %u", name, type, call->root);
        return;
    case WF_CALL_ALLTOALLV:
        snprintf(text, room, "%s of %s", name, type);
        return;
    case WF_CALL_ALLGATHERV:
    case WF_CALL_REDUCE_SCATTERV:
        snprintf(text, room, "%s of %llu %s in all%s (parts %08x)", name, n,
                 type, op, call->root);
        return;
    default:
        snprintf(text, room, "%s of %llu %s%s", name, n, type, op);
        return;
    }
}

/* The caller's own number, behind the rest. */
static void mark_text(const wf_call *call, char *text, size_t room)
{
    size_t used = strlen(text);

    if (call->mark != 0 && call->op != WEFT_OP_PREMUL_SUM) {
        snprintf(text + used, room - used, ", mark %#llx",
                 (unsigned long long)call->mark);
    }
}

/* What a rank receives or looks for, from a rank or from any. */
static void message_text(const wf_call *call, const char *what, char *text,
                         size_t room)
{
    if (call->root == WF_CALL_ANY) {
        snprintf(text, room, "%s from any rank", what);
    } else {
        snprintf(text, room, "%s from rank %u", what, call->root);
    }
}

void wf_call_text(const wf_call *call, char *text, size_t room)
{
    unsigned long long n = call->count;
    char what[64];

    switch ((wf_call_kind)call->kind) {
    case WF_CALL_NONE:
        snprintf(text, room, "nothing yet");
        return;
    case WF_CALL_BARRIER:
        snprintf(text, room, "barrier");
        mark_text(call, text, room);
        return;
    case WF_CALL_SEND:
        snprintf(text, room, "send of %llu bytes to rank %u", n, call->root);
        return;
    case WF_CALL_RECV:
        snprintf(what, sizeof(what), "receive of %llu bytes", n);
        message_text(call, what, text, room);
        return;
    case WF_CALL_SENDRECV:
        snprintf(what, sizeof(what), "send of %llu bytes and receive", n);
        message_text(call, what, text, room);
        return;
    case WF_CALL_PROBE:
        message_text(call, "probe for a message", text, room);
        return;
    case WF_CALL_CREATE:
        snprintf(text, room, "creation of a communicator");
        return;
    case WF_CALL_REGION:
        snprintf(text, room, "creation of a region");
        return;
    case WF_CALL_ALLOC:
        snprintf(text, room, "allocation of %llu bytes", n);
        return;
    default:
        break;
    }
    if (call->kind < WF_CALL_KINDS) {
        collective_text(call, text, room);
        mark_text(call, text, room);
    } else {
        snprintf(text, room, "nothing yet");
    }
}

void wf_call_number_text(uint8_t kind, uint32_t sequence, uint32_t comm,
                         char *text, size_t room)
{
    if (!wf_call_is_message(kind)) {
        snprintf(text, room, "number %u on communicator %u", sequence, comm);
    } else if (sequence == WEFT_ANY_TAG) {
        snprintf(text, room, "any tag on communicator %u", comm);
    } else {
        snprintf(text, room, "tag %u on communicator %u", sequence, comm);
    }
}
