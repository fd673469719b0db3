/* SPDX-License-Identifier: Apache-2.0 */
/* Gather of rows whose length is no multiple of 16 bytes, one after the other.
 *
 * Moved word by word such rows are written in pieces that begin and end inside
 * of sectors. Here a thread has 16 aligned bytes of the result, wherever in a
 * row they are: it loads the two aligned vectors of the table that they lie in,
 * and shifts. Neighbours share a vector, which L1 has. The vectors in which one
 * row ends and the next begins are done apart, by a few threads of each block:
 * every warp has one, and all its lanes would wait for it. */
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr int kFlight = 2;
constexpr uint32_t kVector = sizeof(uint4);
constexpr uint32_t kBlockBytes = kThreads * kFlight * kVector;
/* x / d is the upper half of x * magic while x * d is less than the number of
 * values of x: 2^64 for all bytes, 2^32 for those of a block and a row. */
constexpr uint64_t kBytesMax = uint64_t(1) << 44;
constexpr uint64_t kRowMax = uint64_t(1) << 15;
/* A block has fewer lines than threads. */
constexpr uint64_t kRowMin = 64;

struct PackArgs {
    Lines table;
    char *out; /* aligned */
    Ids ids;
    Bounds bounds;
    uint64_t n;
    uint32_t bytes; /* of a row */
    uint64_t magic;
    uint32_t block_magic;
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

/* Where the bytes of a block begin: in which line, and at which byte of it. */
struct Start {
    uint64_t line;
    uint32_t at;
};

__device__ inline Start start_of(const PackArgs &args)
{
    const uint64_t byte = uint64_t(blockIdx.x) * kBlockBytes;
    const uint64_t line = __umul64hi(byte, args.magic);

    return {line, uint32_t(byte - line * args.bytes)};
}

/* A vector of the result: where in the block it is, the line that it begins in,
 * at which byte, and how many of its bytes that line has. */
struct Dest {
    uint32_t to;
    uint64_t line;
    uint32_t at;
    uint32_t own;
};

__device__ inline Dest dest_of(const PackArgs &args, const Start &start,
                               uint32_t to)
{
    const uint32_t byte = start.at + to;
    const uint32_t line = __umulhi(byte, args.block_magic);
    const uint32_t at = byte - line * args.bytes;

    return {to, start.line + line, at, min(args.bytes - at, kVector)};
}

/* The vector in which the i-th line of the block ends, `own` 0 if there is
 * none, or none that needs a look: those that end with their line do not. */
__device__ inline Dest edge_of(const PackArgs &args, const Start &start,
                               uint32_t i)
{
    const uint32_t end = (i + 1) * args.bytes - start.at;
    const uint32_t own = end % kVector;
    const uint32_t to = end - own;
    const bool here = to < kBlockBytes && start.line + i < args.n;

    return {to, start.line + i, args.bytes - own, here ? own : 0};
}

/* What is at an edge: the end of one row, the beginning of the next. */
struct Edge {
    int64_t row[2];
    Window window[2];
};

template <typename Id>
__device__ inline void load_edge_rows(const PackArgs &args, const Dest &dest,
                                      Edge *edge)
{
    edge->row[0] = load_id<Id>(args.ids, dest.line);
    edge->row[1] =
        dest.line + 1 < args.n ? load_id<Id>(args.ids, dest.line + 1) : -1;
}

__device__ inline void load_edge(const PackArgs &args, const Dest &dest,
                                 Edge *edge)
{
    edge->row[0] = row_of(args.bounds, edge->row[0], dest.line);
    edge->row[1] = row_of(args.bounds, edge->row[1], dest.line + 1);
    if (edge->row[0] >= 0) {
        edge->window[0] = load_window(args, edge->row[0], dest.at);
    }
    if (edge->row[1] >= 0) {
        edge->window[1] = load_window(args, edge->row[1], -int64_t(dest.own));
    }
}

__device__ inline void store_edge(char *to, const Dest &dest, const Edge &edge)
{
    const int own = int(dest.own);

    if (edge.row[0] >= 0 && edge.row[1] >= 0) {
        store_once(reinterpret_cast<uint4 *>(to),
                   join(shift(edge.window[0]), shift(edge.window[1]), own));
    } else if (edge.row[0] >= 0) {
        store_part(to, shift(edge.window[0]), 0, own);
    } else if (edge.row[1] >= 0) {
        store_part(to, shift(edge.window[1]), own, int(kVector));
    }
}

/* The vectors that are of one line, and by the first threads of the block, one
 * line each, those at the edges; all their loads are under way together. */
template <typename Id>
__global__ void __launch_bounds__(kThreads) pack_kernel(const PackArgs args)
{
    const Start start = start_of(args);
    char *out = args.out + uint64_t(blockIdx.x) * kBlockBytes;
    const Dest end = edge_of(args, start, threadIdx.x);
    Dest dest[kFlight];
    int64_t row[kFlight];
    Window window[kFlight];
    Edge edge;

#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        dest[k] = dest_of(args, start, (threadIdx.x + k * kThreads) * kVector);
        row[k] = dest[k].own == kVector && dest[k].line < args.n
                     ? load_id<Id>(args.ids, dest[k].line)
                     : -1;
    }
    if (end.own > 0) {
        load_edge_rows<Id>(args, end, &edge);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        row[k] = row_of(args.bounds, row[k], dest[k].line);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        if (row[k] >= 0) {
            window[k] = load_window(args, row[k], dest[k].at);
        }
    }
    if (end.own > 0) {
        load_edge(args, end, &edge);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
        if (row[k] >= 0) {
            store_once(reinterpret_cast<uint4 *>(out + dest[k].to),
                       shift(window[k]));
        }
    }
    if (end.own > 0) {
        store_edge(out + end.to, end, edge);
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
           bytes >= (words ? 256 : kRowMin) && bytes <= kRowMax &&
           move.n < kBytesMax / bytes;
}

int pack_rows(const Move &move, uint64_t bytes)
{
    const uint64_t blocks = (move.n * bytes + kBlockBytes - 1) / kBlockBytes;
    const uint64_t magic = ~uint64_t(0) / bytes + 1;
    const uint32_t block_magic = uint32_t(~uint32_t(0) / bytes + 1);
    const PackArgs args = {move.table, move.rows.at,    move.ids, move.bounds,
                           move.n,     uint32_t(bytes), magic,    block_magic};
    auto kernel = move.ids.wide ? pack_kernel<int64_t> : pack_kernel<int32_t>;

    if (blocks > kBlocksMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    kernel<<<uint32_t(blocks), kThreads, 0, move.stream>>>(args);
    return last_error();
}

} // namespace weft
