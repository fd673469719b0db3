/* SPDX-License-Identifier: Apache-2.0 */
/* Copying rows and converting them to another type of their class. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

/* f64 goes to the 16-bit types through f32, as in torch. */
template <typename To, typename From> struct Convert {
    static __device__ To of(From v)
    {
        return static_cast<To>(v);
    }
};
template <typename From> struct Convert<__half, From> {
    static __device__ __half of(From v)
    {
        return __float2half_rn(static_cast<float>(v));
    }
};
template <typename From> struct Convert<__nv_bfloat16, From> {
    static __device__ __nv_bfloat16 of(From v)
    {
        return __float2bfloat16_rn(static_cast<float>(v));
    }
};
template <> struct Convert<double, __half> {
    static __device__ double of(__half v)
    {
        return __half2float(v);
    }
};
template <> struct Convert<double, __nv_bfloat16> {
    static __device__ double of(__nv_bfloat16 v)
    {
        return __bfloat162float(v);
    }
};

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
                              item[k].chunk) = Convert<To, From>::of(value[k]);
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

template <typename From> int from_float(const Move &move, weft_dtype to)
{
    switch (to) {
    case WEFT_F16:
        return launch<From, __half>(move);
    case WEFT_BF16:
        return launch<From, __nv_bfloat16>(move);
    case WEFT_F32:
        return launch<From, float>(move);
    case WEFT_F64:
        return launch<From, double>(move);
    default:
        return WF_CUDA_UNSUPPORTED;
    }
}

template <typename From> int from_integer(const Move &move, weft_dtype to)
{
    switch (to) {
    case WEFT_BOOL:
        return launch<From, bool>(move);
    case WEFT_U8:
        return launch<From, uint8_t>(move);
    case WEFT_I8:
        return launch<From, int8_t>(move);
    case WEFT_I16:
        return launch<From, int16_t>(move);
    case WEFT_I32:
        return launch<From, int32_t>(move);
    case WEFT_I64:
        return launch<From, int64_t>(move);
    default:
        return WF_CUDA_UNSUPPORTED;
    }
}

} // namespace

int convert_rows(const Move &move, weft_dtype from, weft_dtype to)
{
    switch (from) {
    case WEFT_F16:
        return from_float<__half>(move, to);
    case WEFT_BF16:
        return from_float<__nv_bfloat16>(move, to);
    case WEFT_F32:
        return from_float<float>(move, to);
    case WEFT_F64:
        return from_float<double>(move, to);
    case WEFT_BOOL:
        return from_integer<bool>(move, to);
    case WEFT_U8:
        return from_integer<uint8_t>(move, to);
    case WEFT_I8:
        return from_integer<int8_t>(move, to);
    case WEFT_I16:
        return from_integer<int16_t>(move, to);
    case WEFT_I32:
        return from_integer<int32_t>(move, to);
    case WEFT_I64:
        return from_integer<int64_t>(move, to);
    default:
        return WF_CUDA_UNSUPPORTED;
    }
}

} // namespace weft
