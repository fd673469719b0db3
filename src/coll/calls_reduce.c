/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls that reduce. */
#include "coll/args.h"

static weft_status allreduce(weft_comm *comm, const void *src, void *dst,
                             size_t n, weft_dtype type, weft_op how,
                             weft_request **out)
{
    wf_coll_op op;
    weft_status st = wf_args_buffer(comm, src, n, type, &op.bytes);

    if (st == WEFT_OK && dst == NULL && n > 0) {
        st = wf_fail(WEFT_ERR_INVALID, "rank %u: dst is NULL", comm->rank);
    }
    if (st == WEFT_OK) {
        st = wf_args_in_part(comm, src, dst, op.bytes);
    }
    if (st == WEFT_OK) {
        st = wf_args_op(comm, type, how);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op.op.comm = comm;
    op.op.call = wf_args_reduction(WF_CALL_ALLREDUCE, n, type, how);
    op.src = src;
    op.dst = dst;
    return wf_coll_finish_block(&op, out);
}

weft_status weft_allreduce(weft_comm *comm, const void *src, void *dst,
                           size_t n, weft_dtype type, weft_op op)
{
    return allreduce(comm, src, dst, n, type, op, NULL);
}

weft_status weft_iallreduce(weft_comm *comm, const void *src, void *dst,
                            size_t n, weft_dtype type, weft_op op,
                            weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : allreduce(comm, src, dst, n, type, op, out);
}

weft_status weft_reduce(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, weft_op op, uint32_t root)
{
    return wf_coll_plain(comm, WF_CALL_REDUCE, src, dst, n, type, op, root,
                         NULL);
}

weft_status weft_ireduce(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, weft_op op, uint32_t root,
                         weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_REDUCE, src, dst, n, type,
                                       op, root, out);
}

weft_status weft_scan(weft_comm *comm, const void *src, void *dst, size_t n,
                      weft_dtype type, weft_op op)
{
    return wf_coll_plain(comm, WF_CALL_SCAN, src, dst, n, type, op, 0, NULL);
}

weft_status weft_iscan(weft_comm *comm, const void *src, void *dst, size_t n,
                       weft_dtype type, weft_op op, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_SCAN, src, dst, n, type,
                                       op, 0, out);
}

weft_status weft_exscan(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, weft_op op)
{
    return wf_coll_plain(comm, WF_CALL_EXSCAN, src, dst, n, type, op, 0, NULL);
}

weft_status weft_iexscan(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, weft_op op, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_EXSCAN, src, dst, n, type,
                                       op, 0, out);
}

weft_status weft_reduce_scatter(weft_comm *comm, const void *src, void *dst,
                                size_t n, weft_dtype type, weft_op op)
{
    return wf_coll_plain(comm, WF_CALL_REDUCE_SCATTER, src, dst, n, type, op, 0,
                         NULL);
}

weft_status weft_ireduce_scatter(weft_comm *comm, const void *src, void *dst,
                                 size_t n, weft_dtype type, weft_op op,
                                 weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : wf_coll_plain(comm, WF_CALL_REDUCE_SCATTER, src, dst,
                                       n, type, op, 0, out);
}

static weft_status reduce_scatterv(weft_comm *comm, const weft_part *src,
                                   void *dst, weft_dtype type, weft_op how,
                                   weft_request **out)
{
    wf_coll_op op = {.src_part = src, .dst = dst};

    return wf_coll_call(&op, comm, WF_CALL_REDUCE_SCATTERV, 0, type, how, 0,
                        out);
}

weft_status weft_reduce_scatterv(weft_comm *comm, const weft_part *src,
                                 void *dst, weft_dtype type, weft_op op)
{
    return reduce_scatterv(comm, src, dst, type, op, NULL);
}

weft_status weft_ireduce_scatterv(weft_comm *comm, const weft_part *src,
                                  void *dst, weft_dtype type, weft_op op,
                                  weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : reduce_scatterv(comm, src, dst, type, op, out);
}
