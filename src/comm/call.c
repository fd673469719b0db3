/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/call.h"

#include <stdio.h>

void wf_call_text(const wf_call *call, char *text, size_t room)
{
    unsigned long long n = call->count;
    const char *type = weft_dtype_name((weft_dtype)call->type);

    switch ((wf_call_kind)call->kind) {
    case WF_CALL_BARRIER:
        snprintf(text, room, "barrier");
        return;
    case WF_CALL_BROADCAST:
        snprintf(text, room, "broadcast of %llu %s from rank %u", n, type,
                 call->root);
        return;
    case WF_CALL_ALLREDUCE:
        if (call->op == WEFT_OP_PREMUL_SUM) {
            snprintf(text, room, "allreduce of %llu %s, premul_sum by %.17g", n,
                     type, call->factor);
            return;
        }
        snprintf(text, room, "allreduce of %llu %s, %s", n, type,
                 weft_op_name((weft_op_kind)call->op));
        return;
    case WF_CALL_SEND:
        snprintf(text, room, "send of %llu bytes to rank %u", n, call->root);
        return;
    case WF_CALL_RECV:
        snprintf(text, room, "receive of %llu bytes from rank %u", n,
                 call->root);
        return;
    case WF_CALL_CREATE:
        snprintf(text, room, "creation of a communicator");
        return;
    case WF_CALL_ALLOC:
        snprintf(text, room, "allocation of %llu bytes", n);
        return;
    case WF_CALL_NONE:
        break;
    }
    snprintf(text, room, "nothing yet");
}
