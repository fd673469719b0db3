/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/quantise.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "coll/kernel/reducer.h"

/* What no q can be, since |q| <= 2^30. */
#define Q_NAN INT32_MIN
#define Q_INF INT32_MAX
#define Q_MINUS_INF (-INT32_MAX)

#define INF_BITS 0x7f800000
#define NO_EXPONENT (-200) /* of a block of zeros: below that of any float */

bool wf_quantises(weft_dtype type, weft_op_kind op)
{
    return (type == WEFT_F32 || type == WEFT_C64) &&
           (op == WEFT_OP_SUM || op == WEFT_OP_AVG);
}

static size_t blocks_of(size_t n)
{
    return (n + WF_QUANT_BLOCK - 1) / WF_QUANT_BLOCK;
}

size_t wf_quantised_bytes(size_t n)
{
    return n * sizeof(int32_t) + blocks_of(n) * sizeof(int16_t);
}

size_t wf_quantised_fits(size_t bytes)
{
    const size_t whole = wf_quantised_bytes(WF_QUANT_BLOCK);
    size_t rest = bytes % whole;

    return bytes / whole * WF_QUANT_BLOCK +
           (rest > sizeof(int16_t) ? (rest - sizeof(int16_t)) / sizeof(int32_t)
                                   : 0);
}

/* The exponents follow the integers. */
static int16_t *exponents_of(const void *array, size_t n)
{
    return (int16_t *)(uintptr_t)array + 2 * n;
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

static inline int32_t magnitude(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & INT32_MAX;
}

/* The largest |x| as bits, whose order is that of the numbers. */
static int32_t largest(const float *x, size_t n)
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
static void scale_block(const float *x, size_t n, float scale, int32_t *q)
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

static int16_t quantise_block(const float *x, size_t n, int bits, int32_t *q)
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

void wf_quantise(const float *src, size_t n, uint32_t ranks, void *out)
{
    int bits = precision(ranks);
    int32_t *q = out;
    int16_t *e = exponents_of(out, n);

    for (size_t b = 0; b < blocks_of(n); b++) {
        size_t at = b * WF_QUANT_BLOCK;

        e[b] = quantise_block(src + at, block_length(n, b), bits, q + at);
    }
}

/* --- the switch: sums ----------------------------------------------------- */

static inline bool is_code(int32_t q)
{
    return q == Q_NAN || q == Q_INF || q == Q_MINUS_INF;
}

/* round(q / 2^shift) for 1 <= shift <= 31. Shifting to the right rounds down,
 * for negative numbers, too. */
static inline int32_t round_shift(int32_t q, int shift)
{
    int32_t down = q >> shift;
    uint32_t rest = (uint32_t)q & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);

    return down + (rest > half || (rest == half && (down & 1) != 0));
}

static void align_block(int32_t *q, size_t n, int shift)
{
    if (shift > 31) {
        memset(q, 0, n * sizeof(*q));
        return;
    }
    for (size_t i = 0; i < n && shift > 0; i++) {
        q[i] = round_shift(q[i], shift);
    }
}

/* Like align_block, where some are not numbers. */
static void align_rare(int32_t *q, size_t n, int shift)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_code(q[i])) {
            align_block(&q[i], 1, shift);
        }
    }
}

/* The exponent of the sum's block; the flag is set if any part has it. */
static int16_t block_exponent(void *const part[], uint32_t ranks, size_t n,
                              size_t block)
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

static void align_parts(void *const part[], uint32_t ranks, size_t n,
                        size_t block, int16_t to)
{
    for (uint32_t r = 0; r < ranks; r++) {
        int16_t field = exponents_of(part[r], n)[block];
        int32_t *q = (int32_t *)part[r] + block * WF_QUANT_BLOCK;
        int shift = (to >> 1) - (field >> 1);

        if ((field & 1) != 0) {
            align_rare(q, block_length(n, block), shift);
        } else if (shift > 0) {
            align_block(q, block_length(n, block), shift);
        }
    }
}

/* What IEEE 754 says of a sum that has `q` in it, after the others' `sum`. */
static int32_t add_code(int32_t sum, int32_t q)
{
    if (!is_code(sum)) {
        return q;
    }
    return sum == q ? sum : Q_NAN;
}

/* Put right what the sum of integers made of a block with codes in it. The sum
 * of numbers is no code, for parts that ranks have made. */
static void sum_codes(void *const part[], uint32_t ranks, size_t n,
                      size_t block, int32_t *sum)
{
    for (size_t i = 0; i < block_length(n, block); i++) {
        int32_t code = 0;

        for (uint32_t r = 0; r < ranks; r++) {
            int32_t q = ((int32_t *)part[r])[block * WF_QUANT_BLOCK + i];

            if ((exponents_of(part[r], n)[block] & 1) != 0 && is_code(q)) {
                code = add_code(code, q);
            }
        }
        sum[i] = code != 0 ? code : sum[i];
    }
}

void wf_quantised_sum(void *const part[], uint32_t ranks, size_t n, void *out)
{
    int16_t *e = exponents_of(out, n);
    wf_reducer reducer = {.fold = NULL};

    for (size_t b = 0; b < blocks_of(n); b++) {
        e[b] = block_exponent(part, ranks, n, b);
        align_parts(part, ranks, n, b, e[b]);
    }
    (void)wf_reducer_init(&reducer, WEFT_I32, WEFT_SUM, ranks);
    reducer.fold(&reducer, &out, 1, (const void *const *)part, ranks, n);
    for (size_t b = 0; b < blocks_of(n); b++) {
        if ((e[b] & 1) != 0) {
            sum_codes(part, ranks, n, b, (int32_t *)out + b * WF_QUANT_BLOCK);
        }
    }
}

/* --- the rank: back to floats --------------------------------------------- */

/* An integer times a power of two is exact in f64, so this rounds once. */
static void unscale_block(const int32_t *q, size_t n, double scale, float *out)
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

void wf_dequantise(const void *sum, size_t n, uint32_t ranks, uint32_t divisor,
                   float *out)
{
    const int16_t *e = exponents_of(sum, n);
    int bits = precision(ranks);

    for (size_t b = 0; b < blocks_of(n); b++) {
        const int32_t *q = (const int32_t *)sum + b * WF_QUANT_BLOCK;
        float *to = out + b * WF_QUANT_BLOCK;
        size_t length = block_length(n, b);
        double scale = power_of_two((e[b] >> 1) - bits);

        if (divisor == 1) {
            unscale_block(q, length, scale, to);
        } else {
            divide_block(q, length, scale, divisor, to);
        }
        if ((e[b] & 1) != 0) {
            put_codes(q, length, to);
        }
    }
}
