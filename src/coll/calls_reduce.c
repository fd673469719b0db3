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
    wf_args_reduction(&op.op.call, WF_CALL_ALLREDUCE, n, type, how);
    op.src = src;
    op.dst = dst;
    return wf_coll_finish_block(&op, out);
}

WF_FORMS(allreduce,
         (const void *src, void *dst, size_t n, weft_dtype type, weft_op op),
         allreduce(comm, src, dst, n, type, op, out))

WF_FORMS(reduce,
         (const void *src, void *dst, size_t n, weft_dtype type, weft_op op,
          uint32_t root),
         wf_coll_plain(comm, WF_CALL_REDUCE, src, dst, n, type, op, root, out))

WF_FORMS(scan,
         (const void *src, void *dst, size_t n, weft_dtype type, weft_op op),
         wf_coll_plain(comm, WF_CALL_SCAN, src, dst, n, type, op, 0, out))

WF_FORMS(exscan,
         (const void *src, void *dst, size_t n, weft_dtype type, weft_op op),
         wf_coll_plain(comm, WF_CALL_EXSCAN, src, dst, n, type, op, 0, out))

WF_FORMS(reduce_scatter,
         (const void *src, void *dst, size_t n, weft_dtype type, weft_op op),
         wf_coll_plain(comm, WF_CALL_REDUCE_SCATTER, src, dst, n, type, op, 0,
                       out))

WF_FORMS(reduce_scatterv,
         (const weft_part *src, void *dst, weft_dtype type, weft_op op),
         wf_coll_call(&(wf_coll_op){.src_part = src, .dst = dst}, comm,
                      WF_CALL_REDUCE_SCATTERV, 0, type, op, 0, out))
