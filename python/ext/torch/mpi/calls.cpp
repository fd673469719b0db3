/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/calls.hpp"

#include <numeric>

#include "mpi/message.hpp"

namespace weft_torch::mpi
{

void check_rank(const Group &group, int64_t rank, const char *what)
{
    TORCH_CHECK_VALUE(rank >= 0 && rank < group.size, "weft.mpi: ", what,
                      " is ", rank, "; it must be from 0 to ", group.size - 1);
}

void check_tag(int64_t tag)
{
    TORCH_CHECK_VALUE(tag >= 0 && tag <= max_tag, "weft.mpi: tag is ", tag,
                      "; it must be from 0 to ", max_tag,
                      " (there is no receive with any tag)");
}

namespace
{

void check_op(int64_t op)
{
    TORCH_CHECK_VALUE(op >= WEFT_OP_SUM && op < WEFT_OP_PREMUL_SUM,
                      "weft.mpi: there is no reduction ", op,
                      " of tensors; for MINLOC and MAXLOC there is "
                      "Allreduce((values, indices), op)");
}

int64_t axis_of(const Tensor &x, int64_t axis, const char *what)
{
    int64_t from_front = axis < 0 ? axis + x.dim() : axis;

    TORCH_CHECK_INDEX(from_front >= 0 && from_front < x.dim(), "weft.mpi ",
                      what, ": there is no axis ", axis,
                      " in a tensor of shape ", x.sizes());
    return from_front;
}

/* A single number can be gathered: it is a row of length 1. */
Tensor at_least_1d(const Tensor &x)
{
    return x.dim() == 0 ? x.unsqueeze(0) : x;
}

Numbers joined_args(std::initializer_list<int64_t> first, IntArrayRef rest)
{
    Numbers all(first);

    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

int64_t sum_counts(IntArrayRef counts)
{
    return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

void check_counts_given(const Group &group, const Numbers &counts,
                        const char *what)
{
    bool good = int64_t(counts.size()) == group.size;

    for (int64_t count : counts) {
        good = good && count >= 0;
    }
    TORCH_CHECK_VALUE(good, "weft.mpi ", what, ": counts are ", counts,
                      "; there must be one for each of ", group.size,
                      " ranks, none of them negative");
}

/* Everybody's numbers, rank by rank. */
Numbers exchanged(Group &group, const Numbers &own)
{
    Numbers all(own.size() * size_t(group.size));
    std::unique_lock<std::mutex> guard(group.lock);
    weft_comm *comm = group.comm();

    weft_comm_set_mark(comm, uint64_t(group.next_mark(0)));
    weft_status status =
        weft_allgather(comm, own.data(), all.data(), own.size(), WEFT_I64);
    weft_comm_set_mark(comm, 0);
    guard.unlock();
    check_mpi(status, "exchange of lengths");
    return all;
}

/* Number `i` of each rank. */
Numbers column(const Numbers &all, size_t width, size_t i)
{
    Numbers result;

    for (size_t at = i; at < all.size(); at += width) {
        result.push_back(all[at]);
    }
    return result;
}

bool wants_derivative(const Tensor &x)
{
    return torch::autograd::isDifferentiableType(x.scalar_type()) &&
           ((at::GradMode::is_enabled() && x.requires_grad()) ||
            is_transformed(x) || is_traced(x) ||
            x._fw_grad(/*level=*/0).defined());
}

bool is_linear(int64_t op)
{
    return op == WEFT_OP_SUM || op == WEFT_OP_AVG;
}

bool has_derivative(int64_t op)
{
    return op == WEFT_OP_PROD || op == WEFT_OP_MAX || op == WEFT_OP_MIN;
}

Tensor fold(const Tensor &stack, int64_t op)
{
    return op == WEFT_OP_PROD  ? stack.prod(0)
           : op == WEFT_OP_MAX ? stack.amax(0)
                               : stack.amin(0);
}

/* Everybody's tensors, one behind the other. */
Tensor stacked(Group &group, const Tensor &x, bool replicated)
{
    Numbers ones(static_cast<size_t>(group.size), 1);

    return call_op(Kind::Allgather, x.unsqueeze(0), group.id, 0,
                   joined_args({0, replicated}, ones));
}

Tensor allreduce_smooth(Group &group, const Tensor &x, int64_t op,
                        bool replicated)
{
    return op == WEFT_OP_PROD ? fold(stacked(group, x, replicated), op)
                              : call_op(Kind::Allreduce, x, group.id, 0,
                                        Numbers{op, replicated});
}

Tensor scan_smooth(Group &group, const Tensor &x, int64_t op, bool exclusive)
{
    Tensor all = stacked(group, x, false);
    int64_t ranks = group.rank + (exclusive ? 0 : 1);

    if (ranks > 0) {
        return fold(all.narrow(0, 0, ranks), op);
    }
    double inf = std::numeric_limits<double>::infinity();
    Tensor nothing = all.narrow(0, 0, 0).sum(0); /* but a part of the graph */

    return nothing + (op == WEFT_OP_PROD  ? 1.0
                      : op == WEFT_OP_MAX ? -inf
                                          : inf);
}

/* As `call` says, from operations that have derivatives. */
Tensor smooth(Group &group, const Call &call)
{
    int64_t op = call.args[0];

    switch (call.kind) {
    case Kind::Allreduce:
        return allreduce_smooth(group, call.x, op, call.args[1] != 0);
    case Kind::Reduce: {
        Tensor y = allreduce_smooth(group, call.x, op, false);

        return group.rank == call.args[1]
                   ? y
                   : y.masked_fill(at::ones_like(y, at::kBool), 0);
    }
    case Kind::ReduceScatter: {
        IntArrayRef counts = IntArrayRef(call.args).slice(2);
        size_t rank = size_t(group.rank);
        Tensor y = allreduce_smooth(group, call.x, op, false);

        return y
            .narrow(call.args[1], sum_counts(counts.slice(0, rank)),
                    counts[rank])
            .contiguous();
    }
    default:
        return scan_smooth(group, call.x, op, call.kind == Kind::Exscan);
    }
}

bool reduces(Kind kind)
{
    return kind == Kind::Allreduce || kind == Kind::Reduce ||
           kind == Kind::ReduceScatter || kind == Kind::Scan ||
           kind == Kind::Exscan;
}

bool needs_smooth(const Call &call)
{
    return reduces(call.kind) && !is_linear(call.args[0]) &&
           has_derivative(call.args[0]) && wants_derivative(call.x) &&
           !(call.kind == Kind::Allreduce && call.args[0] != WEFT_OP_PROD);
}

/* Equal lengths on all ranks; the library finds out if they are not. */
Numbers all_alike(const Group &group, int64_t length)
{
    return Numbers(static_cast<size_t>(group.size), length);
}

Numbers divided(const Group &group, const Tensor &x, int64_t axis,
                const char *what)
{
    TORCH_CHECK_VALUE(x.size(axis) % group.size == 0, "weft.mpi ", what,
                      ": axis ", axis, " has ", x.size(axis),
                      " slices, which is no multiple of ", group.size,
                      " ranks");
    return all_alike(group, x.size(axis) / group.size);
}

} // namespace

Call allreduce_call(Group &group, const Tensor &x, int64_t op)
{
    check_op(op);
    return {Kind::Allreduce, x, {op, group.replicated}};
}

Call reduce_call(Group &group, const Tensor &x, int64_t op, int64_t root)
{
    check_op(op);
    check_rank(group, root, "root");
    return {Kind::Reduce, x, {op, root}};
}

Call bcast_call(Group &group, const Tensor &x, int64_t root)
{
    check_rank(group, root, "root");
    return {Kind::Bcast, x, {root}};
}

Call gather_call(Group &group, const Tensor &x, int64_t axis, int64_t root)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Gather");

    return gatherv_call(group, row, along, root,
                        all_alike(group, row.size(along)));
}

Call gatherv_call(Group &group, const Tensor &x, int64_t axis, int64_t root,
                  const Counts &counts)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Gatherv");

