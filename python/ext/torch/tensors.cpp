/* SPDX-License-Identifier: Apache-2.0 */
#include "tensors.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <algorithm>
#include <cstring>

namespace weft_torch
{

namespace
{

struct TypeRow {
    at::ScalarType torch;
    weft_dtype weft;
    bool loses_sign = false;
};

/* The most used first. */
constexpr TypeRow types[] = {
    {at::kFloat, WEFT_F32},        {at::kBFloat16, WEFT_BF16},
    {at::kDouble, WEFT_F64},       {at::kHalf, WEFT_F16},
    {at::kLong, WEFT_I64},         {at::kInt, WEFT_I32},
    {at::kShort, WEFT_I16},        {at::kChar, WEFT_I8},
    {at::kByte, WEFT_U8},          {at::kBool, WEFT_BOOL},
    {at::kComplexFloat, WEFT_C64}, {at::kComplexDouble, WEFT_C128},
    {at::kUInt16, WEFT_I16, true}, {at::kUInt32, WEFT_I32, true},
    {at::kUInt64, WEFT_I64, true},
};

/* In the order of c10d's. */
constexpr weft_op_kind reductions[] = {
    WEFT_OP_SUM,  WEFT_OP_AVG, WEFT_OP_PROD, WEFT_OP_MIN,        WEFT_OP_MAX,
    WEFT_OP_BAND, WEFT_OP_BOR, WEFT_OP_BXOR, WEFT_OP_PREMUL_SUM,
};
static_assert(c10d::ReduceOp::SUM == 0 &&
              c10d::ReduceOp::PREMUL_SUM == std::size(reductions) - 1);

weft_op_kind kind_of(const c10d::ReduceOp &op)
{
    TORCH_CHECK_VALUE(op.op_ < std::size(reductions), "weft: reduce operation ",
                      int(op.op_), " is not supported");
    return reductions[op.op_];
}

double premul_factor(const c10d::ReduceOp &op)
{
    const auto *factor =
        dynamic_cast<const PremulFactor *>(op.supplement_.get());

    TORCH_CHECK_VALUE(factor != nullptr, "weft: PREMUL_SUM requires a factor");
    return factor->tensor_factor.defined()
               ? factor->tensor_factor.item<double>()
               : factor->double_factor;
}

void check_plain(const at::Tensor &t)
{
    TORCH_CHECK_VALUE(t.defined(), "weft: a tensor is undefined");
    TORCH_CHECK_VALUE(
        t.layout() == at::kStrided,
        "weft: only all_reduce takes sparse tensors; this one is ", t.layout());
}

void check_written(const at::Tensor &t)
{
    check_plain(t);
    TORCH_CHECK_VALUE(
        at::has_internal_overlap(t) != at::MemOverlap::Yes,
        "weft: elements of a tensor that is written to share memory, as those "
        "of an expanded tensor do; clone() it");
}

/* Copies between the user's tensors and ours are, like what the library writes
 * itself, nothing that autograd or the checks of inference mode should see. */
using Unseen = at::AutoDispatchBelowADInplaceOrView;

/* Can the library work on the memory of `t` itself? */
bool on_host(const at::Tensor &t)
{
    return t.is_cpu() &&
           Buffers::host_streams.load(std::memory_order_relaxed) == nullptr;
}

} // namespace

/* Sums, products and bits of unsigned numbers are those of signed ones. */
std::optional<weft_dtype> type_of(at::ScalarType type, weft_op_kind op)
{
    bool sign_matters =
        op == WEFT_OP_MIN || op == WEFT_OP_MAX || op == WEFT_OP_AVG;

    for (const TypeRow &row : types) {
        if (row.torch == type && !(row.loses_sign && sign_matters)) {
            return row.weft;
        }
    }
    return std::nullopt;
}

weft_dtype reduced_type(const at::Tensor &t, const c10d::ReduceOp &op)
{
    weft_op_kind kind = kind_of(op);
    std::optional<weft_dtype> type = type_of(t.scalar_type(), kind);

    TORCH_CHECK_TYPE(type.has_value(), "weft: tensors of ", t.scalar_type(),
                     " can be moved, but not reduced by this operation");
    /* The library says so too, but of a tensor on a device only later. */
    TORCH_CHECK_VALUE(weft_op_applies(kind, *type) != 0, "weft: operation ",
                      weft_op_name(kind), " is not defined on ",
                      weft_dtype_name(*type));
    return *type;
}

weft_op reduction(const c10d::ReduceOp &op)
{
    weft_op_kind kind = kind_of(op);

    return kind == WEFT_OP_PREMUL_SUM ? weft_premul_sum(premul_factor(op))
                                      : weft_op_of(kind);
}

std::vector<weft_part> parts_of(const Tensors &list, size_t unit)
{
    std::vector<weft_part> parts;

    parts.reserve(list.size());
    for (const at::Tensor &t : list) {
        parts.push_back({t.data_ptr(), t.nbytes() / unit});
    }
    return parts;
}

std::vector<weft_part> parts_of(const at::Tensor &whole, size_t pieces,
                                const std::vector<int64_t> &splits)
{
    int64_t rows = whole.dim() == 0 ? 1 : whole.size(0);
    std::vector<weft_part> parts;
    char *at = static_cast<char *>(whole.data_ptr());
    int64_t total = 0;

    for (int64_t split : splits) {
        TORCH_CHECK_VALUE(split >= 0, "weft: a split size is ", split,
                          "; it must not be negative");
        total += split;
    }
    TORCH_CHECK_VALUE(
        splits.empty() || (splits.size() == pieces && total == rows),
        "weft: split sizes must be one for each of ", pieces,
        " ranks and add up to ", rows, ", the size of dimension 0");
    TORCH_CHECK_VALUE(!splits.empty() || rows % int64_t(pieces) == 0,
                      "weft: dimension 0 is ", rows,
                      ", not a multiple of the number of ranks, ", pieces);
    for (size_t i = 0; i < pieces; i++) {
        int64_t own = splits.empty() ? rows / int64_t(pieces) : splits[i];
        size_t bytes =
            rows == 0 ? 0 : whole.nbytes() / size_t(rows) * size_t(own);

        parts.push_back({at, bytes});
        at += bytes;
    }
    return parts;
}

/* Contiguous host memory to be used in place of `t`. */
at::Tensor Buffers::stand_in(const at::Tensor &t)
{
    at::TensorOptions options = t.options().device(at::kCPU);

    if (!on_host(t)) {
        TORCH_CHECK_VALUE(!device_ || *device_ == t.device(),
                          "weft: the tensors of one call are on ", *device_,
                          " and on ", t.device());
        device_ = t.device();
        options = options.pinned_memory(!t.is_cpu());
    }
    return at::empty(t.sizes(), options);
}

void Buffers::note_range(const at::Tensor &t)
{
    if (t.numel() > 0) {
        const char *at = static_cast<const char *>(t.const_data_ptr());

        ranges_.push_back({at, at + t.nbytes()});
    }
}

at::Tensor Buffers::hold(at::Tensor memory)
{
    note_range(memory);
    held_.push_back(std::move(memory));
    return held_.back();
}

bool Buffers::overlaps(const at::Tensor &t) const
{
    if (!on_host(t) || t.numel() == 0) {
        return false;
    }
    const char *begin = static_cast<const char *>(t.const_data_ptr());
    const char *end = begin + t.nbytes();

    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range &r) {
        return begin < r.end && r.begin < end;
    });
}

