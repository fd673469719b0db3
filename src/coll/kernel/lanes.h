/* SPDX-License-Identifier: Apache-2.0 */
/* What each type and operation does to a vector: `begin` makes an accumulator
 * of the first source, `add_source` folds the next one in, `finish` gives the
 * bytes to store. `type` and `op` are constants wherever these are used.
 *
 * Types that need no arithmetic of their own are not here: kernels.h lets
 * complex sums run as sums of twice as many reals, signed sums as unsigned
 * ones, and bool as logic on bytes. */
#ifndef WF_COLL_KERNEL_LANES_H
#define WF_COLL_KERNEL_LANES_H

#include "base/types.h"
#include "coll/kernel/half_lanes.h"
#include "coll/kernel/reducer.h"
#include "coll/kernel/vector.h"

#define LANE u8
#define LANE_WRAP u8
#define LANE_C uint8_t
#include "coll/kernel/int_lanes.h"

#define LANE i8
#define LANE_WRAP u8
#define LANE_C int8_t
#include "coll/kernel/int_lanes.h"

#define LANE i16
#define LANE_WRAP u16
#define LANE_C int16_t
#include "coll/kernel/int_lanes.h"

#define LANE i32
#define LANE_WRAP u32
#define LANE_C int32_t
#include "coll/kernel/int_lanes.h"

#define LANE i64
#define LANE_WRAP u64
#define LANE_C int64_t
#include "coll/kernel/int_lanes.h"

#define LANE f32
#define LANE_C float
#define LANE_BITS u32
#define LANE_NAN 0x7fc00000u
#include "coll/kernel/float_lanes.h"

#define LANE f64
#define LANE_C double
#define LANE_BITS u64
#define LANE_NAN 0x7ff8000000000000u
#include "coll/kernel/float_lanes.h"

#define LANE f32
#define LANE_C float
#define LANE_INDEX i32
#define LANE_BITS u32
#define LANE_NAN 0x7fc00000u
#include "coll/kernel/pair_lanes.h"

#define LANE f64
#define LANE_C double
#define LANE_INDEX i64
#define LANE_BITS u64
#define LANE_NAN 0x7ff8000000000000u
#include "coll/kernel/pair_lanes.h"

#define LANE i32
#define LANE_C int32_t
#define LANE_INDEX i32
#include "coll/kernel/pair_lanes.h"

#define LANE i64
#define LANE_C int64_t
#define LANE_INDEX i64
#include "coll/kernel/pair_lanes.h"

/* Only floats of 16 bits use the second vector, since they are accumulated in
 * f32; for all others it vanishes. */
typedef two_raw accumulator;
#define FITS(name, number, bytes, text, kind, ...)                             \
    _Static_assert(WF_##kind != WF_FLOAT || 2 * (bytes) >= sizeof(float),      \
                   "an accumulator of " text " needs more vectors of f32");
WEFT_DTYPE_TABLE(FITS)
#undef FITS

WF_INLINE int is_logic(weft_op_kind op)
{
    return op == WEFT_OP_LAND || op == WEFT_OP_LOR || op == WEFT_OP_LXOR;
}

/* All bits of the lanes that are not zero; -0 is zero and NaN is not. */
WF_INLINE raw truth(weft_dtype type, raw x)
{
    const int sign = wf_dtype_is(type, WF_FLOAT) ? 1 : 0;

    switch (wf_dtype_bytes(type)) {
    case 8:
        return (raw)((vec_u64)x << sign != 0);
    case 4:
        return (raw)((vec_u32)x << sign != 0);
    case 2:
        return (raw)((vec_u16)x << sign != 0);
    default:
        return (raw)((vec_u8)x << sign != 0);
    }
}

/* Types that an operation is not defined on are named all the same: for a new
 * one, compilers ask. */
#define NOT_DEFINED                                                            \
    case WEFT_C64:                                                             \
    case WEFT_C128:                                                            \
    case WEFT_PAIR_F32:                                                        \
    case WEFT_PAIR_F64:                                                        \
    case WEFT_PAIR_I32:                                                        \
    case WEFT_PAIR_I64:                                                        \
        break

/* The number 1 in each lane. */
WF_INLINE raw ones(weft_dtype type)
{
    switch (type) {
    case WEFT_F16:
        return (raw)((vec_u16){0} + 0x3c00u);
    case WEFT_BF16:
        return (raw)((vec_u16){0} + 0x3f80u);
    case WEFT_F32:
        return (raw)((vec_u32){0} + 0x3f800000u);
    case WEFT_F64:
        return (raw)((vec_u64){0} + 0x3ff0000000000000u);
    case WEFT_I16:
        return (raw)((vec_u16){0} + 1u);
    case WEFT_I32:
        return (raw)((vec_u32){0} + 1u);
    case WEFT_I64:
        return (raw)((vec_u64){0} + 1u);
    case WEFT_BOOL:
    case WEFT_U8:
    case WEFT_I8:
        return (raw)((vec_u8){0} + 1u);
        NOT_DEFINED;
    }
    return (raw){0};
}

