/* SPDX-License-Identifier: Apache-2.0 */
/* Copying rows. Included by the file of each level with WF_VEC_BYTES set.
 *
 * Rows are asked for with prefetches into the second-level cache: the first
 * level can wait for a dozen lines at a time, the second for several dozen, and
 * a random gather is bound by just that. */
#ifndef WF_REGION_ROWS_KERNEL_COPY_H
#define WF_REGION_ROWS_KERNEL_COPY_H

#include <string.h>

#include "region/rows/kernel/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LINE 64

/* A vector, which lies anywhere in memory and was stored as any type. */
typedef uint64_t raw __attribute__((vector_size(WF_VEC_BYTES)));
typedef raw raw_in_memory __attribute__((aligned(1), may_alias));

WF_INLINE raw load(const char *from)
{
    return *(const raw_in_memory *)from;
}

WF_INLINE void store(char *to, raw x)
{
    *(raw_in_memory *)to = x;
}

typedef enum store_kind { STORE_USUAL, STORE_STREAM } store_kind;

WF_INLINE void stream(char *to, raw x)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)x);
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)x);
#elif defined(__x86_64__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)x);
#else
    store(to, x);
#endif
}

/* What was streamed is to be seen by whoever sees what is written next. */
WF_INLINE void stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#define COPY_ENDS(type)                                                        \
    do {                                                                       \
        type first_;                                                           \
        type last_;                                                            \
        memcpy(&first_, from, sizeof(type));                                   \
        memcpy(&last_, from + bytes - sizeof(type), sizeof(type));             \
        memcpy(to, &first_, sizeof(type));                                     \
        memcpy(to + bytes - sizeof(type), &last_, sizeof(type));               \
    } while (0)

typedef struct half_line {
    uint64_t part[4];
} half_line;
typedef struct quarter_line {
    uint64_t part[2];
} quarter_line;

/* Less than a vector, in two pieces that may overlap. */
WF_INLINE void copy_short(char *to, const char *from, size_t bytes)
{
    if (bytes >= 32) {
        COPY_ENDS(half_line);
    } else if (bytes >= 16) {
        COPY_ENDS(quarter_line);
    } else if (bytes >= 8) {
        COPY_ENDS(uint64_t);
    } else if (bytes >= 4) {
        COPY_ENDS(uint32_t);
    } else if (bytes >= 2) {
        COPY_ENDS(uint16_t);
    } else if (bytes == 1) {
        *to = *from;
    }
}

/* Whole vectors, then the last one again, ending where the row ends. */
WF_INLINE void copy_usual(char *to, const char *from, size_t bytes)
{
    size_t at = 0;

    if (bytes < WF_VEC_BYTES) {
        copy_short(to, from, bytes);
        return;
    }
    for (; at + WF_VEC_BYTES <= bytes; at += WF_VEC_BYTES) {
        store(to + at, load(from + at));
    }
    if (at < bytes) {
        at = bytes - WF_VEC_BYTES;
        store(to + at, load(from + at));
    }
}

/* Whole lines go past the caches; the ends of a row that begins or ends inside
 * a line do not. */
WF_INLINE void copy_stream(char *to, const char *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % LINE;
    size_t at;

    if (bytes < head + LINE) {
        copy_usual(to, from, bytes);
        return;
    }
    if (head != 0) {
        copy_usual(to, from, head);
    }
    for (at = head; at + LINE <= bytes; at += LINE) {
        for (size_t part = 0; part < LINE; part += WF_VEC_BYTES) {
            stream(to + at + part, load(from + at + part));
        }
    }
    if (at < bytes) {
        copy_usual(to + at, from + at, bytes - at);
    }
}

/* All lines of a row that will be read, or written. */
WF_INLINE void ask(const char *row, size_t bytes, bool to_write)
{
    for (size_t at = 0; at < bytes; at += LINE) {
        if (to_write) {
            __builtin_prefetch(row + at, 1, 3);
        } else {
            __builtin_prefetch(row + at, 0, 2);
        }
    }
    if (((uintptr_t)row + bytes - 1) / LINE !=
        ((uintptr_t)row + (bytes - 1) / LINE * LINE) / LINE) {
        if (to_write) {
            __builtin_prefetch(row + bytes - 1, 1, 3);
        } else {
            __builtin_prefetch(row + bytes - 1, 0, 2);
        }
    }
}

