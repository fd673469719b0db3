/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/collective.hpp"

#include <cstring>
#include <numeric>

#include "tensors.hpp"

namespace weft_torch::mpi
{

namespace
{

/* The axis in front, without gaps. */
Tensor front(const Tensor &x, int64_t axis)
{
    return plain(axis == 0 ? x : x.movedim(axis, 0));
}

int64_t sum_of(IntArrayRef counts)
{
    return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

/* `whole` cut along dimension 0. Lengths are in units of `unit` bytes. */
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

Numbers with_length(IntArrayRef shape, int64_t axis, int64_t length)
{
    Numbers result(shape.begin(), shape.end());

    result[size_t(axis)] = length;
    return result;
}

Tensor axis_back(const Tensor &x, int64_t axis)
{
    return axis == 0 ? x : x.movedim(0, axis).contiguous();
}

void fill_identity(const Tensor &t, weft_op_kind op)
{
    bool whole = !t.is_floating_point() && t.scalar_type() != at::kBool;

    switch (op) {
    case WEFT_OP_PROD:
    case WEFT_OP_LAND:
        t.fill_(1);
        return;
    case WEFT_OP_MIN:
    case WEFT_OP_MAX:
        if (t.scalar_type() == at::kBool) {
            t.fill_(op == WEFT_OP_MIN);
        } else if (whole) {
            bool least = op == WEFT_OP_MAX;
            int64_t bits = 8 * int64_t(t.itemsize());
            bool is_signed = t.scalar_type() != at::kByte;
            int64_t top = is_signed ? int64_t((uint64_t(1) << (bits - 1)) - 1)
                                    : (int64_t(1) << bits) - 1;

            t.fill_(least ? (is_signed ? -top - 1 : 0) : top);
        } else {
            double inf = std::numeric_limits<double>::infinity();

            t.fill_(op == WEFT_OP_MIN ? inf : -inf);
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

weft_dtype reduced_type(at::ScalarType type, weft_op_kind op)
{
    bool sign_matters =
        op == WEFT_OP_MIN || op == WEFT_OP_MAX || op == WEFT_OP_AVG;
    std::optional<weft_dtype> found = type_of(type, sign_matters);

    TORCH_CHECK_TYPE(found, "weft.mpi: tensors of ", type,
                     " can be moved, but not reduced by ", weft_op_name(op));
    return *found;
}

Job::Job(Kind kind, const Tensor &x, Group &group, IntArrayRef args)
    : kind_(kind), group_(group), args_(args.begin(), args.end()),
      device_(x.device())
{
    check_counts(kind, x.sizes(), group, args_);
    switch (kind) {
    case Kind::Allreduce:
    case Kind::Reduce:
    case Kind::Scan:
    case Kind::Exscan:
        prepare_reduction(x, weft_op_kind(args[0]));
        return;
    case Kind::Bcast:
        prepare_bcast(x);
        return;
    case Kind::Gather:
    case Kind::Allgather:
        prepare_gather(x, kind == Kind::Allgather);
        return;
    case Kind::Scatter:
        prepare_scatter(x);
        return;
    case Kind::ReduceScatter:
        prepare_reduce_scatter(x);
        return;
    case Kind::Alltoall:
        prepare_alltoall(x);
        return;
    case Kind::Barrier:
        out_ = x.clone();
        return;
    default:
        TORCH_INTERNAL_ASSERT(false, "not a collective");
    }
}

void Job::prepare_reduction(const Tensor &x, weft_op_kind op)
{
    in_ = plain(x);
    op_ = weft_op_of(op);
    type_ = reduced_type(x.scalar_type(), op);
    TORCH_CHECK_TYPE(weft_op_applies(op, type_), "weft.mpi ", name_of(kind_),
                     ": ", weft_op_name(op), " is not defined on ",
                     x.scalar_type());
    if (kind_ == Kind::Reduce) {
        root_ = uint32_t(args_[1]);
        if (args_[1] != group_.rank) {
            out_ = at::zeros(in_.sizes(), in_.options());
            return;
        }
    }
    out_ = group_.memory->empty(in_.sizes(), in_.options());
    if (kind_ == Kind::Exscan) {
        bool first =
            args_[1] != 0 ? group_.rank == group_.size - 1 : group_.rank == 0;

        if (first) {
            fill_identity(out_, op);
        }
    }
}

/* The root sends from its own memory, which nobody writes. */
void Job::prepare_bcast(const Tensor &x)
{
    root_ = uint32_t(args_[0]);
    if (args_[0] == group_.rank) {
        in_ = plain(x);
        out_ = group_.memory->empty(in_.sizes(), in_.options());
        out_.copy_(in_);
    } else {
        out_ = group_.memory->empty(x.sizes(), x.options().device(at::kCPU));
        in_ = out_;
    }
}

void Job::prepare_gather(const Tensor &x, bool to_all)
{
    IntArrayRef counts = IntArrayRef(args_).slice(2);
    bool gets = to_all || args_[1] == group_.rank;

    axis_ = args_[0];
    root_ = to_all ? 0 : uint32_t(args_[1]);
    in_ = front(x, axis_);
    out_ = group_.memory->empty(
        with_length(in_.sizes(), 0, gets ? sum_of(counts) : 0), in_.options());
    if (gets) {
        dst_ = cut(out_, counts, 1);
    }
}

void Job::prepare_scatter(const Tensor &x)
{
    IntArrayRef counts = IntArrayRef(args_).slice(2, size_t(group_.size));
    IntArrayRef shape = IntArrayRef(args_).slice(2 + size_t(group_.size));
    Numbers moved(shape.begin(), shape.end());

    axis_ = args_[0];
    root_ = uint32_t(args_[1]);
    moved.erase(moved.begin() + axis_);
    moved.insert(moved.begin(), shape[size_t(axis_)]);
    out_ = group_.memory->empty(moved, x.options().device(at::kCPU));
    if (args_[1] == group_.rank) {
        in_ = front(x, axis_);
        src_ = cut(in_, counts, 1);
    }
}

void Job::prepare_reduce_scatter(const Tensor &x)
{
    IntArrayRef counts = IntArrayRef(args_).slice(2);

    axis_ = args_[1];
    op_ = weft_op_of(weft_op_kind(args_[0]));
    type_ = reduced_type(x.scalar_type(), op_.kind);
    in_ = front(x, axis_);
    out_ = group_.memory->empty(
        with_length(in_.sizes(), 0, counts[size_t(group_.rank)]),
        in_.options());
    src_ = cut(in_, counts, size_t(in_.itemsize()));
}

/* Along one axis the parts that come are the result, one behind the other.
 * Along two they are blocks of their own, which are joined afterwards. */
void Job::prepare_alltoall(const Tensor &x)
{
    size_t size = size_t(group_.size);
    int64_t to = args_[0];
    int64_t from = args_[1];
    IntArrayRef sent = IntArrayRef(args_).slice(2, size);
    IntArrayRef received = IntArrayRef(args_).slice(2 + size, size);

    axis_ = from;
    in_ = front(x, from);
    src_ = cut(in_, sent, 1);
    if (to == from) {
        out_ = group_.memory->empty(
            with_length(in_.sizes(), 0, sum_of(received)), in_.options());
        dst_ = cut(out_, received, 1);
        return;
    }
    int64_t row = sent[size_t(group_.rank)];

    for (int64_t d = 0; d < x.dim(); d++) {
        row *= d == to || d == from ? 1 : x.size(d);
    }
    out_ = group_.memory->empty({sum_of(received) * row}, in_.options());
    for (size_t r = 0; r < size; r++) {
        dst_.push_back(
            {nullptr, size_t(received[r] * row) * size_t(in_.itemsize())});
    }
    char *at = static_cast<char *>(out_.data_ptr());
    for (weft_part &part : dst_) {
        part.at = at;
        at += part.n;
    }
}

Tensor Job::joined_blocks()
{
    size_t size = size_t(group_.size);
    IntArrayRef received = IntArrayRef(args_).slice(2 + size, size);
    int64_t to = args_[0] < axis_ ? args_[0] + 1 : args_[0];
    Numbers shape = with_length(in_.sizes(), 0, args_[2 + size_t(group_.rank)]);
    std::vector<Tensor> blocks;
    int64_t at = 0;

    for (int64_t count : received) {
        shape[size_t(to)] = count;
        int64_t n = c10::multiply_integers(shape);

        blocks.push_back(out_.narrow(0, at, n).view(shape));
        at += n;
    }
    return at::cat(blocks, to);
}

weft_status Job::reduce(weft_comm *comm, weft_request **out)
{
    const void *src = in_.data_ptr();
    void *dst = out_.data_ptr();
    size_t n = size_t(in_.numel());

    switch (kind_) {
    case Kind::Reduce:
        return out != nullptr
                   ? weft_ireduce(comm, src, dst, n, type_, op_, root_, out)
                   : weft_reduce(comm, src, dst, n, type_, op_, root_);
    case Kind::Scan:
        return out != nullptr ? weft_iscan(comm, src, dst, n, type_, op_, out)
                              : weft_scan(comm, src, dst, n, type_, op_);
    case Kind::Exscan:
        return out != nullptr ? weft_iexscan(comm, src, dst, n, type_, op_, out)
                              : weft_exscan(comm, src, dst, n, type_, op_);
    default:
        return out != nullptr
                   ? weft_ireduce_scatterv(comm, src_.data(), dst, type_, op_,
                                           out)
                   : weft_reduce_scatterv(comm, src_.data(), dst, type_, op_);
    }
}

weft_status Job::move(weft_comm *comm, weft_request **out)
{
    void *src = in_.defined() ? in_.data_ptr() : nullptr;
    size_t bytes = in_.defined() ? in_.nbytes() : 0;
    const weft_part *from = src_.data();
    const weft_part *to = dst_.data();
    void *dst = out_.data_ptr();

    switch (kind_) {
    case Kind::Bcast:
        return out != nullptr
                   ? weft_ibroadcast(comm, src, bytes, WEFT_U8, root_, out)
                   : weft_broadcast(comm, src, bytes, WEFT_U8, root_);
    case Kind::Gather:
        return out != nullptr
                   ? weft_igatherv(comm, src, bytes, to, WEFT_U8, root_, out)
                   : weft_gatherv(comm, src, bytes, to, WEFT_U8, root_);
    case Kind::Allgather:
        return out != nullptr ? weft_iallgatherv(comm, src, to, WEFT_U8, out)
                              : weft_allgatherv(comm, src, to, WEFT_U8);
    case Kind::Scatter:
        return out != nullptr ? weft_iscatterv(comm, from, dst, out_.nbytes(),
                                               WEFT_U8, root_, out)
                              : weft_scatterv(comm, from, dst, out_.nbytes(),
                                              WEFT_U8, root_);
    case Kind::Alltoall:
        return out != nullptr ? weft_ialltoallv(comm, from, to, WEFT_U8, out)
                              : weft_alltoallv(comm, from, to, WEFT_U8);
    default:
        return out != nullptr ? weft_ibarrier(comm, out) : weft_barrier(comm);
    }
}

weft_status Job::dispatch(weft_comm *comm, weft_request **out)
{
    switch (kind_) {
    case Kind::Allreduce:
        return out != nullptr
                   ? weft_iallreduce(comm, in_.data_ptr(), out_.data_ptr(),
                                     size_t(in_.numel()), type_, op_, out)
                   : weft_allreduce(comm, in_.data_ptr(), out_.data_ptr(),
                                    size_t(in_.numel()), type_, op_);
    case Kind::Reduce:
    case Kind::Scan:
    case Kind::Exscan:
    case Kind::ReduceScatter:
        return reduce(comm, out);
    default:
        return move(comm, out);
    }
}

void Job::call(int64_t mark, weft_request **out)
{
    bool backwards =
        (kind_ == Kind::Scan || kind_ == Kind::Exscan) && args_[1] != 0;
    std::unique_lock<std::mutex> guard(group_.lock);
    weft_comm *comm = backwards ? group_.reversed() : group_.comm();

    if (type_ == WEFT_U8) {
        mark |= type_in_mark(out_.scalar_type());
    }
    weft_comm_set_mark(comm, uint64_t(group_.next_mark(mark)));
    weft_status status = dispatch(comm, out);
    weft_comm_set_mark(comm, 0);
    guard.unlock(); /* an error needs Python, whose holder may want the lock */
    check_mpi(status, name_of(kind_));
}

Tensor allreduced(const Tensor &x, Group &group, int64_t mark, weft_op_kind op)
{
    Tensor in = plain(x);
    weft_dtype type = reduced_type(x.scalar_type(), op);

    TORCH_CHECK_TYPE(weft_op_applies(op, type),
                     "weft.mpi allreduce: ", weft_op_name(op),
                     " is not defined on ", x.scalar_type());
    Tensor out = group.memory->empty(in.sizes(), in.options());
    std::unique_lock<std::mutex> guard(group.lock);
    weft_comm *comm = group.comm();

    weft_comm_set_mark(comm, uint64_t(group.next_mark(mark)));
    weft_status status =
        weft_allreduce(comm, in.data_ptr(), out.data_ptr(), size_t(in.numel()),
                       type, weft_op_of(op));
    weft_comm_set_mark(comm, 0);
    guard.unlock();
    check_mpi(status, "allreduce");
    return x.is_cpu() ? out : out.to(x.device());
}

Tensor Job::result()
{
    Tensor y = out_;

    if (kind_ == Kind::Alltoall && args_[0] != args_[1]) {
        y = joined_blocks();
    }
    y = axis_back(y, axis_);
    return device_.is_cpu() ? y : y.to(device_);
}

} // namespace weft_torch::mpi
