/* SPDX-License-Identifier: Apache-2.0 */
/* Elements: conversions, values to send, comparison. */
#include "wt_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The last step of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t wt_mix(uint64_t seed, uint64_t rank, uint64_t index)
{
    return mix(index + 0x9e3779b97f4a7c15u * (1 + rank + 64 * seed));
}

uint64_t wt_hash(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u + n;
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = mix(h ^ word);
    }
    for (; n > 0; n--, p++) {
        h = mix(h ^ *p);
    }
    return h;
}

/* --- 16-bit floats ------------------------------------------------------- */

float wt_from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023);
    float value;

    if (exponent == 31) {
        value = (bits & 1023) != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexpf(fraction, -24);
    } else {
        value = ldexpf(1024 + fraction, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t wt_to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float a = fabsf(value);
    int exponent;
    float units;

    if (isnan(value)) {
        return 0x7e00;
    }
    if (a >= 65520) { /* half way from the largest number to the next power */
        return sign | 0x7c00;
    }
    /* How many of the last place's units; rintf rounds ties to even. A carry
     * into the exponent is right by itself. */
    frexpf(a, &exponent);
    exponent = exponent < -13 ? -13 : exponent;
    units = rintf(ldexpf(a, 11 - exponent));
    if (units >= 1024) {
        return sign | (uint16_t)(((exponent + 13) << 10) + (int)units);
    }
    return sign | (uint16_t)units;
}

float wt_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

uint16_t wt_to_bf16(float value)
{
    uint32_t wide;

    if (isnan(value)) {
        return 0x7fc0;
    }
    memcpy(&wide, &value, sizeof(wide));
    return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

/* --- elements ------------------------------------------------------------ */

bool wt_is_floating(weft_dtype type)
{
    return wf_dtype_is(type, WF_FLOAT | WF_COMPLEX);
}

bool wt_is_narrow(weft_dtype type)
{
    return wf_dtype_is(type, WF_FLOAT) && wf_dtype_bytes(type) < sizeof(float);
}

bool wt_is_complex(weft_dtype type)
{
    return wf_dtype_is(type, WF_COMPLEX);
}

bool wt_adds(weft_dtype type)
{
    return !wf_dtype_is(type, WF_PAIR);
}

bool wt_is_pair(weft_dtype type)
{
    return wf_dtype_is(type, WF_PAIR);
}

weft_dtype wt_pair_value(weft_dtype type)
{
    switch (type) {
    case WEFT_PAIR_F32:
        return WEFT_F32;
    case WEFT_PAIR_F64:
        return WEFT_F64;
    default:
        return wt_pair_index(type);
    }
}

weft_dtype wt_pair_index(weft_dtype type)
{
    return weft_dtype_size(type) == 8 ? WEFT_I32 : WEFT_I64;
}

void wt_get(const void *buf, size_t index, weft_dtype type, double *re,
            double *im)
{
    const char *p = (const char *)buf + index * weft_dtype_size(type);
    uint16_t half;
    float single[2] = {0};
    double both[2] = {0};

    switch (type) {
    case WEFT_F16:
    case WEFT_BF16:
        memcpy(&half, p, sizeof(half));
        both[0] = type == WEFT_F16 ? wt_from_f16(half) : wt_from_bf16(half);
        break;
    case WEFT_F32:
    case WEFT_C64:
        memcpy(single, p, weft_dtype_size(type));
        both[0] = single[0];
        both[1] = single[1];
        break;
    default:
        memcpy(both, p, weft_dtype_size(type));
        break;
    }
    *re = both[0];
    *im = both[1];
}

void wt_put(void *buf, size_t index, weft_dtype type, double re, double im)
{
    char *p = (char *)buf + index * weft_dtype_size(type);
    double both[2] = {re, im};
    float single[2] = {(float)re, (float)im};
    uint16_t half;

    switch (type) {
    case WEFT_F16:
    case WEFT_BF16:
        half = type == WEFT_F16 ? wt_to_f16(single[0]) : wt_to_bf16(single[0]);
        memcpy(p, &half, sizeof(half));
        break;
    case WEFT_F32:
    case WEFT_C64:
        memcpy(p, single, weft_dtype_size(type));
        break;
    default:
        memcpy(p, both, weft_dtype_size(type));
        break;
    }
}

/* --- values -------------------------------------------------------------- */

static bool is_logical(weft_op_kind kind)
{
    return kind == WEFT_OP_LAND || kind == WEFT_OP_LOR || kind == WEFT_OP_LXOR;
}

/* Sums: 129 multiples of 1/8 around 0. Products: a few halves whose product
 * over 8 ranks still fits f32, and the range of f16. */
static double exact_value(weft_op_kind kind, bool complex, uint64_t bits)
{
    static const double real[8] = {-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2};
    static const double part[8] = {-1, -0.5, 0, 0.5, 1, 1.5, -1.5, 0.5};

    if (is_logical(kind)) {
        return bits % 8 == 0 ? 0.0 : 1.0 + (double)(bits % 5);
    }
    if (kind == WEFT_OP_PROD) {
        return complex ? part[bits % 8] : real[bits % 8];
    }
    return (double)((int)(bits % 129) - 64) / 8;
}

static void fill_floating(void *buf, size_t n, weft_dtype type,
                          weft_op_kind kind, uint64_t seed, unsigned rank)
{
    bool complex = wt_is_complex(type);

    for (size_t i = 0; i < n; i++) {
        uint64_t bits = wt_mix(seed, rank, i);

        wt_put(buf, i, type, exact_value(kind, complex, bits & 0xffffffff),
               exact_value(kind, complex, bits >> 32));
    }
}

/* Few values, so that several ranks often have the same one; now and then a
 * NaN, where there is one. */
static void fill_pairs(void *buf, size_t n, weft_dtype type, uint64_t seed,
                       unsigned rank)
{
    size_t half = weft_dtype_size(type) / 2;

    for (size_t i = 0; i < n; i++) {
        uint64_t bits = wt_mix(seed, rank, i);
        int64_t value = (int64_t)(bits % 5) - 2;
        int64_t index = (int64_t)(bits >> 8 & 1023) - 512;
        char *p = (char *)buf + i * 2 * half;

        if (wt_is_floating(wt_pair_value(type))) {
            wt_put(p, 0, wt_pair_value(type),
                   bits >> 58 == 0 ? (double)NAN : (double)value / 4, 0);
        } else {
            memcpy(p, &value, half);
        }
        memcpy(p + half, &index, half);
    }
}

void wt_fill(void *buf, size_t n, weft_dtype type, weft_op_kind kind,
             uint64_t seed, unsigned rank)
{
    size_t size = weft_dtype_size(type);

    if (wt_is_pair(type)) {
        fill_pairs(buf, n, type, seed, rank);
        return;
    }
    if (wt_is_floating(type)) {
        fill_floating(buf, n, type, kind, seed, rank);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = wt_mix(seed, rank, i);

        if (type == WEFT_BOOL) {
            bits &= 1;
        } else if (is_logical(kind) && bits >> 61 == 0) {
            bits = 0;
        }
        memcpy((char *)buf + i * size, &bits, size);
    }
}

void wt_fill_bytes(void *buf, size_t n, uint64_t seed, unsigned rank)
{
    char *p = buf;

    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t bits = wt_mix(seed, rank, i);

        memcpy(p + i, &bits, n - i < sizeof(bits) ? n - i : sizeof(bits));
    }
}

void wt_fill_rough(void *buf, size_t n, weft_dtype type, uint64_t seed,
                   unsigned rank)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = wt_mix(seed, rank, i);
        double re = (double)(bits >> 32) * 0x1p-32 - 0.5;
        double im = (double)(bits & 0xffffffff) * 0x1p-32 - 0.5;

        wt_put(buf, i, type, re * (double)(1u << bits % 8), im);
    }
}

