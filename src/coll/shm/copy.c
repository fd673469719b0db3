/* SPDX-License-Identifier: Apache-2.0 */
/* Copies out of shared memory. */
#include <string.h>

#include "base/stream.h"
#include "coll/shm/area.h"

/* Claim lines while they are still in the L1 cache. */
#define BLOCK 4096u

void shm_claim(unsigned char *at, size_t bytes)
{
    uintptr_t line = ((uintptr_t)at + 63) & ~(uintptr_t)63;
    uintptr_t end = (uintptr_t)at + bytes;

    for (; line < end; line += 64) {
        volatile uint64_t *word = (volatile uint64_t *)line;

        *word = *word;
    }
}

void shm_take(const shm_state *s, unsigned char *to, unsigned char *from,
              size_t bytes, bool stream)
{
    if (!stream && s->kernels->take != NULL) {
        s->kernels->take(to, from, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;

        if (stream) {
            wf_copy_stream(to + at, from + at, n);
        } else {
            memcpy(to + at, from + at, n);
        }
        shm_claim(from + at, n);
    }
}
