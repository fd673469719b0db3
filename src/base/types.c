/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of element types and of operations, without doing any. */
#include <weft/types.h>

size_t weft_dtype_size(weft_dtype type)
{
    switch (type) {
#define DTYPE_SIZE(name, number, bytes, text)                                  \
    case WEFT_##name:                                                          \
        return bytes;
        WEFT_DTYPE_TABLE(DTYPE_SIZE)
#undef DTYPE_SIZE
    }
    return 0;
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

static int is_complex(weft_dtype type)
{
    return type == WEFT_C64 || type == WEFT_C128;
}

static int is_inexact(weft_dtype type)
{
    return type == WEFT_F16 || type == WEFT_BF16 || type == WEFT_F32 ||
           type == WEFT_F64 || is_complex(type);
}

int weft_op_applies(weft_op_kind kind, weft_dtype type)
{
    if (weft_dtype_size(type) == 0) {
        return 0;
    }
    switch (kind) {
    case WEFT_OP_SUM:
    case WEFT_OP_PROD:
        return 1;
    case WEFT_OP_MIN:
    case WEFT_OP_MAX:
    case WEFT_OP_LAND:
    case WEFT_OP_LOR:
    case WEFT_OP_LXOR:
        return !is_complex(type);
    case WEFT_OP_AVG:
        return type != WEFT_BOOL;
    case WEFT_OP_BAND:
    case WEFT_OP_BOR:
    case WEFT_OP_BXOR:
        return !is_inexact(type);
    case WEFT_OP_PREMUL_SUM:
        return is_inexact(type);
    }
    return 0;
}
