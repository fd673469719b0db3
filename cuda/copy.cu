/* SPDX-License-Identifier: Apache-2.0 */
/* Copying rows byte for byte: gather and scatter.
 *
 * Where addresses do not allow 16 bytes at a time, finding a row costs more
 * than moving a word of it. There a thread has several words of a row, each as
 * far behind the one before as the row has threads, so that neighbours still
 * touch neighbours. */
#include "kernels.cuh"

namespace weft
{

namespace
{

struct CopyArgs {
    Lines table;
    Lines rows;
    Ids ids;
    Bounds bounds;
    RowGrid grid;   /* its chunks: threads that a row has */
    uint32_t words; /* of a row */
};

template <typename V, typename Id, bool kGather, int kFlight, int kWords>
__global__ void __launch_bounds__(kThreads) copy_kernel(const CopyArgs args)
{
    const Lines &from = kGather ? args.table : args.rows;
    const Lines &to = kGather ? args.rows : args.table;
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_here(args.grid, first);

    /* Few long rows: the blocks of one grid column share a row. */
    const uint32_t turn = kThreads * kFlight;

    for (uint64_t j = threadIdx.x + uint64_t(blockIdx.y) * turn; j < items;
         j += uint64_t(gridDim.y) * turn) {
        Item item[kFlight];
        int64_t row[kFlight];
        V word[kFlight][kWords];

        load_turn<Id>(args.grid, args.ids, args.bounds, first, uint32_t(j),
                      items, item, row);
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            const V *at = chunk_at<const V>(from, kGather ? row[k] : item[k].at,
                                            item[k].chunk);
#pragma unroll
            for (int i = 0; i < kWords; i++) {
                const uint32_t ahead = i * args.grid.chunks;
                if (row[k] >= 0 &&
                    (kWords == 1 || item[k].chunk + ahead < args.words)) {
                    word[k][i] = load_once(at + ahead);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            V *at =
                chunk_at<V>(to, kGather ? item[k].at : row[k], item[k].chunk);
#pragma unroll
            for (int i = 0; i < kWords; i++) {
                const uint32_t ahead = i * args.grid.chunks;
                if (row[k] >= 0 &&
                    (kWords == 1 || item[k].chunk + ahead < args.words)) {
                    store_once(at + ahead, word[k][i]);
                }
            }
        }
    }
}

/* Blocks that share each row, so that a few long ones use the whole GPU. */
uint32_t blocks_per_row(const RowGrid &grid, uint64_t blocks, uint32_t flight)
{
    constexpr uint64_t enough = 2048;
    const uint64_t turns = grid.chunks / (kThreads * flight) + 1;
    const uint64_t wanted = enough / blocks + 1;

    return uint32_t(blocks >= enough ? 1 : turns < wanted ? turns : wanted);
}

template <typename V, int kFlight, int kWords>
int launch(const Move &move, uint64_t bytes)
{
    const uint64_t words = bytes / sizeof(V);

    if (words >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    const RowGrid grid = row_grid_of(
        move.n, uint32_t((words + kWords - 1) / kWords), kThreads * kFlight);
    const uint64_t blocks = blocks_of(grid);
    const CopyArgs args = {move.table,  move.rows, move.ids,
                           move.bounds, grid,      uint32_t(words)};
    auto wide = move.gather ? copy_kernel<V, int64_t, true, kFlight, kWords>
                            : copy_kernel<V, int64_t, false, kFlight, kWords>;
    auto narrow = move.gather ? copy_kernel<V, int32_t, true, kFlight, kWords>
                              : copy_kernel<V, int32_t, false, kFlight, kWords>;
    auto kernel = move.ids.wide ? wide : narrow;

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<dim3(uint32_t(blocks), blocks_per_row(grid, blocks, kFlight)),
             kThreads, 0, move.stream>>>(args);
    return last_error();
}

/* Short rows have few words to share out. */
template <typename V> int launch_words(const Move &move, uint64_t bytes)
{
    const uint64_t words = bytes / sizeof(V);

    if (words < 16) {
        return launch<V, 4, 1>(move, bytes);
    }
    return words < 64 ? launch<V, 4, 2>(move, bytes)
                      : launch<V, 2, 4>(move, bytes);
}

/* A call of few rows is spread over all multiprocessors; else 4, which keep
 * more bytes under way than the memory's latency asks for. */
uint32_t flight_of(const Move &move, uint64_t bytes)
{
    constexpr uint64_t few = uint64_t(132) * kThreads * 4;

    if (move.tune != 0) {
        return move.tune;
    }
    return move.n * (bytes / sizeof(uint4)) <= few ? 1 : 4;
}

int launch_widest(const Move &move, uint64_t bytes)
{
    switch (flight_of(move, bytes)) {
    case 1:
        return launch<uint4, 1, 1>(move, bytes);
    case 2:
        return launch<uint4, 2, 1>(move, bytes);
    case 8:
        return launch<uint4, 8, 1>(move, bytes);
    default:
        return launch<uint4, 4, 1>(move, bytes);
    }
}

} // namespace

int copy_rows(const Move &move, uint64_t bytes)
{
    const uint64_t all = move.table_bits |
                         reinterpret_cast<uint64_t>(move.rows.at) |
                         move.rows.pitch | bytes;

    if (all % 16 == 0) {
        return launch_widest(move, bytes);
    }
    if (packs(move, bytes)) {
        return pack_rows(move, bytes);
    }
    if (all % 8 == 0) {
        return launch_words<uint2>(move, bytes);
    }
    if (all % 4 == 0) {
        return launch_words<unsigned>(move, bytes);
    }
    if (all % 2 == 0) {
        return launch_words<unsigned short>(move, bytes);
    }
    return launch_words<unsigned char>(move, bytes);
}

} // namespace weft
