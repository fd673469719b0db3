/* SPDX-License-Identifier: Apache-2.0 */
/* How the kernels deal work out.
 *
 * A row is cut into chunks of one vector each (16 bytes where everything is
 * aligned to that). A block takes a few whole rows; their chunks, counted one
 * after the other, are dealt to its threads, so that neighbours in a warp touch
 * neighbours in memory and no lane is idle, however many chunks a row has. Each
 * thread loads the row numbers of several chunks, then the chunks, then stores
 * them: that many loads are in flight at once. */
#ifndef WEFT_CUDA_ROWS_CUH
#define WEFT_CUDA_ROWS_CUH

#include <cuda_runtime.h>

#include "region/cuda/abi.h"

namespace weft
{

constexpr uint32_t kThreads = 256;

/* The numbers of the rows, and in which order they are worked on. */
struct Ids {
    const void *at;
    const uint32_t *order; /* nullptr: as they come */
    bool wide;             /* int64_t, else int32_t */
};

struct Bounds {
    uint64_t rows;
    weft_bounds mode;
    wf_cuda_bad *bad;
};

/* How `n` rows of `chunks` chunks are divided among thread blocks. */
struct RowGrid {
    uint64_t n;
    uint32_t chunks;
    uint32_t rows_per_block;
    uint64_t magic; /* j / chunks is j * magic >> 32 for the j of a block */
};

/* `chunks_wanted` is what a block's threads can have in flight. A row longer
 * than that has a block of its own, which then needs no division: 0. The
 * division is exact while j * chunks < 2^32, which wanted <= 2^12 sees to. */
inline RowGrid row_grid_of(uint64_t n, uint32_t chunks, uint32_t chunks_wanted)
{
    RowGrid grid = {n, chunks, chunks_wanted / chunks, 0};

    if (grid.rows_per_block <= 1) {
        grid.rows_per_block = 1;
    } else {
        grid.magic = ((uint64_t(1) << 32) + chunks - 1) / chunks;
    }
    return grid;
}

inline uint64_t blocks_of(const RowGrid &grid)
{
    return (grid.n + grid.rows_per_block - 1) / grid.rows_per_block;
}

constexpr uint64_t kBlocksMax = (uint64_t(1) << 31) - 1;

/* Blocks for a thread to each of `n`. */
inline uint32_t blocks_for(uint64_t n)
{
    return uint32_t((n + kThreads - 1) / kThreads);
}

template <typename Id>
__device__ inline int64_t load_id(const Ids &ids, uint64_t at)
{
    return static_cast<const Id *>(ids.at)[at];
}

/* Where which of the two is no matter of speed. */
__device__ inline int64_t load_id(const Ids &ids, uint64_t at)
{
    return ids.wide ? load_id<int64_t>(ids, at) : load_id<int32_t>(ids, at);
}

/* Keep one of the numbers past the end for wf_cuda_functions.check. */
__device__ inline void record_bad(const Bounds &bounds, int64_t id, uint64_t at)
{
    if (*reinterpret_cast<volatile uint32_t *>(&bounds.bad->seen) == 0 &&
        atomicCAS(&bounds.bad->seen, 0u, 1u) == 0) {
        bounds.bad->id = id;
        bounds.bad->at = at;
        bounds.bad->rows = bounds.rows;
    }
}

/* The row for number `id`, which is at position `at`; negative: leave it alone.
 */
__device__ inline int64_t row_of(const Bounds &bounds, int64_t id, uint64_t at)
{
    if (bounds.mode != WEFT_BOUNDS_UNCHECKED && id >= 0 &&
        uint64_t(id) >= bounds.rows) {
        if (bounds.mode == WEFT_BOUNDS_ERROR) {
            record_bad(bounds, id, at);
        }
        return -1;
    }
    return id;
}

/* One chunk of one row: which position in the ids, which chunk. */
struct Item {
    uint64_t at;
    uint32_t chunk;
};

__device__ inline Item item_of(const RowGrid &grid, uint64_t first_row,
                               uint32_t j)
{
    uint32_t row = uint32_t((j * grid.magic) >> 32);

    return {first_row + row, j - row * grid.chunks};
}

/* Chunks that this block has. */
__device__ inline uint32_t items_here(const RowGrid &grid, uint64_t first_row)
{
    uint64_t left = grid.n - first_row;
    uint32_t rows =
        left < grid.rows_per_block ? uint32_t(left) : grid.rows_per_block;

    return rows * grid.chunks;
}

/* The items of one thread's turn, and their rows. All numbers are loaded before
 * the first is looked at, so that the loads are under way together; a thread
 * that has no item any more loads the last one's and leaves it. */
template <typename Id, int kFlight>
__device__ inline void load_turn(const RowGrid &grid, const Ids &ids,
                                 const Bounds &bounds, uint64_t first_row,
                                 uint32_t j, uint32_t items,
                                 Item (&item)[kFlight], int64_t (&row)[kFlight])
{
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        item[k] = item_of(grid, first_row, min(j + k * kThreads, items - 1));
    }
    if (ids.order != nullptr) {
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            item[k].at = ids.order[item[k].at];
        }
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        row[k] = load_id<Id>(ids, item[k].at);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        row[k] =
            j + k * kThreads < items ? row_of(bounds, row[k], item[k].at) : -1;
    }
}

/* Where one kernel is for both kinds of ids. */
template <int kFlight>
__device__ inline void load_turn(const RowGrid &grid, const Ids &ids,
                                 const Bounds &bounds, uint64_t first_row,
                                 uint32_t j, uint32_t items,
                                 Item (&item)[kFlight], int64_t (&row)[kFlight])
{
    if (ids.wide) {
        load_turn<int64_t>(grid, ids, bounds, first_row, j, items, item, row);
    } else {
        load_turn<int32_t>(grid, ids, bounds, first_row, j, items, item, row);
    }
}

/* Loads that leave nothing behind in L1: whole sectors are used at once. */
__device__ inline uint4 load_once(const uint4 *p)
{
    uint4 v;

    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

/* Narrow chunks: neighbours in the sector are wanted by another warp. */
template <typename V> __device__ inline V load_once(const V *p)
{
    return __ldg(p);
}

template <typename V> __device__ inline void store_once(V *p, V v)
{
    __stcs(p, v);
}

} // namespace weft

#endif
