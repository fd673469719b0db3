/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and f16 to f32 and back, a vector of them to two vectors of f32. Which
 * element goes to which place does not matter as long as it returns to its own:
 * where there is no instruction for it, the two halves of each 32-bit word go
 * to the same lane of the two vectors, which needs no shuffling.
 *
 * Narrowing rounds to nearest even, and gives one NaN for all. */
#ifndef WF_COLL_KERNEL_HALF_LANES_H
#define WF_COLL_KERNEL_HALF_LANES_H

#include "coll/kernel/vector.h"

typedef struct two_raw {
    raw a;
    raw b;
} two_raw;

#define HIGH_HALF 0xffff0000u
#define LOW_HALF 0xffffu

WF_INLINE two_raw bf16_widen(raw x)
{
    two_raw f = {(raw)((vec_u32)x << 16), (raw)((vec_u32)x & HIGH_HALF)};

    return f;
}

/* `nan` in the lanes whose magnitude is above `infinity`. */
WF_INLINE raw half_one_nan(vec_u16 h, raw result, short infinity,
                           unsigned short nan)
{
    vec_i16 is_nan = (vec_i16)(h & 0x7fffu) > infinity;

    return choose((raw)is_nan, (raw)((vec_u16){0} + nan), result);
}

/* The high half of an f32 is a bf16, and the low half says whether to round up:
 * if it is above one half, or at it and the bf16 is odd. The carry runs into
 * the exponent as it should, up to infinity. A NaN is one by its high half
 * alone: those that an operation makes are quiet, and those that were a bf16
 * have nothing below. Rounding might carry it away, so it is looked for
 * before. */
WF_INLINE raw bf16_narrow(two_raw f)
{
    vec_u32 a = (vec_u32)f.a;
    vec_u32 b = (vec_u32)f.b;
    vec_u16 high = (vec_u16)((a >> 16) | (b & HIGH_HALF));
    vec_u16 low = (vec_u16)((a & LOW_HALF) | (b << 16));
    vec_i16 above = (vec_i16)(low ^ 0x8000u);
    vec_i16 odd = (vec_i16)(high & 1u);
    vec_i16 up = above > -odd;

    return half_one_nan(high, (raw)(high - (vec_u16)up), 0x7f80, 0x7fc0);
}

#if defined(__AVX512F__)

#define WF_F16_IS_FAST 1

WF_INLINE two_raw f16_widen(raw x)
{
    __m512i all = (__m512i)x;
    two_raw f = {
        (raw)_mm512_cvtph_ps(_mm512_castsi512_si256(all)),
        (raw)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1)),
    };

    return f;
}

WF_INLINE raw f16_round(two_raw f)
{
    __m256i a = _mm512_cvtps_ph((__m512)f.a, _MM_FROUND_TO_NEAREST_INT);
    __m256i b = _mm512_cvtps_ph((__m512)f.b, _MM_FROUND_TO_NEAREST_INT);

    return (raw)_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

#elif defined(__F16C__)

#define WF_F16_IS_FAST 1

WF_INLINE two_raw f16_widen(raw x)
{
    __m256i all = (__m256i)x;
    two_raw f = {
        (raw)_mm256_cvtph_ps(_mm256_castsi256_si128(all)),
        (raw)_mm256_cvtph_ps(_mm256_extracti128_si256(all, 1)),
    };

    return f;
}

WF_INLINE raw f16_round(two_raw f)
{
    __m128i a = _mm256_cvtps_ph((__m256)f.a, _MM_FROUND_TO_NEAREST_INT);
    __m128i b = _mm256_cvtps_ph((__m256)f.b, _MM_FROUND_TO_NEAREST_INT);

    return (raw)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

#else

#define WF_F16_IS_FAST 0

/* Of an f16 in the low half of each word. The exponent's bias differs by 112;
 * for infinity and NaN by as much again. A subnormal is made normal by giving
 * it a leading one, 2^-14, that is then subtracted. */
WF_INLINE raw f16_word_widen(vec_u32 h)
{
    vec_u32 magnitude = (h & 0x7fffu) << 13;
    vec_u32 sign = (h & 0x8000u) << 16;
    vec_u32 normal = magnitude + (112u << 23);
    vec_u32 special = magnitude + (224u << 23);
    vec_f32 small = (vec_f32)(magnitude + (113u << 23)) - 0x1p-14f;
    vec_i32 order = (vec_i32)magnitude;
    raw value = choose((raw)(order < (1 << 23)), (raw)small, (raw)normal);

    value = choose((raw)(order >= (31 << 23)), (raw)special, value);
    return value | (raw)sign;
}

/* To an f16 in the low half of each word. What is below the smallest normal
 * f16, 2^-14, is rounded by adding 0.5, whose last bit weighs 2^-24 as does
 * that of a subnormal f16. */
WF_INLINE vec_u32 f16_word_round(raw f)
{
    vec_u32 bits = (vec_u32)f;
    vec_u32 sign = (bits >> 16) & 0x8000u;
    vec_u32 magnitude = bits & 0x7fffffffu;
    vec_u32 normal =
        (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    vec_u32 small = (vec_u32)((vec_f32)magnitude + 0.5f) - (126u << 23);
    vec_u32 infinite = (vec_u32){0} + 0x7c00u;
    vec_u32 nan = (vec_u32){0} + 0x7e00u;
    vec_i32 order = (vec_i32)magnitude;
    raw h = choose((raw)(order < (113 << 23)), (raw)small, (raw)normal);

    h = choose((raw)(order >= (143 << 23)), (raw)infinite, h);
    h = choose((raw)(order > (255 << 23)), (raw)nan, h);
    return (vec_u32)h | sign;
}

WF_INLINE two_raw f16_widen(raw x)
{
    two_raw f = {f16_word_widen((vec_u32)x & 0xffffu),
                 f16_word_widen((vec_u32)x >> 16)};

    return f;
}

WF_INLINE raw f16_round(two_raw f)
{
    return (raw)(f16_word_round(f.a) | (f16_word_round(f.b) << 16));
}

#endif

WF_INLINE raw f16_narrow(two_raw f)
{
    raw h = f16_round(f);

    return half_one_nan((vec_u16)h, h, 0x7c00, 0x7e00);
}

#endif
