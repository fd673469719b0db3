/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* x^32 is the lowest bit, as in every reflected CRC. */
#define POLYNOMIAL 0x82f63b78u
#define X_TO_0 0x80000000u

/* slice[k][b]: the byte b followed by k zero bytes. */
static uint32_t slice[8][256];
/* power[k]: x^(8 * 2^k), which appends 2^k zero bytes. */
static uint32_t power[64];
static wf_crc32c_fn *fastest;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The product of two polynomials, modulo the CRC's. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = X_TO_0; bit != 0; bit >>= 1) {
        if (a & bit) {
            product ^= b;
        }
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

static uint32_t crc_plain(uint32_t state, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = state ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 |
                                (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);

        state = slice[7][low & 255] ^ slice[6][low >> 8 & 255] ^
                slice[5][low >> 16 & 255] ^ slice[4][low >> 24] ^
                slice[3][p[4]] ^ slice[2][p[5]] ^ slice[1][p[6]] ^
                slice[0][p[7]];
    }
    for (; n > 0; n--, p++) {
        state = state >> 8 ^ slice[0][(state ^ *p) & 255];
    }
    return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_sse42(uint32_t state, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t s = state;

    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;

        memcpy(&word, p, sizeof(word));
        s = _mm_crc32_u64(s, word);
    }
    for (; n > 0; n--, p++) {
        s = _mm_crc32_u8((uint32_t)s, *p);
    }
    return (uint32_t)s;
}
#endif

static void make_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        }
        slice[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = slice[k - 1][b];

            slice[k][b] = before >> 8 ^ slice[0][before & 255];
        }
    }
    power[0] = X_TO_0 >> 8;
    for (int k = 1; k < 64; k++) {
        power[k] = multiply(power[k - 1], power[k - 1]);
    }
}

static void make_ready(void)
{
    make_tables();
    fastest = crc_plain;
#if defined(__x86_64__)
    /* All CPUs with AVX2 have SSE4.2; WEFT_CPU=plain means neither. */
    if (wf_cpu_level_used() >= WF_CPU_AVX2) {
        fastest = crc_sse42;
    }
#endif
}

static wf_crc32c_fn *way(void)
{
    pthread_once(&once, make_ready);
    return fastest;
}

wf_crc32c_fn *wf_crc32c_plain(void)
{
    (void)way();
    return crc_plain;
}

wf_crc32c_fn *wf_crc32c_hardware(void)
{
    return way() == crc_plain ? NULL : fastest;
}

uint32_t wf_crc32c(uint32_t crc, const void *data, size_t n)
{
    return ~way()(~crc, data, n);
}

/* `state` after `n` zero bytes more. */
static uint32_t append_zeros(uint32_t state, uint64_t n)
{
    for (int k = 0; n != 0; k++, n >>= 1) {
        if (n & 1) {
            state = multiply(power[k], state);
        }
    }
    return state;
}

uint32_t wf_crc32c_piece(const void *data, size_t n, uint64_t after)
{
    uint32_t state = way()(0, data, n);

    return append_zeros(state, after);
}

uint32_t wf_crc32c_join(uint32_t pieces, uint64_t n)
{
    (void)way();
    return ~(append_zeros(UINT32_MAX, n) ^ pieces);
}
