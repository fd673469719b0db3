/* SPDX-License-Identifier: Apache-2.0 */
/* Rows from one place to another, byte for byte: gather and scatter. */
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
    Share share;
};

template <typename V>
__device__ inline V *chunk_at(const Lines &lines, uint64_t line, uint32_t chunk)
{
    return reinterpret_cast<V *>(lines.at + line * lines.pitch) + chunk;
}

template <typename V, typename Id, bool kGather, int kFlight>
__global__ void __launch_bounds__(kThreads) copy_kernel(const CopyArgs args)
{
    const Lines &from = kGather ? args.table : args.rows;
    const Lines &to = kGather ? args.rows : args.table;
    const uint64_t first = uint64_t(blockIdx.x) * args.share.rows_per_block;
    const uint32_t items = items_here(args.share, first);

    /* Few long rows: the blocks of one grid column share a row. */
    const uint32_t turn = kThreads * kFlight;

    for (uint64_t j = threadIdx.x + uint64_t(blockIdx.y) * turn; j < items;
         j += uint64_t(gridDim.y) * turn) {
        Item item[kFlight];
        int64_t row[kFlight];
        V chunk[kFlight];

        load_turn<Id>(args.share, args.ids, args.bounds, first, uint32_t(j),
                      items, item, row);
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                chunk[k] = load_once(chunk_at<const V>(
                    from, kGather ? row[k] : item[k].at, item[k].chunk));
            }
        }
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                store_once(chunk_at<V>(to, kGather ? item[k].at : row[k],
                                       item[k].chunk),
                           chunk[k]);
            }
        }
    }
}

/* Blocks that share each row, so that a few long ones use the whole GPU. */
uint32_t sharers_of(const Share &share, uint64_t blocks, uint32_t flight)
{
    constexpr uint64_t enough = 2048;
    const uint64_t turns = share.chunks / (kThreads * flight) + 1;
    const uint64_t wanted = enough / blocks + 1;

    return uint32_t(blocks >= enough ? 1 : turns < wanted ? turns : wanted);
}

template <typename V, int kFlight> int launch(const Move &move, uint64_t bytes)
{
    const uint64_t chunks = bytes / sizeof(V);

    if (chunks >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    const Share share = share_of(move.n, uint32_t(chunks), kThreads * kFlight);
    const uint64_t blocks = blocks_of(share);
    const CopyArgs args = {move.table, move.rows, move.ids, move.bounds, share};
    auto kernel = move.ids.wide
                      ? (move.gather ? copy_kernel<V, int64_t, true, kFlight>
                                     : copy_kernel<V, int64_t, false, kFlight>)
                      : (move.gather ? copy_kernel<V, int32_t, true, kFlight>
                                     : copy_kernel<V, int32_t, false, kFlight>);

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<dim3(uint32_t(blocks), sharers_of(share, blocks, kFlight)),
             kThreads, 0, move.stream>>>(args);
    return last_error();
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
        return launch<uint4, 1>(move, bytes);
    case 2:
        return launch<uint4, 2>(move, bytes);
    case 8:
        return launch<uint4, 8>(move, bytes);
    default:
        return launch<uint4, 4>(move, bytes);
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
    if (all % 8 == 0) {
        return launch<uint2, 4>(move, bytes);
    }
    if (all % 4 == 0) {
        return launch<unsigned, 4>(move, bytes);
    }
    if (all % 2 == 0) {
        return launch<unsigned short, 8>(move, bytes);
    }
    return launch<unsigned char, 8>(move, bytes);
}

} // namespace weft
