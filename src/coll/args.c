/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/args.h"

weft_status wf_args_parts(const weft_comm *comm, const weft_part *part,
                          weft_dtype type, size_t *total)
{
    size_t elem = wf_dtype_bytes(type);
    size_t sum = 0;

    if (elem == 0) {
        return wf_fail(WEFT_ERR_INVALID, "%d is not a type", (int)type);
    }
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

/* One behind the other, as they are as a rule? */
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

weft_status wf_args_apart(const weft_comm *comm, const weft_part *part,
                          weft_dtype type)
{
    size_t elem = wf_dtype_bytes(type);

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

uint32_t wf_args_parts_hash(const weft_comm *comm, const weft_part *part)
{
    uint64_t h = 0x9e3779b97f4a7c15u;

    for (uint32_t r = 0; r < comm->size; r++) {
        h = (h ^ part[r].n) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

weft_status wf_args_blocks(const weft_comm *comm, size_t bytes)
{
    return bytes <= SIZE_MAX / 2 / comm->size
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "%zu bytes for each rank are too many", bytes);
}

weft_status wf_args_in_place(const wf_coll_op *op, wf_block one, bool src_set,
                             uint32_t rank)
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
