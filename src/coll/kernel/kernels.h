/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of one CPU level, in one table. Included by the file of each
 * level, which is compiled for that level, after
 *   WF_VEC_BYTES  the width of its registers
 *   WF_KERNELS    the name of its table */
#include "coll/kernel/fold.h"
#include "coll/kernel/table.h"
/* With loads of 16 bytes it would be slower than what shm_take does. */
#if WF_VEC_BYTES > 16
#include "coll/kernel/take.h"
#define TAKE take
#else
#define TAKE NULL
#endif

#define KERNEL(name, type, op)                                                 \
    static void name(const wf_reducer *r, void *const dst[], size_t ndst,      \
                     const void *const src[], size_t nsrc, size_t n)           \
    {                                                                          \
        fold(type, op, r, dst, ndst, src, nsrc, n);                            \
    }

/* Bits are bits, however wide the element. */
KERNEL(bits_and, WEFT_U8, WEFT_OP_BAND)
KERNEL(bits_or, WEFT_U8, WEFT_OP_BOR)
KERNEL(bits_xor, WEFT_U8, WEFT_OP_BXOR)

/* The kernels of each class, and its row in the table. */
#define INTEGER_KERNELS(name)                                                  \
    KERNEL(name##_sum, WEFT_##name, WEFT_OP_SUM)                               \
    KERNEL(name##_prod, WEFT_##name, WEFT_OP_PROD)                             \
    KERNEL(name##_min, WEFT_##name, WEFT_OP_MIN)                               \
    KERNEL(name##_max, WEFT_##name, WEFT_OP_MAX)                               \
    KERNEL(name##_land, WEFT_##name, WEFT_OP_LAND)                             \
    KERNEL(name##_lor, WEFT_##name, WEFT_OP_LOR)                               \
    KERNEL(name##_lxor, WEFT_##name, WEFT_OP_LXOR)                             \
    KERNEL(name##_avg, WEFT_##name, WEFT_OP_AVG)

#define NUMBER_ROW(name)                                                       \
    [WEFT_OP_SUM] = name##_sum, [WEFT_OP_PROD] = name##_prod,                  \
    [WEFT_OP_MIN] = name##_min, [WEFT_OP_MAX] = name##_max,                    \
    [WEFT_OP_AVG] = name##_avg, [WEFT_OP_LAND] = name##_land,                  \
    [WEFT_OP_LOR] = name##_lor, [WEFT_OP_LXOR] = name##_lxor

#define INTEGER_ROW(name, part)                                                \
    NUMBER_ROW(name), [WEFT_OP_BAND] = bits_and, [WEFT_OP_BOR] = bits_or,      \
                      [WEFT_OP_BXOR] = bits_xor

/* Logic on bytes. */
#define BOOL_KERNELS(name)
#define BOOL_ROW(name, part)                                                   \
    [WEFT_OP_SUM] = U8_lor, [WEFT_OP_PROD] = U8_land, [WEFT_OP_MIN] = U8_land, \
    [WEFT_OP_MAX] = U8_lor, [WEFT_OP_BAND] = U8_land, [WEFT_OP_BOR] = U8_lor,  \
    [WEFT_OP_BXOR] = U8_lxor, [WEFT_OP_LAND] = U8_land,                        \
    [WEFT_OP_LOR] = U8_lor, [WEFT_OP_LXOR] = U8_lxor

#define FLOAT_KERNELS(name)                                                    \
    INTEGER_KERNELS(name)                                                      \
    KERNEL(name##_premul_sum, WEFT_##name, WEFT_OP_PREMUL_SUM)
#define FLOAT_ROW(name, part)                                                  \
    NUMBER_ROW(name), [WEFT_OP_PREMUL_SUM] = name##_premul_sum

/* Sums of complex numbers are sums of twice as many reals. */
#define COMPLEX_KERNELS(name) KERNEL(name##_prod, WEFT_##name, WEFT_OP_PROD)
#define COMPLEX_ROW(name, part)                                                \
    [WEFT_OP_SUM] = part##_sum, [WEFT_OP_PROD] = name##_prod,                  \
    [WEFT_OP_AVG] = part##_avg, [WEFT_OP_PREMUL_SUM] = part##_premul_sum

#define PAIR_KERNELS(name)                                                     \
    KERNEL(name##_minloc, WEFT_##name, WEFT_OP_MINLOC)                         \
    KERNEL(name##_maxloc, WEFT_##name, WEFT_OP_MAXLOC)
#define PAIR_ROW(name, part)                                                   \
    [WEFT_OP_MINLOC] = name##_minloc, [WEFT_OP_MAXLOC] = name##_maxloc

#define KERNELS(name, number, bytes, text, kind, ...) kind##_KERNELS(name)
WEFT_DTYPE_TABLE(KERNELS)

#define ROW(name, number, bytes, text, kind, part, ...)                        \
    [number] = {kind##_ROW(name, part)},
const wf_kernels WF_KERNELS = {.fold = {WEFT_DTYPE_TABLE(ROW)}, .take = TAKE};