WF_INLINE void copy_rows(const wf_move *moves, size_t n, size_t ahead,
                         size_t bytes, bool far_to)
{
    for (size_t i = 0; i < n; i++) {
        const wf_move *next = &moves[i + ahead];

        if (ahead != 0) {
            ask(far_to ? next->to : next->from, bytes, far_to);
        }
        copy_usual(moves[i].to, moves[i].from, bytes);
    }
}

WF_INLINE uint64_t id_of(const wf_pick *pick, bool wide, uint64_t i)
{
    return (uint64_t)(wide ? ((const int64_t *)pick->ids)[i]
                           : ((const int32_t *)pick->ids)[i]);
}

/* Not a pointer until the id is known to be good: any address may be asked
 * for. */
WF_INLINE uintptr_t row_of(const wf_pick *pick, uint64_t id)
{
    return (uintptr_t)pick->table + id * pick->pitch;
}

WF_INLINE void pick_rows(const wf_pick *given, uint64_t at, uint64_t end,
                         size_t bytes, bool wide, store_kind kind)
{
    wf_pick pick = *given; /* rows are stored to memory that might be it */
    size_t asked = bytes <= 2 * LINE ? bytes : pick.asked;

    for (uint64_t i = at; i < end && i < at + pick.ahead; i++) {
        ask((const char *)row_of(&pick, id_of(&pick, wide, i)), asked, false);
    }
    for (uint64_t i = at; i < end; i++) {
        uint64_t id = id_of(&pick, wide, i);
        char *to = pick.to + i * pick.to_pitch;

        if (i + pick.ahead < end) {
            uint64_t next = id_of(&pick, wide, i + pick.ahead);

            ask((const char *)row_of(&pick, next), asked, false);
        }
        if (id >= pick.rows) {
            continue;
        }
        if (kind == STORE_STREAM) {
            copy_stream(to, (const char *)row_of(&pick, id), bytes);
        } else {
            copy_usual(to, (const char *)row_of(&pick, id), bytes);
        }
    }
    if (kind == STORE_STREAM) {
        stream_end();
    }
}

/* A row that somebody may be writing. ThreadSanitizer, which takes that for a
 * mistake, is kept from seeing it. */
#if defined(__SANITIZE_THREAD__)
#define WF_QUIET 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WF_QUIET 1
#endif
#endif
#if defined(WF_QUIET)
__attribute__((no_sanitize("thread"))) static void
copy_unstable(char *to, const volatile char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        ((volatile char *)to)[i] = from[i];
    }
}
#else
WF_INLINE void copy_unstable(char *to, const char *from, size_t bytes)
{
    copy_usual(to, from, bytes);
}
#endif

/* `row` begins with its lock word. */
WF_INLINE bool read_row(const char *row, char *to, uint64_t busy, size_t bytes)
{
    const uint64_t *lock = (const uint64_t *)(const void *)row;
    uint64_t seen = __atomic_load_n(lock, __ATOMIC_ACQUIRE);

    if ((seen & busy) != 0) {
        return false;
    }
    copy_unstable(to, row + sizeof(seen), bytes);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(lock, __ATOMIC_RELAXED) == seen;
}

WF_INLINE uint64_t read_rows(const wf_pick *given, const void *ids, char *dense,
                             uint64_t busy, uint64_t at, uint64_t end,
                             size_t bytes, bool wide)
{
    wf_pick pick = {.table = given->table,
                    .pitch = given->pitch,
                    .rows = given->rows,
                    .ids = ids,
                    .ahead = given->ahead};
    size_t whole = bytes + sizeof(uint64_t);
    size_t asked = whole <= 3 * LINE ? whole : given->asked;

    /* Whoever goes on behind a row that was in the way has asked before. */
    for (uint64_t i = 1; at == 0 && i < end && i < pick.ahead; i++) {
        ask((const char *)row_of(&pick, id_of(&pick, wide, i)), asked, false);
    }
    for (uint64_t i = at; i < end; i++) {
        uint64_t id = id_of(&pick, wide, i);
        const char *row = (const char *)row_of(&pick, id);

        if (i + pick.ahead < end) {
            uint64_t next = id_of(&pick, wide, i + pick.ahead);

            ask((const char *)row_of(&pick, next), asked, false);
        }
        if (id >= pick.rows) {
            continue;
        }
        if (!read_row(row, dense + i * bytes, busy, bytes)) {
            return i;
        }
    }
    return end;
}

#endif
