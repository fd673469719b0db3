/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/args.h"

#include <assert.h>

/* --- parts ---------------------------------------------------------------- */

/* Check the part of each rank: its length, and that it has memory. `*total`
 * becomes the number of all elements. */
static weft_status check_parts(const weft_comm *comm, const weft_part *part,
                               size_t elem, size_t *total)
{
    size_t sum = 0;

    if (part == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: the parts are NULL",
                       comm->rank);
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        if (part[r].at == NULL && part[r].n > 0) {
            return wf_fail(WEFT_ERR_INVALID,
                           "rank %u: the part for rank %u is NULL", comm->rank,
                           r);
        }
        if (part[r].n > SIZE_MAX / 2 / elem - sum) {
            return wf_fail(WEFT_ERR_INVALID,
                           "rank %u: the parts have too many elements",
                           comm->rank);
        }
        sum += part[r].n;
    }
    *total = sum;
    return WEFT_OK;
}

/* Are the parts in ascending order, as they usually are? */
static bool ascending(const weft_comm *comm, const weft_part *part, size_t elem)
{
    uintptr_t end = 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (part[r].n > 0) {
            if ((uintptr_t)part[r].at < end) {
                return false;
            }
            end = (uintptr_t)part[r].at + part[r].n * elem;
        }
    }
    return true;
}

/* Parts that are written must not overlap. */
static weft_status check_apart(const weft_comm *comm, const weft_part *part,
                               size_t elem)
{
    assert(part != NULL);
    if (ascending(comm, part, elem)) {
        return WEFT_OK;
    }
    for (uint32_t r = 1; r < comm->size; r++) {
        for (uint32_t q = 0; q < r; q++) {
            if (wf_args_overlap(part[q].at, part[q].n * elem, part[r].at,
                                part[r].n * elem)) {
                return wf_fail(WEFT_ERR_INVALID,
                               "rank %u: the parts of dst for ranks %u and %u "
                               "overlap",
                               comm->rank, q, r);
            }
        }
    }
    return WEFT_OK;
}

/* A hash of the lengths, equal on ranks that pass equal lengths. */
static uint32_t parts_hash(const weft_comm *comm, const weft_part *part)
{
    uint64_t h = 0x9e3779b97f4a7c15u;

    for (uint32_t r = 0; r < comm->size; r++) {
        h = (h ^ part[r].n) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

/* --- overlap ---------------------------------------------------------------
 */

/* One block and a set of blocks: the one may be exactly the block of `rank` (in
 * place) and must not overlap the others. Which side is written does not
 * matter. */
static weft_status check_in_place(const wf_coll_op *op, wf_block one,
                                  bool src_set, uint32_t rank)
{
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        wf_block b = src_set ? wf_coll_src(op, r) : wf_coll_dst(op, r);
        bool own = r == rank && b.at == one.at;

        if (!own && wf_args_overlap(one.at, one.bytes, b.at, b.bytes)) {
            return wf_fail(WEFT_ERR_INVALID,
                           "rank %u: src and dst overlap (at the part for "
                           "rank %u)",
                           op->op.comm->rank, r);
        }
    }
    return WEFT_OK;
}

/* Both sides have a block for each rank: no two may overlap. */
static weft_status check_sets(const wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    size_t all = comm->size * op->bytes;
    weft_status st = WEFT_OK;

    if (op->src_part == NULL) {
        return wf_args_overlap(op->src, all, op->dst, all)
                   ? wf_fail(WEFT_ERR_INVALID, "rank %u: src and dst overlap",
                             comm->rank)
                   : WEFT_OK;
    }
    if (op->src_part[comm->rank].n != op->dst_part[comm->rank].n) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rank %u: sends %zu elements to itself, but expects %zu",
                       comm->rank, op->src_part[comm->rank].n,
                       op->dst_part[comm->rank].n);
    }
    for (uint32_t r = 0; r < comm->size && st == WEFT_OK; r++) {
        st = check_in_place(op, wf_coll_dst(op, r), true, UINT32_MAX);
    }
    return st;
}

/* One side has one block, the other, on this rank, a block for each rank. */
static weft_status check_one_in_set(const wf_coll_op *op, bool src_set)
{
    uint32_t rank = op->op.comm->rank;
    const void *at = src_set ? op->dst : op->src;
    wf_block one = {(unsigned char *)(uintptr_t)at, op->bytes};
    wf_block own = src_set ? wf_coll_src(op, rank) : wf_coll_dst(op, rank);

    return own.bytes == one.bytes
               ? check_in_place(op, one, src_set, rank)
               : wf_fail(WEFT_ERR_INVALID,
                         "rank %u: its own part has %zu bytes, but n makes %zu",
                         rank, own.bytes, one.bytes);
}

/* --- a call ----------------------------------------------------------------
 */

