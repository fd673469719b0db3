/* SPDX-License-Identifier: Apache-2.0 */
/* What is found out about the ids before rows move: where the rows lie, and
 * which of equal ids is the last. One thread for each id. */
#include "kernels.cuh"

namespace weft
{

namespace
{

struct PartsArgs {
    Ids ids;
    Bounds bounds;
    uint64_t n;
    uint64_t pitch;
    uint64_t first;
    uint64_t run;
    uint32_t parts;
    int64_t *out;
    wf_cuda_part part[WF_CUDA_PARTS_MAX];
};

/* The part that row `row` is in: the last one that begins at or before it. */
__device__ inline uint32_t part_of(const PartsArgs &args, uint64_t row)
{
    uint32_t low = 0;
    uint32_t high = args.parts;

    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (args.part[middle].row <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

__device__ inline uint64_t address_of(const PartsArgs &args, uint64_t row)
{
    if (args.run == 0) {
        const wf_cuda_part &part = args.part[part_of(args, row)];
        return part.at + (row - part.row) * args.pitch;
    }
    const uint64_t turn = row / args.run;
    const uint64_t local =
        turn / args.parts * args.run + (row - turn * args.run);
    return args.part[turn % args.parts].at + local * args.pitch;
}

__global__ void __launch_bounds__(kThreads)
    address_kernel(const __grid_constant__ PartsArgs args)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at < args.n) {
        const int64_t row = row_of(args.bounds, load_id(args.ids, at), at);
        args.out[at] =
            row < 0 ? -1 : int64_t(address_of(args, args.first + row));
    }
}

constexpr uint32_t kEmpty = ~0u;

__device__ inline uint32_t hash_of(int64_t id)
{
    uint64_t h = uint64_t(id) * 0x9E3779B97F4A7C15ull;

    return uint32_t(h >> 32) ^ uint32_t(h);
}

/* One bit for each row. They fit into L2, which the slots for many ids do not:
 * only rows that are named more than once get as far as those. */
struct Bits {
    uint32_t
        *seen; /* nullptr: there are none, and any row may be meant twice */
    uint32_t *again; /* rows that were seen once more */
    uint32_t *any;   /* not 0: there are such rows */
};

struct ClaimArgs {
    Ids ids;
    Bounds bounds;
    uint64_t n;
    Bits bits;
    uint32_t *slot;
    uint32_t mask;
    int64_t *out;
};

__device__ inline void mark(const Bits &bits, uint64_t row)
{
    const uint32_t bit = 1u << (row % 32);

    if ((atomicOr(&bits.seen[row / 32], bit) & bit) != 0) {
        atomicOr(&bits.again[row / 32], bit);
        *bits.any = 1;
    }
}

__device__ inline bool nothing_again(const Bits &bits)
{
    return bits.seen != nullptr && *bits.any == 0;
}

__device__ inline bool once(const Bits &bits, uint64_t row)
{
    return bits.seen != nullptr &&
           (bits.again[row / 32] & 1u << (row % 32)) == 0;
}

__global__ void __launch_bounds__(kThreads) mark_kernel(const ClaimArgs args)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at < args.n) {
        const int64_t id = row_of(args.bounds, load_id(args.ids, at), at);
        /* The bits end with the rows, also for a caller who said that no
         * number needs a look. */
        const bool has_bit = id >= 0 && uint64_t(id) < args.bounds.rows;

        if (has_bit) {
            mark(args.bits, id);
        }
        args.out[at] = has_bit ? id : -1;
    }
}

/* The row at this position, if it has to be fought for; else negative. */
__device__ inline int64_t contested(const ClaimArgs &args, uint64_t at)
{
    const int64_t id = args.out[at];

    return id >= 0 && once(args.bits, id) ? -1 : id;
}

/* Each slot holds a position in the ids, and from the first one on only
 * positions with the same id; the greatest of them stays. */
