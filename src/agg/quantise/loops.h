/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of quantisation, see quantise.h. Included by the file of each CPU
 * level, which is compiled for that level, after
 *   WF_QUANTISER  the name of its table
 *
 * Most blocks are whole: loops over them have a constant length, so that the
 * compiler makes a few vectors of each. */
#include <math.h>
#include <string.h>

#include "agg/quantise/table.h"
#include "base/num.h"

#define LOOP static inline __attribute__((always_inline))

/* What no q can be, since |q| <= 2^30. */
#define Q_NAN INT32_MIN
#define Q_INF INT32_MAX
#define Q_MINUS_INF (-INT32_MAX)

#define INF_BITS 0x7f800000
#define NO_EXPONENT (-200) /* of a block of zeros: below that of any float */

static size_t blocks_of(size_t n)
{
    return (n + WF_QUANT_BLOCK - 1) / WF_QUANT_BLOCK;
}

/* The exponents follow the integers. */
static const int16_t *exponents_of(const void *array, size_t n)
{
    return (const int16_t *)array + 2 * n;
}

static size_t block_length(size_t n, size_t block)
{
    return (size_t)wf_least(n - block * WF_QUANT_BLOCK, WF_QUANT_BLOCK);
}

/* P: sums of so many numbers below 2^P fit into 30 bits. */
static int precision(uint32_t ranks)
{
    int bits = 0;

    while ((1u << bits) < ranks) {
        bits++;
    }
    return 30 - bits;
}

/* 2^k, as far as there is such a normal number. */
static double power_of_two(int k)
{
    uint64_t bits = (uint64_t)(k < -1022  ? 1
                               : k > 1023 ? 2046
                                          : k + 1023)
                    << 52;
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* --- the rank: to integers ------------------------------------------------ */

LOOP int32_t magnitude(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & INT32_MAX;
}

/* The largest |x| as bits, whose order is that of the numbers. */
LOOP int32_t largest(const float *x, size_t n)
{
    int32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits = magnitude(x[i]);
        most = bits > most ? bits : most;
    }
    return most;
}

static int32_t largest_finite(const float *x, size_t n)
{
    int32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits = magnitude(x[i]);
        most = bits > most && bits < INF_BITS ? bits : most;
    }
    return most;
}

/* The least e with |x| < 2^e. A denormal is its bits times 2^-149. */
static int exponent_of(int32_t bits)
{
    if (bits == 0) {
        return NO_EXPONENT;
    }
    return bits >> 23 != 0 ? (bits >> 23) - 126
                           : 32 - __builtin_clz((unsigned)bits) - 149;
}

/* Floats from 2^23 on are integers; below, adding and subtracting 2^23 rounds.
 * Multiplying by a power of two is exact, but for results below 2^-126, which
 * are 0 here anyway. */
LOOP void scale_block(const float *x, size_t n, float scale, int32_t *q)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        float big = copysignf(8388608.0f, v);
        float r = (v + big) - big;

        q[i] = (int32_t)(fabsf(v) < 8388608.0f ? r : v);
    }
}

/* Blocks whose scale no float is, or in which not all is finite. */
static void scale_rare(const float *x, size_t n, double scale, int32_t *q)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            q[i] = Q_NAN;
        } else if (isinf(x[i])) {
            q[i] = x[i] > 0 ? Q_INF : Q_MINUS_INF;
        } else {
            q[i] = (int32_t)nearbyint(x[i] * scale);
        }
    }
}

LOOP int16_t quantise_block(const float *x, size_t n, int bits, int32_t *q)
{
    int32_t most = largest(x, n);
    bool finite = most < INF_BITS;
    int e = exponent_of(finite ? most : largest_finite(x, n));

    if (most == 0) {
        memset(q, 0, n * sizeof(*q));
    } else if (finite && bits - e <= 127) {
        scale_block(x, n, (float)power_of_two(bits - e), q);
    } else {
        scale_rare(x, n, power_of_two(bits - e), q);
    }
    return (int16_t)(2 * e + !finite);
}

static void quantise(const float *src, size_t n, uint32_t ranks, void *out)
{
    int bits = precision(ranks);
    int32_t *q = out;
    int16_t *e = (int16_t *)out + 2 * n;
    size_t whole = n / WF_QUANT_BLOCK;

    for (size_t b = 0; b < whole; b++) {
        size_t at = b * WF_QUANT_BLOCK;

        e[b] = quantise_block(src + at, WF_QUANT_BLOCK, bits, q + at);
    }
    if (whole < blocks_of(n)) {
        size_t at = whole * WF_QUANT_BLOCK;

        e[whole] = quantise_block(src + at, n - at, bits, q + at);
    }
}

/* --- the switch: sums ----------------------------------------------------- */

static inline bool is_code(int32_t q)
{
    return q == Q_NAN || q == Q_INF || q == Q_MINUS_INF;
}

/* round(q / 2^shift) for 1 <= shift <= 31, ties to even. Shifting to the right
 * rounds down, for negative numbers, too. */
LOOP int32_t round_shift(int32_t q, int shift)
{
    uint32_t below_half = (1u << (shift - 1)) - 1;
    uint32_t odd = (uint32_t)(q >> shift) & 1;

    return (int32_t)((uint32_t)q + below_half + odd) >> shift;
}

