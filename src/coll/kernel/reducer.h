/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of collectives: fold several sources, in a fixed order, into
 * one result that may be stored in several places.
 *
 * Bits: the result depends on the values and on the order of the sources, and
 * on nothing else: not on alignment, on n, on where a range is cut, nor on the
 * vector unit. So a rank may reduce any sub-range and get the bytes that every
 * other rank would get there. */
#ifndef WF_COLL_KERNEL_REDUCER_H
#define WF_COLL_KERNEL_REDUCER_H

#include <stdbool.h>
#include <weft/status.h>
#include <weft/types.h>

#define WF_REDUCE_MAX_DST 64

typedef struct wf_reducer wf_reducer;

/* Store fold(src[0][i], src[1][i], ... src[nsrc-1][i]) at dst[0][i] ...
 * dst[ndst-1][i] for i < n. A dst may be the same pointer as a src (in place);
 * otherwise nothing overlaps. nsrc and ndst are at least 1. Pointers are
 * aligned to the element size only. */
typedef void wf_reduce_fn(const wf_reducer *r, void *const dst[], size_t ndst,
                          const void *const src[], size_t nsrc, size_t n);

struct wf_reducer {
    wf_reduce_fn *fold;
    double factor;  /* of PREMUL_SUM */
    uint32_t ranks; /* what AVG divides by, whatever nsrc is */
    /* Store the result, which has one destination, past the caches: it is too
     * large for them, and their lines are not read first. A store that
     * publishes the result may follow. */
    bool stream;
    size_t elem; /* bytes of one element */
};

/* The best kernel of this CPU for `op` on `type`. `ranks` is the size of the
 * communicator. Cheap (a table look-up), allocates nothing.
 * WEFT_ERR_INVALID, with the reason, if op is not defined on type. */
weft_status wf_reducer_init(wf_reducer *r, weft_dtype type, weft_op op,
                            uint32_t ranks);

/* The name of the kernels that wf_reducer_init chooses from: "avx512", "avx2"
 * or "plain". WEFT_CPU in the environment can lower it. */
const char *wf_reducer_isa(void);

#endif
