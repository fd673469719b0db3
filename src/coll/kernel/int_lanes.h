/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on lanes of one integer type. Included once for each, with
 *   LANE      the type in names: i32
 *   LANE_WRAP the unsigned type of that width: u32
 *   LANE_C    the type in C: int32_t */
#define JOIN_TEXT(a, b) a##b
#define JOIN(a, b) JOIN_TEXT(a, b)
#define VEC JOIN(vec_, LANE)
#define WRAP JOIN(vec_, LANE_WRAP)

/* Sums and products wrap around, so they are computed unsigned. */
WF_INLINE raw JOIN(LANE, _combine)(weft_op_kind op, raw acc, raw x)
{
    switch (op) {
    case WEFT_OP_PROD:
        return (raw)((WRAP)acc * (WRAP)x);
    case WEFT_OP_MIN:
        return choose((raw)((VEC)x < (VEC)acc), x, acc);
    case WEFT_OP_MAX:
        return choose((raw)((VEC)x > (VEC)acc), x, acc);
    default:
        return (raw)((WRAP)acc + (WRAP)x);
    }
}

/* No CPU divides vectors of integers. The type of 64 bits holds any number of
 * ranks, and a quotient by it is never too big for the lane. */
WF_INLINE raw JOIN(LANE, _divide)(raw sum, uint32_t ranks)
{
    VEC lanes = (VEC)sum;

#pragma GCC unroll 1
    for (size_t i = 0; i < WF_VEC_BYTES / sizeof(LANE_C); i++) {
        lanes[i] = (LANE_C)((int64_t)lanes[i] / (int64_t)ranks);
    }
    return (raw)lanes;
}

#undef WRAP
#undef VEC
#undef JOIN
#undef JOIN_TEXT
#undef LANE
#undef LANE_WRAP
#undef LANE_C
