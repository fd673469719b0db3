/* SPDX-License-Identifier: Apache-2.0 */
/* Copying rows and converting them to another type of their class. */
#include "floats.cuh"
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr int kFlight = 4;

struct ConvertArgs {
    Lines from;
    Lines to;
    bool gather;
    Ids ids;
    Bounds bounds;
    RowGrid grid;
};

/* To and from a narrow float through f32, as in torch. */
template <typename To, typename From> __device__ inline To convert(From v)
{
    if constexpr (kIsNarrow<To> || kIsNarrow<From>) {
        return from_float<To>(to_float(v));
    } else {
        return static_cast<To>(v);
    }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const ConvertArgs args)
{
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_here(args.grid, first);

    for (uint32_t j = threadIdx.x; j < items; j += kThreads * kFlight) {
        Item item[kFlight];
        int64_t row[kFlight];
        From value[kFlight];

        load_turn(args.grid, args.ids, args.bounds, first, j, items, item, row);
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                value[k] = *chunk_at<const From>(
                    args.from, args.gather ? row[k] : item[k].at,
                    item[k].chunk);
            }
        }
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                *chunk_at<To>(args.to, args.gather ? item[k].at : row[k],
                              item[k].chunk) = convert<To>(value[k]);
            }
        }
    }
}

template <typename From, typename To> int launch(const Move &move)
{
    if (move.width >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    const RowGrid grid =
        row_grid_of(move.n, uint32_t(move.width), kThreads * kFlight);
    const ConvertArgs args = {move.gather ? move.table : move.rows,
                              move.gather ? move.rows : move.table,
                              move.gather,
                              move.ids,
                              move.bounds,
                              grid};

    return launch_rows(convert_kernel<From, To>, args, move.stream);
}

template <unsigned kClasses>
int launch_types(const Move &move, weft_dtype from, weft_dtype to)
{
    return for_types<kClasses>(from, [&](auto f) {
        return for_types<kClasses>(
            to, [&](auto t) { return launch<decltype(f), decltype(t)>(move); });
    });
}

} // namespace

int convert_rows(const Move &move, weft_dtype from, weft_dtype to)
{
    return wf_dtype_is(from, WF_FLOAT) ? launch_types<WF_FLOAT>(move, from, to)
                                       : launch_types<WF_WHOLE>(move, from, to);
}

} // namespace weft
