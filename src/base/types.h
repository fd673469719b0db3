/* SPDX-License-Identifier: Apache-2.0 */
/* What WEFT_DTYPE_TABLE says of types, as inline functions: the fast path makes
 * no call, and kernels, whose type is a constant, get constants. In C and in
 * CUDA C++. */
#ifndef WF_BASE_TYPES_H
#define WF_BASE_TYPES_H

#include <stdbool.h>
#include <weft/types.h>

#define WF_COUNT_ROW(...) +1
enum {
    WF_DTYPE_COUNT = 0 WEFT_DTYPE_TABLE(WF_COUNT_ROW),
    WF_OP_COUNT = 0 WEFT_OP_TABLE(WF_COUNT_ROW),
};
#undef WF_COUNT_ROW

/* The classes of the table. */
typedef enum wf_dtype_class {
    WF_BOOL = 1 << 0,
    WF_INTEGER = 1 << 1,
    WF_WHOLE = WF_BOOL | WF_INTEGER,
    WF_FLOAT = 1 << 2,
    WF_COMPLEX = 1 << 3,
    WF_PAIR = 1 << 4
} wf_dtype_class;

/* Is a type of one of these classes? What is no type is of none. */
static inline bool wf_dtype_is(weft_dtype type, unsigned classes)
{
    switch (type) {
#define WF_ROW(name, number, bytes, text, kind, ...)                           \
    case WEFT_##name:                                                          \
        return (classes & WF_##kind) != 0;
        WEFT_DTYPE_TABLE(WF_ROW)
#undef WF_ROW
    }
    return false;
}

static inline size_t wf_dtype_bytes(weft_dtype type)
{
    switch (type) {
#define WF_ROW(name, number, bytes, ...)                                       \
    case WEFT_##name:                                                          \
        return (bytes);
        WEFT_DTYPE_TABLE(WF_ROW)
#undef WF_ROW
    }
    return 0;
}

/* The type that elements are moved and added by. */
static inline weft_dtype wf_dtype_part(weft_dtype type)
{
    switch (type) {
#define WF_ROW(name, number, bytes, text, kind, part, ...)                     \
    case WEFT_##name:                                                          \
        return WEFT_##part;
        WEFT_DTYPE_TABLE(WF_ROW)
#undef WF_ROW
    }
    return type;
}

/* Optimizers calculate in f32 and train what is no wider. */
static inline bool wf_dtype_trains(weft_dtype type)
{
    return wf_dtype_is(type, WF_FLOAT) && wf_dtype_bytes(type) <= sizeof(float);
}

/* For each operation, the classes that it is defined on. */
extern const uint8_t wf_op_classes[WF_OP_COUNT];

static inline bool wf_op_applies(weft_op_kind kind, weft_dtype type)
{
    return (unsigned)kind < WF_OP_COUNT &&
           wf_dtype_is(type, wf_op_classes[kind]);
}

#endif
