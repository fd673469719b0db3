/* SPDX-License-Identifier: Apache-2.0 */
/* Collective operations.
 *
 * Each comes in two forms. The plain one blocks, runs on the caller's thread
 * and returns when the result is in place. The one with an `i` returns a
 * request at once; its buffers are borrowed until the request completes, while
 * arrays of parts may go as soon as it returns.
 *
 * All ranks of the communicator call the same operations in the same order
 * with the same n, type, op and root; if one does not, all fail with
 * WEFT_ERR_MISMATCH, which names both calls. The same inputs, group and
 * settings give the same bits on every rank and in every run.
 *
 * Data that is only moved may be of any type: pass WEFT_U8 and count bytes.
 *
 * Operations with a `v` have parts of different lengths, which may lie
 * anywhere: an array with one weft_part for each rank says where and how long.
 * Ranks that know of the same part must agree on its length, else it is a
 * mismatch. Parts may be empty; `at` of an empty part is ignored.
 *
 * `src` and `dst` must not overlap, except that they may be one buffer where
 * both are one block, and that a rank's own block may be where the result
 * wants it (in place): allgather and gather with src == dst + rank * n,
 * scatter and reduce_scatter with dst == src + rank * n, and the same with
 * parts. Parts of one `dst` must not overlap each other.
 *
 * All fail with WEFT_ERR_INVALID (a bad argument; nothing happened and the
 * communicator stays usable), or with WEFT_ERR_PEER, WEFT_ERR_TIMEOUT,
 * WEFT_ERR_MISMATCH, WEFT_ERR_ABORTED, after which it is broken; the i-forms
 * also with WEFT_ERR_NOMEM. Where members do not share memory an operation may
 * need buffers for data of others; if one rank has no memory for them, all fail
 * with WEFT_ERR_NOMEM, and the communicator stays usable unless the transport
 * ran out of memory. On failure `*out` is not written. */
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

/** Like allreduce, but only rank `root` gets the result; `dst` of the others is
 * ignored and may be NULL. */
WEFT_API weft_status weft_reduce(weft_comm *comm, const void *src, void *dst,
                                 size_t n, weft_dtype type, weft_op op,
                                 uint32_t root);
WEFT_API weft_status weft_ireduce(weft_comm *comm, const void *src, void *dst,
                                  size_t n, weft_dtype type, weft_op op,
                                  uint32_t root, weft_request **out);

/**
 * Rank r gets what an allreduce over ranks 0 to r (exscan: to r - 1) would
 * give. The exscan of rank 0 leaves `dst` as it is. Not for WEFT_AVG.
 */
WEFT_API weft_status weft_scan(weft_comm *comm, const void *src, void *dst,
                               size_t n, weft_dtype type, weft_op op);
WEFT_API weft_status weft_iscan(weft_comm *comm, const void *src, void *dst,
                                size_t n, weft_dtype type, weft_op op,
                                weft_request **out);
WEFT_API weft_status weft_exscan(weft_comm *comm, const void *src, void *dst,
                                 size_t n, weft_dtype type, weft_op op);
WEFT_API weft_status weft_iexscan(weft_comm *comm, const void *src, void *dst,
                                  size_t n, weft_dtype type, weft_op op,
                                  weft_request **out);

/** Where one rank's part of some data lies. Of a source it is only read. */
typedef struct weft_part {
    void *at;
    size_t n; /* elements */
} weft_part;

/**
 * `src` holds a block of `n` elements for each rank; block r is reduced over
 * all ranks and goes to `dst` on rank r. The v-form takes a part for each rank;
 * `dst` has room for src[rank].n elements.
 */
WEFT_API weft_status weft_reduce_scatter(weft_comm *comm, const void *src,
                                         void *dst, size_t n, weft_dtype type,
                                         weft_op op);
WEFT_API weft_status weft_ireduce_scatter(weft_comm *comm, const void *src,
                                          void *dst, size_t n, weft_dtype type,
                                          weft_op op, weft_request **out);
WEFT_API weft_status weft_reduce_scatterv(weft_comm *comm, const weft_part *src,
                                          void *dst, weft_dtype type,
                                          weft_op op);
WEFT_API weft_status weft_ireduce_scatterv(weft_comm *comm,
                                           const weft_part *src, void *dst,
                                           weft_dtype type, weft_op op,
                                           weft_request **out);

/**
 * Every rank gets everybody's `n` elements, in the order of ranks. In the
 * v-form rank r brings dst[r].n elements.
 */
WEFT_API weft_status weft_allgather(weft_comm *comm, const void *src, void *dst,
                                    size_t n, weft_dtype type);
WEFT_API weft_status weft_iallgather(weft_comm *comm, const void *src,
                                     void *dst, size_t n, weft_dtype type,
                                     weft_request **out);
WEFT_API weft_status weft_allgatherv(weft_comm *comm, const void *src,
                                     const weft_part *dst, weft_dtype type);
WEFT_API weft_status weft_iallgatherv(weft_comm *comm, const void *src,
                                      const weft_part *dst, weft_dtype type,
                                      weft_request **out);

/**
 * Rank `root` gets everybody's `n` elements, in the order of ranks; `dst` of
 * the others is ignored. In the v-form each rank passes its own `n`.
 */
WEFT_API weft_status weft_gather(weft_comm *comm, const void *src, void *dst,
                                 size_t n, weft_dtype type, uint32_t root);
WEFT_API weft_status weft_igather(weft_comm *comm, const void *src, void *dst,
                                  size_t n, weft_dtype type, uint32_t root,
                                  weft_request **out);
WEFT_API weft_status weft_gatherv(weft_comm *comm, const void *src, size_t n,
                                  const weft_part *dst, weft_dtype type,
                                  uint32_t root);
WEFT_API weft_status weft_igatherv(weft_comm *comm, const void *src, size_t n,
                                   const weft_part *dst, weft_dtype type,
                                   uint32_t root, weft_request **out);

/**
 * Rank r gets block r, of `n` elements, of rank `root`'s `src`; `src` of the
 * others is ignored. In the v-form each rank passes its own `n`.
 */
WEFT_API weft_status weft_scatter(weft_comm *comm, const void *src, void *dst,
                                  size_t n, weft_dtype type, uint32_t root);
WEFT_API weft_status weft_iscatter(weft_comm *comm, const void *src, void *dst,
                                   size_t n, weft_dtype type, uint32_t root,
                                   weft_request **out);
WEFT_API weft_status weft_scatterv(weft_comm *comm, const weft_part *src,
                                   void *dst, size_t n, weft_dtype type,
                                   uint32_t root);
WEFT_API weft_status weft_iscatterv(weft_comm *comm, const weft_part *src,
                                    void *dst, size_t n, weft_dtype type,
                                    uint32_t root, weft_request **out);

/**
 * Block s of rank r's `src` becomes block r of rank s's `dst`. In the v-form
 * src[s].n on rank r must be dst[r].n on rank s.
 */
WEFT_API weft_status weft_alltoall(weft_comm *comm, const void *src, void *dst,
                                   size_t n, weft_dtype type);
WEFT_API weft_status weft_ialltoall(weft_comm *comm, const void *src, void *dst,
                                    size_t n, weft_dtype type,
                                    weft_request **out);
WEFT_API weft_status weft_alltoallv(weft_comm *comm, const weft_part *src,
                                    const weft_part *dst, weft_dtype type);
WEFT_API weft_status weft_ialltoallv(weft_comm *comm, const weft_part *src,
                                     const weft_part *dst, weft_dtype type,
                                     weft_request **out);

WEFT_END_DECLS

#endif
