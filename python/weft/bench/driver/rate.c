/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, updating and copying with all cores busy; see rate.h. */
#include "rate.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    MAX_SAMPLES = 201,
    TURN_BYTES = 1 << 20, /* small buffers are gone over until this is done */
};

static volatile uint32_t sink;

/* Keep two passes over memory apart; the compiler could make one of them. */
static void touch(const void *at)
{
    __asm__ volatile("" : : "r"(at) : "memory");
}

/* What two readings of the clock cost by themselves. */
static double clock_cost(void)
{
    double sample[MAX_SAMPLES];

    for (int k = 0; k < MAX_SAMPLES; k++) {
        uint64_t start = page_now();
        sample[k] = (double)(page_now() - start);
    }
    return page_median(sample, MAX_SAMPLES);
}

static uint64_t samples_within(double ms, size_t bytes)
{
    /* 8 bytes per ns is slower than anything here. */
    double fit = ms * 1e6 / ((double)bytes / 8 + 2000);

    return fit < 5 ? 5 : fit > MAX_SAMPLES ? MAX_SAMPLES : (uint64_t)fit;
}

static uint32_t sum_of(const uint32_t *at, size_t n)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += at[i];
    }
    return sum;
}

double rate_read(struct page *page, int rank, int ranks, size_t bytes,
                 double ms)
{
    size_t room = bytes < PAGE_SLOT ? bytes : PAGE_SLOT;
    uint32_t *mine = page_slot(page, rank);
    const uint32_t *theirs = page_slot(page, (rank + 1) % ranks);
    size_t n = room / sizeof(*mine);
    uint64_t samples = page_agree(page, samples_within(ms, room));
    double sample[MAX_SAMPLES];
    double clock = clock_cost();

    for (uint64_t k = 0; k < samples; k++) {
        uint64_t start;
        for (size_t i = 0; i < n; i++) {
            mine[i] = (uint32_t)(k + i) | 1;
        }
        page_sync(page);
        start = page_now();
        sink = sum_of(theirs, n);
        sample[k] = (double)(page_now() - start) - clock;
        page_sync(page);
    }
    return page_median(sample, samples) * (double)bytes / (double)room;
}

static void update(float *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        at[i] *= -1.0f;
    }
    touch(at);
}

double rate_update(struct page *page, float *at, size_t bytes, double ms)
{
    size_t n = bytes / sizeof(*at);
    size_t turns = bytes < TURN_BYTES ? TURN_BYTES / bytes : 1;
    uint64_t samples = page_agree(page, samples_within(ms, turns * bytes));
    double sample[MAX_SAMPLES];

    update(at, n);
    for (uint64_t k = 0; k < samples; k++) {
        uint64_t start;
        page_sync(page);
        start = page_now();
        for (size_t turn = 0; turn < turns; turn++) {
            update(at, n);
        }
        sample[k] = (double)(page_now() - start) / (double)turns;
    }
    page_sync(page);
    return page_median(sample, samples);
}

typedef void copy_way(void *to, const void *from, size_t bytes);

static void copy_plain(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#ifdef __x86_64__
static void copy_string(void *to, const void *from, size_t bytes)
{
    __asm__ volatile("rep movsb"
                     : "+D"(to), "+S"(from), "+c"(bytes)
                     :
                     : "memory");
}
#endif

#ifdef __SSE2__
/* Past the caches. The buffers begin on a page; what is left of a line is
 * copied as ever. */
static void copy_streaming(void *to, const void *from, size_t bytes)
{
    size_t lines = bytes / 64;
    const __m128i *in = from;
    __m128i *out = to;

    for (size_t i = 0; i < lines; i++, in += 4, out += 4) {
        __m128i a = _mm_load_si128(in);
        __m128i b = _mm_load_si128(in + 1);
        __m128i c = _mm_load_si128(in + 2);
        __m128i d = _mm_load_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    memcpy(out, in, bytes % 64);
    _mm_sfence();
}
#endif

static copy_way *const ways[] = {
    copy_plain,
#ifdef __x86_64__
    copy_string,
#endif
#ifdef __SSE2__
    copy_streaming,
#endif
};
enum { WAYS = sizeof(ways) / sizeof(*ways) };

static double time_copy(struct page *page, copy_way *way, void *to,
                        const void *from, size_t bytes, double ms)
{
    size_t turns = bytes < TURN_BYTES ? TURN_BYTES / bytes : 1;
    uint64_t samples = page_agree(page, samples_within(ms, turns * bytes));
    double sample[MAX_SAMPLES];

    way(to, from, bytes);
    for (uint64_t k = 0; k < samples; k++) {
        uint64_t start;
        page_sync(page);
        start = page_now();
        for (size_t turn = 0; turn < turns; turn++) {
            way(to, from, bytes);
            touch(to);
        }
        sample[k] = (double)(page_now() - start) / (double)turns;
    }
    page_sync(page);
    return page_median(sample, samples);
}

double rate_copy(struct page *page, void *to, const void *from, size_t bytes,
                 double ms)
{
    double best = 0;

    for (int i = 0; i < WAYS; i++) {
        double ns = time_copy(page, ways[i], to, from, bytes, ms / WAYS);
        best = i == 0 || ns < best ? ns : best;
    }
    return best;
}