__global__ void __launch_bounds__(kThreads) claim_kernel(const ClaimArgs args)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at >= args.n || nothing_again(args.bits)) {
        return;
    }
    if (args.bits.seen == nullptr) {
        args.out[at] = row_of(args.bounds, load_id(args.ids, at), at);
    }
    const int64_t id = contested(args, at);
    if (id < 0) {
        return;
    }
    for (uint32_t h = hash_of(id) & args.mask;; h = (h + 1) & args.mask) {
        const uint32_t held = atomicCAS(&args.slot[h], kEmpty, uint32_t(at));

        if (held == kEmpty) {
            return;
        }
        if (load_id(args.ids, held) == id) {
            atomicMax(&args.slot[h], uint32_t(at));
            return;
        }
    }
}

__global__ void __launch_bounds__(kThreads) settle_kernel(const ClaimArgs args)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at >= args.n || nothing_again(args.bits)) {
        return;
    }
    const int64_t id = contested(args, at);
    if (id < 0) {
        return;
    }
    for (uint32_t h = hash_of(id) & args.mask;; h = (h + 1) & args.mask) {
        const uint32_t held = args.slot[h];

        if (held == at) {
            return;
        }
        if (load_id(args.ids, held) == id) {
            args.out[at] = -1;
            return;
        }
    }
}

/* A power of two, at least twice as many as ids: short searches. */
uint64_t slots_for(uint64_t n)
{
    uint64_t slots = 1024;

    while (slots < 2 * n) {
        slots *= 2;
    }
    return slots;
}

/* Words of the bits of one kind; 0: not worth it. Slots for few ids are in L2
 * themselves; in a table of few rows most are named twice; clearing the bits of
 * very many rows takes longer than it saves, and they leave L2. */
uint64_t bit_words(uint64_t n, uint64_t rows)
{
    constexpr uint64_t few = uint64_t(1) << 18;
    constexpr uint64_t many = uint64_t(1) << 28;
    const bool worth =
        n >= few && rows >= 2 * n && rows / 64 <= n && rows <= many;

    return worth ? (rows + 31) / 32 : 0;
}

} // namespace

size_t addresses_room(uint64_t n)
{
    return Scratch::room(n * sizeof(int64_t));
}

int find_addresses(const wf_cuda_table &table, const Ids &ids,
                   const Bounds &bounds, uint64_t n, Scratch &scratch,
                   cudaStream_t stream, Ids *out)
{
    PartsArgs args = {ids,       bounds,      n,       table.pitch, table.first,
                      table.run, table.parts, nullptr, {}};

    if (table.parts > WF_CUDA_PARTS_MAX || n > kOrderMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    args.out = scratch.take<int64_t>(n);
    for (uint32_t i = 0; i < table.parts; i++) {
        args.part[i] = table.part[i];
    }
    address_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
    *out = {args.out, nullptr, true};
    return last_error();
}

size_t last_ones_room(uint64_t n, uint64_t rows)
{
    return Scratch::room(n * sizeof(int64_t)) +
           Scratch::room(slots_for(n) * sizeof(uint32_t)) +
           Scratch::room((2 * bit_words(n, rows) + 1) * sizeof(uint32_t));
}

int last_ones(const Ids &ids, const Bounds &bounds, uint64_t n,
              Scratch &scratch, cudaStream_t stream, Ids *out)
{
    const uint64_t slots = slots_for(n);
    const uint64_t words = bit_words(n, bounds.rows);
    ClaimArgs args = {ids,    bounds, n, {}, nullptr, uint32_t(slots - 1),
                      nullptr};
    int error;

    if (n > kOrderMax / 2) {
        return WF_CUDA_UNSUPPORTED;
    }
    args.out = scratch.take<int64_t>(n);
    args.slot = scratch.take<uint32_t>(slots);
    error = cudaMemsetAsync(args.slot, 0xFF, slots * sizeof(uint32_t), stream);
    if (error == 0 && words > 0) {
        uint32_t *bits = scratch.take<uint32_t>(2 * words + 1);

        args.bits = {bits, bits + words, bits + 2 * words};
        error = cudaMemsetAsync(bits, 0, (2 * words + 1) * sizeof(uint32_t),
                                stream);
    }
    if (error != 0) {
        return error;
    }
    if (words > 0) {
        mark_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
    }
    claim_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
    settle_kernel<<<blocks_for(n), kThreads, 0, stream>>>(args);
    *out = {args.out, nullptr, true};
    return last_error();
}

} // namespace weft
