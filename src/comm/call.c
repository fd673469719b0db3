/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/call.h"

#include <stdio.h>
#include <weft/message.h>

const wf_call_info wf_call_table[WF_CALL_KINDS] = {
    [WF_CALL_BARRIER] = {"barrier", 0},
    [WF_CALL_CREATE] = {"creation of a communicator", 0},
    [WF_CALL_REGION] = {"creation of a region", 0},
    [WF_CALL_ALLOC] = {"allocation", 0},
    [WF_CALL_STORE] = {"operation of a store", WF_MESSAGE},
    [WF_CALL_SEND] = {"send", WF_MESSAGE},
    [WF_CALL_RECV] = {"receive", WF_MESSAGE},
    [WF_CALL_SENDRECV] = {"send and receive", WF_MESSAGE},
    [WF_CALL_PROBE] = {"probe", WF_MESSAGE},
    [WF_CALL_BROADCAST] = {"broadcast", WF_HAS_DATA | WF_ROOT_SENDS},
    [WF_CALL_ALLREDUCE] = {"allreduce", WF_HAS_DATA | WF_REDUCES},
    [WF_CALL_REDUCE] = {"reduce", WF_HAS_DATA | WF_REDUCES | WF_ROOT_RECEIVES},
    [WF_CALL_SCAN] = {"scan", WF_HAS_DATA | WF_REDUCES | WF_PREFIX},
    [WF_CALL_EXSCAN] = {"exscan",
                        WF_HAS_DATA | WF_REDUCES | WF_PREFIX | WF_EXCLUSIVE},
    [WF_CALL_REDUCE_SCATTER] = {"reduce_scatter",
                                WF_HAS_DATA | WF_REDUCES | WF_SRC_BLOCKS},
    [WF_CALL_REDUCE_SCATTERV] = {"reduce_scatterv", WF_HAS_DATA | WF_REDUCES |
                                                        WF_SRC_BLOCKS |
                                                        WF_ALL_LENGTHS},
    [WF_CALL_ALLGATHER] = {"allgather", WF_HAS_DATA | WF_DST_BLOCKS},
    [WF_CALL_ALLGATHERV] = {"allgatherv",
                            WF_HAS_DATA | WF_DST_BLOCKS | WF_ALL_LENGTHS},
    [WF_CALL_GATHER] = {"gather",
                        WF_HAS_DATA | WF_DST_BLOCKS | WF_ROOT_RECEIVES},
    [WF_CALL_GATHERV] = {"gatherv", WF_HAS_DATA | WF_DST_BLOCKS |
                                        WF_ROOT_RECEIVES | WF_OWN_LENGTHS},
    [WF_CALL_SCATTER] = {"scatter",
                         WF_HAS_DATA | WF_SRC_BLOCKS | WF_ROOT_SENDS},
    [WF_CALL_SCATTERV] = {"scatterv", WF_HAS_DATA | WF_SRC_BLOCKS |
                                          WF_ROOT_SENDS | WF_OWN_LENGTHS},
    [WF_CALL_ALLTOALL] = {"alltoall",
                          WF_HAS_DATA | WF_SRC_BLOCKS | WF_DST_BLOCKS},
    [WF_CALL_ALLTOALLV] = {"alltoallv", WF_HAS_DATA | WF_SRC_BLOCKS |
                                            WF_DST_BLOCKS | WF_OWN_LENGTHS},
};

const char *wf_call_name(uint8_t kind)
{
    return kind < WF_CALL_KINDS && wf_call_table[kind].name != NULL
               ? wf_call_table[kind].name
               : "?";
}

/* ", sum", ", premul_sum by 0.5", or nothing. */
static void op_text(const wf_call *call, char *text, size_t room)
{
    text[0] = '\0';
    if (wf_call_is(call->kind, WF_REDUCES)) {
        const char *op = weft_op_name((weft_op_kind)call->op);

        if (call->op == WEFT_OP_PREMUL_SUM) {
            snprintf(text, room, ", %s by %.17g", op, call->factor);
        } else {
            snprintf(text, room, ", %s", op);
        }
    }
}

