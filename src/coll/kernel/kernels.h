/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of one CPU level, in one table. Included by the file of each
 * level, which is compiled for that level, after
 *   WF_VEC_BYTES  the width of its registers
 *   WF_KERNELS    the name of its table */
#include "coll/kernel/fold.h"
#include "coll/kernel/table.h"

#define KERNEL(name, type, op)                                                 \
    static void name(const wf_reducer *r, void *const dst[], size_t ndst,      \
                     const void *const src[], size_t nsrc, size_t n)           \
    {                                                                          \
        fold(type, op, r, dst, ndst, src, nsrc, n);                            \
    }

#define LOGIC_KERNELS(name, type)                                              \
    KERNEL(name##_land, type, WEFT_OP_LAND)                                    \
    KERNEL(name##_lor, type, WEFT_OP_LOR)                                      \
    KERNEL(name##_lxor, type, WEFT_OP_LXOR)

#define MIN_MAX_KERNELS(name, type)                                            \
    KERNEL(name##_min, type, WEFT_OP_MIN)                                      \
    KERNEL(name##_max, type, WEFT_OP_MAX)

#define SUM_PROD_KERNELS(name, type)                                           \
    KERNEL(name##_sum, type, WEFT_OP_SUM)                                      \
    KERNEL(name##_prod, type, WEFT_OP_PROD)

#define INT_KERNELS(name, type)                                                \
    SUM_PROD_KERNELS(name, type)                                               \
    MIN_MAX_KERNELS(name, type)                                                \
    LOGIC_KERNELS(name, type)                                                  \
    KERNEL(name##_avg, type, WEFT_OP_AVG)

#define FLOAT_KERNELS(name, type)                                              \
    INT_KERNELS(name, type)                                                    \
    KERNEL(name##_premul_sum, type, WEFT_OP_PREMUL_SUM)

INT_KERNELS(u8, WEFT_U8)
INT_KERNELS(i16, WEFT_I16)
INT_KERNELS(i32, WEFT_I32)
INT_KERNELS(i64, WEFT_I64)
FLOAT_KERNELS(f16, WEFT_F16)
FLOAT_KERNELS(bf16, WEFT_BF16)
FLOAT_KERNELS(f32, WEFT_F32)
FLOAT_KERNELS(f64, WEFT_F64)

/* Where the sign matters; all else of i8 is as in u8. */
MIN_MAX_KERNELS(i8, WEFT_I8)
KERNEL(i8_avg, WEFT_I8, WEFT_OP_AVG)

KERNEL(c64_prod, WEFT_C64, WEFT_OP_PROD)
KERNEL(c128_prod, WEFT_C128, WEFT_OP_PROD)

#define PAIR_KERNELS(name, type)                                               \
    KERNEL(name##_minloc, type, WEFT_OP_MINLOC)                                \
    KERNEL(name##_maxloc, type, WEFT_OP_MAXLOC)

PAIR_KERNELS(pair_f32, WEFT_PAIR_F32)
PAIR_KERNELS(pair_f64, WEFT_PAIR_F64)
PAIR_KERNELS(pair_i32, WEFT_PAIR_I32)
PAIR_KERNELS(pair_i64, WEFT_PAIR_I64)

/* Bits are bits, however wide the element. */
KERNEL(bits_and, WEFT_U8, WEFT_OP_BAND)
KERNEL(bits_or, WEFT_U8, WEFT_OP_BOR)
KERNEL(bits_xor, WEFT_U8, WEFT_OP_BXOR)

#define LOGIC_ROW(name)                                                        \
    [WEFT_OP_LAND] = name##_land, [WEFT_OP_LOR] = name##_lor,                  \
    [WEFT_OP_LXOR] = name##_lxor

#define BITS_ROW                                                               \
    [WEFT_OP_BAND] = bits_and, [WEFT_OP_BOR] = bits_or,                        \
    [WEFT_OP_BXOR] = bits_xor

#define NUMBER_ROW(name)                                                       \
    [WEFT_OP_SUM] = name##_sum, [WEFT_OP_PROD] = name##_prod,                  \
    [WEFT_OP_MIN] = name##_min, [WEFT_OP_MAX] = name##_max,                    \
    [WEFT_OP_AVG] = name##_avg, LOGIC_ROW(name)

#define INT_ROW(name)                                                          \
    {                                                                          \
        NUMBER_ROW(name), BITS_ROW                                             \
    }

#define FLOAT_ROW(name)                                                        \
    {                                                                          \
        NUMBER_ROW(name), [WEFT_OP_PREMUL_SUM] = name##_premul_sum             \
    }

#define COMPLEX_ROW(name, real)                                                \
    {                                                                          \
        [WEFT_OP_SUM] = real##_sum, [WEFT_OP_PROD] = name##_prod,              \
        [WEFT_OP_AVG] = real##_avg, [WEFT_OP_PREMUL_SUM] = real##_premul_sum,  \
    }

#define PAIR_ROW(name)                                                         \
    {                                                                          \
        [WEFT_OP_MINLOC] = name##_minloc, [WEFT_OP_MAXLOC] = name##_maxloc     \
    }

const wf_kernels WF_KERNELS = {
    .fold =
        {
            [WEFT_BOOL] =
                {
                    [WEFT_OP_SUM] = u8_lor,
                    [WEFT_OP_PROD] = u8_land,
                    [WEFT_OP_MIN] = u8_land,
                    [WEFT_OP_MAX] = u8_lor,
                    [WEFT_OP_BAND] = u8_land,
                    [WEFT_OP_BOR] = u8_lor,
                    [WEFT_OP_BXOR] = u8_lxor,
                    LOGIC_ROW(u8),
                },
            [WEFT_U8] = INT_ROW(u8),
            [WEFT_I8] =
                {
                    [WEFT_OP_SUM] = u8_sum,
                    [WEFT_OP_PROD] = u8_prod,
                    [WEFT_OP_MIN] = i8_min,
                    [WEFT_OP_MAX] = i8_max,
                    [WEFT_OP_AVG] = i8_avg,
                    LOGIC_ROW(u8),
                    BITS_ROW,
                },
            [WEFT_I16] = INT_ROW(i16),
            [WEFT_I32] = INT_ROW(i32),
            [WEFT_I64] = INT_ROW(i64),
            [WEFT_F16] = FLOAT_ROW(f16),
            [WEFT_BF16] = FLOAT_ROW(bf16),
            [WEFT_F32] = FLOAT_ROW(f32),
            [WEFT_F64] = FLOAT_ROW(f64),
            [WEFT_C64] = COMPLEX_ROW(c64, f32),
            [WEFT_C128] = COMPLEX_ROW(c128, f64),
            [WEFT_PAIR_F32] = PAIR_ROW(pair_f32),
            [WEFT_PAIR_F64] = PAIR_ROW(pair_f64),
            [WEFT_PAIR_I32] = PAIR_ROW(pair_i32),
            [WEFT_PAIR_I64] = PAIR_ROW(pair_i64),
        },
};
