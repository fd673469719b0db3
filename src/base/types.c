/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of element types and of operations, without doing any. */
#include "base/types.h"

const uint8_t wf_dtype_bytes_table[WF_DTYPE_COUNT] = {
#define DTYPE_SIZE(name, number, bytes, text) [number] = (bytes),
    WEFT_DTYPE_TABLE(DTYPE_SIZE)
#undef DTYPE_SIZE
};

size_t weft_dtype_size(weft_dtype type)
{
    return wf_dtype_bytes(type);
}

const char *weft_dtype_name(weft_dtype type)
{
    switch (type) {
#define DTYPE_NAME(name, number, bytes, text)                                  \
    case WEFT_##name:                                                          \
        return text;
        WEFT_DTYPE_TABLE(DTYPE_NAME)
#undef DTYPE_NAME
    }
    return "?";
}

const char *weft_op_name(weft_op_kind kind)
{
    switch (kind) {
#define OP_NAME(name, number, text)                                            \
    case WEFT_OP_##name:                                                       \
        return text;
        WEFT_OP_TABLE(OP_NAME)
#undef OP_NAME
    }
    return "?";
}

#define BIT(type) (1u << WEFT_##type)
enum {
    PAIRS = BIT(PAIR_F32) | BIT(PAIR_F64) | BIT(PAIR_I32) | BIT(PAIR_I64),
    NUMBERS = ((1u << WF_DTYPE_COUNT) - 1) & ~PAIRS,
    COMPLEX = BIT(C64) | BIT(C128),
    INEXACT = BIT(F16) | BIT(BF16) | BIT(F32) | BIT(F64) | COMPLEX,
};

const uint16_t wf_op_types[WF_OP_COUNT] = {
    [WEFT_OP_SUM] = NUMBERS,
    [WEFT_OP_PROD] = NUMBERS,
    [WEFT_OP_MIN] = NUMBERS & ~COMPLEX,
    [WEFT_OP_MAX] = NUMBERS & ~COMPLEX,
    [WEFT_OP_AVG] = NUMBERS & ~BIT(BOOL),
    [WEFT_OP_BAND] = NUMBERS & ~INEXACT,
    [WEFT_OP_BOR] = NUMBERS & ~INEXACT,
    [WEFT_OP_BXOR] = NUMBERS & ~INEXACT,
    [WEFT_OP_LAND] = NUMBERS & ~COMPLEX,
    [WEFT_OP_LOR] = NUMBERS & ~COMPLEX,
    [WEFT_OP_LXOR] = NUMBERS & ~COMPLEX,
    [WEFT_OP_PREMUL_SUM] = INEXACT,
    [WEFT_OP_MINLOC] = PAIRS,
    [WEFT_OP_MAXLOC] = PAIRS,
};
#undef BIT

int weft_op_applies(weft_op_kind kind, weft_dtype type)
{
    return wf_op_applies(kind, type) ? 1 : 0;
}
