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
    if (st == WEFT_OK && wf_args_overlap_in_part(src, dst, op.bytes)) {
        st = wf_fail(WEFT_ERR_INVALID, "rank %u: src and dst overlap in part",
                     comm->rank);
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

/* Reductions of one block into one. */
static weft_status one_block(weft_comm *comm, wf_call_kind kind,
                             const void *src, void *dst, size_t n,
                             weft_dtype type, weft_op how, uint32_t root,
                             weft_request **out)
{
    wf_coll_op op = {.src = src, .dst = dst};
    weft_status st = wf_args_buffer(comm, src, n, type, &op.bytes);
    bool gets;

    if (st == WEFT_OK) {
        st = wf_args_root(comm, root);
    }
    if (st == WEFT_OK) {
        st = wf_args_op(comm, type, how);
    }
    if (st != WEFT_OK) {
        return st;
    }
    gets = !wf_call_is((uint8_t)kind, WF_ROOT_RECEIVES) || comm->rank == root;
    if (gets && dst == NULL && n > 0) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: dst is NULL", comm->rank);
    }
    if (gets && wf_args_overlap_in_part(src, dst, op.bytes)) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: src and dst overlap in part",
                       comm->rank);
    }
    if (wf_call_is((uint8_t)kind, WF_PREFIX) && how.kind == WEFT_OP_AVG) {
        return wf_fail(WEFT_ERR_INVALID, "avg is not defined for %s",
                       wf_call_name((uint8_t)kind));
    }
    op.op.comm = comm;
    op.op.call = wf_args_reduction(kind, n, type, how);
    op.op.call.root = root;
    return wf_coll_finish(&op, out);
}

weft_status weft_reduce(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, weft_op op, uint32_t root)
{
    return one_block(comm, WF_CALL_REDUCE, src, dst, n, type, op, root, NULL);
}

weft_status weft_ireduce(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, weft_op op, uint32_t root,
                         weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : one_block(comm, WF_CALL_REDUCE, src, dst, n, type, op,
                                   root, out);
}

weft_status weft_scan(weft_comm *comm, const void *src, void *dst, size_t n,
                      weft_dtype type, weft_op op)
{
    return one_block(comm, WF_CALL_SCAN, src, dst, n, type, op, 0, NULL);
}

weft_status weft_iscan(weft_comm *comm, const void *src, void *dst, size_t n,
                       weft_dtype type, weft_op op, weft_request **out)
{
    return out == NULL
               ? wf_args_no_out()
               : one_block(comm, WF_CALL_SCAN, src, dst, n, type, op, 0, out);
}

weft_status weft_exscan(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, weft_op op)
{
    return one_block(comm, WF_CALL_EXSCAN, src, dst, n, type, op, 0, NULL);
}

weft_status weft_iexscan(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, weft_op op, weft_request **out)
{
    return out == NULL
               ? wf_args_no_out()
               : one_block(comm, WF_CALL_EXSCAN, src, dst, n, type, op, 0, out);
}

/* What both forms of reduce_scatter check once their blocks are known. */
static weft_status scatter_checked(wf_coll_op *op, weft_op how,
                                   weft_request **out)
{
    weft_comm *comm = op->op.comm;
    wf_block own = wf_coll_src(op, comm->rank);
    weft_status st = wf_args_op(comm, (weft_dtype)op->op.call.type, how);

    if (st == WEFT_OK && op->dst == NULL && own.bytes > 0) {
        st = wf_fail(WEFT_ERR_INVALID, "rank %u: dst is NULL", comm->rank);
    }
    if (st == WEFT_OK) {
        st = wf_args_in_place(op, (wf_block){op->dst, own.bytes}, true,
                              comm->rank);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op->bytes = own.bytes;
    return wf_coll_finish(op, out);
}

static weft_status reduce_scatter(weft_comm *comm, const void *src, void *dst,
                                  size_t n, weft_dtype type, weft_op how,
                                  weft_request **out)
{
    wf_coll_op op = {.src = src, .dst = dst};
    weft_status st = wf_args_buffer(comm, src, n, type, &op.bytes);

    if (st == WEFT_OK) {
        st = wf_args_blocks(comm, op.bytes);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op.op.comm = comm;
    op.op.call = wf_args_reduction(WF_CALL_REDUCE_SCATTER, n, type, how);
    return scatter_checked(&op, how, out);
}

weft_status weft_reduce_scatter(weft_comm *comm, const void *src, void *dst,
                                size_t n, weft_dtype type, weft_op op)
{
    return reduce_scatter(comm, src, dst, n, type, op, NULL);
}

weft_status weft_ireduce_scatter(weft_comm *comm, const void *src, void *dst,
                                 size_t n, weft_dtype type, weft_op op,
                                 weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : reduce_scatter(comm, src, dst, n, type, op, out);
}

static weft_status reduce_scatterv(weft_comm *comm, const weft_part *src,
                                   void *dst, weft_dtype type, weft_op how,
                                   weft_request **out)
{
    wf_coll_op op = {.src_part = src, .dst = dst};
    size_t total = 0;
    weft_status st = comm != NULL ? wf_args_parts(comm, src, type, &total)
                                  : wf_fail(WEFT_ERR_INVALID, "comm is NULL");

    if (st != WEFT_OK) {
        return st;
    }
    op.op.comm = comm;
    op.op.call = wf_args_reduction(WF_CALL_REDUCE_SCATTERV, total, type, how);
    op.op.call.root = wf_args_parts_hash(comm, src);
    return scatter_checked(&op, how, out);
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
