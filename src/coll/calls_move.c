/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls that meet, or move data: barrier, broadcast, allgather,
 * gather, scatter, alltoall, plain and with parts. */
#include "coll/args.h"
#include "coll/coll.h"

static weft_status barrier(weft_comm *comm, const wf_call *call,
                           weft_request **out, uint32_t *sequence)
{
    wf_coll_op op;

    if (comm == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm is NULL");
    }
    op.op.comm = comm;
    op.op.call = *call;
    op.src = NULL;
    op.dst = NULL;
    op.bytes = 0;
    if (sequence != NULL) {
        *sequence = comm->sequence; /* the number it is about to take */
    }
    return wf_coll_finish_block(&op, out);
}

weft_status weft_barrier(weft_comm *comm)
{
    wf_call call = {.kind = WF_CALL_BARRIER};

    return barrier(comm, &call, NULL, NULL);
}

weft_status weft_ibarrier(weft_comm *comm, weft_request **out)
{
    wf_call call = {.kind = WF_CALL_BARRIER};

    return out != NULL ? barrier(comm, &call, out, NULL)
                       : wf_fail(WEFT_ERR_INVALID, "out is NULL");
}

weft_status wf_coll_agree(weft_comm *comm, const wf_call *call,
                          uint32_t *sequence)
{
    return barrier(comm, call, NULL, sequence);
}

static weft_status broadcast(weft_comm *comm, void *buf, size_t n,
                             weft_dtype type, uint32_t root, weft_request **out)
{
    wf_coll_op op;
    weft_status st = wf_args_buffer(comm, buf, n, type, &op.bytes);

    if (st == WEFT_OK) {
        st = wf_args_root(comm, root);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op.op.comm = comm;
    op.op.call = (wf_call){.kind = WF_CALL_BROADCAST,
                           .type = (uint8_t)type,
                           .root = root,
                           .count = n};
    op.src = buf;
    op.dst = buf;
    return wf_coll_finish_block(&op, out);
}

WF_FORMS(broadcast, (void *buf, size_t n, weft_dtype type, uint32_t root),
         broadcast(comm, buf, n, type, root, out))

/* The reduction of calls that do not reduce. */
static const weft_op none = {.kind = WEFT_OP_SUM};

WF_FORMS(allgather, (const void *src, void *dst, size_t n, weft_dtype type),
         wf_coll_plain(comm, WF_CALL_ALLGATHER, src, dst, n, type, none, 0,
                       out))

WF_FORMS(allgatherv, (const void *src, const weft_part *dst, weft_dtype type),
         wf_coll_call(&(wf_coll_op){.src = src, .dst_part = dst}, comm,
                      WF_CALL_ALLGATHERV, 0, type, none, 0, out))

WF_FORMS(gather,
         (const void *src, void *dst, size_t n, weft_dtype type, uint32_t root),
         wf_coll_plain(comm, WF_CALL_GATHER, src, dst, n, type, none, root,
                       out))

WF_FORMS(gatherv,
         (const void *src, size_t n, const weft_part *dst, weft_dtype type,
          uint32_t root),
         wf_coll_call(&(wf_coll_op){.src = src, .dst_part = dst}, comm,
                      WF_CALL_GATHERV, n, type, none, root, out))

WF_FORMS(scatter,
         (const void *src, void *dst, size_t n, weft_dtype type, uint32_t root),
         wf_coll_plain(comm, WF_CALL_SCATTER, src, dst, n, type, none, root,
                       out))

WF_FORMS(scatterv,
         (const weft_part *src, void *dst, size_t n, weft_dtype type,
          uint32_t root),
         wf_coll_call(&(wf_coll_op){.src_part = src, .dst = dst}, comm,
                      WF_CALL_SCATTERV, n, type, none, root, out))

WF_FORMS(alltoall, (const void *src, void *dst, size_t n, weft_dtype type),
         wf_coll_plain(comm, WF_CALL_ALLTOALL, src, dst, n, type, none, 0, out))

WF_FORMS(alltoallv,
         (const weft_part *src, const weft_part *dst, weft_dtype type),
         wf_coll_call(&(wf_coll_op){.src_part = src, .dst_part = dst}, comm,
                      WF_CALL_ALLTOALLV, 0, type, none, 0, out))
