/* SPDX-License-Identifier: Apache-2.0 */
/* Adding scatter: by atomic additions in no order, or run by run in theirs. */
#include "floats.cuh"
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr int kFlight = 4;

struct AddArgs {
    Lines table;
    Lines rows;
    Ids ids;
    Bounds bounds;
    RowGrid grid;
};

/* Each adder says what a chunk is, and how one is added so that no other
 * addition is lost. Those for the GPU's own memory add 16 bytes at once. */
struct AddF32x4 {
    using Chunk = float4;
    static __device__ void add(Chunk *to, Chunk v)
    {
        asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to),
                     "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                     : "memory");
    }
};

struct AddF16x8 {
    using Chunk = uint4;
    static __device__ void add(Chunk *to, Chunk v)
    {
        asm volatile(
            "red.global.add.noftz.v4.f16x2 [%0], {%1,%2,%3,%4};" ::"l"(to),
            "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
            : "memory");
    }
};

struct AddBf16x8 {
    using Chunk = uint4;
    static __device__ void add(Chunk *to, Chunk v)
    {
        asm volatile(
            "red.global.add.noftz.v4.bf16x2 [%0], {%1,%2,%3,%4};" ::"l"(to),
            "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
            : "memory");
    }
};

/* One element, seen by all processors of the host: the table may lie there. */
template <typename T> struct AddWhole {
    using Chunk = T;
    static __device__ void add(Chunk *to, Chunk v)
    {
        atomicAdd_system(to, v);
    }
};

/* How two elements are added where no instruction does it. */
template <typename T> __device__ inline T sum_of(T a, T b)
{
    return T(a + b);
}
template <> __device__ inline bool sum_of(bool a, bool b)
{
    return a || b;
}
template <> __device__ inline __half sum_of(__half a, __half b)
{
    return from_float<__half>(to_float(a) + to_float(b));
}
template <>
__device__ inline __nv_bfloat16 sum_of(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return from_float<__nv_bfloat16>(to_float(a) + to_float(b));
}

/* Elements of one or two bytes: exchange the word that they are in. */
template <typename T> struct AddNarrow {
    using Chunk = T;
    static __device__ void add(Chunk *to, Chunk v)
    {
        const uint64_t at = reinterpret_cast<uint64_t>(to);
        const uint32_t shift = uint32_t(at % 4) * 8;
        const uint32_t mask = (sizeof(T) == 1 ? 0xFFu : 0xFFFFu) << shift;
        unsigned *word = reinterpret_cast<unsigned *>(at & ~uint64_t(3));
        unsigned old = *reinterpret_cast<volatile unsigned *>(word);
        unsigned seen;

        do {
            union {
                T element;
                unsigned bits;
            } now = {};

            seen = old;
            now.bits = (seen & mask) >> shift;
            now.element = sum_of(now.element, v);
            now.bits = (seen & ~mask) | ((now.bits << shift) & mask);
            old = atomicCAS_system(word, seen, now.bits);
        } while (old != seen);
    }
};

template <typename Adder>
__global__ void __launch_bounds__(kThreads) add_kernel(const AddArgs args)
{
    using Chunk = typename Adder::Chunk;
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_here(args.grid, first);

    for (uint32_t j = threadIdx.x; j < items; j += kThreads * kFlight) {
        Item item[kFlight];
        int64_t row[kFlight];
        Chunk chunk[kFlight];

        load_turn(args.grid, args.ids, args.bounds, first, j, items, item, row);
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                chunk[k] = *chunk_at<const Chunk>(args.rows, item[k].at,
                                                  item[k].chunk);
            }
        }
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                Adder::add(chunk_at<Chunk>(args.table, row[k], item[k].chunk),
                           chunk[k]);
            }
        }
    }
}

