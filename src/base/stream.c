/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stream.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

void wf_copy_stream(void *to, const void *from, size_t bytes)
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
void wf_copy_stream(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
