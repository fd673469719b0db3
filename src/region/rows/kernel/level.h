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

#define COPIES(name, size)                                                     \
    MOVES(fetch, name, size, false)                                            \
    MOVES(put, name, size, true)                                               \
    PICKS(pick_i32, name, size, false, STORE_USUAL)                            \
    PICKS(pick_i64, name, size, true, STORE_USUAL)                             \
    PICKS(stream_i32, name, size, false, STORE_STREAM)                         \
    PICKS(stream_i64, name, size, true, STORE_STREAM)

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

const wf_row_kernels WF_ROW_KERNELS = {
    .fetch = CLASSES(fetch),
    .put = CLASSES(put),
    .pick_i32 = CLASSES(pick_i32),
    .pick_i64 = CLASSES(pick_i64),
    .stream_i32 = CLASSES(stream_i32),
    .stream_i64 = CLASSES(stream_i64),
    .widen =
        {
            [WEFT_BOOL] = i64_from_bool,
            [WEFT_U8] = i64_from_u8,
            [WEFT_I8] = i64_from_i8,
            [WEFT_I16] = i64_from_i16,
            [WEFT_I32] = i64_from_i32,
            [WEFT_I64] = i64_from_i64,
            [WEFT_F16] = f32_from_f16,
            [WEFT_BF16] = f32_from_bf16,
            [WEFT_F32] = f32_from_f32,
            [WEFT_F64] = f32_from_f64,
        },
    .narrow =
        {
            [WEFT_BOOL] = i64_to_bool,
            [WEFT_U8] = i64_to_8,
            [WEFT_I8] = i64_to_8,
            [WEFT_I16] = i64_to_16,
            [WEFT_I32] = i64_to_32,
            [WEFT_I64] = i64_from_i64,
            [WEFT_F16] = f32_to_f16,
            [WEFT_BF16] = f32_to_bf16,
            [WEFT_F32] = f32_from_f32,
            [WEFT_F64] = f32_to_f64,
        },
    .add =
        {
            [WEFT_BOOL] = add_bool,
            [WEFT_U8] = add_8,
            [WEFT_I8] = add_8,
            [WEFT_I16] = add_16,
            [WEFT_I32] = add_32,
            [WEFT_I64] = add_64,
            [WEFT_F16] = add_f16,
            [WEFT_BF16] = add_bf16,
            [WEFT_F32] = add_f32,
            [WEFT_F64] = add_f64,
            [WEFT_C64] = add_c64,
            [WEFT_C128] = add_c128,
        },
    .survey_i32 = survey_i32,
    .survey_i64 = survey_i64,
};
