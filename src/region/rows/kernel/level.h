/* SPDX-License-Identifier: Apache-2.0 */
/* All row kernels of one CPU level, in one table. Included by the file of each
 * level, which is compiled for that level, after
 *   WF_VEC_BYTES    the width of its registers
 *   WF_ROW_KERNELS  the name of its table */
#include "region/rows/kernel/add.h"
#include "region/rows/kernel/convert.h"
#include "region/rows/kernel/copy.h"
#include "region/rows/kernel/survey.h"

#define MOVES(kind, name, size, far_to)                                        \
    static void kind##_##name(const wf_move *moves, size_t n, size_t ahead,    \
                              size_t bytes)                                    \
    {                                                                          \
        (void)bytes;                                                           \
        copy_rows(moves, n, ahead, size, far_to);                              \
    }

#define PICKS(kind, name, size, wide, store_kind)                              \
    static void kind##_##name(const wf_pick *pick, uint64_t at, uint64_t end)  \
    {                                                                          \
        size_t bytes = pick->bytes;                                            \
                                                                               \
        (void)bytes;                                                           \
        pick_rows(pick, at, end, size, wide, store_kind);                      \
    }

#define READS(kind, name, size, wide)                                          \
    static uint64_t kind##_##name(const wf_pick *pick, const void *ids,        \
                                  char *to, uint64_t busy, uint64_t at,        \
                                  uint64_t end)                                \
    {                                                                          \
        size_t bytes = pick->bytes;                                            \
                                                                               \
        (void)bytes;                                                           \
        return read_rows(pick, ids, to, busy, at, end, size, wide);            \
    }

#define READ_ONE(name, size)                                                   \
    static bool read_one_##name(const char *row, char *to, uint64_t busy,      \
                                size_t bytes)                                  \
    {                                                                          \
        (void)bytes;                                                           \
        return read_row(row, to, busy, size);                                  \
    }

#define COPIES(name, size)                                                     \
    MOVES(fetch, name, size, false)                                            \
    MOVES(put, name, size, true)                                               \
    PICKS(pick_i32, name, size, false, STORE_USUAL)                            \
    PICKS(pick_i64, name, size, true, STORE_USUAL)                             \
    PICKS(stream_i32, name, size, false, STORE_STREAM)                         \
    PICKS(stream_i64, name, size, true, STORE_STREAM)                          \
    READS(read_i32, name, size, false)                                         \
    READS(read_i64, name, size, true)                                          \
    READ_ONE(name, size)

COPIES(1, 1)
COPIES(2, 2)
COPIES(4, 4)
COPIES(8, 8)
COPIES(16, 16)
COPIES(32, 32)
COPIES(64, 64)
COPIES(128, 128)
COPIES(256, 256)
COPIES(512, 512)
COPIES(any, bytes)

#define CLASSES(kind)                                                          \
    {                                                                          \
        kind##_1, kind##_2, kind##_4, kind##_8, kind##_16, kind##_32,          \
            kind##_64, kind##_128, kind##_256, kind##_512, kind##_any,         \
    }

/* What has kernels of its own: complex numbers have those of their parts, and
 * pairs are only copied. */
#define OF_BOOL(...) __VA_ARGS__
#define OF_INTEGER(...) __VA_ARGS__
#define OF_FLOAT(...) __VA_ARGS__
#define OF_COMPLEX(...)
#define OF_PAIR(...)

#define ADD(name, number, bytes, text, kind, ...) OF_##kind(ADDING(name, bytes))
WEFT_DTYPE_TABLE(ADD)

#define WIDEN_ROW(name, number, bytes, text, kind, ...)                        \
    OF_##kind([number] = widen_##name, )
#define NARROW_ROW(name, number, bytes, text, kind, ...)                       \
    OF_##kind([number] = narrow_##name, )
#define ADD_ROW(name, number, bytes, text, kind, ...)                          \
    OF_##kind([number] = add_##name, )
#define SUM_ROW(name, number, bytes, text, kind, ...)                          \
    OF_##kind([number] = sum_##name, )

const wf_row_kernels WF_ROW_KERNELS = {
    .fetch = CLASSES(fetch),
    .put = CLASSES(put),
    .pick_i32 = CLASSES(pick_i32),
    .pick_i64 = CLASSES(pick_i64),
    .stream_i32 = CLASSES(stream_i32),
    .stream_i64 = CLASSES(stream_i64),
    .read_i32 = CLASSES(read_i32),
    .read_i64 = CLASSES(read_i64),
    .read_one = CLASSES(read_one),
    .widen = {WEFT_DTYPE_TABLE(WIDEN_ROW)},
    .narrow = {WEFT_DTYPE_TABLE(NARROW_ROW)},
    .add = {WEFT_DTYPE_TABLE(ADD_ROW)},
    .sum = {WEFT_DTYPE_TABLE(SUM_ROW)},
    .survey_i32 = survey_i32,
    .survey_i64 = survey_i64,
};
