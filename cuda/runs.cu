/* SPDX-License-Identifier: Apache-2.0 */
/* Ids in order: by page, for tables that are far away, and by number, to find
 * equal ones. Radix sort is stable, so equal ids keep their order; it looks at
 * as many bits as the numbers have. */
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr uint64_t kPage = 4096;

/* Bits of the numbers from 0 to `most`. */
int bits_of(uint64_t most)
{
    int bits = 0;

    while (most > 0) {
        most >>= 1;
        bits++;
    }
    return bits;
}

template <typename Key> struct Sorting {
    Key *keys[2];
    uint32_t *positions[2];
    void *spare;
    size_t spare_bytes;
    int sorted; /* which of the two pairs has the result */
};

template <typename Key> size_t spare_room(uint64_t n)
{
    cub::DoubleBuffer<Key> keys;
    cub::DoubleBuffer<uint32_t> positions;
    size_t bytes = 0;

    cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, positions, int(n));
    return Scratch::room(bytes);
}

template <typename Key> size_t sort_room(uint64_t n)
{
    return 2 * Scratch::room(n * sizeof(Key)) +
           2 * Scratch::room(n * sizeof(uint32_t)) + spare_room<Key>(n);
}

template <typename Key> Sorting<Key> take_sorting(uint64_t n, Scratch &scratch)
{
    Sorting<Key> s = {};

    for (int i = 0; i < 2; i++) {
        s.keys[i] = scratch.take<Key>(n);
        s.positions[i] = scratch.take<uint32_t>(n);
    }
    s.spare_bytes = spare_room<Key>(n);
    s.spare = scratch.take<char>(s.spare_bytes);
    return s;
}

template <typename Key>
int sort(Sorting<Key> *s, uint64_t n, int bits, cudaStream_t stream)
{
    cub::DoubleBuffer<Key> keys(s->keys[0], s->keys[1]);
    cub::DoubleBuffer<uint32_t> positions(s->positions[0], s->positions[1]);
    const int error = cub::DeviceRadixSort::SortPairs(
        s->spare, s->spare_bytes, keys, positions, int(n), 0, bits, stream);

    s->sorted = keys.Current() == s->keys[0] ? 0 : 1;
    return error;
}

__global__ void __launch_bounds__(kThreads)
    page_kernel(Ids ids, uint64_t rows, int shift, uint32_t last, uint64_t n,
                uint32_t *keys, uint32_t *positions)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at < n) {
        const uint64_t id = uint64_t(load_id(ids, at));
        keys[at] = id < rows ? uint32_t(id >> shift) : last;
        positions[at] = uint32_t(at);
    }
}

/* What is no row sorts behind all rows, as `none`. */
template <typename Key>
__global__ void __launch_bounds__(kThreads)
    number_kernel(Ids ids, Bounds bounds, Key none, uint64_t n, Key *keys,
                  uint32_t *positions)
{
    const uint64_t at = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (at < n) {
        int64_t id = load_id(ids, at);
        if (bounds.rows > 0) {
            id = row_of(bounds, id, at);
        }
        keys[at] = id < 0 ? none : Key(id);
        positions[at] = uint32_t(at);
    }
}

template <typename Key>
__global__ void __launch_bounds__(kThreads)
    head_kernel(const Key *keys, Key none, uint64_t n, uint32_t *heads)
{
    const uint64_t k = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (k < n) {
        heads[k] = keys[k] != none && (k == 0 || keys[k] != keys[k - 1]);
    }
}

/* `runs` counts the heads up to each position. The start after the last run is
 * where the numbers end. */
template <typename Key>
__global__ void __launch_bounds__(kThreads)
    start_kernel(const Key *keys, Key none, uint64_t n, const uint32_t *runs,
                 uint32_t *starts, uint32_t *count)
{
    const uint64_t k = uint64_t(blockIdx.x) * kThreads + threadIdx.x;

    if (k >= n) {
        return;
    }
    const bool first = k == 0 || keys[k] != keys[k - 1];
    if (first) {
        starts[keys[k] == none ? runs[k] : runs[k] - 1] = uint32_t(k);
    }
    if (k == n - 1) {
        *count = runs[k];
        if (keys[k] != none) {
            starts[runs[k]] = uint32_t(n);
        }
    }
}

