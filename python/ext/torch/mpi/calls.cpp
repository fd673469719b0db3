/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/calls.hpp"

#include "mpi/message.hpp"

namespace weft_torch::mpi
{

namespace
{

/* `what` is the name of the argument. */
void check_rank(const Group &group, int64_t rank, const char *what)
{
    TORCH_CHECK_VALUE(rank >= 0 && rank < group.size, "weft.mpi: ", what, " ",
                      rank, " is out of range (size ", group.size, ")");
}

void check_tag(int64_t tag)
{
    TORCH_CHECK_VALUE(tag >= 0 && tag <= max_tag, "weft.mpi: tag ", tag,
                      " is out of range (0 to ", max_tag,
                      "); a receive must name its tag");
}

int64_t axis_of(const Tensor &x, int64_t axis, const char *what)
{
    int64_t from_front = axis < 0 ? axis + x.dim() : axis;

    TORCH_CHECK_INDEX(from_front >= 0 && from_front < x.dim(), "weft.mpi ",
                      what, ": axis ", axis, " is out of range for shape ",
                      x.sizes());
    return from_front;
}

/* A scalar is gathered as a vector of length 1. */
Tensor at_least_1d(const Tensor &x)
{
    return x.dim() == 0 ? x.unsqueeze(0) : x;
}

void check_counts_given(const Group &group, const Numbers &counts,
                        const char *what)
{
    bool good = int64_t(counts.size()) == group.size;

    for (int64_t count : counts) {
        good = good && count >= 0;
    }
    TORCH_CHECK_VALUE(good, "weft.mpi ", what, ": counts are ", counts,
                      "; there must be one for each of the ", group.size,
                      " ranks, and none may be negative");
}

/* The numbers of all ranks, in the order of ranks. */
Numbers exchanged(Group &group, const Numbers &own)
{
    Numbers all(own.size() * size_t(group.size));

    group.call(0, "exchange of lengths", [&](weft_comm *comm) {
        return weft_allgather(comm, own.data(), all.data(), own.size(),
                              WEFT_I64);
    });
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

/* Equal lengths on all ranks, which the library checks. */
Numbers all_alike(const Group &group, int64_t length)
{
    return Numbers(static_cast<size_t>(group.size), length);
}

Numbers divided(const Group &group, const Tensor &x, int64_t axis,
                const char *what)
{
    TORCH_CHECK_VALUE(x.size(axis) % group.size == 0, "weft.mpi ", what,
                      ": axis ", axis, " has length ", x.size(axis),
                      ", which is not a multiple of the ", group.size,
                      " ranks");
    return all_alike(group, x.size(axis) / group.size);
}

} // namespace

void check_call(const Args &args, const Group &group)
{
    TORCH_CHECK_VALUE(args.op >= WEFT_OP_SUM && args.op < WEFT_OP_PREMUL_SUM,
                      "weft.mpi: ", args.op,
                      " is not a reduction of tensors; for MINLOC and MAXLOC "
                      "use Allreduce((values, indices), op)");
    check_rank(group, args.root, "root"); /* 0 where there is none */
    check_tag(args.tag);
    check_tag(args.source_tag);
    if (args.kind == Kind::Recv) {
        if (args.peer != any_rank) {
            check_rank(group, args.peer, "source");
        }
        return;
    }
    check_rank(group, args.peer, "dest");
    check_rank(group, args.source, "source");
}

Call allreduce_call(Group &group, const Tensor &x, int64_t op)
{
    return {{.kind = Kind::Allreduce, .op = op, .replicated = group.replicated},
            x};
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
    return {{.kind = Kind::Gather,
             .root = root,
             .axis = along,
             .counts = std::move(lengths)},
            row};
}

Call allgather_call(Group &group, const Tensor &x, int64_t axis)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Allgather");