    check_rank(group, root, "root");
    Numbers lengths = counts ? *counts : exchanged(group, {row.size(along)});

    check_counts_given(group, lengths, "Gatherv");
    return {Kind::Gather, row, joined_args({along, root}, lengths)};
}

Call allgather_call(Group &group, const Tensor &x, int64_t axis)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Allgather");

    return {Kind::Allgather, row,
            joined_args({along, group.replicated},
                        all_alike(group, row.size(along)))};
}

Call allgatherv_call(Group &group, const Tensor &x, int64_t axis,
                     const Counts &counts)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Allgatherv");
    Numbers lengths = counts ? *counts : exchanged(group, {row.size(along)});

    check_counts_given(group, lengths, "Allgatherv");
    return {Kind::Allgather, row,
            joined_args({along, group.replicated}, lengths)};
}

/* The shape is the root's, and what each rank wants is its own: all learn all
 * of it, so that all can see what is wrong. */
Call scatter_call(Group &group, const Tensor &x, int64_t axis, int64_t own,
                  int64_t root)
{
    constexpr int64_t most_axes = 16;
    Numbers told{own, int64_t(x.scalar_type()), x.dim()};

    check_rank(group, root, "root");
    TORCH_CHECK_VALUE(x.dim() <= most_axes, "weft.mpi Scatter: a tensor of ",
                      x.dim(), " axes; ", most_axes, " are the most");
    told.insert(told.end(), x.sizes().begin(), x.sizes().end());
    told.resize(size_t(3 + most_axes));
    size_t width = told.size();
    Numbers all = exchanged(group, told);
    IntArrayRef of_root(all.data() + size_t(root) * width, width);
    int64_t axes = of_root[2];
    Numbers shape = of_root.slice(3, size_t(axes)).vec();
    int64_t along = axis < 0 ? axis + axes : axis;
    Numbers counts = column(all, width, 0);

    TORCH_CHECK_INDEX(along >= 0 && along < axes,
                      "weft.mpi Scatter: there is no axis ", axis, " in rank ",
                      root, "'s tensor of shape ", shape);
    int64_t length = shape[size_t(along)];

    if (counts == all_alike(group, -1)) {
        TORCH_CHECK_VALUE(length % group.size == 0, "weft.mpi Scatter: axis ",
                          along, " of rank ", root, "'s tensor has ", length,
                          " slices, which is no multiple of ", group.size,
                          " ranks");
        counts = all_alike(group, length / group.size);
    }
    check_counts_given(group, counts, "Scatter");
    TORCH_CHECK_VALUE(sum_counts(counts) == length,
                      "weft.mpi Scatter: ranks want ", counts,
                      " slices, but axis ", along, " of rank ", root,
                      "'s tensor has ", length);
    for (int64_t type : column(all, width, 1)) {
        TORCH_CHECK_TYPE(type == of_root[1],
                         "weft.mpi Scatter: tensors are of ",
                         at::ScalarType(type), " and, on rank ", root, ", of ",
                         at::ScalarType(of_root[1]));
    }
    shape[size_t(along)] = counts[size_t(group.rank)];
    Numbers args = joined_args({along, root}, counts);

    args.insert(args.end(), shape.begin(), shape.end());
    return {Kind::Scatter, x, args};
}

