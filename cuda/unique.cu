/* SPDX-License-Identifier: Apache-2.0 */
/* Sum the gradients of equal ids: sort, then add run by run, so that the order
 * of additions depends on the ids alone. A long run would keep one thread busy
 * for ever; it is noted, and a whole block then shares it. */
#include "floats.cuh"
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr uint32_t kLong = 64;        /* a run of more rows is shared */
constexpr uint32_t kLongBlocks = 528; /* four for each multiprocessor */
constexpr uint32_t kTile = 32;        /* columns that a warp has at a time */
constexpr uint32_t kWarps = kThreads / kTile;

struct SumArgs {
    Lines grads;
    Lines sums;
    Ids ids;
    Runs runs;
    RowGrid grid; /* n is an upper bound of the runs */
    uint64_t ids_n;
    void *out_ids;
    unsigned long long *out_count;
    uint32_t *long_runs;
    uint32_t *long_count;
};

/* The number of each run, and -1 behind the last. */
__global__ void __launch_bounds__(kThreads) id_kernel(const SumArgs args)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;
    const uint32_t count = *args.runs.count;

    if (at >= args.ids_n) {
        return;
    }
    const int64_t id =
        at < count
            ? load_id(args.ids, args.runs.positions[args.runs.starts[at]])
            : -1;
    if (args.ids.wide) {
        static_cast<int64_t *>(args.out_ids)[at] = id;
    } else {
        static_cast<int32_t *>(args.out_ids)[at] = int32_t(id);
    }
    if (at < count && args.runs.starts[at + 1] - args.runs.starts[at] > kLong) {
        args.long_runs[atomicAdd(args.long_count, 1u)] = uint32_t(at);
    }
    if (at == 0) {
        *args.out_count = count;
    }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) short_kernel(const SumArgs args)
{
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_of_runs(args.runs, args.grid, first);

    for (uint32_t j = threadIdx.x; j < items; j += kThreads) {
        const Item item = item_of(args.grid, first, j);
        const uint32_t begin = args.runs.starts[item.at];
        const uint32_t end = args.runs.starts[item.at + 1];
        float sum = 0;

        if (end - begin > kLong) {
            continue;
        }
#pragma unroll 4
        for (uint32_t k = begin; k < end; k++) {
            sum += to_float(*chunk_at<const T>(
                args.grads, args.runs.positions[k], item.chunk));
        }
        *chunk_at<float>(args.sums, item.at, item.chunk) = sum;
    }
}

/* Each warp adds every kWarps-th row of a tile of columns; then the first adds
 * what the warps have, in their order. */
template <typename T>
__global__ void __launch_bounds__(kThreads) long_kernel(const SumArgs args)
{
    __shared__ float part[kWarps][kTile];
    const uint32_t lane = threadIdx.x % kTile;
    const uint32_t warp = threadIdx.x / kTile;
    const uint32_t width = args.grid.chunks;
    const uint32_t tiles = (width + kTile - 1) / kTile;
    const uint64_t work = uint64_t(*args.long_count) * tiles;

    for (uint64_t i = blockIdx.x; i < work; i += gridDim.x) {
        const uint32_t run = args.long_runs[i / tiles];
        const uint32_t column = uint32_t(i % tiles) * kTile + lane;
        const uint32_t end = args.runs.starts[run + 1];
        float sum = 0;

        if (column < width) {
#pragma unroll 8
            for (uint32_t k = args.runs.starts[run] + warp; k < end;
                 k += kWarps) {
                sum += to_float(*chunk_at<const T>(
                    args.grads, args.runs.positions[k], column));
            }
        }
        part[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && column < width) {
            for (uint32_t w = 1; w < kWarps; w++) {
                sum += part[w][lane];
            }
            *chunk_at<float>(args.sums, run, column) = sum;
        }
        __syncthreads();
    }
}

template <typename T> int launch(const SumArgs &args, cudaStream_t stream)
{
    const uint64_t blocks = blocks_of(args.grid);

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    id_kernel<<<blocks_for(args.ids_n), kThreads, 0, stream>>>(args);
    if (blocks > 0) {
        short_kernel<T><<<uint32_t(blocks), kThreads, 0, stream>>>(args);
        long_kernel<T><<<kLongBlocks, kThreads, 0, stream>>>(args);
    }
    return last_error();
}

/* What does not lie in scratch memory. */
SumArgs args_of(const wf_cuda_unique_call *call)
{
    SumArgs args = {};

    args.grads = {static_cast<char *>(call->grads.at), call->grads.pitch};
    args.sums = {reinterpret_cast<char *>(call->out_grads), call->out_pitch};
    args.ids = {call->ids.at, nullptr, call->ids.type == WEFT_I64};
    args.ids_n = call->ids.n;
    /* A width of 0 has no chunks to deal out, but its ids count. */
    args.grid =
        row_grid_of(call->width == 0 ? 0 : call->ids.n,
                    call->width == 0 ? 1 : uint32_t(call->width), kThreads);
    args.out_ids = call->out_ids;
    args.out_count = reinterpret_cast<unsigned long long *>(call->out_count);
    return args;
}

} // namespace

int unique(const wf_cuda_unique_call *call)
{
    const uint64_t n = call->ids.n;
    StreamState *state;
    int error = stream_state(call->stream, &state);

    if (error != 0) {
        return error;
    }
    if (n == 0) {
        return cudaMemsetAsync(call->out_count, 0, sizeof(uint64_t),
                               state->stream);
    }
    if (call->width >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    Scratch scratch(state);
    const size_t long_most = n / kLong + 1;
    const Bounds bounds = {call->rows, WEFT_BOUNDS_SKIP, nullptr};
    error = scratch.reserve(runs_room(n) +
                            Scratch::room(long_most * sizeof(uint32_t)) +
                            Scratch::room(sizeof(uint32_t)));
    if (error != 0) {
        return error;
    }
    SumArgs args = args_of(call);
    error = find_runs(args.ids, bounds, n, scratch, state->stream, &args.runs);
    args.long_runs = scratch.take<uint32_t>(long_most);
    args.long_count = scratch.take<uint32_t>(1);
    if (error == 0) {
        error = cudaMemsetAsync(args.long_count, 0, sizeof(uint32_t),
                                state->stream);
    }
    if (error != 0) {
        return error;
    }
    return for_trained(call->grads.type, [&](auto g) {
        return launch<decltype(g)>(args, state->stream);
    });
}

} // namespace weft
