/* SPDX-License-Identifier: Apache-2.0 */
/* Gather of rows whose length is no multiple of 16 bytes, one after the other.
 *
 * Moved word by word such rows are written in pieces that begin and end inside
 * of sectors. Here a thread has 16 aligned bytes of the result, wherever in a
 * row they are: it loads the two aligned vectors of the table that they lie in,
 * and shifts. Neighbours share a vector, which L1 has. Where one row ends and
 * the next begins a thread does this for both. */
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr int kFlight = 2;
constexpr uint32_t kVector = sizeof(uint4);
/* What the division by multiplication is exact for: numbers below 2^44 by
 * divisors up to 2^20. */
constexpr uint64_t kBytesMax = uint64_t(1) << 44;
constexpr uint64_t kRowMax = uint64_t(1) << 20;

struct PackArgs {
    Lines table;
    char *out; /* aligned */
    Ids ids;
    Bounds bounds;
    uint64_t n;
    uint64_t bytes; /* of a row: as many as a vector has, or more */
    uint64_t magic; /* x / bytes is the upper half of x * magic */
};

/* Two vectors, one behind the other, and where in them 16 bytes begin. */
struct Window {
    uint4 low;
    uint4 high;
    uint32_t ahead; /* 0 to 15 */
};

/* The vectors of row `row` that have the 16 bytes at `at` of it; `at` may be
 * before the row, and the bytes may end behind it. A vector that has nothing of
 * the row is not touched: there may be no memory. */
__device__ inline Window load_window(const PackArgs &args, int64_t row,
                                     int64_t at)
{
    const uint64_t begin =
        reinterpret_cast<uint64_t>(args.table.at) + row * args.table.pitch;
    const uint64_t first = begin + at;
    const uint64_t low = first & ~uint64_t(kVector - 1);
    const uint64_t high = low + kVector;
    Window w = {};

    w.ahead = uint32_t(first - low);
    if (high > begin) {
        w.low = __ldg(reinterpret_cast<const uint4 *>(low));
    }
    if (w.ahead != 0 && high < begin + args.bytes) {
        w.high = __ldg(reinterpret_cast<const uint4 *>(high));
    }
    return w;
}

/* The 16 bytes of a window: by two words, by one, by the bytes that are left.
 */
__device__ inline uint4 shift(const Window &w)
{
    uint32_t v[8] = {w.low.x,  w.low.y,  w.low.z,  w.low.w,
                     w.high.x, w.high.y, w.high.z, w.high.w};
    const bool by_two = (w.ahead & 8) != 0;
    const bool by_one = (w.ahead & 4) != 0;
    const uint32_t bits = (w.ahead & 3) * 8;

#pragma unroll
    for (int i = 0; i < 6; i++) {
        v[i] = by_two ? v[i + 2] : v[i];
    }
#pragma unroll
    for (int i = 0; i < 5; i++) {
        v[i] = by_one ? v[i + 1] : v[i];
    }
    return {
        __funnelshift_r(v[0], v[1], bits), __funnelshift_r(v[1], v[2], bits),
        __funnelshift_r(v[2], v[3], bits), __funnelshift_r(v[3], v[4], bits)};
}

/* Word i of a vector: its bytes before byte `until` from a, the others from b.
 */
__device__ inline uint32_t join_word(uint32_t a, uint32_t b, int i, int until)
{
    const int bytes = min(max(until - 4 * i, 0), 4);
    const uint32_t mask = uint32_t((uint64_t(1) << (8 * bytes)) - 1);

    return (a & mask) | (b & ~mask);
}

__device__ inline uint4 join(const uint4 &a, const uint4 &b, int until)
{
    return {join_word(a.x, b.x, 0, until), join_word(a.y, b.y, 1, until),
            join_word(a.z, b.z, 2, until), join_word(a.w, b.w, 3, until)};
}

/* Bytes [from, until) of a vector: beside a row that is left alone, and at the
 * end of all. */