template <typename Adder> int launch(const Move &move, uint64_t bytes)
{
    const uint64_t chunks = bytes / sizeof(typename Adder::Chunk);

    if (chunks >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    const RowGrid grid =
        row_grid_of(move.n, uint32_t(chunks), kThreads * kFlight);
    const AddArgs args = {move.table, move.rows, move.ids, move.bounds, grid};

    return launch_rows(add_kernel<Adder>, args, move.stream);
}

struct RunArgs {
    Lines table;
    Lines rows;
    Ids ids;
    Runs runs;
    RowGrid grid; /* n is an upper bound of the runs */
};

/* One element of one run after the other; the sum is rounded as often as there
 * are additions, as if they came one by one. */
template <typename T>
__global__ void __launch_bounds__(kThreads) add_runs_kernel(const RunArgs args)
{
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_of_runs(args.runs, args.grid, first);

    for (uint32_t j = threadIdx.x; j < items; j += kThreads) {
        const Item item = item_of(args.grid, first, j);
        uint32_t k = args.runs.starts[item.at];
        const uint32_t end = args.runs.starts[item.at + 1];
        const int64_t row = load_id(args.ids, args.runs.positions[k]);
        T *to = chunk_at<T>(args.table, row, item.chunk);
        T sum = *to;

#pragma unroll 4
        for (; k < end; k++) {
            sum =
                sum_of(sum, *chunk_at<const T>(
                                args.rows, args.runs.positions[k], item.chunk));
        }
        *to = sum;
    }
}

template <typename T> int launch_runs(const Move &move, const Runs &runs)
{
    if (move.width >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    const RowGrid grid = row_grid_of(move.n, uint32_t(move.width), kThreads);
    const RunArgs args = {move.table, move.rows, move.ids, runs, grid};

    return launch_rows(add_runs_kernel<T>, args, move.stream);
}

/* Can chunks of 16 bytes be added, in the GPU's own memory? */
bool wide_enough(const Move &move, uint64_t bytes, bool on_host)
{
    const uint64_t all = move.table_bits |
                         reinterpret_cast<uint64_t>(move.rows.at) |
                         move.rows.pitch | bytes;

    return !on_host && all % 16 == 0;
}

} // namespace

int add_rows(const Move &move, weft_dtype type, bool on_host)
{
    const uint64_t w = move.width;

    switch (type) {
    case WEFT_F32:
        return wide_enough(move, w * 4, on_host)
                   ? launch<AddF32x4>(move, w * 4)
                   : launch<AddWhole<float>>(move, w * 4);
    case WEFT_F16:
        return wide_enough(move, w * 2, on_host)
                   ? launch<AddF16x8>(move, w * 2)
                   : launch<AddNarrow<__half>>(move, w * 2);
    case WEFT_BF16:
        return wide_enough(move, w * 2, on_host)
                   ? launch<AddBf16x8>(move, w * 2)
                   : launch<AddNarrow<__nv_bfloat16>>(move, w * 2);
    case WEFT_F64:
        return launch<AddWhole<double>>(move, w * 8);
    case WEFT_I32:
        return launch<AddWhole<unsigned>>(move, w * 4);
    case WEFT_I64:
        return launch<AddWhole<unsigned long long>>(move, w * 8);
    case WEFT_I16:
        return launch<AddNarrow<uint16_t>>(move, w * 2);
    case WEFT_I8:
    case WEFT_U8:
        return launch<AddNarrow<uint8_t>>(move, w);
    case WEFT_BOOL:
        return launch<AddNarrow<bool>>(move, w);
    case WEFT_C64: /* added by their parts */
    case WEFT_C128:
    case WEFT_PAIR_F32: /* not added at all */
    case WEFT_PAIR_F64:
    case WEFT_PAIR_I32:
    case WEFT_PAIR_I64:
        break;
    }
    return WF_CUDA_UNSUPPORTED;
}

/* Signed integers are added as unsigned ones, which wrap around. */
int add_runs(const Move &move, weft_dtype type, const Runs &runs)
{
    return for_types<WF_WHOLE | WF_FLOAT>(type, [&](auto v) {
        using T = decltype(v);
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
            return launch_runs<std::make_unsigned_t<T>>(move, runs);
        } else {
            return launch_runs<T>(move, runs);
        }
    });
}

} // namespace weft