Call reduce_scatter_call(Group &group, const Tensor &x, int64_t op,
                         int64_t axis, const Counts &counts)
{
    int64_t along = axis_of(x, axis, "Reduce_scatter");
    Numbers lengths =
        counts ? *counts : divided(group, x, along, "Reduce_scatter");

    check_op(op);
    check_counts_given(group, lengths, "Reduce_scatter");
    return {Kind::ReduceScatter, x, joined_args({op, along}, lengths)};
}

Call alltoall_call(Group &group, const Tensor &x, int64_t gather_axis,
                   int64_t scatter_axis)
{
    int64_t to = axis_of(x, gather_axis, "Alltoall");
    int64_t from = axis_of(x, scatter_axis, "Alltoall");
    Numbers sent = divided(group, x, from, "Alltoall");
    Numbers args = joined_args({to, from}, sent);
    Numbers received = to == from ? sent : all_alike(group, x.size(to));

    args.insert(args.end(), received.begin(), received.end());
    return {Kind::Alltoall, x, args};
}

Call alltoallv_call(Group &group, const Tensor &x, const Numbers &sent,
                    const Counts &received, int64_t gather_axis,
                    int64_t scatter_axis)
{
    int64_t to = axis_of(x, gather_axis, "Alltoallv");
    int64_t from = axis_of(x, scatter_axis, "Alltoallv");
    Numbers args = joined_args({to, from}, sent);
    Numbers comes;

    check_counts_given(group, sent, "Alltoallv");
    if (received) {
        comes = *received;
    } else if (to == from) {
        comes = column(exchanged(group, sent), size_t(group.size),
                       size_t(group.rank));
    } else {
        comes = exchanged(group, {x.size(to)});
    }
    check_counts_given(group, comes, "Alltoallv");
    args.insert(args.end(), comes.begin(), comes.end());
    return {Kind::Alltoall, x, args};
}

