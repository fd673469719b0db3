/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of a public call, and what it checks before anything happens.
 */
#ifndef WF_COLL_ARGS_H
#define WF_COLL_ARGS_H

#include <string.h>

#include "base/status.h"
#include "coll/engine.h"
#include "comm/request.h"

/* A buffer of `n` elements; `*bytes` becomes its length. */
static inline weft_status wf_args_buffer(const weft_comm *comm, const void *buf,
                                         size_t n, weft_dtype type,
                                         size_t *bytes)
{
    size_t elem = wf_dtype_bytes(type);
    size_t whole;

    if (comm == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm is NULL");
    }
    if (elem == 0) {
        return wf_fail(WEFT_ERR_INVALID, "%d is not a type", (int)type);
    }
    if (buf == NULL && n > 0) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u: the buffer is NULL",
                       comm->rank);
    }
    /* A division would take longer than all other checks. */
    if (__builtin_mul_overflow(n, elem, &whole) || whole > SIZE_MAX / 2) {
        return wf_fail(WEFT_ERR_INVALID, "%zu elements are too many", n);
    }
    *bytes = whole;
    return WEFT_OK;
}

static inline weft_status wf_args_root(const weft_comm *comm, uint32_t root)
{
    return root < comm->size
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID, "root %u is out of range (size %u)",
                         root, comm->size);
}

/* Do two buffers have bytes in common? */
static inline bool wf_args_overlap(const void *a, size_t a_bytes, const void *b,
                                   size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a;
    uintptr_t y = (uintptr_t)b;

    return a_bytes > 0 && b_bytes > 0 &&
           (x < y ? y - x < a_bytes : x - y < b_bytes);
}

/* One block on each side: in place, or without bytes in common. */
static inline weft_status wf_args_in_part(const weft_comm *comm,
                                          const void *src, const void *dst,
                                          size_t bytes)
{
    return src == dst || !wf_args_overlap(src, bytes, dst, bytes)
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "rank %u: src and dst overlap in part", comm->rank);
}

/* Check that the reduction is defined on the type. */
static inline weft_status wf_args_op(const weft_comm *comm, weft_dtype type,
                                     weft_op how)
{
    wf_reducer unused;

    return wf_op_applies(how.kind, type)
               ? WEFT_OK
               : wf_reducer_init(&unused, type, how, comm->size);
}

/* The description of a call that reduces. Its first half is put together in
 * registers: a vector load from what was just stored piece by piece waits until
 * that has left the core, behind stores that a peer's cache holds up. */
static inline void wf_args_reduction(wf_call *call, wf_call_kind kind, size_t n,
                                     weft_dtype type, weft_op how)
{
    typedef uint64_t half __attribute__((vector_size(16)));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t head =
        (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)how.kind << 16;
#else
    uint64_t head =
        (uint64_t)kind << 56 | (uint64_t)type << 48 | (uint64_t)how.kind << 40;
#endif
    half first = {head, n};

    memcpy(call, &first, sizeof(first));
    call->factor = how.kind == WEFT_OP_PREMUL_SUM ? how.factor : 0;
}

/* Check a call whose buffers and parts are filled in, by what the table says of
 * its kind, and run it: to its end if `out` is NULL, else behind a request. A
 * call that has no reduction, root or length of its own passes 0 for it. */
weft_status wf_coll_call(wf_coll_op *op, weft_comm *comm, wf_call_kind kind,
                         size_t n, weft_dtype type, weft_op how, uint32_t root,
                         weft_request **out);

/* Like wf_coll_call, with the buffers of a plain form. */
weft_status wf_coll_plain(weft_comm *comm, wf_call_kind kind, const void *src,
                          void *dst, size_t n, weft_dtype type, weft_op how,
                          uint32_t root, weft_request **out);

#endif
