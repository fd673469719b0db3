/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas of a node: a range of address space for each of its ranks, all
 * behind each other in one sparse memfd that each rank maps once. A rank takes
 * blocks from its own range, alone; the others read them where they lie. What
 * is said of a block to another rank is its offset in the range.
 *
 *  A1  Who takes memory from the range is its rank alone, and what it knows of
 *      blocks is in private memory (mem/spans.h). So nothing that another
 *      process writes can confuse it.
 *  A2  All pages of a block have memory from the time it is taken, so using it
 *      can neither be a bus error nor exceed a limit that was not checked. The
 *      file is sealed, so reading what is no block is no bus error, either.
 *  A3  A block that existed at a fork is not used again, and keeps its memory,
 *      while a child of that fork lives: it maps the same pages. The child
 *      holds the writing end of a pipe, whose other end tells when it is gone.
 *      The same holds, for good, for blocks that exist when a communicator
 *      breaks: a member that is late may still write its results there.
 *  A4  In a child the range is mapped privately, at the same addresses, the
 *      ranges of other ranks not at all; taking fails, giving does nothing.
 *  A5  Ranks of a host that ask the kernel at the same moment would all be told
 *      of the same free memory. So before a rank asks, it says on the board
 *      what it is about to allocate, and then wants as much free as all have
 *      said. Of two that do so at once at least one sees what both said. It
 *      says so until the memory is allocated, and shows in what the kernel
 *      says; what a rank says is void after some time, as it may die.
 *
 * An arena lives until its world is gone and its last block is given back. */
#ifndef WF_MEM_ARENA_H
#define WF_MEM_ARENA_H

#include <pthread.h>
#include <weft/memory.h>

#include "base/num.h"
#include "base/settings.h"
#include "mem/board.h"
#include "mem/spans.h"

/* A fork whose child lives, as far as is known. */
typedef struct wf_arena_lease {
    struct wf_arena_lease *next;
    uint32_t fork; /* its number, from 1 on */
    int fd;        /* ends with the child */
} wf_arena_lease;

typedef struct wf_arena {
    struct wf_arena *next; /* of this process */
    unsigned char *base;   /* the ranges of all ranks of the node */
    size_t range;          /* bytes of each */
    uint32_t ranges;
    unsigned char *own; /* the range of this rank */
    int fd;             /* -1 in a child */
    pthread_mutex_t lock;
    wf_spans spans;
    wf_shown_arena *shown; /* of its rank's shelf; NULL: it is not shown */
    wf_board *board;       /* with those of others; valid if `shown` is */
    uint64_t keep_bytes;   /* the setting */
    uint32_t sharers;      /* ranks that share the host's memory */
    bool limited;          /* spans.keep is known */
    uint64_t credit;       /* bytes that were found to be free, */
    uint64_t credit_until; /* and till when that counts */
    uint64_t filling;      /* bytes that are being allocated */
    bool open;             /* its world is there */
    bool child;
    uint32_t forks;   /* how many there were while there were blocks */
    uint32_t endless; /* up to this one they count as alive for good */
    wf_arena_lease *leases;
    int lease[2]; /* the pipe of the fork under way */
} wf_arena;

/* Bytes of the range of each of `ranks` ranks of a node, by the setting and by
 * what the host has; 0: no arena. Whole pages. */
uint64_t wf_arena_range(const wf_settings *settings, uint32_t ranks);

/* A descriptor for `ranks` ranges. */
weft_status wf_arena_make_fd(uint64_t range, uint32_t ranks, int *out);

/* Map the arenas behind `fd`. `self` is the number of the range of this rank,
 * `ranks` of how many share the host's memory. `fd` and `a`, memory of
 * wf_alloc, are taken over, also when this fails. */
weft_status wf_arena_open(const wf_settings *settings, int fd, uint64_t range,
                          uint32_t ranges, uint32_t self, uint32_t ranks,
                          wf_arena *a);

/* Show on the shelf of `rank` how much of it is used, until it is closed. */
void wf_arena_show(wf_arena *a, wf_board *board, uint32_t rank);

/* The world is gone. Takes NULL. */
void wf_arena_close(wf_arena *a);

/* A block that is reserved, but has no memory yet where it is fresh. */
typedef struct wf_arena_block {
    uint32_t first; /* page */
    size_t bytes;   /* whole pages */
    size_t fresh;   /* bytes that still have to be allocated: all or none */
} wf_arena_block;

/* Take a block in two steps: find room for it; then allocate its memory, which
 * was checked to be there (`zero`: all zero). A block that fails at the second
 * is gone. Both for blocks that several ranks take together. */
weft_status wf_arena_reserve(wf_arena *a, size_t bytes, wf_arena_block *out);
weft_status wf_arena_fill(wf_arena *a, const wf_arena_block *block, bool zero,
                          void **out);
/* Give back one that is only reserved. */
void wf_arena_cancel(wf_arena *a, const wf_arena_block *block);
/* WEFT_ERR_NOMEM unless there are `bytes` to allocate, if need be after the
 * pages that are kept were given to the kernel. */
weft_status wf_arena_check(wf_arena *a, uint64_t bytes);

/* All of it. */
weft_status wf_arena_take(wf_arena *a, size_t bytes, bool zero, void **out);

/* None of the memory that is in use now may be used for other blocks, ever:
 * others may still write to it. Takes NULL. */
void wf_arena_hold(wf_arena *a);

void wf_arena_ask(wf_arena *a, weft_arena_info *out);

/* The offset of a buffer in the range of this rank, plus 1; 0: it does not lie
 * there with all its bytes. Takes NULL, where nothing does. */
static inline uint64_t wf_arena_place(const wf_arena *a, const void *at,
                                      size_t bytes)
{
    uintptr_t from;

    if (a == NULL) {
        return 0;
    }
    from = (uintptr_t)at - (uintptr_t)a->own;
    return from < a->range && bytes <= a->range - from ? from + 1 : 0;
}

/* Where that is, if `range` is where the range of the rank that says so lies
 * here; NULL if it is not within. */
static inline unsigned char *wf_arena_find(const wf_arena *a,
                                           unsigned char *range, uint64_t place,
                                           size_t bytes)
{
    return place - 1 < a->range && bytes <= a->range - (place - 1)
               ? range + (place - 1)
               : NULL;
}

/* Around each fork, for all arenas of this process (mem/fork.c). */
void wf_arenas_before_fork(void);
void wf_arenas_after_fork(bool in_child);

#endif
