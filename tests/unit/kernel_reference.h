/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions one element at a time, written to be obviously right, against
 * which the kernels are held bit by bit. */
#ifndef WT_KERNEL_REFERENCE_H
#define WT_KERNEL_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <weft/types.h>

#include "wt_data.h"

typedef struct ref_number {
    int64_t whole; /* of bool and integers */
    double re;     /* of the others; every one of them fits into a double */
    double im;
    int64_t index; /* of pairs, whose value is one of the above */
} ref_number;

static inline int ref_is_complex(weft_dtype type)
{
    return type == WEFT_C64 || type == WEFT_C128;
}

/* To the precision that `type` is computed in. A sum, product or quotient of
 * two floats that is rounded to double and then to float is the same as one
 * that is rounded to float at once. */
static inline double ref_rounded(weft_dtype type, double x)
{
    volatile double wide = x;
    volatile float narrow = (float)x;

    return type == WEFT_F64 || type == WEFT_C128 ? wide : (double)narrow;
}

static inline ref_number ref_get(weft_dtype type, const void *from)
{
    size_t size = weft_dtype_size(type);
    unsigned above = 64 - 8 * (unsigned)size;
    ref_number x = {0, 0, 0, 0};
    uint64_t bits = 0;

    if (wt_is_pair(type)) {
        x = ref_get(wt_pair_value(type), from);
        x.index =
            ref_get(wt_pair_index(type), (const char *)from + size / 2).whole;
        return x;
    }
    if (wt_is_floating(type)) {
        wt_get(from, 0, type, &x.re, &x.im);
        return x;
    }
    memcpy(&bits, from, size);
    if (type == WEFT_BOOL) {
        x.whole = bits != 0;
    } else if (type == WEFT_U8) {
        x.whole = (int64_t)bits;
    } else {
        x.whole = (int64_t)(bits << above) >> above;
    }
    return x;
}

/* There is one NaN for all. */
static inline void ref_put(weft_dtype type, ref_number x, void *to)
{
    const double nan = (double)NAN;
    size_t size = weft_dtype_size(type);

    if (wt_is_pair(type)) {
        ref_number index = {x.index, 0, 0, 0};

        ref_put(wt_pair_value(type), x, to);
        ref_put(wt_pair_index(type), index, (char *)to + size / 2);
        return;
    }
    if (wt_is_floating(type)) {
        wt_put(to, 0, type, isnan(x.re) ? nan : x.re, isnan(x.im) ? nan : x.im);
        return;
    }
    memcpy(to, &x.whole, size);
}

static inline int ref_is_true(weft_dtype type, ref_number x)
{
    return wt_is_floating(type) ? x.re != 0 : x.whole != 0;
}

static inline ref_number ref_of_truth(int truth)
{
    ref_number x = {truth, truth, 0, 0};

    return x;
}

static inline ref_number ref_sum(weft_dtype type, ref_number a, ref_number b)
{
    a.whole = (int64_t)((uint64_t)a.whole + (uint64_t)b.whole);
    a.whole = type == WEFT_BOOL ? a.whole != 0 : a.whole;
    a.re = ref_rounded(type, a.re + b.re);
    a.im = ref_rounded(type, a.im + b.im);
    return a;
}

static inline ref_number ref_product(weft_dtype type, ref_number a,
                                     ref_number b)
{
    ref_number x = {(int64_t)((uint64_t)a.whole * (uint64_t)b.whole), 0, 0, 0};

    if (ref_is_complex(type)) {
        x.re = ref_rounded(type, ref_rounded(type, a.re * b.re) -
                                     ref_rounded(type, a.im * b.im));
        x.im = ref_rounded(type, ref_rounded(type, a.re * b.im) +
                                     ref_rounded(type, a.im * b.re));
    } else {
        x.re = ref_rounded(type, a.re * b.re);
    }
    return x;
}

