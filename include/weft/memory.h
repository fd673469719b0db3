/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that the other ranks can see, so that collectives copy nothing. */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <weft/comm.h>

WEFT_BEGIN_DECLS

/**
 * A buffer of `bytes` for each rank of `comm`, all zero, on a page boundary and
 * in memory near its rank. Collectives on `comm` use such buffers where they
 * lie: an allreduce, reduce or scan whose buffers all come from weft_alloc
 * copies nothing, and the others read a source from there in one copy. On each
 * rank it may be any part of any buffer; ranks need not choose alike. Where
 * members do not share memory it is ordinary memory.
 *
 * Collective: all ranks pass the same number. Either all get a buffer or none.
 *
 * Fails with WEFT_ERR_INVALID for a number that no memory could hold, with
 * WEFT_ERR_NOMEM if there is not enough memory for the sum of all
 * buffers, and as collectives do; then `*out` is not written.
 */
WEFT_API weft_status weft_alloc(weft_comm *comm, size_t bytes, void **out);

/**
 * Give a buffer back, before `comm` is destroyed; one that is left then stays
 * as it is until the process ends. Not collective: other ranks keep theirs. No
 * operation may be using it. Takes NULL.
 */
WEFT_API void weft_free(weft_comm *comm, void *buffer);

WEFT_END_DECLS

#endif
