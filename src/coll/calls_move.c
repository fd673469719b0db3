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

    return out == NULL ? wf_args_no_out() : barrier(comm, &call, out, NULL);
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

weft_status weft_broadcast(weft_comm *comm, void *buf, size_t n,
                           weft_dtype type, uint32_t root)
{
    return broadcast(comm, buf, n, type, root, NULL);
}

weft_status weft_ibroadcast(weft_comm *comm, void *buf, size_t n,
                            weft_dtype type, uint32_t root, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : broadcast(comm, buf, n, type, root, out);
}

/* The reduction of calls that do not reduce. */
static const weft_op none = {.kind = WEFT_OP_SUM};

weft_status weft_allgather(weft_comm *comm, const void *src, void *dst,
                           size_t n, weft_dtype type)
{
    return wf_coll_plain(comm, WF_CALL_ALLGATHER, src, dst, n, type, none, 0,
                         NULL);
}

weft_status weft_iallgather(weft_comm *comm, const void *src, void *dst,
                            size_t n, weft_dtype type, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_ALLGATHER, src, dst, n,
                                       type, none, 0, out);
}

static weft_status allgatherv(weft_comm *comm, const void *src,
                              const weft_part *dst, weft_dtype type,
                              weft_request **out)
{
    wf_coll_op op = {.src = src, .dst_part = dst};

    return wf_coll_call(&op, comm, WF_CALL_ALLGATHERV, 0, type, none, 0, out);
}

weft_status weft_allgatherv(weft_comm *comm, const void *src,
                            const weft_part *dst, weft_dtype type)
{
    return allgatherv(comm, src, dst, type, NULL);
}

weft_status weft_iallgatherv(weft_comm *comm, const void *src,
                             const weft_part *dst, weft_dtype type,
                             weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : allgatherv(comm, src, dst, type, out);
}

weft_status weft_gather(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, uint32_t root)
{
    return wf_coll_plain(comm, WF_CALL_GATHER, src, dst, n, type, none, root,
                         NULL);
}

weft_status weft_igather(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, uint32_t root, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_GATHER, src, dst, n, type,
                                       none, root, out);
}

static weft_status gatherv(weft_comm *comm, const void *src, size_t n,
                           const weft_part *dst, weft_dtype type, uint32_t root,
                           weft_request **out)
{
    wf_coll_op op = {.src = src, .dst_part = dst};

    return wf_coll_call(&op, comm, WF_CALL_GATHERV, n, type, none, root, out);
}

weft_status weft_gatherv(weft_comm *comm, const void *src, size_t n,
                         const weft_part *dst, weft_dtype type, uint32_t root)
{
    return gatherv(comm, src, n, dst, type, root, NULL);
}

weft_status weft_igatherv(weft_comm *comm, const void *src, size_t n,
                          const weft_part *dst, weft_dtype type, uint32_t root,
                          weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : gatherv(comm, src, n, dst, type, root, out);
}

weft_status weft_scatter(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, uint32_t root)
{
    return wf_coll_plain(comm, WF_CALL_SCATTER, src, dst, n, type, none, root,
                         NULL);
}

weft_status weft_iscatter(weft_comm *comm, const void *src, void *dst, size_t n,
                          weft_dtype type, uint32_t root, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_SCATTER, src, dst, n, type,
                                       none, root, out);
}

static weft_status scatterv(weft_comm *comm, const weft_part *src, void *dst,
                            size_t n, weft_dtype type, uint32_t root,
                            weft_request **out)
{
    wf_coll_op op = {.src_part = src, .dst = dst};

    return wf_coll_call(&op, comm, WF_CALL_SCATTERV, n, type, none, root, out);
}

weft_status weft_scatterv(weft_comm *comm, const weft_part *src, void *dst,
                          size_t n, weft_dtype type, uint32_t root)
{
    return scatterv(comm, src, dst, n, type, root, NULL);
}

weft_status weft_iscatterv(weft_comm *comm, const weft_part *src, void *dst,
                           size_t n, weft_dtype type, uint32_t root,
                           weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : scatterv(comm, src, dst, n, type, root, out);
}

weft_status weft_alltoall(weft_comm *comm, const void *src, void *dst, size_t n,
                          weft_dtype type)
{
    return wf_coll_plain(comm, WF_CALL_ALLTOALL, src, dst, n, type, none, 0,
                         NULL);
}

weft_status weft_ialltoall(weft_comm *comm, const void *src, void *dst,
                           size_t n, weft_dtype type, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_ALLTOALL, src, dst, n,
                                       type, none, 0, out);
}

static weft_status alltoallv(weft_comm *comm, const weft_part *src,
                             const weft_part *dst, weft_dtype type,
                             weft_request **out)
{
    wf_coll_op op = {.src_part = src, .dst_part = dst};

    return wf_coll_call(&op, comm, WF_CALL_ALLTOALLV, 0, type, none, 0, out);
}

weft_status weft_alltoallv(weft_comm *comm, const weft_part *src,
                           const weft_part *dst, weft_dtype type)
{
    return alltoallv(comm, src, dst, type, NULL);
}

weft_status weft_ialltoallv(weft_comm *comm, const weft_part *src,
                            const weft_part *dst, weft_dtype type,
                            weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : alltoallv(comm, src, dst, type, out);
}
