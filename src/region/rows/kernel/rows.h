/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of row operations, for each level of the CPU. All levels give the
 * same bits; only their speed differs.
 *
 * A kernel knows nothing of regions and threads. It gets moves: where a row
 * goes and where it comes from. One side of a move is near, the dense array of
 * the caller, which the CPU's own prefetcher follows; the other is far,
 * somewhere in a table, and is asked for some moves ahead of its turn. For the
 * most frequent call, a gather from a flat table, there are kernels that take
 * the ids themselves: making a list of moves first leaves memory idle. */
#ifndef WF_REGION_ROWS_KERNEL_ROWS_H
#define WF_REGION_ROWS_KERNEL_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/types.h"

/* Sizes and types are constants where kernels are made, and the code for all
 * others must vanish. */
#define WF_INLINE static inline __attribute__((always_inline))

typedef struct wf_move {
    char *to;
    const char *from;
} wf_move;

/* Copy `n` rows of `bytes` each. The `ahead` moves behind the last one must be
 * there, too: their far sides are asked for. */
typedef void wf_copy_fn(const wf_move *moves, size_t n, size_t ahead,
                        size_t bytes);

/* Rows of a flat table, picked by their numbers into a dense array. A number
 * that is negative, or `rows` or more, leaves its row of the array as it is. */
typedef struct wf_pick {
    const char *table;
    uint64_t pitch;
    uint64_t rows;
    const void *ids;
    char *to;
    uint64_t to_pitch;
    size_t bytes;
    size_t ahead; /* how far a row is asked for ahead of its turn */
    size_t asked; /* and how much of it; rows of two lines: all */
} wf_pick;

/* Copy the rows that ids `at` to `end` name. */
typedef void wf_pick_fn(const wf_pick *pick, uint64_t at, uint64_t end);

/* Rows behind a lock word, which other threads and processes change at any
 * time: `table` and `pitch` are those of the words, 8 bytes in front of their
 * rows. Copies the rows of `ids` to `to`, instead of those that `pick` names,
 * from `at` to `end`, up to the first one that is being written, whose word has
 * a bit of `busy`, or was meanwhile, whose word has changed; and returns its
 * number, or `end`. What was copied of that row is worth nothing. */
typedef uint64_t wf_read_fn(const wf_pick *pick, const void *ids, char *to,
                            uint64_t busy, uint64_t at, uint64_t end);

/* One such row, with its word in front, of `bytes` without it: was it copied?
 */
typedef bool wf_read_one_fn(const char *row, char *to, uint64_t busy,
                            size_t bytes);

/* Copies that are compiled for one size: 1 << class bytes. */
enum { WF_ROW_SIZES = 10, WF_ROW_ANY = WF_ROW_SIZES, WF_ROW_CLASSES };

/* Elements of one type to those that conversions pass through, and back: f32
 * for floating types, i64 for integers. NULL where there is none. */
typedef void wf_widen_fn(void *to, const void *from, size_t n);

/* to[i] += from[i] for `n` elements, each whole for all threads and processes
 * that do the same. `to` is aligned to its elements. NULL where there is none:
 * complex numbers are added by their parts. */
typedef void wf_add_fn(char *to, const char *from, size_t n);

/* The same for rows that nobody else touches meanwhile. Nothing has to be
 * aligned. */
typedef void wf_sum_fn(char *restrict to, const char *restrict from, size_t n);

/* What there is to know of ids before anything is written. */
typedef struct wf_survey {
    uint64_t negative;
    uint64_t past; /* `rows` or more */
    uint64_t own;  /* low <= id < high */
} wf_survey;

/* Add what the `n` ids at `ids` are to `*out`. */
typedef void wf_survey_fn(const void *ids, size_t n, int64_t rows, int64_t low,
                          int64_t high, wf_survey *out);

typedef struct wf_row_kernels {
    wf_copy_fn *fetch[WF_ROW_CLASSES]; /* `from` is far */
    wf_copy_fn *put[WF_ROW_CLASSES];   /* `to` is far */
    wf_pick_fn *pick_i32[WF_ROW_CLASSES];
    wf_pick_fn *pick_i64[WF_ROW_CLASSES];
    wf_pick_fn *stream_i32[WF_ROW_CLASSES]; /* the same, past the caches */
    wf_pick_fn *stream_i64[WF_ROW_CLASSES];
    wf_read_fn *read_i32[WF_ROW_CLASSES];
    wf_read_fn *read_i64[WF_ROW_CLASSES];
    wf_read_one_fn *read_one[WF_ROW_CLASSES];
    wf_widen_fn *widen[WF_DTYPE_COUNT];
    wf_widen_fn *narrow[WF_DTYPE_COUNT];
    wf_add_fn *add[WF_DTYPE_COUNT];
    wf_sum_fn *sum[WF_DTYPE_COUNT];
    wf_survey_fn *survey_i32;
    wf_survey_fn *survey_i64;
} wf_row_kernels;

extern const wf_row_kernels wf_row_kernels_plain;
#if defined(__x86_64__)
extern const wf_row_kernels wf_row_kernels_avx2;
extern const wf_row_kernels wf_row_kernels_avx512;
#endif

/* The kernels of `level`, which must be one that this CPU can do. */
const wf_row_kernels *wf_row_kernels_of(wf_cpu_level level);

/* Index into fetch, put and the others for rows of `bytes`. */
unsigned wf_row_class(size_t bytes);

/* How many moves ahead of its turn a row of `bytes` should be asked for. */
enum { WF_ROWS_AHEAD_MAX = 32 };
size_t wf_rows_ahead(size_t bytes);

/* How many bytes of it should be, if the row is stored as usual: the processor
 * may see to the others itself. */
size_t wf_rows_asked(size_t bytes);

/* Are streaming stores of such rows whole cache lines, or nearly so? */
bool wf_rows_streamable(const void *to, size_t pitch, size_t bytes);

#endif
