/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of WF_VEC_BYTES bytes, as wide as the registers of the CPU level that
 * the including file is compiled for, in the vector extension that gcc and
 * clang share. Kernels see memory as bytes: they load a `raw` vector and look
 * at it as lanes of whatever type they work on (a cast between vector types
 * keeps the bits). */
#ifndef WF_COLL_KERNEL_VECTOR_H
#define WF_COLL_KERNEL_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Types and operations are constants where kernels are made, and the code for
 * all others must vanish. */
#define WF_INLINE static inline __attribute__((always_inline))

#define WF_VECTOR __attribute__((vector_size(WF_VEC_BYTES)))
typedef int8_t vec_i8 WF_VECTOR;
typedef int16_t vec_i16 WF_VECTOR;
typedef int32_t vec_i32 WF_VECTOR;
typedef int64_t vec_i64 WF_VECTOR;
typedef uint8_t vec_u8 WF_VECTOR;
typedef uint16_t vec_u16 WF_VECTOR;
typedef uint32_t vec_u32 WF_VECTOR;
typedef uint64_t vec_u64 WF_VECTOR;
typedef float vec_f32 WF_VECTOR;
typedef double vec_f64 WF_VECTOR;
typedef vec_u64 raw;

/* A vector that lies anywhere in memory and was stored as any type. */
typedef raw raw_in_memory __attribute__((aligned(1), may_alias));

WF_INLINE raw load(const char *from)
{
    return *(const raw_in_memory *)from;
}

WF_INLINE void store(char *to, raw x)
{
    *(raw_in_memory *)to = x;
}

/* Store past the caches, at a multiple of the vector's size: lines are not read
 * first. A store that publishes the data may follow stream_end. */
WF_INLINE void store_stream(char *to, raw x)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)x);
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)x);
#elif defined(__SSE2__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)x);
#else
    store(to, x);
#endif
}

WF_INLINE void stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* `yes` where all bits of a lane of `mask` are set, `no` where none is. */
WF_INLINE raw choose(raw mask, raw yes, raw no)
{
    return (mask & yes) | (~mask & no);
}

/* Copy less than a vector. It is not inline, as it would be half of a kernel.
 */
static __attribute__((noinline)) void copy_part(char *to, const char *from,
                                                size_t bytes)
{
    size_t at = 0;

#define COPY_PIECE(piece)                                                      \
    if ((bytes & (piece)) != 0) {                                              \
        memcpy(to + at, from + at, (piece));                                   \
        at += (piece);                                                         \
    }
    COPY_PIECE(32)
    COPY_PIECE(16)
    COPY_PIECE(8)
    COPY_PIECE(4)
    COPY_PIECE(2)
    COPY_PIECE(1)
#undef COPY_PIECE
}

/* One element of the usual types goes through a register: see load_part. */
WF_INLINE void store_part(char *to, raw x, size_t bytes)
{
    uint64_t word = x[0];

    if (bytes == 8) {
        memcpy(to, &word, 8);
        return;
    }
    if (bytes == 4 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        memcpy(to, &word, 4);
        return;
    }
    copy_part(to, (const char *)&x, bytes);
}

/* load_part gives the first `bytes` bytes, fewer than a vector has, and zeros.
 * The smallest messages live on it. Bytes that were stored one by one and are
 * then loaded as a vector make the CPU wait, so up to 16 bytes are put together
 * in registers. */
#if defined(__AVX512BW__)

WF_INLINE raw load_part(const char *from, size_t bytes)
{
    uint64_t word = 0;

    if (bytes == 4) {
        memcpy(&word, from, 4);
        return (raw){word};
    }
    if (bytes == 8) {
        memcpy(&word, from, 8);
        return (raw){word};
    }
    return (raw)_mm512_maskz_loadu_epi8((1ull << bytes) - 1, from);
}

#else

/* 1 to 8 bytes in the order of memory, of which the first and the last few may
 * be the same ones. */
WF_INLINE uint64_t load_word(const char *from, size_t bytes)
{
    uint32_t first = 0;
    uint32_t last = 0;
    size_t piece = bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;

    if (piece == 4) {
        memcpy(&first, from, 4);
        memcpy(&last, from + bytes - 4, 4);
    } else if (piece == 2) {
        memcpy(&first, from, 2);
        memcpy(&last, from + bytes - 2, 2);
    } else {
        memcpy(&first, from, 1);
    }
    return first | (uint64_t)last << (8 * (bytes - piece));
}

static __attribute__((noinline)) raw load_part(const char *from, size_t bytes)
{
    if (bytes > 16 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
        raw x = {0};
        copy_part((char *)&x, from, bytes);
        return x;
    }
    if (bytes > 8) {
        return (raw){load_word(from, 8), load_word(from + 8, bytes - 8)};
    }
    return (raw){load_word(from, bytes)};
}

#endif

#endif