/* Take the lengths of a v-form from its parts. Only a side with a block for
 * each rank has parts; those passed by other ranks are ignored. */
static weft_status take_parts(wf_coll_op *op, size_t elem)
{
    const weft_comm *comm = op->op.comm;
    wf_call *call = &op->op.call;
    bool src_set = wf_call_blocks_at(call, WF_SRC_BLOCKS, comm->rank);
    bool dst_set = wf_call_blocks_at(call, WF_DST_BLOCKS, comm->rank);
    const weft_part *part = src_set ? op->src_part : op->dst_part;
    size_t total = 0;
    weft_status st = WEFT_OK;

    call->count = 0;
    op->src_part = src_set ? op->src_part : NULL;
    op->dst_part = dst_set ? op->dst_part : NULL;
    if (src_set) {
        st = check_parts(comm, op->src_part, elem, &total);
    }
    if (st == WEFT_OK && dst_set) {
        st = check_parts(comm, op->dst_part, elem, &total);
    }
    if (st == WEFT_OK && dst_set) {
        st = check_apart(comm, op->dst_part, elem);
    }
    if (st == WEFT_OK && wf_call_is(call->kind, WF_ALL_LENGTHS)) {
        assert(part != NULL); /* one side has a block for each rank */
        call->root = parts_hash(comm, part);
        call->count = total;
        op->bytes = part[comm->rank].n * elem;
    }
    return st;
}

/* Check buffers that are not given in parts, and their overlap. */
static weft_status check_buffers(const wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    const wf_call *call = &op->op.call;
    bool root = comm->rank == call->root;
    bool sends = root || !wf_call_is(call->kind, WF_ROOT_SENDS);
    bool gets = root || !wf_call_is(call->kind, WF_ROOT_RECEIVES);
    bool src_set = wf_call_blocks_at(call, WF_SRC_BLOCKS, comm->rank);
    bool dst_set = wf_call_blocks_at(call, WF_DST_BLOCKS, comm->rank);
    bool reduces = wf_call_is(call->kind, WF_REDUCES);

    if (op->bytes > 0 && sends && op->src_part == NULL && op->src == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: the buffer is NULL",
                       comm->rank);
    }
    if (op->bytes > 0 && gets && op->dst_part == NULL && op->dst == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: %s is NULL", comm->rank,
                       reduces ? "dst" : "the buffer");
    }
    if (src_set && dst_set) {
        return check_sets(op);
    }
    if (src_set || dst_set) {
        return check_one_in_set(op, src_set);
    }
    return reduces && gets ? wf_args_in_part(comm, op->src, op->dst, op->bytes)
                           : WEFT_OK;
}

static weft_status check_op(const wf_coll_op *op, weft_op how)
{
    const wf_call *call = &op->op.call;

    return wf_call_is(call->kind, WF_PREFIX) && how.kind == WEFT_OP_AVG
               ? wf_fail(WEFT_ERR_INVALID, "avg is not defined for %s",
                         wf_call_name(call->kind))
               : wf_args_op(op->op.comm, (weft_dtype)call->type, how);
}

static weft_status check_lengths(wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    const wf_call *call = &op->op.call;

    if (wf_call_is(call->kind, WF_ALL_LENGTHS | WF_OWN_LENGTHS)) {
        return take_parts(op, wf_dtype_bytes((weft_dtype)call->type));
    }
    return wf_call_cuts(call->kind) || op->bytes <= SIZE_MAX / 2 / comm->size
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "%zu bytes for each rank are too many", op->bytes);
}

weft_status wf_coll_call(wf_coll_op *op, weft_comm *comm, wf_call_kind kind,
                         size_t n, weft_dtype type, weft_op how, uint32_t root,
                         weft_request **out)
{
    weft_status st = wf_args_buffer(comm, op, n, type, &op->bytes);

    op->op.comm = comm;
    wf_args_reduction(&op->op.call, kind, n, type, how);
    op->op.call.root = root;
    if (st == WEFT_OK && wf_call_has_root((uint8_t)kind)) {
        st = wf_args_root(comm, root);
    }
    if (st == WEFT_OK && wf_call_is((uint8_t)kind, WF_REDUCES)) {
        st = check_op(op, how);
    }
    if (st == WEFT_OK) {
        st = check_lengths(op);
    }
    if (st == WEFT_OK) {
        st = check_buffers(op);
    }
    return st == WEFT_OK ? wf_coll_finish(op, out) : st;
}

weft_status wf_coll_plain(weft_comm *comm, wf_call_kind kind, const void *src,
                          void *dst, size_t n, weft_dtype type, weft_op how,
                          uint32_t root, weft_request **out)
{
    wf_coll_op op;

    op.src = src;
    op.dst = dst;
    op.src_part = NULL;
    op.dst_part = NULL;
    return wf_coll_call(&op, comm, kind, n, type, how, root, out);
}