__device__ inline void store_part(char *to, const uint4 &v, int from, int until)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
    for (int i = 0; i < int(kVector); i++) {
        if (i >= from && i < until) {
            to[i] = char(words[i / 4] >> (8 * (i % 4)));
        }
    }
}

/* A vector of the result: the row it begins in and at which byte, and how many
 * of its bytes that row has. The next row, if the others are its. */
struct Place {
    uint64_t line;
    uint64_t at;
    int own;
    bool shared;
};

__device__ inline Place place_of(const PackArgs &args, uint64_t byte)
{
    const uint64_t line = __umul64hi(byte, args.magic);
    const uint64_t at = byte - line * args.bytes;
    const uint64_t left = args.bytes - at;
    const bool whole = left >= kVector;

    return {line, at, whole ? int(kVector) : int(left),
            !whole && line + 1 < args.n};
}

__device__ inline void store_vector(char *to, const Place &place, bool first,
                                    bool second, const uint4 &v)
{
    if (first && (place.own == int(kVector) || second)) {
        store_once(reinterpret_cast<uint4 *>(to), v);
    } else if (first) {
        store_part(to, v, 0, place.own);
    } else if (second) {
        store_part(to, v, place.own, int(kVector));
    }
}

template <typename Id>
__global__ void __launch_bounds__(kThreads) pack_kernel(const PackArgs args)
{
    const uint64_t end = args.n * args.bytes;
    const uint64_t begin =
        (uint64_t(blockIdx.x) * kThreads * kFlight + threadIdx.x) * kVector;
    Place place[kFlight];
    int64_t row[kFlight][2];
    Window window[kFlight][2];

#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        const uint64_t byte = begin + k * kThreads * kVector;

        place[k] = {};
        row[k][0] = row[k][1] = -1;
        if (byte < end) {
            place[k] = place_of(args, byte);
            row[k][0] = load_id<Id>(args.ids, place[k].line);
            if (place[k].shared) {
                row[k][1] = load_id<Id>(args.ids, place[k].line + 1);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        row[k][0] = row_of(args.bounds, row[k][0], place[k].line);
        row[k][1] = row_of(args.bounds, row[k][1], place[k].line + 1);
        if (row[k][0] >= 0) {
            window[k][0] = load_window(args, row[k][0], int64_t(place[k].at));
        }
        if (row[k][1] >= 0) {
            window[k][1] = load_window(args, row[k][1], -place[k].own);
        }
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        const bool first = row[k][0] >= 0;
        const bool second = row[k][1] >= 0;
        uint4 v = {};

        if (first) {
            v = shift(window[k][0]);
        }
        if (second) {
            v = join(v, shift(window[k][1]), place[k].own);
        }
        store_vector(args.out + begin + k * kThreads * kVector, place[k], first,
                     second, v);
    }
}

} // namespace

bool packs(const Move &move, uint64_t bytes)
{
    const bool words = (move.table_bits | bytes) % 4 == 0;

    /* Short rows of words are as fast one word at a time: of a warp's vectors
     * too many would have two rows. What is loaded twice is in L1, save where
     * it comes from the host. */
    return move.gather && !move.on_host && move.ids.order == nullptr &&
           move.rows.pitch == bytes &&
           reinterpret_cast<uint64_t>(move.rows.at) % kVector == 0 &&
           bytes >= (words ? 256 : 64) && bytes <= kRowMax &&
           move.n < kBytesMax / bytes;
}

int pack_rows(const Move &move, uint64_t bytes)
{
    const uint64_t per_block = uint64_t(kThreads) * kFlight * kVector;
    const uint64_t blocks = (move.n * bytes + per_block - 1) / per_block;
    const uint64_t magic = ~uint64_t(0) / bytes + 1;
    const PackArgs args = {move.table, move.rows.at, move.ids, move.bounds,
                           move.n,     bytes,        magic};
    auto kernel = move.ids.wide ? pack_kernel<int64_t> : pack_kernel<int32_t>;

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<uint32_t(blocks), kThreads, 0, move.stream>>>(args);
    return last_error();
}

} // namespace weft
