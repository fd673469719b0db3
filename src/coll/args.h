/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of a public call, and what it checks before anything happens.
 */
#ifndef WF_COLL_ARGS_H
#define WF_COLL_ARGS_H

#include "base/status.h"
#include "coll/engine.h"
#include "comm/request.h"

/* A buffer of `n` elements; `*bytes` becomes its length. */
static inline weft_status wf_args_buffer(const weft_comm *comm, const void *buf,
                                         size_t n, weft_dtype type,
                                         size_t *bytes)
{
    size_t elem = wf_dtype_bytes(type);

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
    if (n > SIZE_MAX / 2 / elem) {
        return wf_fail(WEFT_ERR_INVALID, "%zu elements are too many", n);
    }
    *bytes = n * elem;
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

/* The description of a call that reduces. */
static inline wf_call wf_args_reduction(wf_call_kind kind, size_t n,
                                        weft_dtype type, weft_op how)
{
    return (wf_call){.kind = (uint8_t)kind,
                     .type = (uint8_t)type,
                     .op = (uint8_t)how.kind,
                     .count = n,
                     .factor = how.kind == WEFT_OP_PREMUL_SUM ? how.factor : 0};
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