size_t scan_room(uint64_t n)
{
    size_t bytes = 0;

    cub::DeviceScan::InclusiveSum(nullptr, bytes,
                                  static_cast<uint32_t *>(nullptr),
                                  static_cast<uint32_t *>(nullptr), int(n));
    return Scratch::room(bytes);
}

template <typename Key>
int runs_of(const Ids &ids, const Bounds &bounds, Key none, int bits,
            uint64_t n, Scratch &scratch, cudaStream_t stream, Runs *out)
{
    Sorting<Key> s = take_sorting<Key>(n, scratch);
    uint32_t *runs = scratch.take<uint32_t>(n);
    uint32_t *starts = scratch.take<uint32_t>(n + 1);
    uint32_t *count = scratch.take<uint32_t>(1);
    size_t spare_bytes = scan_room(n);
    void *spare = scratch.take<char>(spare_bytes);
    const uint32_t blocks = blocks_for(n);
    int error;

    number_kernel<<<blocks, kThreads, 0, stream>>>(ids, bounds, none, n,
                                                   s.keys[0], s.positions[0]);
    error = sort(&s, n, bits, stream);
    if (error != 0) {
        return error;
    }
    head_kernel<<<blocks, kThreads, 0, stream>>>(s.keys[s.sorted], none, n,
                                                 runs);
    error = cub::DeviceScan::InclusiveSum(spare, spare_bytes, runs, runs,
                                          int(n), stream);
    if (error != 0) {
        return error;
    }
    start_kernel<<<blocks, kThreads, 0, stream>>>(s.keys[s.sorted], none, n,
                                                  runs, starts, count);
    *out = {s.positions[s.sorted], starts, count};
    return last_error();
}

} // namespace

size_t page_order_room(uint64_t n)
{
    return sort_room<uint32_t>(n);
}

int page_order(const Ids &ids, uint64_t rows, uint64_t pitch, uint64_t n,
               Scratch &scratch, cudaStream_t stream, const uint32_t **out)
{
    Sorting<uint32_t> s;
    uint64_t most = rows - 1;
    int shift = 0;
    int error;

    if (n > kOrderMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    while (pitch << (shift + 1) <= kPage || most >> shift >= 0xFFFFFFFFu) {
        shift++;
    }
    most = (most >> shift) + 1;
    s = take_sorting<uint32_t>(n, scratch);
    page_kernel<<<blocks_for(n), kThreads, 0, stream>>>(
        ids, rows, shift, uint32_t(most), n, s.keys[0], s.positions[0]);
    error = sort(&s, n, bits_of(most), stream);
    *out = s.positions[s.sorted];
    return error != 0 ? error : last_error();
}

size_t runs_room(uint64_t n)
{
    return sort_room<uint64_t>(n) + Scratch::room(n * sizeof(uint32_t)) +
           Scratch::room((n + 1) * sizeof(uint32_t)) +
           Scratch::room(sizeof(uint32_t)) + scan_room(n);
}

int find_runs(const Ids &ids, const Bounds &bounds, uint64_t n,
              Scratch &scratch, cudaStream_t stream, Runs *out)
{
    if (n > kOrderMax) {
        return WF_CUDA_UNSUPPORTED;
    }
    if (bounds.rows > 0 && bounds.rows < 0xFFFFFFFFu &&
        bounds.mode != WEFT_BOUNDS_UNCHECKED) {
        return runs_of<uint32_t>(ids, bounds, uint32_t(bounds.rows),
                                 bits_of(bounds.rows), n, scratch, stream, out);
    }
    return runs_of<uint64_t>(ids, bounds, uint64_t(1) << 63, 64, n, scratch,
                             stream, out);
}

} // namespace weft