/* The slices of all ranks are one sequence, which is dealt anew. */
Call repartition_call(Group &group, const Tensor &x, int64_t axis, int64_t own)
{
    int64_t along = axis_of(x, axis, "Repartition");
    Numbers all = exchanged(group, {x.size(along), own});
    Numbers have = column(all, 2, 0);
    Numbers want = column(all, 2, 1);
    size_t rank = size_t(group.rank);
    auto overlaps = [&](const Numbers &ours, const Numbers &theirs) {
        int64_t begin = sum_counts(IntArrayRef(ours).slice(0, rank));
        int64_t end = begin + ours[rank];
        int64_t at = 0;
        Numbers counts;

        for (int64_t n : theirs) {
            counts.push_back(std::max(
                std::min(end, at + n) - std::max(begin, at), int64_t(0)));
            at += n;
        }
        return counts;
    };

    check_counts_given(group, want, "Repartition");
    TORCH_CHECK_VALUE(sum_counts(have) == sum_counts(want),
                      "weft.mpi Repartition: ranks have ", have,
                      " slices, but want ", want);
    Numbers args = joined_args({along, along}, overlaps(have, want));
    Numbers received = overlaps(want, have);

    args.insert(args.end(), received.begin(), received.end());
    return {Kind::Alltoall, x, args};
}

Call scan_call(Group &, const Tensor &x, int64_t op, bool exclusive)
{
    check_op(op);
    TORCH_CHECK_VALUE(op != WEFT_OP_AVG, "weft.mpi: there is no scan with AVG");
    return {exclusive ? Kind::Exscan : Kind::Scan, x, {op, 0}};
}

Call send_call(Group &group, const Tensor &x, int64_t to, int64_t tag)
{
    check_rank(group, to, "dest");
    check_tag(tag);
    return {Kind::Send, x, {to, tag, 0, is_transformed(x) || is_traced(x)}};
}

Call receive_call(Group &group, const Tensor &like, int64_t from, int64_t tag)
{
    if (from != any_rank) {
        check_rank(group, from, "source");
    }
    check_tag(tag);
    return {Kind::Recv, like, {from, tag, 0}};
}

Call sendrecv_call(Group &group, const Tensor &x, int64_t to, int64_t send_tag,
                   const Tensor &like, int64_t from, int64_t receive_tag)
{
    check_rank(group, to, "dest");
    check_rank(group, from, "source");
    check_tag(send_tag);
    check_tag(receive_tag);
    TORCH_CHECK_TYPE(like.scalar_type() == x.scalar_type(),
                     "weft.mpi Sendrecv: what is sent is of ", x.scalar_type(),
                     " and what is received of ", like.scalar_type());
    return {Kind::Sendrecv, x,
            joined_args({to, send_tag, from, receive_tag, 0}, shape_of(like))};
}

Tensor carry_out(const GroupPtr &group, const Call &call)
{
    return needs_smooth(call) ? smooth(*group, call)
                              : call_op(call.kind, call.x, group, 0, call.args);
}

std::shared_ptr<Handle> start(const GroupPtr &group, const Call &call)
{
    return needs_smooth(call)
               ? Handle::finished(smooth(*group, call), group)
               : Handle::start(call.kind, call.x, group, 0, call.args);
}

} // namespace weft_torch::mpi
