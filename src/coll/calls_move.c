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

static weft_status need_comm(const weft_comm *comm)
{
    return comm != NULL ? WEFT_OK : wf_fail(WEFT_ERR_INVALID, "comm is NULL");
}

static weft_status need_buffer(const weft_comm *comm, const void *buf, size_t n)
{
    return buf != NULL || n == 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID, "rank %u: the buffer is NULL",
                         comm->rank);
}

/* The plain forms: blocks of `n` elements. `has_src` and `has_dst`: does this
 * rank have one, and must it thus be there? */
static weft_status plain(wf_coll_op *op, weft_comm *comm, wf_call_kind kind,
                         const void *src, void *dst, size_t n, weft_dtype type,
                         uint32_t root, bool has_src, bool has_dst)
{
    weft_status st =
        wf_args_buffer(comm, has_src ? src : &op, n, type, &op->bytes);

    if (st == WEFT_OK) {
        st = wf_args_blocks(comm, op->bytes);
    }
    if (st == WEFT_OK && has_dst) {
        st = need_buffer(comm, dst, n);
    }
    op->op.comm = comm;
    op->op.call = (wf_call){
        .kind = (uint8_t)kind, .type = (uint8_t)type, .root = root, .count = n};
    op->src = src;
    op->dst = dst;
    op->src_part = NULL;
    op->dst_part = NULL;
    return st;
}

static weft_status allgather_checked(wf_coll_op *op, weft_request **out)
{
    uint32_t rank = op->op.comm->rank;
    wf_block own = {(unsigned char *)(uintptr_t)op->src, op->bytes};
    weft_status st = wf_args_in_place(op, own, false, rank);

    return st == WEFT_OK ? wf_coll_finish(op, out) : st;
}

static weft_status allgather(weft_comm *comm, const void *src, void *dst,
                             size_t n, weft_dtype type, weft_request **out)
{
    wf_coll_op op;
    weft_status st =
        plain(&op, comm, WF_CALL_ALLGATHER, src, dst, n, type, 0, true, true);

    return st == WEFT_OK ? allgather_checked(&op, out) : st;
}

weft_status weft_allgather(weft_comm *comm, const void *src, void *dst,
                           size_t n, weft_dtype type)
{
    return allgather(comm, src, dst, n, type, NULL);
}

weft_status weft_iallgather(weft_comm *comm, const void *src, void *dst,
                            size_t n, weft_dtype type, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : allgather(comm, src, dst, n, type, out);
}

