/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on lanes of one floating type. Included once for each, with
 *   LANE      the type in names: f32
 *   LANE_C    the type in C: float
 *   LANE_BITS the unsigned type of that width in names: u32
 *   LANE_NAN  the bits of the one NaN that results have */
#define JOIN_TEXT(a, b) a##b
#define JOIN(a, b) JOIN_TEXT(a, b)
#define VEC JOIN(vec_, LANE)
#define BITS JOIN(vec_, LANE_BITS)

/* Of two zeros, MIN and MAX keep the one that came first. */
WF_INLINE raw JOIN(LANE, _combine)(weft_op_kind op, raw acc, raw x)
{
    VEC a = (VEC)acc;
    VEC b = (VEC)x;

    switch (op) {
    case WEFT_OP_PROD:
        return (raw)(a * b);
    case WEFT_OP_MIN:
        return choose((raw)((b < a) | (b != b)), x, acc);
    case WEFT_OP_MAX:
        return choose((raw)((b > a) | (b != b)), x, acc);
    default:
        return (raw)(a + b);
    }
}

WF_INLINE raw JOIN(LANE, _scale)(raw x, double factor)
{
    return (raw)((VEC)x * (LANE_C)factor);
}

WF_INLINE raw JOIN(LANE, _divide)(raw sum, uint32_t ranks)
{
    return (raw)((VEC)sum / (LANE_C)ranks);
}

/* Which NaN an operation gives differs between CPUs and with the order of the
 * operands, which is the compiler's choice; so all become the same. */
WF_INLINE raw JOIN(LANE, _one_nan)(raw x)
{
    const BITS nan = (BITS){0} + LANE_NAN;

    return choose((raw)((VEC)x != (VEC)x), (raw)nan, x);
}

/* Multiply complex numbers that lie in pairs of lanes: (ab - cd) and (ad + cb)
 * are one sum of two products of vectors, the second with its sign changed in
 * the real lanes. (As sums and differences of single lanes, some compilers fuse
 * them although they are told not to.) */
WF_INLINE raw JOIN(LANE, _multiply_complex)(raw acc, raw x)
{
    VEC a = (VEC)acc;
    VEC b = (VEC)x;
    VEC real = a;
    VEC imaginary = a;
    VEC swapped = b;
    VEC minus = {0};

    for (size_t i = 0; i < WF_VEC_BYTES / sizeof(LANE_C); i += 2) {
        real[i + 1] = a[i];
        imaginary[i] = a[i + 1];
        swapped[i] = b[i + 1];
        swapped[i + 1] = b[i];
        minus[i] = -(LANE_C)0;
    }
    return (raw)(real * b + (VEC)((raw)(imaginary * swapped) ^ (raw)minus));
}

#undef BITS
#undef VEC
#undef JOIN
#undef JOIN_TEXT
#undef LANE
#undef LANE_C
#undef LANE_BITS
#undef LANE_NAN