WF_INLINE raw combine_numbers(weft_dtype type, weft_op_kind op, raw acc, raw x)
{
    switch (type) {
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
        return f32_combine(op, acc, x);
    case WEFT_F64:
        return f64_combine(op, acc, x);
    case WEFT_C64:
        return f32_multiply_complex(acc, x);
    case WEFT_C128:
        return f64_multiply_complex(acc, x);
    case WEFT_I8:
        return i8_combine(op, acc, x);
    case WEFT_I16:
        return i16_combine(op, acc, x);
    case WEFT_I32:
        return i32_combine(op, acc, x);
    case WEFT_I64:
        return i64_combine(op, acc, x);
    case WEFT_PAIR_F32:
        return pair_f32_combine(op, acc, x);
    case WEFT_PAIR_F64:
        return pair_f64_combine(op, acc, x);
    case WEFT_PAIR_I32:
        return pair_i32_combine(op, acc, x);
    case WEFT_PAIR_I64:
        return pair_i64_combine(op, acc, x);
    case WEFT_BOOL:
    case WEFT_U8:
        return u8_combine(op, acc, x);
    }
    return acc;
}

WF_INLINE raw combine(weft_dtype type, weft_op_kind op, raw acc, raw x)
{
    switch (op) {
    case WEFT_OP_BAND:
    case WEFT_OP_LAND:
        return acc & x;
    case WEFT_OP_BOR:
    case WEFT_OP_LOR:
        return acc | x;
    case WEFT_OP_BXOR:
    case WEFT_OP_LXOR:
        return acc ^ x;
    default:
        return combine_numbers(type, op, acc, x);
    }
}

WF_INLINE raw divide(weft_dtype type, raw sum, uint32_t ranks)
{
    switch (type) {
    case WEFT_F64:
        return f64_divide(sum, ranks);
    case WEFT_I8:
        return i8_divide(sum, ranks);
    case WEFT_I16:
        return i16_divide(sum, ranks);
    case WEFT_I32:
        return i32_divide(sum, ranks);
    case WEFT_I64:
        return i64_divide(sum, ranks);
    case WEFT_U8:
        return u8_divide(sum, ranks);
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
        return f32_divide(sum, ranks);
    case WEFT_BOOL:
        NOT_DEFINED;
    }
    return sum;
}

WF_INLINE accumulator begin(weft_dtype type, weft_op_kind op,
                            const wf_reducer *r, raw x)
{
    accumulator acc = {x, x};

    if (is_logic(op)) {
        acc.a = truth(type, x);
        return acc;
    }
    if (type == WEFT_F16) {
        acc = f16_widen(x);
    } else if (type == WEFT_BF16) {
        acc = bf16_widen(x);
    }
    if (op == WEFT_OP_PREMUL_SUM) {
        acc.a = type == WEFT_F64 ? f64_scale(acc.a, r->factor)
                                 : f32_scale(acc.a, r->factor);
        acc.b = f32_scale(acc.b, r->factor);
    }
    return acc;
}

WF_INLINE accumulator add_source(weft_dtype type, weft_op_kind op,
                                 const wf_reducer *r, accumulator acc, raw x)
{
    accumulator next = begin(type, op, r, x);

    acc.a = combine(type, op, acc.a, next.a);
    acc.b = combine(type, op, acc.b, next.b);
    return acc;
}

WF_INLINE raw finish(weft_dtype type, weft_op_kind op, const wf_reducer *r,
                     accumulator acc)
{
    if (is_logic(op)) {
        return acc.a & ones(type);
    }
    if (op == WEFT_OP_AVG) {
        acc.a = divide(type, acc.a, r->ranks);
        acc.b = divide(type, acc.b, r->ranks);
    }
    switch (type) {
    case WEFT_F16:
        return f16_narrow(acc);
    case WEFT_BF16:
        return bf16_narrow(acc);
    case WEFT_F32:
    case WEFT_C64:
        return f32_one_nan(acc.a);
    case WEFT_F64:
    case WEFT_C128:
        return f64_one_nan(acc.a);
    case WEFT_PAIR_F32:
        return pair_f32_one_nan(acc.a);
    case WEFT_PAIR_F64:
        return pair_f64_one_nan(acc.a);
    case WEFT_BOOL:
    case WEFT_U8:
    case WEFT_I8:
    case WEFT_I16:
    case WEFT_I32:
    case WEFT_I64:
    case WEFT_PAIR_I32:
    case WEFT_PAIR_I64:
        break;
    }
    return acc.a;
}

#endif
