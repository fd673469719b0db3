/* SPDX-License-Identifier: Apache-2.0 */
/* Copies out of shared memory. */
#include <string.h>

#include "coll/shm/area.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

#if defined(__SSE2__)
void shm_copy_stream(void *to, const void *from, size_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    size_t head = (0 - (uintptr_t)t) & 63;

    head = head < bytes ? head : bytes;
    memcpy(t, f, head);
    t += head;
    f += head;
    bytes -= head;
    for (; bytes >= 64; bytes -= 64, t += 64, f += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)f);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(f + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(f + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(f + 48));

        _mm_stream_si128((__m128i *)(void *)t, a);
        _mm_stream_si128((__m128i *)(void *)(t + 16), b);
        _mm_stream_si128((__m128i *)(void *)(t + 32), c);
        _mm_stream_si128((__m128i *)(void *)(t + 48), d);
    }
    memcpy(t, f, bytes);
    /* Streaming stores may be reordered after the store that publishes. */
    _mm_sfence();
}
#else
void shm_copy_stream(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

void shm_take(unsigned char *to, unsigned char *from, size_t bytes, bool stream)
{
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;

        if (stream) {
            shm_copy_stream(to + at, from + at, n);
        } else {
            memcpy(to + at, from + at, n);
        }
        shm_claim(from + at, n);
    }
}
