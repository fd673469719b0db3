/* SPDX-License-Identifier: Apache-2.0 */
/* Copy what another core has written, and write a word into each of its lines
 * as soon as it is read, so that reads and words of many lines are on their way
 * at one time (docs/design/0004-shared-memory.md). */
#ifndef WF_COLL_KERNEL_TAKE_H
#define WF_COLL_KERNEL_TAKE_H

#include "coll/kernel/vector.h"

#define TAKE_LINE 64u

WF_INLINE void take_word(char *line)
{
    volatile uint64_t *word = (volatile uint64_t *)(void *)line;

    *word = *word;
}

static void take(void *to, void *from, size_t bytes)
{
    size_t whole = bytes - bytes % TAKE_LINE;
    char *t = to;
    char *f = from;

    for (size_t at = 0; at < whole; at += TAKE_LINE) {
        for (size_t i = 0; i < TAKE_LINE; i += WF_VEC_BYTES) {
            store(t + at + i, load(f + at + i));
        }
        take_word(f + at);
    }
    if (whole < bytes) {
        memcpy(t + whole, f + whole, bytes - whole);
        take_word(f + whole);
    }
}

#endif
