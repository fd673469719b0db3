/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/collective.hpp"

#include <cstring>

#include "tensors.hpp"

namespace weft_torch::mpi
{

namespace
{

/* Move the axis to the front and make the tensor contiguous. */
Tensor front(const Tensor &x, int64_t axis)
{
    return plain(axis == 0 ? x : x.movedim(axis, 0));
}

/* Parts of `whole` along dimension 0, with lengths in units of `unit` bytes. */
std::vector<weft_part> cut(const Tensor &whole, IntArrayRef counts, size_t unit)
{
    std::vector<weft_part> parts;
    size_t row = size_t(whole.itemsize());
    char *at = static_cast<char *>(whole.data_ptr());

    for (int64_t d = 1; d < whole.dim(); d++) {
        row *= size_t(whole.size(d));
    }
    for (int64_t count : counts) {
        size_t bytes = row * size_t(count);

        parts.push_back({at, bytes / unit});
        at += bytes;
    }
    return parts;
}

Tensor axis_back(const Tensor &x, int64_t axis)
{
    return axis == 0 ? x : x.movedim(0, axis).contiguous();
}

void fill_identity(const Tensor &t, weft_op_kind op)
{
    switch (op) {
    case WEFT_OP_PROD:
    case WEFT_OP_LAND:
        t.fill_(1);
        return;
    case WEFT_OP_MIN:
    case WEFT_OP_MAX:
        if (t.is_floating_point()) {
            double inf = std::numeric_limits<double>::infinity();

            t.fill_(op == WEFT_OP_MIN ? inf : -inf);
        } else {
            bool is_signed = c10::isSignedType(t.scalar_type());
            int64_t bits =
                t.scalar_type() == at::kBool ? 1 : 8 * int64_t(t.itemsize());
            int64_t top = int64_t((uint64_t(1) << (bits - is_signed)) - 1);

            t.fill_(op == WEFT_OP_MIN ? top : is_signed ? -top - 1 : 0);
        }
        return;
    case WEFT_OP_BAND:
        if (t.scalar_type() == at::kBool) {
            t.fill_(true);
        } else { /* torch cannot invert all types */
            std::memset(t.data_ptr(), 0xff, t.nbytes());
        }
        return;
    default:
        t.zero_();
        return;
    }
}

} // namespace

Tensor plain(const Tensor &x)
{
    TORCH_CHECK_VALUE(x.layout() == at::kStrided,
                      "weft.mpi: only dense tensors can be communicated; this "
                      "one is ",
                      x.layout());
    if (x.is_cpu()) {
        return x.is_contiguous() && !x.is_conj() && !x.is_neg()
                   ? x
                   : x.contiguous().resolve_conj().resolve_neg();
    }
    return x.cpu().contiguous();
}

weft_dtype reduced_type(at::ScalarType type, weft_op_kind op, Kind kind)
{
    std::optional<weft_dtype> found = type_of(type, op);

    TORCH_CHECK_TYPE(found, "weft.mpi: tensors of ", type,
                     " can be moved, but not reduced by ", weft_op_name(op));
    TORCH_CHECK_TYPE(weft_op_applies(op, *found), "weft.mpi ", name_of(kind),
                     ": ", weft_op_name(op), " is not defined on ", type);
    return *found;
}

Job::Job(const Args &args, const Tensor &x, Group &group)
    : args_(args), group_(group), device_(x.device())
{
    check_counts(args, x.sizes(), group);
    prepare(x);
}

void Job::prepare(const Tensor &x)
{
    switch (args_.kind) {
    case Kind::Allreduce:
    case Kind::Reduce:
    case Kind::Scan:
    case Kind::Exscan:
        return prepare_reduction(x);
    case Kind::Bcast:
        return prepare_bcast(x);
    case Kind::Gather:
    case Kind::Allgather:
        return prepare_gather(x);
    case Kind::Scatter:
        return prepare_scatter(x);
    case Kind::ReduceScatter:
        return prepare_reduce_scatter(x);
    case Kind::Alltoall:
        return prepare_alltoall(x);
    case Kind::Barrier:
        out_ = x.clone();
        return;
    default:
        TORCH_INTERNAL_ASSERT(false, "not a collective");
    }
}

void Job::prepare_reduction(const Tensor &x)
{
    weft_op_kind op = weft_op_kind(args_.op);

    in_ = plain(x);
    op_ = weft_op_of(op);
    type_ = reduced_type(x.scalar_type(), op, args_.kind);
    if (args_.kind == Kind::Reduce && args_.root != group_.rank) {
        out_ = at::zeros(in_.sizes(), in_.options());
        return;
    }
    out_ = group_.memory->empty(in_.sizes(), in_.options());
    if (args_.kind == Kind::Exscan &&
        group_.rank == (args_.reversed != 0 ? group_.size - 1 : 0)) {
        fill_identity(out_, op);
    }
}

/* The root sends from its own tensor, which is not written. */
void Job::prepare_bcast(const Tensor &x)
{
    if (args_.root == group_.rank) {
        in_ = plain(x);
        out_ = group_.memory->empty(in_.sizes(), in_.options());
        out_.copy_(in_);
    } else {
        out_ = group_.memory->empty(x.sizes(), x.options().device(at::kCPU));
        in_ = out_;
    }
}

void Job::prepare_gather(const Tensor &x)
{
    bool gets = args_.kind == Kind::Allgather || args_.root == group_.rank;

    axis_ = args_.axis;
    in_ = front(x, axis_);
    out_ = group_.memory->empty(
        with_length(in_.sizes(), 0, gets ? total(args_.counts) : int64_t(0)),
        in_.options());
    if (gets) {
        dst_ = cut(out_, args_.counts, 1);
    }
}

void Job::prepare_scatter(const Tensor &x)
{
    Numbers moved = args_.shape;

    axis_ = args_.axis;
    moved.erase(moved.begin() + axis_);
    moved.insert(moved.begin(), args_.shape[size_t(axis_)]);
    out_ = group_.memory->empty(moved, x.options().device(at::kCPU));
    if (args_.root == group_.rank) {
        in_ = front(x, axis_);
        src_ = cut(in_, args_.counts, 1);
    }
}

void Job::prepare_reduce_scatter(const Tensor &x)
{
    axis_ = args_.axis;
    op_ = weft_op_of(weft_op_kind(args_.op));
    type_ = reduced_type(x.scalar_type(), op_.kind, args_.kind);
    in_ = front(x, axis_);
    out_ = group_.memory->empty(
        with_length(in_.sizes(), 0, args_.counts[size_t(group_.rank)]),
        in_.options());
    src_ = cut(in_, args_.counts, size_t(in_.itemsize()));
}

/* Along one axis the received parts are contiguous in the result. Along two
 * axes they are separate blocks, which are concatenated afterwards. */
void Job::prepare_alltoall(const Tensor &x)
{
    axis_ = args_.from_axis;
    in_ = front(x, axis_);
    src_ = cut(in_, args_.counts, 1);
    if (args_.axis == axis_) {
        out_ = group_.memory->empty(
            with_length(in_.sizes(), 0, total(args_.received)), in_.options());
    } else {
        int64_t row = args_.counts[size_t(group_.rank)];

        for (int64_t d = 0; d < x.dim(); d++) {
            row *= d == args_.axis || d == axis_ ? 1 : x.size(d);
        }
        out_ =
            group_.memory->empty({total(args_.received), row}, in_.options());
    }
    dst_ = cut(out_, args_.received, 1);
}

Tensor Job::joined_blocks()
{
    int64_t to = args_.axis < axis_ ? args_.axis + 1 : args_.axis;
    Numbers shape =
        with_length(in_.sizes(), 0, args_.counts[size_t(group_.rank)]);
    std::vector<Tensor> blocks;
    int64_t at = 0;

    for (int64_t count : args_.received) {
        shape[size_t(to)] = count;
        blocks.push_back(out_.narrow(0, at, count).view(shape));
        at += count;
    }
    return at::cat(blocks, to);
}

weft_status Job::dispatch(weft_comm *comm, weft_request **out)
{
    void *src = in_.defined() ? in_.data_ptr() : nullptr;
    void *dst = out_.data_ptr();
    size_t n = in_.defined() ? size_t(in_.numel()) : 0;
    size_t bytes = in_.defined() ? in_.nbytes() : 0;
    uint32_t root = uint32_t(args_.root);
    const weft_part *from = src_.data();
    const weft_part *to = dst_.data();

    switch (args_.kind) {
    case Kind::Allreduce:
        return either<weft_allreduce, weft_iallreduce>(out, comm, src, dst, n,
                                                       type_, op_);
    case Kind::Reduce:
        return either<weft_reduce, weft_ireduce>(out, comm, src, dst, n, type_,
                                                 op_, root);
    case Kind::Scan:
        return either<weft_scan, weft_iscan>(out, comm, src, dst, n, type_,
                                             op_);
    case Kind::Exscan:
        return either<weft_exscan, weft_iexscan>(out, comm, src, dst, n, type_,
                                                 op_);
    case Kind::ReduceScatter:
        return either<weft_reduce_scatterv, weft_ireduce_scatterv>(
            out, comm, from, dst, type_, op_);
    case Kind::Bcast:
        return either<weft_broadcast, weft_ibroadcast>(out, comm, src, bytes,
                                                       WEFT_U8, root);
    case Kind::Gather:
        return either<weft_gatherv, weft_igatherv>(out, comm, src, bytes, to,
                                                   WEFT_U8, root);
    case Kind::Allgather:
        return either<weft_allgatherv, weft_iallgatherv>(out, comm, src, to,
                                                         WEFT_U8);
    case Kind::Scatter:
        return either<weft_scatterv, weft_iscatterv>(
            out, comm, from, dst, out_.nbytes(), WEFT_U8, root);
    case Kind::Alltoall:
        return either<weft_alltoallv, weft_ialltoallv>(out, comm, from, to,
                                                       WEFT_U8);
    default:
        return either<weft_barrier, weft_ibarrier>(out, comm);
    }
}

void Job::call(int64_t mark, weft_request **out)
{
    if (type_ == WEFT_U8) {
        mark |= type_in_mark(out_.scalar_type());
    }
    number_ = group_.call(
        mark, name_of(args_.kind),
        [&](weft_comm *comm) { return dispatch(comm, out); },
        args_.reversed != 0);
}

Outcome allreduced(const Tensor &x, Group &group, int64_t mark, weft_op_kind op)
{
    Tensor in = plain(x);
    weft_dtype type = reduced_type(x.scalar_type(), op, Kind::Allreduce);
    Tensor out = group.memory->empty(in.sizes(), in.options());
    int64_t number = group.call(mark, "allreduce", [&](weft_comm *comm) {
        return weft_allreduce(comm, in.data_ptr(), out.data_ptr(),
                              size_t(in.numel()), type, weft_op_of(op));
    });

    return {x.is_cpu() ? out : out.to(x.device()), {number}};
}

Tensor Job::result()
{
    Tensor y = out_;

    if (args_.kind == Kind::Alltoall && args_.axis != axis_) {
        y = joined_blocks();
    }
    y = axis_back(y, axis_);
    return device_.is_cpu() ? y : y.to(device_);
}

} // namespace weft_torch::mpi