/* The lesser one, or the greater one if `sign` is -1. */
static inline ref_number ref_extreme(weft_dtype type, int sign, ref_number a,
                                     ref_number b)
{
    if (!wt_is_floating(type)) {
        return (sign > 0 ? b.whole < a.whole : b.whole > a.whole) ? b : a;
    }
    if (isnan(a.re) || isnan(b.re)) {
        a.re = (double)NAN;
        return a;
    }
    return sign * b.re < sign * a.re ? b : a;
}

/* The pair with the lesser value, or the greater one if `sign` is -1; a NaN is
 * less and greater than any number. */
static inline ref_number ref_extreme_pair(weft_dtype type, int sign,
                                          ref_number a, ref_number b)
{
    int order;

    if (!wt_is_floating(wt_pair_value(type))) {
        order = sign * ((a.whole > b.whole) - (a.whole < b.whole));
    } else if (isnan(a.re) || isnan(b.re)) {
        order = (isnan(b.re) != 0) - (isnan(a.re) != 0);
    } else {
        order = sign * ((a.re > b.re) - (a.re < b.re));
    }
    if (order == 0) {
        order = (a.index > b.index) - (a.index < b.index);
    }
    return order > 0 ? b : a;
}

static inline ref_number ref_combine(weft_dtype type, weft_op_kind op,
                                     ref_number a, ref_number b)
{
    switch (op) {
    case WEFT_OP_SUM:
    case WEFT_OP_AVG:
    case WEFT_OP_PREMUL_SUM:
        return ref_sum(type, a, b);
    case WEFT_OP_PROD:
        return ref_product(type, a, b);
    case WEFT_OP_MIN:
        return ref_extreme(type, 1, a, b);
    case WEFT_OP_MAX:
        return ref_extreme(type, -1, a, b);
    case WEFT_OP_MINLOC:
        return ref_extreme_pair(type, 1, a, b);
    case WEFT_OP_MAXLOC:
        return ref_extreme_pair(type, -1, a, b);
    case WEFT_OP_BAND:
        a.whole &= b.whole;
        return a;
    case WEFT_OP_BOR:
        a.whole |= b.whole;
        return a;
    case WEFT_OP_BXOR:
        a.whole ^= b.whole;
        return a;
    case WEFT_OP_LAND:
        return ref_of_truth(ref_is_true(type, a) && ref_is_true(type, b));
    case WEFT_OP_LOR:
        return ref_of_truth(ref_is_true(type, a) || ref_is_true(type, b));
    case WEFT_OP_LXOR:
        return ref_of_truth(ref_is_true(type, a) != ref_is_true(type, b));
    }
    return a;
}

/* What each source goes through before it is combined with others. */
static inline ref_number ref_first(weft_dtype type, weft_op op, ref_number x)
{
    if (op.kind == WEFT_OP_LAND || op.kind == WEFT_OP_LOR ||
        op.kind == WEFT_OP_LXOR) {
        return ref_of_truth(ref_is_true(type, x));
    }
    if (op.kind == WEFT_OP_PREMUL_SUM) {
        double factor = ref_rounded(type, op.factor);
        x.re = ref_rounded(type, factor * x.re);
        x.im = ref_rounded(type, factor * x.im);
    }
    return x;
}

/* Element `i` of the result goes to `out`. */
static inline void ref_reduce(weft_dtype type, weft_op op, uint32_t ranks,
                              const void *const src[], size_t nsrc, size_t i,
                              void *out)
{
    size_t at = i * weft_dtype_size(type);
    ref_number acc = {0, 0, 0, 0};

    for (size_t s = 0; s < nsrc; s++) {
        ref_number x = ref_get(type, (const char *)src[s] + at);
        x = ref_first(type, op, x);
        acc = s == 0 ? x : ref_combine(type, op.kind, acc, x);
    }
    if (op.kind == WEFT_OP_AVG) {
        /* The sum wraps around before it is divided. */
        ref_put(type, acc, out);
        acc.whole = ref_get(type, out).whole / (int64_t)ranks;
        acc.re = ref_rounded(type, acc.re / ranks);
        acc.im = ref_rounded(type, acc.im / ranks);
    }
    ref_put(type, acc, out);
}

#endif