/* Unsigned, since numbers that no rank has made may overflow. */
LOOP void add_block(int32_t *sum, const int32_t *q, size_t n, int shift)
{
    if (shift == 0) {
        for (size_t i = 0; i < n; i++) {
            sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)q[i]);
        }
    } else if (shift <= 31) {
        for (size_t i = 0; i < n; i++) {
            sum[i] = (int32_t)((uint32_t)sum[i] +
                               (uint32_t)round_shift(q[i], shift));
        }
    }
}

/* Like add_block, where some are not numbers. */
static void add_rare(int32_t *sum, const int32_t *q, size_t n, int shift)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_code(q[i])) {
            add_block(&sum[i], &q[i], 1, shift);
        }
    }
}

/* The exponent of the sum's block; the flag is set if any part has it. */
static int16_t block_exponent(const void *const part[], uint32_t ranks,
                              size_t n, size_t block)
{
    int most = INT16_MIN;
    int flag = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        int field = exponents_of(part[r], n)[block];

        most = field > most ? field : most;
        flag |= field & 1;
    }
    return (int16_t)((most & ~1) | flag);
}

/* What IEEE 754 says of a sum that has `q` in it, after the others' `sum`. */
static int32_t add_code(int32_t sum, int32_t q)
{
    if (!is_code(sum)) {
        return q;
    }
    return sum == q ? sum : Q_NAN;
}

/* Put the codes of a block over its sum. */
static void sum_codes(const void *const part[], uint32_t ranks, size_t n,
                      size_t block, int32_t *sum)
{
    for (size_t i = 0; i < block_length(n, block); i++) {
        int32_t code = 0;

        for (uint32_t r = 0; r < ranks; r++) {
            int32_t q = ((const int32_t *)part[r])[block * WF_QUANT_BLOCK + i];

            if ((exponents_of(part[r], n)[block] & 1) != 0 && is_code(q)) {
                code = add_code(code, q);
            }
        }
        sum[i] = code != 0 ? code : sum[i];
    }
}

/* One block of `length`, into `out`. */
LOOP int16_t sum_block(const void *const part[], uint32_t ranks, size_t n,
                       size_t block, size_t length, int32_t *out)
{
    int16_t e = block_exponent(part, ranks, n, block);
    int32_t sum[WF_QUANT_BLOCK] = {0};

    for (uint32_t r = 0; r < ranks; r++) {
        int16_t field = exponents_of(part[r], n)[block];
        const int32_t *q = (const int32_t *)part[r] + block * WF_QUANT_BLOCK;
        int shift = (e >> 1) - (field >> 1);

        if ((field & 1) != 0) {
            add_rare(sum, q, length, shift);
        } else {
            add_block(sum, q, length, shift);
        }
    }
    if ((e & 1) != 0) {
        sum_codes(part, ranks, n, block, sum);
    }
    memcpy(out, sum, length * sizeof(*sum));
    return e;
}

static void quantised_sum(const void *const part[], uint32_t ranks, size_t n,
                          void *out)
{
    int32_t *q = out;
    int16_t *e = (int16_t *)out + 2 * n;
    size_t whole = n / WF_QUANT_BLOCK;

    for (size_t b = 0; b < whole; b++) {
        e[b] = sum_block(part, ranks, n, b, WF_QUANT_BLOCK,
                         q + b * WF_QUANT_BLOCK);
    }
    if (whole < blocks_of(n)) {
        e[whole] = sum_block(part, ranks, n, whole, n % WF_QUANT_BLOCK,
                             q + whole * WF_QUANT_BLOCK);
    }
}

/* --- the rank: back to floats --------------------------------------------- */

/* An integer times a power of two is exact in f64, so this rounds once. */
static void unscale_rare(const int32_t *q, size_t n, double scale, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(q[i] * scale);
    }
}

static void divide_block(const int32_t *q, size_t n, double scale,
                         double divisor, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(q[i] * scale / divisor);
    }
}

/* Where no result can be denormal or too large, the one rounding is that of the
 * integer to f32: a product with a power of two is exact. */
LOOP void unscale_block(const int32_t *q, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)q[i] * scale;
    }
}

static void put_codes(const int32_t *q, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        if (q[i] == Q_NAN) {
            out[i] = NAN;
        } else if (is_code(q[i])) {
            out[i] = q[i] == Q_INF ? INFINITY : -INFINITY;
        }
    }
}

LOOP void dequantise_block(const int32_t *q, size_t n, int power,
                           uint32_t divisor, float *out)
{
    if (divisor != 1) {
        divide_block(q, n, power_of_two(power), divisor, out);
    } else if (power >= -126 && power <= 96) {
        unscale_block(q, n, (float)power_of_two(power), out);
    } else {
        unscale_rare(q, n, power_of_two(power), out);
    }
}

static void dequantise(const void *sum, size_t n, uint32_t ranks,
                       uint32_t divisor, float *out)
{
    const int16_t *e = exponents_of(sum, n);
    int bits = precision(ranks);

    for (size_t b = 0; b < blocks_of(n); b++) {
        const int32_t *q = (const int32_t *)sum + b * WF_QUANT_BLOCK;
        float *to = out + b * WF_QUANT_BLOCK;
        size_t length = block_length(n, b);
        int power = (e[b] >> 1) - bits;

        if (length == WF_QUANT_BLOCK) {
            dequantise_block(q, WF_QUANT_BLOCK, power, divisor, to);
        } else {
            dequantise_block(q, length, power, divisor, to);
        }
        if ((e[b] & 1) != 0) {
            put_codes(q, length, to);
        }
    }
}

const wf_quantiser WF_QUANTISER = {
    .quantise = quantise, .sum = quantised_sum, .dequantise = dequantise};