/* --- comparison ---------------------------------------------------------- */

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool same_element(const void *a, const void *b, size_t i,
                         weft_dtype type)
{
    size_t size = weft_dtype_size(type);
    double x[2];
    double y[2];

    if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) ==
        0) {
        return true;
    }
    if (!wt_is_floating(type)) {
        return false;
    }
    wt_get(a, i, type, &x[0], &x[1]);
    wt_get(b, i, type, &y[0], &y[1]);
    return same_number(x[0], y[0]) && same_number(x[1], y[1]);
}

size_t wt_first_difference(const void *got, const void *want, size_t n,
                           weft_dtype type)
{
    size_t i = 0;

    if (n == 0 || memcmp(got, want, n * weft_dtype_size(type)) == 0) {
        return n;
    }
    while (i < n && same_element(got, want, i, type)) {
        i++;
    }
    return i;
}

void wt_element_text(const void *buf, size_t index, weft_dtype type, char *text,
                     size_t room)
{
    size_t size = weft_dtype_size(type);
    const char *p = (const char *)buf + index * size;
    uint64_t bits = 0;
    char value[64];
    double re;
    double im;

    if (wt_is_pair(type)) {
        wt_element_text(p, 0, wt_pair_value(type), value, sizeof(value));
        memcpy(&bits, p + size / 2, size / 2);
        snprintf(text, room, "(%s, %#llx)", value, (unsigned long long)bits);
        return;
    }
    if (wt_is_floating(type)) {
        wt_get(buf, index, type, &re, &im);
        snprintf(text, room, wt_is_complex(type) ? "%.17g%+.17gi" : "%.17g", re,
                 im);
        return;
    }
    memcpy(&bits, p, size);
    snprintf(text, room, "%#llx", (unsigned long long)bits);
}

bool wt_type_and_op(unsigned index, weft_dtype *type, weft_op *op)
{
    for (unsigned i = 0; i < WF_DTYPE_COUNT * WF_OP_COUNT; i++) {
        weft_dtype t = (weft_dtype)(i % WF_DTYPE_COUNT);
        weft_op_kind kind = (weft_op_kind)(i / WF_DTYPE_COUNT);

        if (weft_op_applies(kind, t) && index-- == 0) {
            *type = t;
            *op = kind == WEFT_OP_PREMUL_SUM ? weft_premul_sum(0.75)
                                             : weft_op_of(kind);
            return true;
        }
    }
    return false;
}