static weft_status allgatherv(weft_comm *comm, const void *src,
                              const weft_part *dst, weft_dtype type,
                              weft_request **out)
{
    wf_coll_op op = {.src = src, .dst_part = dst};
    size_t total = 0;
    weft_status st = need_comm(comm);

    if (st == WEFT_OK) {
        st = wf_args_parts(comm, dst, type, &total);
    }
    if (st == WEFT_OK) {
        st = wf_args_apart(comm, dst, type);
    }
    if (st == WEFT_OK) {
        st = need_buffer(comm, src, dst[comm->rank].n);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op.bytes = dst[comm->rank].n * wf_dtype_bytes(type);
    op.op.comm = comm;
    op.op.call = (wf_call){.kind = WF_CALL_ALLGATHERV,
                           .type = (uint8_t)type,
                           .root = wf_args_parts_hash(comm, dst),
                           .count = total};
    return allgather_checked(&op, out);
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

/* Gather and scatter: one rank has blocks for all, the others one. */
static weft_status rooted_checked(wf_coll_op *op, weft_request **out)
{
    const wf_call *call = &op->op.call;
    uint32_t rank = op->op.comm->rank;
    bool gathers = wf_call_is(call->kind, WF_ROOT_RECEIVES);
    const void *one = gathers ? op->src : op->dst;
    weft_status st = WEFT_OK;

    if (rank == call->root) {
        wf_block own = gathers ? wf_coll_dst(op, rank) : wf_coll_src(op, rank);

        if (own.bytes != op->bytes) {
            return wf_fail(WEFT_ERR_INVALID,
                           "rank %u: its own part has %zu bytes, but n makes "
                           "%zu",
                           rank, own.bytes, op->bytes);
        }
        st = wf_args_in_place(
            op, (wf_block){(unsigned char *)(uintptr_t)one, op->bytes},
            !gathers, rank);
    }
    return st == WEFT_OK ? wf_coll_finish(op, out) : st;
}

static weft_status rooted(weft_comm *comm, wf_call_kind kind, const void *src,
                          void *dst, size_t n, weft_dtype type, uint32_t root,
                          weft_request **out)
{
    wf_coll_op op;
    bool gathers = wf_call_is((uint8_t)kind, WF_ROOT_RECEIVES);
    weft_status st = need_comm(comm);

    if (st == WEFT_OK) {
        st = wf_args_root(comm, root);
    }
    if (st == WEFT_OK) {
        bool at_root = comm->rank == root;

        st = plain(&op, comm, kind, src, dst, n, type, root, gathers || at_root,
                   !gathers || at_root);
    }
    return st == WEFT_OK ? rooted_checked(&op, out) : st;
}

weft_status weft_gather(weft_comm *comm, const void *src, void *dst, size_t n,
                        weft_dtype type, uint32_t root)
{
    return rooted(comm, WF_CALL_GATHER, src, dst, n, type, root, NULL);
}

weft_status weft_igather(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, uint32_t root, weft_request **out)
{
    return out == NULL
               ? wf_args_no_out()
               : rooted(comm, WF_CALL_GATHER, src, dst, n, type, root, out);
}

weft_status weft_scatter(weft_comm *comm, const void *src, void *dst, size_t n,
                         weft_dtype type, uint32_t root)
{
    return rooted(comm, WF_CALL_SCATTER, src, dst, n, type, root, NULL);
}

weft_status weft_iscatter(weft_comm *comm, const void *src, void *dst, size_t n,
                          weft_dtype type, uint32_t root, weft_request **out)
{
    return out == NULL
               ? wf_args_no_out()
               : rooted(comm, WF_CALL_SCATTER, src, dst, n, type, root, out);
}

/* `one` is the single block of `n` elements, `part` the root's blocks. */
static weft_status rootedv(weft_comm *comm, wf_call_kind kind, void *one,
                           size_t n, const weft_part *part, weft_dtype type,
                           uint32_t root, weft_request **out)
{
    wf_coll_op op = {.bytes = 0};
    bool gathers = wf_call_is((uint8_t)kind, WF_ROOT_RECEIVES);
    size_t total = 0;
    weft_status st = wf_args_buffer(comm, one, n, type, &op.bytes);

    if (st == WEFT_OK) {
        st = wf_args_root(comm, root);
    }
    if (st == WEFT_OK && comm->rank == root) {
        st = wf_args_parts(comm, part, type, &total);
    }
    if (st == WEFT_OK && gathers && comm->rank == root) {
        st = wf_args_apart(comm, part, type);
    }
    if (st != WEFT_OK) {
        return st;
    }
    op.op.comm = comm;
    op.op.call =
        (wf_call){.kind = (uint8_t)kind, .type = (uint8_t)type, .root = root};
    if (gathers) {
        op.src = one;
        op.dst_part = comm->rank == root ? part : NULL;
    } else {
        op.dst = one;
        op.src_part = comm->rank == root ? part : NULL;
    }
    return rooted_checked(&op, out);
}

weft_status weft_gatherv(weft_comm *comm, const void *src, size_t n,
                         const weft_part *dst, weft_dtype type, uint32_t root)
{
    return rootedv(comm, WF_CALL_GATHERV, (void *)(uintptr_t)src, n, dst, type,
                   root, NULL);
}

weft_status weft_igatherv(weft_comm *comm, const void *src, size_t n,
                          const weft_part *dst, weft_dtype type, uint32_t root,
                          weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : rootedv(comm, WF_CALL_GATHERV, (void *)(uintptr_t)src,
                                 n, dst, type, root, out);
}

weft_status weft_scatterv(weft_comm *comm, const weft_part *src, void *dst,
                          size_t n, weft_dtype type, uint32_t root)
{
    return rootedv(comm, WF_CALL_SCATTERV, dst, n, src, type, root, NULL);
}

weft_status weft_iscatterv(weft_comm *comm, const weft_part *src, void *dst,
                           size_t n, weft_dtype type, uint32_t root,
                           weft_request **out)
{
    return out == NULL
               ? wf_args_no_out()
               : rootedv(comm, WF_CALL_SCATTERV, dst, n, src, type, root, out);
}

static weft_status alltoall_checked(wf_coll_op *op, weft_request **out)
{
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        weft_status st =
            wf_args_in_place(op, wf_coll_dst(op, r), true, UINT32_MAX);

        if (st != WEFT_OK) {
            return st;
        }
    }
    return wf_coll_finish(op, out);
}

static weft_status alltoall(weft_comm *comm, const void *src, void *dst,
                            size_t n, weft_dtype type, weft_request **out)
{
    wf_coll_op op;
    weft_status st =
        plain(&op, comm, WF_CALL_ALLTOALL, src, dst, n, type, 0, true, true);

    if (st != WEFT_OK) {
        return st;
    }
    if (wf_args_overlap(src, comm->size * op.bytes, dst,
                        comm->size * op.bytes)) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: src and dst overlap",
                       comm->rank);
    }
    return wf_coll_finish(&op, out);
}

weft_status weft_alltoall(weft_comm *comm, const void *src, void *dst, size_t n,
                          weft_dtype type)
{
    return alltoall(comm, src, dst, n, type, NULL);
}

weft_status weft_ialltoall(weft_comm *comm, const void *src, void *dst,
                           size_t n, weft_dtype type, weft_request **out)
{
    return out == NULL ? wf_args_no_out()
                       : alltoall(comm, src, dst, n, type, out);
}

static weft_status alltoallv(weft_comm *comm, const weft_part *src,
                             const weft_part *dst, weft_dtype type,
                             weft_request **out)
{
    wf_coll_op op = {.src_part = src, .dst_part = dst};
    size_t total = 0;
    weft_status st = need_comm(comm);

    if (st == WEFT_OK) {
        st = wf_args_parts(comm, src, type, &total);
    }
    if (st == WEFT_OK) {
        st = wf_args_parts(comm, dst, type, &total);
    }
    if (st == WEFT_OK) {
        st = wf_args_apart(comm, dst, type);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (src[comm->rank].n != dst[comm->rank].n) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rank %u: sends %zu elements to itself, but expects %zu",
                       comm->rank, src[comm->rank].n, dst[comm->rank].n);
    }
    op.op.comm = comm;
    op.op.call = (wf_call){.kind = WF_CALL_ALLTOALLV, .type = (uint8_t)type};
    return alltoall_checked(&op, out);
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
