/* SPDX-License-Identifier: Apache-2.0 */
/* Row-wise Adagrad: the mean square of a row's gradient is needed before any of
 * its weights can change.
 *
 * A row of up to 32 chunks has just as many lanes, or the next power of two, so
 * that a warp has several short rows, and each group of lanes has some more
 * under way; all of a row stays in registers. A longer row has a warp, which
 * reads it twice. One lane loads and stores the row's number. */
#include "update.cuh"

namespace weft
{

namespace
{

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAll = 0xFFFFFFFFu;
constexpr int kRows = 4; /* of a group, under way at once */

template <typename W, int kCount> struct Part {
    Vector<W, kCount> w;
    Vector<float, kCount> g;
};

template <typename W, int kCount>
__device__ inline Part<W, kCount> load_part(const UpdateArgs &args, int64_t row,
                                            uint64_t at, uint32_t chunk)
{
    return {*chunk_at<Vector<W, kCount>>(args.weights, row, chunk),
            *chunk_at<Vector<float, kCount>>(args.grads, at, chunk)};
}

template <typename W, int kCount>
__device__ inline float square_of(const Rule &rule, const Part<W, kCount> &part)
{
    float sum = 0;

#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const float g = part.g.of[i] + rule.decay * to_float(part.w.of[i]);
        sum += g * g;
    }
    return sum;
}

/* The new weights. */
template <typename W, int kCount>
__device__ inline Vector<W, kCount> step_part(const Rule &rule, float rate,
                                              const Part<W, kCount> &part)
{
    Vector<W, kCount> out;

#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const float w = to_float(part.w.of[i]);
        const float g = part.g.of[i] + rule.decay * w;
        out.of[i] = from_float<W>(w - rate * g);
    }
    return out;
}

/* One division for a row, and not one for each weight. */
__device__ inline float rate_of(const Rule &rule, float s)
{
    return rule.lr / (sqrtf(s) + rule.eps);
}

/* The sum over a group of lanes, in all of them. */
template <int kLanes> __device__ inline float sum_over(float sum)
{
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(kAll, sum, apart);
    }
    return sum;
}

/* The numbers of every `apart`-th position from `first` on, of which the type
 * is asked once: the loads are under way together. Behind the end it is the
 * last one's. */
template <typename Id>
__device__ inline void load_ids(const UpdateArgs &args, uint64_t first,
                                uint32_t apart, int64_t (&id)[kRows])
{
#pragma unroll
    for (int k = 0; k < kRows; k++) {
        id[k] = load_id<Id>(args.ids, min(first + k * apart, args.grid.n - 1));
    }
}

/* All lanes of a warp stay to the end, rows or not: they sum together. */
template <typename W, int kCount, int kLanes>
__global__ void __launch_bounds__(kThreads)
    rowwise_kernel(const UpdateArgs args)
{
    constexpr uint32_t groups = kThreads / kLanes;
    const uint32_t lane = threadIdx.x % kLanes;
    const uint64_t first =
        uint64_t(blockIdx.x) * groups * kRows + threadIdx.x / kLanes;
    const bool has_chunk = lane < args.grid.chunks;
    int64_t row[kRows];
    float state[kRows];
    Part<W, kCount> part[kRows];

    if (args.ids.wide) {
        load_ids<int64_t>(args, first, groups, row);
    } else {
        load_ids<int32_t>(args, first, groups, row);
    }
#pragma unroll
    for (int k = 0; k < kRows; k++) {
        const uint64_t at = first + k * groups;

        row[k] = at < args.grid.n ? row_of(args.bounds, row[k], at) : -1;
        state[k] = 0;
        if (row[k] >= 0 && lane == 0) {
            state[k] = *chunk_at<float>(args.state[0], row[k], 0);
        }
        if (row[k] >= 0 && has_chunk) {
            part[k] = load_part<W, kCount>(args, row[k], at, lane);
        }
    }
#pragma unroll
    for (int k = 0; k < kRows; k++) {
        const bool mine = row[k] >= 0 && has_chunk;
        const float sum =
            sum_over<kLanes>(mine ? square_of(args.rule, part[k]) : 0.0f);
        const float s =
            __shfl_sync(kAll, state[k], 0, kLanes) + sum / float(args.width);

        if (row[k] >= 0 && lane == 0) {
            *chunk_at<float>(args.state[0], row[k], 0) = s;
        }
        if (mine) {
            *chunk_at<Vector<W, kCount>>(args.weights, row[k], lane) =
                step_part(args.rule, rate_of(args.rule, s), part[k]);
        }
    }
}

/* A warp for each row. */
template <typename W, int kCount>
__global__ void __launch_bounds__(kThreads)
    rowwise_long_kernel(const UpdateArgs args)
{
    const uint32_t lane = threadIdx.x % kWarp;
    const uint64_t at =
        uint64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
    float sum = 0;

    if (at >= args.grid.n) {
        return;
    }
    const int64_t row = row_of(args.bounds, load_id(args.ids, at), at);
    if (row < 0) {
        return;
    }
    float *state = chunk_at<float>(args.state[0], row, 0);
    float s = lane == 0 ? *state : 0.0f;
    for (uint32_t c = lane; c < args.grid.chunks; c += kWarp) {
        sum += square_of(args.rule, load_part<W, kCount>(args, row, at, c));
    }
    s = __shfl_sync(kAll, s, 0) + sum_over<int(kWarp)>(sum) / float(args.width);
    if (lane == 0) {
        *state = s;
    }
    for (uint32_t c = lane; c < args.grid.chunks; c += kWarp) {
        *chunk_at<Vector<W, kCount>>(args.weights, row, c) =
            step_part(args.rule, rate_of(args.rule, s),
                      load_part<W, kCount>(args, row, at, c));
    }
}

using Kernel = void (*)(UpdateArgs);

/* The kernel for rows of `chunks` chunks, and the rows of one of its blocks. */
template <typename W, int kCount>
Kernel kernel_for(uint32_t chunks, uint64_t *rows)
{
    *rows = uint64_t(kThreads) / kWarp;
    if (chunks > kWarp) {
        return rowwise_long_kernel<W, kCount>;
    }
    *rows *= kRows;
    if (chunks > 16) {
        return rowwise_kernel<W, kCount, 32>;
    }
    *rows *= 2;
    if (chunks > 8) {
        return rowwise_kernel<W, kCount, 16>;
    }
    *rows *= 2;
    if (chunks > 4) {
        return rowwise_kernel<W, kCount, 8>;
    }
    *rows *= 2;
    return rowwise_kernel<W, kCount, 4>;
}

template <typename W, int kCount>
int launch(UpdateArgs args, cudaStream_t stream)
{
    uint64_t rows;

    args.grid.chunks = args.width / kCount;
    const Kernel kernel = kernel_for<W, kCount>(args.grid.chunks, &rows);
    const uint64_t blocks = (args.grid.n + rows - 1) / rows;
    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<uint32_t(blocks), kThreads, 0, stream>>>(args);
    return last_error();
}

/* Four elements at once where all addresses allow it. */
template <typename W>
int launch_width(const UpdateArgs &args, cudaStream_t stream)
{
    const bool four = args.width % 4 == 0 && aligned(args.grads, 16) &&
                      aligned(args.weights, 4 * sizeof(W));

    return four ? launch<W, 4>(args, stream) : launch<W, 1>(args, stream);
}

} // namespace

int update_rowwise(UpdateArgs args, weft_dtype type, cudaStream_t stream)
{
    return for_trained(
        type, [&](auto w) { return launch_width<decltype(w)>(args, stream); });
}

} // namespace weft
