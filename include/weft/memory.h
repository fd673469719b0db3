/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that the other ranks can see, so that collectives copy nothing; and
 * how much memory there is. */
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
 * operation may be using it, but any thread may call this, also while others
 * are in operations of `comm`. Takes NULL.
 */
WEFT_API void weft_free(weft_comm *comm, void *buffer);

typedef struct weft_memory_info {
    size_t size;          /* sizeof(weft_memory_info), set by the caller */
    uint64_t host_room;   /* bytes that the host has available */
    uint64_t group_limit; /* smallest limit of this process's control groups */
    uint64_t group_room;  /* bytes that they leave to this process */
} weft_memory_info;

/**
 * How much memory this process can still allocate, as the library counts it
 * before it takes any: by what the host has available, and by the control
 * groups (of version 1 or 2) that the process is in, from its own up to the
 * highest it can see. Memory that the kernel can take back, such as pages of
 * files that were read, counts as free. UINT64_MAX stands for "no limit" and
 * "unknown". Fails with WEFT_ERR_INVALID if `out->size` is not set.
 */
WEFT_API weft_status weft_memory_get(weft_memory_info *out);

WEFT_END_DECLS

#endif