at::Tensor Buffers::in(const at::Tensor &t)
{
    check_plain(t);
    if (on_host(t)) {
        return hold(t.contiguous().resolve_conj().resolve_neg());
    }
    fill_.push_back({t, hold(stand_in(t))});
    return held_.back();
}

at::Tensor Buffers::out_copied(const at::Tensor &t)
{
    back_.push_back({t, hold(stand_in(t))});
    return held_.back();
}

at::Tensor Buffers::out(const at::Tensor &t)
{
    check_written(t);
    if (on_host(t) && t.is_contiguous() && !t.is_conj() && !t.is_neg()) {
        return hold(t);
    }
    return out_copied(t);
}

at::Tensor Buffers::out_apart(const at::Tensor &t)
{
    check_written(t);
    if (!overlaps(t)) {
        return out(t);
    }
    note_range(t); /* what overlaps it in turn is copied back after it */
    return out_copied(t);
}

at::Tensor Buffers::inout(const at::Tensor &t)
{
    at::Tensor memory = out(t);

    if (!on_host(t)) {
        fill_.push_back({t, memory});
    } else if (!memory.is_same(t)) {
        Unseen guard;

        memory.copy_(t);
    }
    return memory;
}

at::Tensor Buffers::inout_apart(const at::Tensor &t)
{
    if (!overlaps(t)) {
        return inout(t);
    }
    at::Tensor memory = out_apart(t);
    Unseen guard;

    memory.copy_(t);
    return memory;
}

Tensors Buffers::in(const Tensors &list)
{
    Tensors memory;

    for (const at::Tensor &t : list) {
        memory.push_back(in(t));
    }
    return memory;
}

Tensors Buffers::out_apart(const Tensors &list)
{
    Tensors memory;

    for (const at::Tensor &t : list) {
        memory.push_back(out_apart(t));
    }
    return memory;
}

void Buffers::fill() const
{
    Unseen guard;

    for (const Copy &copy : fill_) {
        copy.memory.copy_(copy.user, /*non_blocking=*/true);
    }
}

void Buffers::copy_back() const
{
    Unseen guard;

    for (const Copy &copy : back_) {
        copy.user.copy_(copy.memory, /*non_blocking=*/true);
    }
}

void Buffers::poison() const
{
    for (const Copy &copy : back_) {
        std::memset(copy.memory.data_ptr(), 0xff, copy.memory.nbytes());
    }
}

void Buffers::used_on(const c10::Stream &stream) const
{
    for (const std::vector<Copy> *list : {&fill_, &back_}) {
        for (const Copy &copy : *list) {
            copy.user.record_stream(stream);
        }
    }
}

} // namespace weft_torch
