/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of element types and of operations, without doing any. */
#include "base/types.h"

size_t weft_dtype_size(weft_dtype type)
{
    return wf_dtype_bytes(type);
}

const char *weft_dtype_name(weft_dtype type)
{
    switch (type) {
#define DTYPE_NAME(name, number, bytes, text, ...)                             \
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

enum {
    ORDERED = WF_WHOLE | WF_FLOAT,
    NUMBERS = ORDERED | WF_COMPLEX,
};

const uint8_t wf_op_classes[WF_OP_COUNT] = {
    [WEFT_OP_SUM] = NUMBERS,
    [WEFT_OP_PROD] = NUMBERS,
    [WEFT_OP_MIN] = ORDERED,
    [WEFT_OP_MAX] = ORDERED,
    [WEFT_OP_AVG] = NUMBERS & ~WF_BOOL,
    [WEFT_OP_BAND] = WF_WHOLE,
    [WEFT_OP_BOR] = WF_WHOLE,
    [WEFT_OP_BXOR] = WF_WHOLE,
    [WEFT_OP_LAND] = ORDERED,
    [WEFT_OP_LOR] = ORDERED,
    [WEFT_OP_LXOR] = ORDERED,
    [WEFT_OP_PREMUL_SUM] = WF_FLOAT | WF_COMPLEX,
    [WEFT_OP_MINLOC] = WF_PAIR,
    [WEFT_OP_MAXLOC] = WF_PAIR,
};

int weft_op_applies(weft_op_kind kind, weft_dtype type)
{
    return wf_op_applies(kind, type) ? 1 : 0;
}
