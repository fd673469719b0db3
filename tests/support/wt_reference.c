/* SPDX-License-Identifier: Apache-2.0 */
/* The reference reduction: one element at a time, in the order of the ranks,
 * as include/weft/types.h defines the operations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_data.h"

/* How one element accumulates: 16-bit floats in f32, the rest as itself. */
typedef union acc {
    uint64_t u; /* bool and integers, sign-extended; wraps when stored */
    float f;
    double d;
    float cf[2]; /* complex: real and imaginary part */
    double cd[2];
} acc;

static bool is_single(weft_dtype type)
{
    return wf_dtype_trains(type);
}

static uint64_t load_integer(const char *p, weft_dtype type)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    uint64_t u64;

    switch (type) {
    case WEFT_BOOL:
    case WEFT_U8:
        return *(const unsigned char *)p;
    case WEFT_I8:
        memcpy(&i8, p, sizeof(i8));
        return (uint64_t)i8;
    case WEFT_I16:
        memcpy(&i16, p, sizeof(i16));
        return (uint64_t)i16;
    case WEFT_I32:
        memcpy(&i32, p, sizeof(i32));
        return (uint64_t)i32;
    default:
        memcpy(&u64, p, sizeof(u64));
        return u64;
    }
}

static acc load(const char *p, weft_dtype type)
{
    acc a = {0};
    double re = 0;
    double im = 0;

    if (!wt_is_floating(type)) {
        a.u = load_integer(p, type);
        return a;
    }
    wt_get(p, 0, type, &re, &im);
    if (is_single(type)) {
        a.f = (float)re;
    } else if (type == WEFT_F64) {
        a.d = re;
    } else if (type == WEFT_C64) {
        a.cf[0] = (float)re;
        a.cf[1] = (float)im;
    } else {
        a.cd[0] = re;
        a.cd[1] = im;
    }
    return a;
}

static void store(char *p, weft_dtype type, acc a)
{
    if (!wt_is_floating(type)) {
        memcpy(p, &a.u, weft_dtype_size(type));
    } else if (is_single(type)) {
        wt_put(p, 0, type, (double)a.f, 0);
    } else if (type == WEFT_F64) {
        wt_put(p, 0, type, a.d, 0);
    } else if (type == WEFT_C64) {
        wt_put(p, 0, type, (double)a.cf[0], (double)a.cf[1]);
    } else {
        wt_put(p, 0, type, a.cd[0], a.cd[1]);
    }
}

/* --- one step ------------------------------------------------------------ */

static uint64_t step_integer(weft_op_kind kind, weft_dtype type, uint64_t a,
                             uint64_t b)
{
    bool is_bool = type == WEFT_BOOL;

    switch (kind) {
    case WEFT_OP_SUM:
    case WEFT_OP_AVG:
        return is_bool ? (a | b) : a + b;
    case WEFT_OP_PROD:
        return is_bool ? (a & b) : a * b;
    case WEFT_OP_MIN:
        return (int64_t)a < (int64_t)b ? a : b;
    case WEFT_OP_MAX:
        return (int64_t)a > (int64_t)b ? a : b;
    case WEFT_OP_BAND:
        return a & b;
    case WEFT_OP_BOR:
        return a | b;
    case WEFT_OP_BXOR:
        return a ^ b;
    case WEFT_OP_LAND:
        return a != 0 && b != 0;
    case WEFT_OP_LOR:
        return a != 0 || b != 0;
    default:
        return (a != 0) != (b != 0);
    }
}

/* MIN, MAX and the logical ones; all but those that compute. */
static double step_choose(weft_op_kind kind, double a, double b)
{
    switch (kind) {
    case WEFT_OP_MIN:
        return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    case WEFT_OP_MAX:
        return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    case WEFT_OP_LAND:
        return a != 0 && b != 0;
    case WEFT_OP_LOR:
        return a != 0 || b != 0;
    default:
        return (a != 0) != (b != 0);
    }
}

static acc times_complex(weft_dtype type, acc a, acc b)
{
    acc c = {0};

    if (type == WEFT_C64) {
        c.cf[0] = a.cf[0] * b.cf[0] - a.cf[1] * b.cf[1];
        c.cf[1] = a.cf[0] * b.cf[1] + a.cf[1] * b.cf[0];
    } else {
        c.cd[0] = a.cd[0] * b.cd[0] - a.cd[1] * b.cd[1];
        c.cd[1] = a.cd[0] * b.cd[1] + a.cd[1] * b.cd[0];
    }
    return c;
}

static acc plus_complex(weft_dtype type, acc a, acc b)
{
    for (unsigned i = 0; i < 2; i++) {
        if (type == WEFT_C64) {
            a.cf[i] += b.cf[i];
        } else {
            a.cd[i] += b.cd[i];
        }
    }
    return a;
}

static acc step(weft_op_kind kind, weft_dtype type, acc a, acc b)
{
    bool sums = kind == WEFT_OP_SUM || kind == WEFT_OP_AVG ||
                kind == WEFT_OP_PREMUL_SUM;
    bool computes = sums || kind == WEFT_OP_PROD;

    if (!wt_is_floating(type)) {
        a.u = step_integer(kind, type, a.u, b.u);
    } else if (wt_is_complex(type)) {
        a = sums ? plus_complex(type, a, b) : times_complex(type, a, b);
    } else if (is_single(type)) {
        a.f = sums       ? a.f + b.f
              : computes ? a.f * b.f
                         : (float)step_choose(kind, (double)a.f, (double)b.f);
    } else {
        a.d = sums       ? a.d + b.d
              : computes ? a.d * b.d
                         : step_choose(kind, a.d, b.d);
    }
    return a;
}

