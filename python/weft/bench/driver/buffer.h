/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers under one allocation policy for all systems: private anonymous
 * memory, with huge pages refused or asked for by name, never left to what the
 * machine's default happens to be. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define BUFFER_HUGE ((size_t)2 << 20)

typedef struct buffer {
    void *at;     /* aligned to a huge page */
    void *mapped; /* what to unmap */
    size_t span;
} buffer;

static inline int buffer_init(buffer *b, size_t bytes, bool huge)
{
    b->span = bytes + 2 * BUFFER_HUGE - 1;
    b->span -= b->span % BUFFER_HUGE;
    b->mapped = mmap(NULL, b->span, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->mapped == MAP_FAILED) {
        perror("mmap of a buffer");
        return -1;
    }
    /* A kernel without huge pages refuses both; then 4 KiB is what there is. */
    (void)madvise(b->mapped, b->span, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    b->at = (void *)(((uintptr_t)b->mapped + BUFFER_HUGE - 1) &
                     ~(uintptr_t)(BUFFER_HUGE - 1));
    return 0;
}

static inline void buffer_fini(buffer *b)
{
    munmap(b->mapped, b->span);
}

#endif
