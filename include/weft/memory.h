/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the other ranks can see, so that collectives copy nothing; and
 * how much memory there is. */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <weft/comm.h>

WEFT_BEGIN_DECLS

/**
 * A buffer of `bytes` for each rank of `comm`, all zero, on a page boundary and
 * in memory near its rank: a block of its arena (see weft_arena_alloc), or
 * ordinary memory if it has none. Collectives use such buffers where they lie:
 * an allreduce, reduce or scan whose buffers all lie in arenas copies nothing,
 * and the others read a source from there in one copy. On each rank it may be
 * any part of any buffer; ranks need not choose alike.
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
 * as it is, and if weft_arena_holds says so, weft_arena_free takes it. Not
 * collective: other ranks keep theirs. No operation may be using it, but any
 * thread may call this, also while others are in operations of `comm`. Takes
 * NULL.
 */
WEFT_API void weft_free(weft_comm *comm, void *buffer);

/**
 * Take a block of `bytes` from the arena of this rank: memory that all ranks of
 * its node map, so that collectives of every communicator of the node read it,
 * and fold it, where it lies. Not collective, and any thread may call it.
 *
 * The block begins on a page boundary and takes whole pages, so small ones are
 * better left to malloc. All its pages have memory when this returns: using it
 * later cannot fail for lack of memory. It holds what a block before it left
 * there, or zeros.
 *
 * Fails with WEFT_ERR_NOMEM, and then nothing is changed: if there is no arena
 * (the setting ARENA is 0, or the address space is limited), no room left in
 * it, or not enough memory on the host or in the control group; and with
 * WEFT_ERR_CLOSED in a forked child. Callers then use ordinary memory, which
 * every call takes as well.
 */
WEFT_API weft_status weft_arena_alloc(weft_world *world, size_t bytes,
                                      void **out);

/** Like weft_arena_alloc, but all zero; clears only what was used before. */
WEFT_API weft_status weft_arena_zalloc(weft_world *world, size_t bytes,
                                       void **out);

/**
 * Give a block back. Any thread may, also after the world is destroyed: blocks
 * stay as they are until then. Other ranks must be done with it, as they are
 * when the operations that it was passed to are over. Takes NULL. What is no
 * block is left alone, and logged.
 *
 * A child that this process forked has its own view of all blocks, at the same
 * addresses. It may read them, and sees what the parent has there, also what
 * that writes later, until it writes to a page itself, which is then a copy of
 * its own: nothing that a child writes reaches the parent or other ranks.
 * Blocks that existed at the fork and are freed by the parent are not used
 * again while the child lives, unless it closes all its descriptors. In the
 * child this call does nothing.
 *
 * Blocks that exist when a communicator of the world breaks are not used again,
 * either: a rank that does not know yet may still write results to them.
 */
WEFT_API void weft_arena_free(void *block);

/** Does `at` point into the arena of a world of this process? 1 or 0. */
WEFT_API int weft_arena_holds(const void *at);

typedef struct weft_arena_info {
    size_t size;     /* sizeof(weft_arena_info), set by the caller */
    uint64_t room;   /* bytes of address space of this rank; 0: no arena */
    uint64_t in_use; /* bytes of blocks, in whole pages */
    uint64_t kept;   /* bytes of freed blocks that still have memory */
    uint64_t held;   /* of these, bytes that a forked child may be reading */
    uint64_t blocks; /* how many there are */
} weft_arena_info;

/** What the arena of this rank holds. Any thread may ask. Fails with
 * WEFT_ERR_INVALID if `out->size` is not set. */
WEFT_API weft_status weft_arena_get(const weft_world *world,
                                    weft_arena_info *out);

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