/* --- before the first and after the last step ---------------------------- */

static acc scale(weft_dtype type, acc a, double factor)
{
    if (is_single(type)) {
        a.f *= (float)factor;
    } else if (type == WEFT_F64) {
        a.d *= factor;
    } else if (type == WEFT_C64) {
        a.cf[0] *= (float)factor;
        a.cf[1] *= (float)factor;
    } else {
        a.cd[0] *= factor;
        a.cd[1] *= factor;
    }
    return a;
}

/* The sum has wrapped around in its own type before it is divided. */
static uint64_t average_integer(weft_dtype type, uint64_t sum, unsigned ranks)
{
    char wrapped[8];

    memcpy(wrapped, &sum, sizeof(wrapped));
    return (uint64_t)((int64_t)load_integer(wrapped, type) / (int64_t)ranks);
}

static acc average(weft_dtype type, acc a, unsigned ranks)
{
    if (!wt_is_floating(type)) {
        a.u = average_integer(type, a.u, ranks);
    } else if (is_single(type)) {
        a.f /= (float)ranks;
    } else if (type == WEFT_F64) {
        a.d /= ranks;
    } else if (type == WEFT_C64) {
        a.cf[0] /= (float)ranks;
        a.cf[1] /= (float)ranks;
    } else {
        a.cd[0] /= ranks;
        a.cd[1] /= ranks;
    }
    return a;
}

static bool is_logical(weft_op_kind kind)
{
    return kind == WEFT_OP_LAND || kind == WEFT_OP_LOR || kind == WEFT_OP_LXOR;
}

/* A single rank's "logical" result is 0 or 1 as well. */
static acc truth(weft_dtype type, acc a)
{
    if (!wt_is_floating(type)) {
        a.u = a.u != 0;
    } else if (is_single(type)) {
        a.f = a.f != 0;
    } else {
        a.d = a.d != 0;
    }
    return a;
}

static acc first(weft_dtype type, weft_op op, const char *p)
{
    acc a = load(p, type);

    if (op.kind == WEFT_OP_PREMUL_SUM) {
        return scale(type, a, op.factor);
    }
    return is_logical(op.kind) ? truth(type, a) : a;
}

/* --- pairs --------------------------------------------------------------- */

/* -1, 0 or 1; a NaN counts as less than all numbers if the least value is
 * looked for, and as greater if the greatest one is. */
static int compare_values(weft_dtype type, weft_op_kind kind, const char *a,
                          const char *b)
{
    int64_t x = (int64_t)load_integer(a, type);
    int64_t y = (int64_t)load_integer(b, type);
    double f = 0;
    double g = 0;
    double none;

    if (!wt_is_floating(type)) {
        return (x > y) - (x < y);
    }
    wt_get(a, 0, type, &f, &none);
    wt_get(b, 0, type, &g, &none);
    if (isnan(f) || isnan(g)) {
        int order = (isnan(f) != 0) - (isnan(g) != 0);

        return kind == WEFT_OP_MINLOC ? -order : order;
    }
    return (f > g) - (f < g);
}

static bool pair_beats(weft_dtype type, weft_op_kind kind, const char *a,
                       const char *b)
{
    size_t half = weft_dtype_size(type) / 2;
    int order = compare_values(wt_pair_value(type), kind, a, b);

    if (order == 0) {
        return compare_values(wt_pair_index(type), kind, a + half, b + half) <
               0;
    }
    return kind == WEFT_OP_MINLOC ? order < 0 : order > 0;
}

static void reduce_pairs(char *dst, const char *const *src, size_t n,
                         weft_dtype type, weft_op_kind kind, unsigned ranks)
{
    size_t size = weft_dtype_size(type);

    for (size_t i = 0; i < n; i++) {
        const char *best = src[0] + i * size;

        for (unsigned r = 1; r < ranks; r++) {
            if (pair_beats(type, kind, src[r] + i * size, best)) {
                best = src[r] + i * size;
            }
        }
        memcpy(dst + i * size, best, size);
    }
}

static void reduce(char *dst, const char *const *src, size_t n, weft_dtype type,
                   weft_op op, unsigned ranks)
{
    size_t size = weft_dtype_size(type);

    for (size_t i = 0; i < n; i++) {
        acc a = first(type, op, src[0] + i * size);

        for (unsigned r = 1; r < ranks; r++) {
            acc b = first(type, op, src[r] + i * size);

            a = step(op.kind, type, a, b);
        }
        if (op.kind == WEFT_OP_AVG) {
            a = average(type, a, ranks);
        }
        store(dst + i * size, type, a);
    }
}

void wt_reference(void *dst, size_t n, weft_dtype type, weft_op op,
                  uint64_t seed, unsigned ranks)
{
    size_t bytes = n * weft_dtype_size(type);
    char *all = malloc(bytes * ranks + 1);
    const char *src[WT_MAX_RANKS];

    if (all == NULL || ranks == 0) {
        WT_FAIL("no memory for the reference, or no ranks");
    }
    for (unsigned r = 0; r < ranks; r++) {
        src[r] = all + r * bytes;
        wt_fill(all + r * bytes, n, type, op.kind, seed, r);
    }
    if (wt_is_pair(type)) {
        reduce_pairs(dst, src, n, type, op.kind, ranks);
    } else {
        reduce(dst, src, n, type, op, ranks);
    }
    free(all);
}
