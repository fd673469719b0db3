/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing between pairs of a value and its index, which lie in neighbouring
 * lanes of one width. Included once for each type of value, with
 *   LANE       the type of values in names: f32
 *   LANE_C     the type of values in C: float
 *   LANE_INDEX the type of indices in names, signed and as wide: i32
 * and of floating values
 *   LANE_BITS  the unsigned type of that width in names: u32
 *   LANE_NAN   the bits of the one NaN that results have */
#define JOIN_TEXT(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_TEXT(a, b, c)
#define VEC JOIN(vec_, LANE, )
#define INDEX JOIN(vec_, LANE_INDEX, )
#define BITS JOIN(vec_, LANE_BITS, )
#define LANES (WF_VEC_BYTES / sizeof(LANE_C))

#ifdef LANE_NAN

WF_INLINE INDEX JOIN(pair_, LANE, _is_nan)(raw x)
{
    return (INDEX)((VEC)x != (VEC)x);
}

/* As of single floats, but the bits of an index stay as they are. */
WF_INLINE raw JOIN(pair_, LANE, _one_nan)(raw x)
{
    const BITS nan = (BITS){0} + LANE_NAN;
    INDEX is_nan = JOIN(pair_, LANE, _is_nan)(x);

    for (size_t i = 1; i < LANES; i += 2) {
        is_nan[i] = 0;
    }
    return choose((raw)is_nan, (raw)nan, x);
}

#else

WF_INLINE INDEX JOIN(pair_, LANE, _is_nan)(raw x)
{
    (void)x;
    return (INDEX){0};
}

#endif

/* What is computed in the lanes of indices as if they were values, and the
 * other way round, is thrown away: only values decide, and both lanes of a pair
 * then go the same way. */
WF_INLINE raw JOIN(pair_, LANE, _combine)(weft_op_kind op, raw acc, raw x)
{
    VEC a = (VEC)acc;
    VEC b = (VEC)x;
    INDEX nan_a = JOIN(pair_, LANE, _is_nan)(acc);
    INDEX nan_b = JOIN(pair_, LANE, _is_nan)(x);
    INDEX wins = (INDEX)(op == WEFT_OP_MINLOC ? b < a : b > a);
    INDEX equal = (INDEX)(b == a) | (nan_a & nan_b);
    INDEX earlier = (INDEX)x < (INDEX)acc;
    INDEX taken;

    for (size_t i = 0; i < LANES; i += 2) {
        earlier[i] = earlier[i + 1];
    }
    taken = wins | (nan_b & ~nan_a) | (equal & earlier);
    for (size_t i = 0; i < LANES; i += 2) {
        taken[i + 1] = taken[i];
    }
    return choose((raw)taken, x, acc);
}

#undef LANES
#undef BITS
#undef INDEX
#undef VEC
#undef JOIN
#undef JOIN_TEXT
#undef LANE
#undef LANE_C
#undef LANE_INDEX
#undef LANE_BITS
#undef LANE_NAN
