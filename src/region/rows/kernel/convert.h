/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between types of a class. Floating types pass through f32, as
 * they do in torch, integers through i64; what is too large for the narrower
 * one becomes infinite or wraps around. Narrowing rounds to nearest even, and
 * gives one NaN for all. Plain loops, which compilers turn into vectors. */
#ifndef WF_REGION_ROWS_KERNEL_CONVERT_H
#define WF_REGION_ROWS_KERNEL_CONVERT_H

#include "region/rows/kernel/half.h"
#include "region/rows/kernel/rows.h"

/* Rows lie at any address, so elements are read and written as bytes. */
#define CONVERSION(name, to_type, from_type, expression)                       \
    static void name(void *to, const void *from, size_t n)                     \
    {                                                                          \
        for (size_t i = 0; i < n; i++) {                                       \
            from_type x;                                                       \
            to_type y;                                                         \
                                                                               \
            memcpy(&x, (const char *)from + i * sizeof(x), sizeof(x));         \
            y = (expression);                                                  \
            memcpy((char *)to + i * sizeof(y), &y, sizeof(y));                 \
        }                                                                      \
    }

CONVERSION(widen_F16, uint32_t, uint16_t, half_f32_from_f16(x))
CONVERSION(widen_BF16, uint32_t, uint16_t, (uint32_t)x << 16)
CONVERSION(widen_F32, uint32_t, uint32_t, x)
CONVERSION(widen_F64, float, double, (float)x)
CONVERSION(narrow_F16, uint16_t, uint32_t, half_f16_from_f32(x))
CONVERSION(narrow_BF16, uint16_t, uint32_t, half_bf16_from_f32(x))
CONVERSION(narrow_F64, double, float, (double)x)
#define narrow_F32 widen_F32

CONVERSION(widen_BOOL, int64_t, uint8_t, x != 0)
CONVERSION(widen_U8, int64_t, uint8_t, x)
/* NOLINTNEXTLINE(bugprone-signed-char-misuse): it is a number. */
CONVERSION(widen_I8, int64_t, int8_t, x)
CONVERSION(widen_I16, int64_t, int16_t, x)
CONVERSION(widen_I32, int64_t, int32_t, x)
CONVERSION(widen_I64, int64_t, int64_t, x)
CONVERSION(narrow_BOOL, uint8_t, int64_t, x != 0)
CONVERSION(narrow_U8, uint8_t, uint64_t, (uint8_t)x)
CONVERSION(narrow_I16, uint16_t, uint64_t, (uint16_t)x)
CONVERSION(narrow_I32, uint32_t, uint64_t, (uint32_t)x)
#define narrow_I8 narrow_U8
#define narrow_I64 widen_I64

#endif
