/* SPDX-License-Identifier: Apache-2.0 */
/* Adding rows that other threads and processes add to as well. Memory is
 * changed by compare-and-exchange of a word at a time, which holds one element
 * or several: what was read is put back with the sum only if nobody changed it
 * meanwhile. Elements before the first and behind the last whole word are
 * exchanged one by one. A process that dies in the middle leaves whole
 * elements. Nothing else is published by a sum, so that the order of the
 * exchanges does not matter. */
#ifndef WF_REGION_ROWS_KERNEL_ADD_H
#define WF_REGION_ROWS_KERNEL_ADD_H

#include <string.h>

#include "region/rows/kernel/half.h"
#include "region/rows/kernel/rows.h"

/* Every CPU with AVX2 exchanges 16 bytes at once, in 1.3 times what 8 take. */
#if defined(__AVX2__)
#define WORD 16
#else
#define WORD 8
#endif
#define LANES __attribute__((vector_size(WORD)))
typedef double word_f64 LANES;
typedef float word_f32 LANES;
typedef uint64_t word LANES;
typedef uint32_t word_u32 LANES;
typedef uint16_t word_u16 LANES;
typedef uint8_t word_u8 LANES;

WF_INLINE word word_of_f16(word_u16 a, word_u16 b)
{
    for (unsigned i = 0; i < WORD / 2; i++) {
        a[i] =
            half_f16_from_f32(half_bits(half_float(half_f32_from_f16(a[i])) +
                                        half_float(half_f32_from_f16(b[i]))));
    }
    return (word)a;
}

WF_INLINE word word_of_bf16(word_u16 a, word_u16 b)
{
    for (unsigned i = 0; i < WORD / 2; i++) {
        a[i] = half_bf16_from_f32(half_bits(half_float((uint32_t)a[i] << 16) +
                                            half_float((uint32_t)b[i] << 16)));
    }
    return (word)a;
}

/* The sums of the elements in two words; bool is "or". */
WF_INLINE word word_sum(weft_dtype type, word a, word b)
{
    switch (type) {
    case WEFT_BOOL:
        return (word)((((word_u8)a != 0) | ((word_u8)b != 0)) & 1);
    case WEFT_U8:
    case WEFT_I8:
        return (word)((word_u8)a + (word_u8)b);
    case WEFT_I16:
        return (word)((word_u16)a + (word_u16)b);
    case WEFT_I32:
        return (word)((word_u32)a + (word_u32)b);
    case WEFT_I64:
        return a + b;
    case WEFT_F16:
        return word_of_f16((word_u16)a, (word_u16)b);
    case WEFT_BF16:
        return word_of_bf16((word_u16)a, (word_u16)b);
    case WEFT_F32:
        return (word)((word_f32)a + (word_f32)b);
    case WEFT_F64:
        return (word)((word_f64)a + (word_f64)b);
    case WEFT_C64: /* added by their parts */
    case WEFT_C128:
    case WEFT_PAIR_F32: /* not added at all */
    case WEFT_PAIR_F64:
    case WEFT_PAIR_I32:
    case WEFT_PAIR_I64:
        break;
    }
    return a;
}

/* Put `sum` where `old` is; if something else is there, that is `old` now. */
WF_INLINE bool word_exchange(char *to, word *old, word sum)
{
#if WORD == 16
    uint64_t low = (*old)[0];
    uint64_t high = (*old)[1];
    bool done;

    /* Compilers call a library for it, which may take a lock. */
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*(word *)(void *)to), "+a"(low),
                       "+d"(high)
                     : "b"(sum[0]), "c"(sum[1]));
    *old = (word){low, high};
    return done;
#else
    return __atomic_compare_exchange_n((uint64_t *)(void *)to, (uint64_t *)old,
                                       sum[0], true, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
#endif
}

WF_INLINE void add_word(weft_dtype type, char *to, const char *from)
{
    word by;
    word sum;
    word old;

    memcpy(&by, from, WORD);
    /* Halves that do not belong together are found out by the exchange. */
    for (unsigned i = 0; i < WORD / 8; i++) {
        old[i] = __atomic_load_n((uint64_t *)(void *)to + i, __ATOMIC_RELAXED);
    }
    do {
        sum = word_sum(type, old, by);
    } while (!word_exchange(to, &old, sum));
}

