/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and reduction operations. */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <weft/api.h>

WEFT_BEGIN_DECLS

/* X(name, number, bytes, text, class, part, array, code, dlpack): all that is
 * known of a type. Numbers travel between processes and never change.
 *
 *   class   BOOL, INTEGER, FLOAT, COMPLEX or PAIR; operations are defined on
 *           classes. A FLOAT narrower than f32 is calculated in f32.
 *   part    the type that it is added by: of a complex one, that of its halves
 *   array   what NumPy and torch call it; NULL: they have no such type
 *   code    NumPy's kind and bytes, as .npy files have them. NumPy has no
 *           bfloat16; packages that add it save it as two opaque bytes.
 *   dlpack  DLPack's code for it */
#define WEFT_DTYPE_TABLE(X)                                                    \
    X(BOOL, 0, 1, "bool", BOOL, BOOL, "bool", "b1", BOOL)                      \
    X(U8, 1, 1, "u8", INTEGER, U8, "uint8", "u1", UINT)                        \
    X(I8, 2, 1, "i8", INTEGER, I8, "int8", "i1", INT)                          \
    X(I16, 3, 2, "i16", INTEGER, I16, "int16", "i2", INT)                      \
    X(I32, 4, 4, "i32", INTEGER, I32, "int32", "i4", INT)                      \
    X(I64, 5, 8, "i64", INTEGER, I64, "int64", "i8", INT)                      \
    X(F16, 6, 2, "f16", FLOAT, F16, "float16", "f2", FLOAT)                    \
    X(BF16, 7, 2, "bf16", FLOAT, BF16, "bfloat16", "V2", BFLOAT)               \
    X(F32, 8, 4, "f32", FLOAT, F32, "float32", "f4", FLOAT)                    \
    X(F64, 9, 8, "f64", FLOAT, F64, "float64", "f8", FLOAT)                    \
    X(C64, 10, 8, "c64", COMPLEX, F32, "complex64", "c8", COMPLEX)             \
    X(C128, 11, 16, "c128", COMPLEX, F64, "complex128", "c16", COMPLEX)        \
    X(PAIR_F32, 12, 8, "pair_f32", PAIR, PAIR_F32, NULL, NULL, NONE)           \
    X(PAIR_F64, 13, 16, "pair_f64", PAIR, PAIR_F64, NULL, NULL, NONE)          \
    X(PAIR_I32, 14, 8, "pair_i32", PAIR, PAIR_I32, NULL, NULL, NONE)           \
    X(PAIR_I64, 15, 16, "pair_i64", PAIR, PAIR_I64, NULL, NULL, NONE)

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, number, ...) WEFT_##name = (number),
    WEFT_DTYPE_TABLE(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
} weft_dtype;

/** A value and where it was found, for MINLOC and MAXLOC. */
typedef struct weft_pair_f32 {
    float value;
    int32_t index;
} weft_pair_f32;

typedef struct weft_pair_f64 {
    double value;
    int64_t index;
} weft_pair_f64;

typedef struct weft_pair_i32 {
    int32_t value;
    int32_t index;
} weft_pair_i32;

typedef struct weft_pair_i64 {
    int64_t value;
    int64_t index;
} weft_pair_i64;

/* X(name, number, text).
 *
 *   SUM PROD       all types but pairs; on bool they are "or" and "and".
 *   MIN MAX        all but complex and pairs; a NaN on any rank gives NaN.
 *   AVG            SUM divided by the number of ranks; integers are divided
 *                  towards zero; not for bool and pairs.
 *   BAND BOR BXOR  bool and integers.
 *   LAND LOR LXOR  all but complex and pairs; the result is 0 or 1.
 *   PREMUL_SUM     each rank's element times `factor`, then SUM; floating and
 *                  complex types only. All ranks pass the same factor.
 *   MINLOC MAXLOC  pairs only: the pair with the least or greatest value; of
 *                  equal values, the one with the smallest index. A NaN wins
 *                  over all numbers. No other operation applies to pairs.
 *
 * Integer sums and products wrap around. f16 and bf16 are accumulated in f32
 * and rounded once, or, between nodes that share no memory, once per hop. */
#define WEFT_OP_TABLE(X)                                                       \
    X(SUM, 0, "sum")                                                           \
    X(PROD, 1, "prod")                                                         \
    X(MIN, 2, "min")                                                           \
    X(MAX, 3, "max")                                                           \
    X(AVG, 4, "avg")                                                           \
    X(BAND, 5, "band")                                                         \
    X(BOR, 6, "bor")                                                           \
    X(BXOR, 7, "bxor")                                                         \
    X(LAND, 8, "land")                                                         \
    X(LOR, 9, "lor")                                                           \
    X(LXOR, 10, "lxor")                                                        \
    X(PREMUL_SUM, 11, "premul_sum")                                            \
    X(MINLOC, 12, "minloc")                                                    \
    X(MAXLOC, 13, "maxloc")

typedef enum weft_op_kind {
#define WEFT_OP_ENUM(name, number, text) WEFT_OP_##name = (number),
    WEFT_OP_TABLE(WEFT_OP_ENUM)
#undef WEFT_OP_ENUM
} weft_op_kind;

/** A reduction. `factor` belongs to WEFT_OP_PREMUL_SUM and is else ignored. */
typedef struct weft_op {
    weft_op_kind kind;
    double factor;
} weft_op;

static inline weft_op weft_op_of(weft_op_kind kind)
{
    weft_op op = {kind, 1.0};
    return op;
}

static inline weft_op weft_premul_sum(double factor)
{
    weft_op op = {WEFT_OP_PREMUL_SUM, factor};
    return op;
}

#define WEFT_SUM weft_op_of(WEFT_OP_SUM)
#define WEFT_PROD weft_op_of(WEFT_OP_PROD)
#define WEFT_MIN weft_op_of(WEFT_OP_MIN)
#define WEFT_MAX weft_op_of(WEFT_OP_MAX)
#define WEFT_AVG weft_op_of(WEFT_OP_AVG)
#define WEFT_BAND weft_op_of(WEFT_OP_BAND)
#define WEFT_BOR weft_op_of(WEFT_OP_BOR)
#define WEFT_BXOR weft_op_of(WEFT_OP_BXOR)
#define WEFT_LAND weft_op_of(WEFT_OP_LAND)
#define WEFT_LOR weft_op_of(WEFT_OP_LOR)
#define WEFT_LXOR weft_op_of(WEFT_OP_LXOR)
#define WEFT_MINLOC weft_op_of(WEFT_OP_MINLOC)
#define WEFT_MAXLOC weft_op_of(WEFT_OP_MAXLOC)

/** Bytes of one element; 0 if `type` is none of the table. */
WEFT_API size_t weft_dtype_size(weft_dtype type);

/** "f32", "sum", ...; "?" for what is not in the table. */
WEFT_API const char *weft_dtype_name(weft_dtype type);
WEFT_API const char *weft_op_name(weft_op_kind kind);

/** 1 if `kind` is defined on `type`, as the table above says, else 0. */
WEFT_API int weft_op_applies(weft_op_kind kind, weft_dtype type);

WEFT_END_DECLS

#endif
