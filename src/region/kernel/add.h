/* SPDX-License-Identifier: Apache-2.0 */
/* Adding rows that other threads and processes add to as well. Memory is
 * changed by compare-and-exchange of 8 bytes at a time, which hold one element
 * or several: what was read is put back with the sum only if nobody changed it
 * meanwhile. Elements before the first and behind the last whole word are
 * exchanged one by one. A process that dies in the middle leaves whole
 * elements. */
#ifndef WF_REGION_KERNEL_ADD_H
#define WF_REGION_KERNEL_ADD_H

#include <string.h>

#include "region/kernel/half.h"
#include "region/kernel/rows.h"

#define WORD 8
#define LANES __attribute__((vector_size(WORD)))
typedef float word_f32 LANES;
typedef uint32_t word_u32 LANES;
typedef uint16_t word_u16 LANES;
typedef uint8_t word_u8 LANES;

WF_INLINE uint64_t word_of_f16(uint64_t a, uint64_t b)
{
    word_u16 x = (word_u16)a;
    word_u16 y = (word_u16)b;

    for (unsigned i = 0; i < WORD / 2; i++) {
        x[i] =
            half_f16_from_f32(half_bits(half_float(half_f32_from_f16(x[i])) +
                                        half_float(half_f32_from_f16(y[i]))));
    }
    return (uint64_t)x;
}

WF_INLINE uint64_t word_of_bf16(uint64_t a, uint64_t b)
{
    word_u16 x = (word_u16)a;
    word_u16 y = (word_u16)b;

    for (unsigned i = 0; i < WORD / 2; i++) {
        x[i] = half_bf16_from_f32(half_bits(half_float((uint32_t)x[i] << 16) +
                                            half_float((uint32_t)y[i] << 16)));
    }
    return (uint64_t)x;
}

WF_INLINE uint64_t word_of_f64(uint64_t a, uint64_t b)
{
    double x;
    double y;

    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    x += y;
    memcpy(&a, &x, sizeof(a));
    return a;
}

/* The sums of the elements in two words; bool is "or". */
WF_INLINE uint64_t word_sum(weft_dtype type, uint64_t a, uint64_t b)
{
    switch (type) {
    case WEFT_BOOL:
        return (uint64_t)((((word_u8)a != 0) | ((word_u8)b != 0)) & 1);
    case WEFT_U8:
        return (uint64_t)((word_u8)a + (word_u8)b);
    case WEFT_I16:
        return (uint64_t)((word_u16)a + (word_u16)b);
    case WEFT_I32:
        return (uint64_t)((word_u32)a + (word_u32)b);
    case WEFT_F16:
        return word_of_f16(a, b);
    case WEFT_BF16:
        return word_of_bf16(a, b);
    case WEFT_F32:
        return (uint64_t)((word_f32)a + (word_f32)b);
    case WEFT_F64:
        return word_of_f64(a, b);
    default:
        return a + b;
    }
}

/* One piece of memory, `cell` as wide as a word or an element. Nothing else is
 * published by it, so that the order of the exchanges does not matter. */
#define ADD_CELL(cell)                                                         \
    do {                                                                       \
        cell by_;                                                              \
        cell sum_;                                                             \
        cell old_ = __atomic_load_n((cell *)(void *)to, __ATOMIC_RELAXED);     \
                                                                               \
        memcpy(&by_, from, sizeof(cell));                                      \
        do {                                                                   \
            sum_ = (cell)word_sum(type, old_, by_);                            \
        } while (!__atomic_compare_exchange_n((cell *)(void *)to, &old_, sum_, \
                                              true, __ATOMIC_RELAXED,          \
                                              __ATOMIC_RELAXED));              \
    } while (0)

WF_INLINE void add_word(weft_dtype type, char *to, const char *from)
{
    ADD_CELL(uint64_t);
}

/* An element narrower than a word; in a register it is the first of one. */
WF_INLINE void add_element(weft_dtype type, char *to, const char *from)
{
    size_t bytes = wf_dtype_bytes(type);

    if (bytes == 1) {
        ADD_CELL(uint8_t);
    } else if (bytes == 2) {
        ADD_CELL(uint16_t);
    } else {
        ADD_CELL(uint32_t);
    }
}

WF_INLINE void add_row(weft_dtype type, size_t element, char *to,
                       const char *from, size_t n)
{
    size_t bytes = n * element;
    size_t at = 0;

    if (element < WORD) {
        for (; at < bytes && ((uintptr_t)to + at) % WORD != 0; at += element) {
            add_element(type, to + at, from + at);
        }
    }
    for (; at + WORD <= bytes; at += WORD) {
        add_word(type, to + at, from + at);
    }
    if (element < WORD) {
        for (; at < bytes; at += element) {
            add_element(type, to + at, from + at);
        }
    }
}

#define ADDING(name, type, element)                                            \
    static void add_##name(char *to, const char *from, size_t n)               \
    {                                                                          \
        add_row(type, element, to, from, n);                                   \
    }

ADDING(bool, WEFT_BOOL, 1)
ADDING(8, WEFT_U8, 1)
ADDING(16, WEFT_I16, 2)
ADDING(32, WEFT_I32, 4)
ADDING(64, WEFT_I64, 8)
ADDING(f16, WEFT_F16, 2)
ADDING(bf16, WEFT_BF16, 2)
ADDING(f32, WEFT_F32, 4)
ADDING(f64, WEFT_F64, 8)

/* Complex ones are added by their parts. */
static void add_c64(char *to, const char *from, size_t n)
{
    add_f32(to, from, 2 * n);
}

static void add_c128(char *to, const char *from, size_t n)
{
    add_f64(to, from, 2 * n);
}

#endif