/* An element narrower than a word; in a register it is the first of one. */
#define ADD_ELEMENT(cell)                                                      \
    do {                                                                       \
        cell old_ = __atomic_load_n((cell *)(void *)to, __ATOMIC_RELAXED);     \
        cell sum_;                                                             \
        word by_ = {0};                                                        \
                                                                               \
        memcpy(&by_, from, sizeof(cell));                                      \
        do {                                                                   \
            word all_ = word_sum(type, (word){old_}, by_);                     \
            sum_ = (cell)all_[0];                                              \
        } while (!__atomic_compare_exchange_n((cell *)(void *)to, &old_, sum_, \
                                              true, __ATOMIC_RELAXED,          \
                                              __ATOMIC_RELAXED));              \
    } while (0)

WF_INLINE void add_element(weft_dtype type, size_t element, char *to,
                           const char *from)
{
    if (element == 1) {
        ADD_ELEMENT(uint8_t);
    } else if (element == 2) {
        ADD_ELEMENT(uint16_t);
    } else if (element == 4) {
        ADD_ELEMENT(uint32_t);
    } else {
        ADD_ELEMENT(uint64_t);
    }
}

WF_INLINE void add_row(weft_dtype type, size_t element, char *to,
                       const char *from, size_t n)
{
    size_t bytes = n * element;
    size_t at = 0;

    if (element < WORD) {
        for (; at < bytes && ((uintptr_t)to + at) % WORD != 0; at += element) {
            add_element(type, element, to + at, from + at);
        }
    }
    for (; at + WORD <= bytes; at += WORD) {
        add_word(type, to + at, from + at);
    }
    if (element < WORD) {
        for (; at < bytes; at += element) {
            add_element(type, element, to + at, from + at);
        }
    }
}

/* Without others there is nothing to exchange: one loop, which compilers turn
 * into vectors. */
#define SUM_AS(c_type, sum)                                                    \
    do {                                                                       \
        for (size_t i = 0; i < n; i++) {                                       \
            c_type a;                                                          \
            c_type b;                                                          \
                                                                               \
            memcpy(&a, to + i * sizeof(a), sizeof(a));                         \
            memcpy(&b, from + i * sizeof(b), sizeof(b));                       \
            a = (c_type)(sum);                                                 \
            memcpy(to + i * sizeof(a), &a, sizeof(a));                         \
        }                                                                      \
    } while (0)

WF_INLINE void sum_row(weft_dtype type, size_t element, char *restrict to,
                       const char *restrict from, size_t n)
{
    if (type == WEFT_F32) {
        SUM_AS(float, a + b);
    } else if (type == WEFT_F64) {
        SUM_AS(double, a + b);
    } else if (type == WEFT_F16) {
        SUM_AS(uint16_t,
               half_f16_from_f32(half_bits(half_float(half_f32_from_f16(a)) +
                                           half_float(half_f32_from_f16(b)))));
    } else if (type == WEFT_BF16) {
        SUM_AS(uint16_t,
               half_bf16_from_f32(half_bits(half_float((uint32_t)a << 16) +
                                            half_float((uint32_t)b << 16))));
    } else if (type == WEFT_BOOL) {
        SUM_AS(uint8_t, a != 0 || b != 0);
    } else if (element == 1) {
        SUM_AS(uint8_t, a + b);
    } else if (element == 2) {
        SUM_AS(uint16_t, a + b);
    } else if (element == 4) {
        SUM_AS(uint32_t, a + b);
    } else {
        SUM_AS(uint64_t, a + b);
    }
}

#define ADDING(name, element)                                                  \
    static void add_##name(char *to, const char *from, size_t n)               \
    {                                                                          \
        add_row(WEFT_##name, element, to, from, n);                            \
    }                                                                          \
    static void sum_##name(char *restrict to, const char *restrict from,       \
                           size_t n)                                           \
    {                                                                          \
        sum_row(WEFT_##name, element, to, from, n);                            \
    }

#endif
