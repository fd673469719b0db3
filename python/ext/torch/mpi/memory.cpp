/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

namespace weft_torch::mpi
{

namespace
{

/* Smaller blocks are reused by torch's allocator itself. */
constexpr size_t smallest_block = size_t(1) << 18;
constexpr size_t huge_page = size_t(2) << 20;

size_t rounded(size_t bytes)
{
    size_t unit = bytes >= huge_page ? huge_page : size_t(1) << 16;

    return (bytes + unit - 1) / unit * unit;
}

size_t bytes_for(at::IntArrayRef sizes, const at::TensorOptions &options)
{
    size_t bytes = options.dtype().itemsize();

    for (int64_t size : sizes) {
        bytes *= size_t(size);
    }
    return bytes;
}

} // namespace

Memory::~Memory()
{
    trim_locked(0);
}

at::Tensor Memory::empty(at::IntArrayRef sizes,
                         const at::TensorOptions &options)
{
    size_t bytes = bytes_for(sizes, options);

    if (bytes < smallest_block) {
        return at::detail::empty_cpu(sizes, options);
    }
    Block block = take(rounded(bytes));

    return at::from_blob(
        block.at, sizes,
        [memory = shared_from_this(), block](void *) {
            memory->give_back(block);
        },
        options);
}

Memory::Block Memory::take(size_t bytes)
{
    {
        std::lock_guard<std::mutex> guard(lock_);

        for (auto it = free_.begin(); it != free_.end(); ++it) {
            if (it->bytes >= bytes && it->bytes <= bytes + bytes / 4) {
                Block block = *it;

                free_.erase(it);
                kept_ -= block.bytes;
                return block;
            }
        }
    }
    size_t unit = std::min(bytes, huge_page);
    void *at = std::aligned_alloc(unit & (~unit + 1), bytes);

    TORCH_CHECK_WITH(OutOfMemoryError, at != nullptr,
                     "weft.mpi: cannot allocate ", bytes,
                     " bytes for a result");
    if (bytes >= huge_page) {
        (void)madvise(at, bytes, MADV_HUGEPAGE);
    }
    return {at, bytes};
}

void Memory::give_back(Block block)
{
    std::lock_guard<std::mutex> guard(lock_);

    if (block.bytes > limit_) {
        std::free(block.at);
        return;
    }
    free_.push_front(block);
    kept_ += block.bytes;
    trim_locked(limit_);
}

void Memory::trim_locked(size_t bytes)
{
    while (kept_ > bytes) {
        kept_ -= free_.back().bytes;
        std::free(free_.back().at);
        free_.pop_back();
    }
}

size_t Memory::kept()
{
    std::lock_guard<std::mutex> guard(lock_);

    return kept_;
}

void Memory::set_limit(size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock_);

    limit_ = bytes;
    trim_locked(limit_);
}

void Memory::trim(size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock_);

    trim_locked(bytes);
}

} // namespace weft_torch::mpi