    return allgatherv_call(group, row, along,
                           all_alike(group, row.size(along)));
}

Call allgatherv_call(Group &group, const Tensor &x, int64_t axis,
                     const Counts &counts)
{
    Tensor row = at_least_1d(x);
    int64_t along = axis_of(row, axis, "Allgatherv");
    Numbers lengths = counts ? *counts : exchanged(group, {row.size(along)});

    check_counts_given(group, lengths, "Allgatherv");
    return {{.kind = Kind::Allgather,
             .axis = along,
             .replicated = group.replicated,
             .counts = std::move(lengths)},
            row};
}

/* The root knows the shape, and each rank the length it wants. All ranks get
 * all of it, so that all report the same error. */
Call scatter_call(Group &group, const Tensor &x, int64_t axis, int64_t own,
                  int64_t root)
{
    constexpr int64_t most_axes = 16;
    Numbers own_facts{own, int64_t(x.scalar_type()), x.dim()};

    check_rank(group, root, "root");
    TORCH_CHECK_VALUE(x.dim() <= most_axes, "weft.mpi Scatter: the tensor has ",
                      x.dim(), " axes; at most ", most_axes, " are supported");
    own_facts.insert(own_facts.end(), x.sizes().begin(), x.sizes().end());
    own_facts.resize(size_t(3 + most_axes));
    size_t width = own_facts.size();
    Numbers all = exchanged(group, own_facts);
    IntArrayRef of_root(all.data() + size_t(root) * width, width);
    int64_t axes = of_root[2];
    Numbers shape = of_root.slice(3, size_t(axes)).vec();
    int64_t along = axis < 0 ? axis + axes : axis;
    Numbers counts = column(all, width, 0);

    TORCH_CHECK_INDEX(along >= 0 && along < axes, "weft.mpi Scatter: axis ",
                      axis, " is out of range for rank ", root,
                      "'s tensor of shape ", shape);
    int64_t length = shape[size_t(along)];

    if (counts == all_alike(group, -1)) {
        TORCH_CHECK_VALUE(length % group.size == 0, "weft.mpi Scatter: axis ",
                          along, " of rank ", root, "'s tensor has length ",
                          length, ", which is not a multiple of the ",
                          group.size, " ranks");
        counts = all_alike(group, length / group.size);
    }
    check_counts_given(group, counts, "Scatter");
    TORCH_CHECK_VALUE(total(counts) == length, "weft.mpi Scatter: ranks want ",
                      counts, " slices, but axis ", along, " of rank ", root,
                      "'s tensor has length ", length);
    for (int64_t type : column(all, width, 1)) {
        TORCH_CHECK_TYPE(type == of_root[1],
                         "weft.mpi Scatter: a rank's tensor has type ",
                         at::ScalarType(type), ", but that of rank ", root,
                         " has type ", at::ScalarType(of_root[1]));
    }
    shape[size_t(along)] = counts[size_t(group.rank)];
    return {{.kind = Kind::Scatter,
             .root = root,
             .axis = along,
             .counts = std::move(counts),
             .shape = std::move(shape)},
            x};
}

Call reduce_scatter_call(Group &group, const Tensor &x, int64_t op,
                         const Counts &counts, int64_t axis)
{
    int64_t along = axis_of(x, axis, "Reduce_scatter");
    Numbers lengths =
        counts ? *counts : divided(group, x, along, "Reduce_scatter");

    check_counts_given(group, lengths, "Reduce_scatter");
    return {{.kind = Kind::ReduceScatter,
             .op = op,
             .axis = along,
             .counts = std::move(lengths)},
            x};
}

namespace
{

Call exchange_call(const Tensor &x, int64_t to, int64_t from, Numbers sent,
                   Numbers received)
{
    return {{.kind = Kind::Alltoall,
             .axis = to,
             .from_axis = from,
             .counts = std::move(sent),
             .received = std::move(received)},
            x};
}

} // namespace

Call alltoall_call(Group &group, const Tensor &x, int64_t gather_axis,
                   int64_t scatter_axis)
{
    int64_t to = axis_of(x, gather_axis, "Alltoall");
    int64_t from = axis_of(x, scatter_axis, "Alltoall");
    Numbers sent = divided(group, x, from, "Alltoall");

    return exchange_call(x, to, from, sent,
                         to == from ? sent : all_alike(group, x.size(to)));
}

Call alltoallv_call(Group &group, const Tensor &x, const Numbers &sent,
                    const Counts &received, int64_t gather_axis,
                    int64_t scatter_axis)
{
    int64_t to = axis_of(x, gather_axis, "Alltoallv");
    int64_t from = axis_of(x, scatter_axis, "Alltoallv");
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
    return exchange_call(x, to, from, sent, std::move(comes));
}

/* The slices of all ranks, in the order of ranks, are distributed anew. */
Call repartition_call(Group &group, const Tensor &x, int64_t axis, int64_t own)
{
    int64_t along = axis_of(x, axis, "Repartition");
    Numbers all = exchanged(group, {x.size(along), own});
    Numbers have = column(all, 2, 0);
    Numbers want = column(all, 2, 1);
    size_t rank = size_t(group.rank);
    auto overlaps = [&](const Numbers &ours, const Numbers &theirs) {
        int64_t begin = total(IntArrayRef(ours).slice(0, rank));
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
    TORCH_CHECK_VALUE(total(have) == total(want),
                      "weft.mpi Repartition: ranks have ", have,
                      " slices, but want ", want);
    return exchange_call(x, along, along, overlaps(have, want),
                         overlaps(want, have));
}

template <Kind kind> Call scan_call(Group &, const Tensor &x, int64_t op)
{
    TORCH_CHECK_VALUE(op != WEFT_OP_AVG,
                      "weft.mpi: Scan and Exscan do not support AVG");
    return {{.kind = kind, .op = op}, x};
}

template Call scan_call<Kind::Scan>(Group &, const Tensor &, int64_t);
template Call scan_call<Kind::Exscan>(Group &, const Tensor &, int64_t);

Call join_call(Group &, const Tensor &x)
{
    return {{.kind = Kind::Join, .inside = in_transform()}, x};
}

Call send_call(Group &, const Tensor &x, int64_t to, int64_t tag)
{
    return {{.kind = Kind::Send,
             .peer = to,
             .tag = tag,
             .lazy = is_transformed(x) || is_traced(x)},
            x};
}

Call sendrecv_call(Group &, const Tensor &x, int64_t to, int64_t send_tag,
                   const Tensor &like, int64_t from, int64_t receive_tag)
{
    TORCH_CHECK_TYPE(like.scalar_type() == x.scalar_type(),
                     "weft.mpi Sendrecv: the sent tensor has type ",
                     x.scalar_type(), ", but the received one has type ",
                     like.scalar_type());
    return {{.kind = Kind::Sendrecv,
             .peer = to,
             .tag = send_tag,
             .source = from,
             .source_tag = receive_tag,
             .shape = shape_of(like)},
            x};
}

Tensor carry_out(const GroupPtr &group, const Call &call)
{
    check_call(call.args, *group);
    return call_op(call.args, call.x, group, 0);
}

std::shared_ptr<Handle> start(const GroupPtr &group, const Call &call)
{
    check_call(call.args, *group);
    return Handle::start(call.args, call.x, group, 0);
}

} // namespace weft_torch::mpi
