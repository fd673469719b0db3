/* SPDX-License-Identifier: Apache-2.0 */
/* Collective operations.
 *
 * Each comes in two forms. The plain one blocks, runs on the caller's thread
 * and returns when the result is in place. The one with an `i` returns a
 * request at once; its buffers are borrowed until the request completes.
 *
 * All ranks of the communicator call the same operations in the same order
 * with the same n, type, op and root; a rank that does not is told of, with
 * both calls, as WEFT_ERR_MISMATCH. The same inputs, group and settings give
 * the same bits on every rank and in every run.
 *
 * All fail with WEFT_ERR_INVALID (a bad argument; nothing happened and the
 * communicator is still good), or with WEFT_ERR_PEER, WEFT_ERR_TIMEOUT,
 * WEFT_ERR_MISMATCH, WEFT_ERR_ABORTED, after which it is broken; the i-forms
 * also with WEFT_ERR_NOMEM. Where members do not share memory a reduction needs
 * room for a partial result; WEFT_ERR_NOMEM then breaks the communicator, too.
 * On failure `*out` is not written. */
#ifndef WEFT_COLL_H
#define WEFT_COLL_H

#include <weft/comm.h>
#include <weft/request.h>
#include <weft/types.h>

WEFT_BEGIN_DECLS

/** Return when all ranks have called it. */
WEFT_API weft_status weft_barrier(weft_comm *comm);
WEFT_API weft_status weft_ibarrier(weft_comm *comm, weft_request **out);

/** Copy `n` elements at `buf` on rank `root` to `buf` on all others. */
WEFT_API weft_status weft_broadcast(weft_comm *comm, void *buf, size_t n,
                                    weft_dtype type, uint32_t root);
WEFT_API weft_status weft_ibroadcast(weft_comm *comm, void *buf, size_t n,
                                     weft_dtype type, uint32_t root,
                                     weft_request **out);

/**
 * Reduce `n` elements over all ranks; every rank ends with the same bytes in
 * `dst`. `src` and `dst` may be one buffer but must not overlap in part.
 */
WEFT_API weft_status weft_allreduce(weft_comm *comm, const void *src, void *dst,
                                    size_t n, weft_dtype type, weft_op op);
WEFT_API weft_status weft_iallreduce(weft_comm *comm, const void *src,
                                     void *dst, size_t n, weft_dtype type,
                                     weft_op op, weft_request **out);

WEFT_END_DECLS

#endif