/* " of 17 f32", or " of f32" where ranks differ. */
static void data_text(const wf_call *call, char *text, size_t room)
{
    const char *type = weft_dtype_name((weft_dtype)call->type);

    if (wf_call_is(call->kind, WF_OWN_LENGTHS)) {
        snprintf(text, room, " of %s", type);
    } else {
        snprintf(text, room, " of %llu %s", (unsigned long long)call->count,
                 type);
    }
}

/* " from rank 2", or what else the call's field `root` says. */
static void root_text(const wf_call *call, char *text, size_t room)
{
    text[0] = '\0';
    if (wf_call_has_root(call->kind)) {
        bool sends = wf_call_is(call->kind, WF_ROOT_SENDS);

        snprintf(text, room, " %s rank %u", sends ? "from" : "to", call->root);
    } else if (wf_call_is(call->kind, WF_ALL_LENGTHS)) {
        snprintf(text, room, " (parts %08x)", call->root);
    }
}

static void collective_text(const wf_call *call, char *text, size_t room)
{
    char data[64];
    char op[64];
    char root[32];

    data_text(call, data, sizeof(data));
    op_text(call, op, sizeof(op));
    root_text(call, root, sizeof(root));
    snprintf(text, room, "%s%s%s%s%s", wf_call_name(call->kind), data,
             wf_call_is(call->kind, WF_ALL_LENGTHS) ? " in all" : "", op, root);
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

/* Behind what it receives or looks for: from a rank, or from any. */
static void from_text(const wf_call *call, const char *what, char *text,
                      size_t room)
{
    if (call->root == WF_CALL_ANY) {
        snprintf(text, room, "%s from any rank", what);
    } else {
        snprintf(text, room, "%s from rank %u", what, call->root);
    }
}

/* What a rank sends, receives or looks for. */
static void message_text(const wf_call *call, char *text, size_t room)
{
    unsigned long long n = call->count;
    char what[64];

    switch ((wf_call_kind)call->kind) {
    case WF_CALL_SEND:
        snprintf(text, room, "send of %llu bytes to rank %u", n, call->root);
        return;
    case WF_CALL_RECV:
        snprintf(what, sizeof(what), "receive of %llu bytes", n);
        break;
    case WF_CALL_SENDRECV:
        snprintf(what, sizeof(what), "send of %llu bytes and receive", n);
        break;
    default:
        snprintf(what, sizeof(what), "probe for a message");
        break;
    }
    from_text(call, what, text, room);
}

void wf_call_text(const wf_call *call, char *text, size_t room)
{
    /* It may be another process's, and then anything. */
    if (call->kind >= WF_CALL_KINDS || call->kind == WF_CALL_NONE) {
        snprintf(text, room, "nothing yet");
    } else if (wf_call_is(call->kind, WF_MESSAGE)) {
        message_text(call, text, room);
    } else if (call->kind == WF_CALL_ALLOC) {
        snprintf(text, room, "allocation of %llu bytes",
                 (unsigned long long)call->count);
    } else if (!wf_call_is(call->kind, WF_HAS_DATA)) {
        snprintf(text, room, "%s", wf_call_name(call->kind));
        mark_text(call, text, room);
    } else {
        collective_text(call, text, room);
        mark_text(call, text, room);
    }
}

void wf_call_number_text(uint8_t kind, uint32_t sequence, uint32_t comm,
                         char *text, size_t room)
{
    if (kind >= WF_CALL_KINDS || !wf_call_is(kind, WF_MESSAGE)) {
        snprintf(text, room, "number %u on communicator %u", sequence, comm);
    } else if (sequence == WEFT_ANY_TAG) {
        snprintf(text, room, "any tag on communicator %u", comm);
    } else {
        snprintf(text, room, "tag %u on communicator %u", sequence, comm);
    }
}
