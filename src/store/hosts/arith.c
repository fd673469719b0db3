/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hosts/arith.h"

#include <string.h>

#include "base/cpu.h"
#include "base/num.h"
#include "region/rows/kernel/rows.h"

#define PIECE 256u /* elements that are converted at a time */

void wf_arith_add(weft_dtype type, void *to, const void *by, size_t n)
{
    wf_row_kernels_of(wf_cpu_level_used())->sum[type](to, by, n);
}

/* Rows lie at any address. */
#define SUBTRACT(name, element)                                                \
    static void subtract_##name(char *from, const char *by, size_t n)          \
    {                                                                          \
        for (size_t i = 0; i < n; i++) {                                       \
            element a;                                                         \
            element b;                                                         \
                                                                               \
            memcpy(&a, from + i * sizeof(a), sizeof(a));                       \
            memcpy(&b, by + i * sizeof(b), sizeof(b));                         \
            a -= b;                                                            \
            memcpy(from + i * sizeof(a), &a, sizeof(a));                       \
        }                                                                      \
    }
SUBTRACT(f32, float)
SUBTRACT(f64, double)
SUBTRACT(i32, uint32_t)
SUBTRACT(i64, uint64_t)

/* f16 and bf16, through f32. */
static void subtract_half(weft_dtype type, char *from, const char *by, size_t n)
{
    const wf_row_kernels *k = wf_row_kernels_of(wf_cpu_level_used());
    float a[PIECE];
    float b[PIECE];

    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = wf_least(n - at, PIECE);

        k->widen[type](a, from + 2 * at, m);
        k->widen[type](b, by + 2 * at, m);
        for (size_t i = 0; i < m; i++) {
            a[i] -= b[i];
        }
        k->narrow[type](from + 2 * at, a, m);
    }
}

void wf_arith_subtract(weft_dtype type, void *from, const void *by, size_t n)
{
    switch (type) {
    case WEFT_F32:
        subtract_f32(from, by, n);
        break;
    case WEFT_F64:
        subtract_f64(from, by, n);
        break;
    case WEFT_I32:
        subtract_i32(from, by, n);
        break;
    case WEFT_I64:
        subtract_i64(from, by, n);
        break;
    default:
        subtract_half(type, from, by, n);
        break;
    }
}
