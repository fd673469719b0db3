/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of memory for large results: page faults of fresh memory cost more
 * than the communication that fills it. */
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "versions.hpp"

namespace weft_torch::mpi
{

class Memory : public std::enable_shared_from_this<Memory>
{
  public:
    ~Memory();
    /* A contiguous, uninitialized host tensor. */
    at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions &options);
    /* The bytes in the cache, and their limit. */
    size_t kept();
    void set_limit(size_t bytes);
    void trim(size_t bytes);

  private:
    struct Block {
        void *at;
        size_t bytes;
    };
    Block take(size_t bytes);
    void give_back(Block block);
    void trim_locked(size_t bytes);

    std::mutex lock_;
    std::list<Block> free_; /* most recently used first */
    size_t kept_ = 0;
    size_t limit_ = size_t(256) << 20;
};

} // namespace weft_torch::mpi
