/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as the library sees them: types, reductions, and plain memory. */
#pragma once

#include <atomic>
#include <optional>
#include <utility>
#include <vector>
#include <weft/weft.h>

#include "versions.hpp"

namespace weft_torch
{

class StagingStream;
using Tensors = std::vector<at::Tensor>;

/* The library's name of a type in a reduction, if it has one. Of unsigned
 * numbers it has the signed ones', which will do where the sign does not
 * matter. */
std::optional<weft_dtype> type_of(at::ScalarType type, weft_op_kind op);

/* What to call the elements of `t` in a reduction by `op`; throws where the
 * library cannot reduce them. */
weft_dtype reduced_type(const at::Tensor &t, const c10d::ReduceOp &op);

/* The library's name of `op`, for tensors like `t`. */
weft_op reduction(const c10d::ReduceOp &op);

/* Data that is only moved goes as bytes, so that every type can. */
inline weft_part bytes_of(const at::Tensor &memory)
{
    return {memory.data_ptr(), memory.nbytes()};
}

/* One part for each tensor of a list, whose length is counted in units of so
 * many bytes; or of a tensor cut along dimension 0 in equal pieces or in
 * `splits`. */
std::vector<weft_part> parts_of(const Tensors &list, size_t unit = 1);
std::vector<weft_part> parts_of(const at::Tensor &whole, size_t pieces,
                                const std::vector<int64_t> &splits);

/* The memory that an operation works on.
 *
 * The library wants host memory without gaps. A contiguous tensor on the host
 * is that itself; any other one is replaced by a copy, and what the operation
 * writes is copied back afterwards. So ranks need not agree on strides. Copies
 * of device tensors are pinned, and left to the staging to fill. */
class Buffers
{
  public:
    /* For tests without a device, which set it: makes the streams of host
     * tensors, which are then taken for those of a device. */
    using MakeStream = StagingStream *();
    static inline std::atomic<MakeStream *> host_streams{nullptr};

    /* Memory for a tensor that the operation reads, writes, or both. The
     * result is contiguous and on the host; it has the shape of `t`. */
    at::Tensor in(const at::Tensor &t);
    at::Tensor out(const at::Tensor &t);
    at::Tensor inout(const at::Tensor &t);
    Tensors in(const Tensors &list);

    /* The same for what is written, but a copy where it would overlap memory
     * that was asked for before: programs work in place, or name one tensor
     * several times for results that they do not want, and the library refuses
     * both. What is copied back last stays. */
    at::Tensor out_apart(const at::Tensor &t);
    at::Tensor inout_apart(const at::Tensor &t);
    Tensors out_apart(const Tensors &list);

    /* The device whose tensors were replaced; none if all are on the host. */
    std::optional<at::Device> device() const
    {
        return device_;
    }
    bool writes_copies() const
    {
        return !back_.empty();
    }
    /* Copy what the operation reads from the device, or what it wrote to
     * where it belongs. On a device both only queue the copies. */
    void fill() const;
    void copy_back() const;
    /* Put into the copies, which will be copied back, what cannot be taken for
     * a result: bytes 0xff, which are NaN in every type that has it. */
    void poison() const;
    /* Tell the allocator of device memory that `stream` uses it too. */
    void used_on(const c10::Stream &stream) const;

  private:
    struct Copy {
        at::Tensor user;
        at::Tensor memory;
    };
    struct Range {
        const char *begin;
        const char *end;
    };
    at::Tensor stand_in(const at::Tensor &t);
    at::Tensor out_copied(const at::Tensor &t);
    void note_range(const at::Tensor &t);
    at::Tensor hold(at::Tensor memory);
    bool overlaps(const at::Tensor &t) const;

    std::optional<at::Device> device_;
    Tensors held_; /* borrowed by the library until the operation is over */
    c10::SmallVector<Range, 2> ranges_; /* where they and copied ones lie */
    std::vector<Copy> fill_;
    std::vector<Copy> back_;
};

} // namespace weft_torch
