/* SPDX-License-Identifier: Apache-2.0 */
/* One bf16 or f16 to the bits of an f32 and back, without a branch. The vectors
 * of coll/kernel/half_lanes.h do the same, but keep no order of elements. */
#ifndef WF_REGION_ROWS_KERNEL_HALF_H
#define WF_REGION_ROWS_KERNEL_HALF_H

#include <string.h>

#include "region/rows/kernel/rows.h"

WF_INLINE float half_float(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

WF_INLINE uint32_t half_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* The exponent's bias differs by 112; for infinity and NaN by as much again. A
 * subnormal is made normal by giving it a leading one, 2^-14, that is then
 * subtracted. */
WF_INLINE uint32_t half_f32_from_f16(uint16_t h)
{
    uint32_t magnitude = (h & 0x7fffu) << 13;
    uint32_t sign = (h & 0x8000u) << 16;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23);
    uint32_t small = half_bits(half_float(magnitude + (113u << 23)) - 0x1p-14f);
    uint32_t value = magnitude < (1u << 23) ? small : normal;

    value = magnitude >= (31u << 23) ? special : value;
    return value | sign;
}

/* What is below the smallest normal f16, 2^-14, is rounded by adding 0.5, whose
 * last bit weighs 2^-24 as does that of a subnormal f16. */
WF_INLINE uint16_t half_f16_from_f32(uint32_t bits)
{
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal =
        (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t small = half_bits(half_float(magnitude) + 0.5f) - (126u << 23);
    uint32_t h = magnitude < (113u << 23) ? small : normal;

    h = magnitude >= (143u << 23) ? 0x7c00u : h;
    h |= sign;
    return (uint16_t)(magnitude > (255u << 23) ? 0x7e00u : h);
}

/* The high half of an f32 is a bf16, and the low half says whether to round up.
 * The carry runs into the exponent as it should, up to infinity. */
WF_INLINE uint16_t half_bf16_from_f32(uint32_t bits)
{
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);

    return (uint16_t)((bits & 0x7fffffffu) > (255u << 23) ? 0x7fc0u
                                                          : rounded >> 16);
}

#endif
