/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation is: its name, its result, its adjoint. */
#include "mpi.hpp"

#include <numeric>

#include "mpi_job.hpp"
#include "mpi_message.hpp"

namespace weft_torch::mpi
{

namespace
{

const char *const kind_names[kinds] = {
    "allreduce", "reduce",         "bcast",     "gather",   "allgather",
    "scatter",   "reduce_scatter", "alltoall",  "scan",     "exscan",
    "halo",      "halo_back",      "replicate", "own_part", "join",
    "barrier",   "send",           "recv",      "sendrecv"};

Numbers joined(std::initializer_list<int64_t> first, IntArrayRef rest)
{
    Numbers all(first);

    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

Numbers joined(Numbers all, IntArrayRef rest)
{
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

int64_t total(IntArrayRef counts)
{
    return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

Numbers reshaped(IntArrayRef x, int64_t axis, int64_t length)
{
    Numbers shape = x.vec();

    shape[size_t(axis)] = length;
    return shape;
}

Tensor own_part(const Tensor &x, const Group &group, IntArrayRef args)
{
    IntArrayRef counts = args.slice(1);
    int64_t begin = total(counts.slice(0, size_t(group.rank)));

    return x.narrow(args[0], begin, counts[size_t(group.rank)])
        .clone(at::MemoryFormat::Contiguous);
}

Numbers alltoall_shape(IntArrayRef x, const Group &group, IntArrayRef args)
{
    size_t size = size_t(group.size);
    Numbers shape = reshaped(x, args[1], args[2 + size_t(group.rank)]);

    shape[size_t(args[0])] = total(args.slice(2 + size, size));
    return shape;
}

/* A rank's own numbers must be right before any rank is asked for data. */
void check_counts(Kind kind, const Tensor &x, const Group &group,
                  IntArrayRef args)
{
    auto must_be = [&](int64_t axis, int64_t length) {
        TORCH_CHECK_VALUE(axis >= 0 && axis < x.dim() && x.size(axis) == length,
                          "weft.mpi ", name_of(kind), ": on rank ", group.rank,
                          " the counts say ", length, " along axis ", axis,
                          ", but the tensor has shape ", x.sizes());
    };
    size_t rank = size_t(group.rank);

    switch (kind) {
    case Kind::Gather:
    case Kind::Allgather:
        must_be(args[0], args[2 + rank]);
        return;
    case Kind::Scatter:
        if (args[1] == group.rank) {
            must_be(args[0], total(args.slice(2, size_t(group.size))));
        }
        return;
    case Kind::ReduceScatter:
        must_be(args[1], total(args.slice(2)));
        return;
    case Kind::Own:
        must_be(args[0], total(args.slice(1)));
        return;
    case Kind::Alltoall:
        must_be(args[1], total(args.slice(2, size_t(group.size))));
        if (args[0] != args[1]) {
            must_be(args[0], args[2 + size_t(group.size) + rank]);
        }
        return;
    default:
        return;
    }
}

} // namespace

const char *name_of(Kind kind)
{
    return kind_names[int(kind)];
}

bool differentiable(Kind kind, IntArrayRef args, at::ScalarType type)
{
    if (!torch::autograd::isDifferentiableType(type) || kind == Kind::Barrier) {
        return false;
    }
    switch (kind) {
    case Kind::Allreduce:
        return args[0] == WEFT_OP_SUM || args[0] == WEFT_OP_AVG ||
               args[0] == WEFT_OP_MAX || args[0] == WEFT_OP_MIN;
    case Kind::Reduce:
    case Kind::ReduceScatter:
        return args[0] == WEFT_OP_SUM || args[0] == WEFT_OP_AVG;
    case Kind::Scan:
    case Kind::Exscan:
        return args[0] == WEFT_OP_SUM;
    default:
        return true;
    }
}

Adjoint adjoint_of(Kind kind, IntArrayRef x, const Group &group,
                   IntArrayRef args)
{
    size_t size = size_t(group.size);
    bool averages = (kind == Kind::Allreduce || kind == Kind::Reduce ||
                     kind == Kind::ReduceScatter) &&
                    args[0] == WEFT_OP_AVG;
    double factor = averages ? 1.0 / double(group.size) : 1.0;

    switch (kind) {
    case Kind::Allreduce:
        return args[1] != 0 ? Adjoint{Kind::Replicate, {}, factor}
                            : Adjoint{Kind::Allreduce, args.vec()};
    case Kind::Reduce:
        return {Kind::Bcast, {args[1]}, factor};
    case Kind::Bcast:
        return {Kind::Reduce, {WEFT_OP_SUM, args[0]}};
    case Kind::Gather:
        return {Kind::Scatter, joined(args.vec(), x)};
    case Kind::Allgather:
        return args[1] != 0
                   ? Adjoint{Kind::Own, joined({args[0]}, args.slice(2))}
                   : Adjoint{Kind::ReduceScatter,
                             joined({WEFT_OP_SUM, args[0]}, args.slice(2))};
    case Kind::Scatter:
        return {Kind::Gather, args.slice(0, 2 + size).vec()};
    case Kind::ReduceScatter:
        return {Kind::Allgather, joined({args[1], 0}, args.slice(2)), factor};
    case Kind::Alltoall:
        return {Kind::Alltoall,
                joined(joined({args[1], args[0]}, args.slice(2 + size, size)),
                       args.slice(2, size))};
    case Kind::Scan:
    case Kind::Exscan:
        return {kind, {args[0], args[1] == 0}};
    case Kind::Halo:
        return {Kind::HaloBack, args.vec()};
    case Kind::HaloBack:
        return {Kind::Halo, args.vec()};
    case Kind::Replicate:
        return {Kind::Allreduce, {WEFT_OP_SUM, 1}};
    case Kind::Own:
        return {Kind::Allgather, joined({args[0], 1}, args.slice(1))};
    case Kind::Send:
        return {Kind::Recv, {args[0], args[1], args[2] + 1}};
    case Kind::Recv:
        return {Kind::Send, {args[0], args[1], args[2] + 1, 0}};
    case Kind::Sendrecv:
        return {Kind::Sendrecv,
                joined({args[2], args[3], args[0], args[1], args[4] + 1}, x)};
    default:
        return {kind, args.vec()};
    }
}

Numbers result_shape(Kind kind, IntArrayRef x, const Group &group,
                     IntArrayRef args)
{
    size_t rank = size_t(group.rank);

    switch (kind) {
    case Kind::Gather:
        return reshaped(x, args[0],
                        args[1] == group.rank ? total(args.slice(2)) : 0);
    case Kind::Allgather:
        return reshaped(x, args[0], total(args.slice(2)));
    case Kind::Scatter:
        return args.slice(2 + size_t(group.size)).vec();
    case Kind::ReduceScatter:
        return reshaped(x, args[1], args[2 + rank]);
    case Kind::Own:
        return reshaped(x, args[0], args[1 + rank]);
    case Kind::Alltoall:
        return alltoall_shape(x, group, args);
    case Kind::Halo:
    case Kind::HaloBack:
        return halo_shape(x, args, kind == Kind::HaloBack);
    case Kind::Send:
        return {0};
    case Kind::Sendrecv:
        return args.slice(5).vec();
    default:
        return x.vec();
    }
}

Tensor run_kind(Kind kind, const Tensor &x, Group &group, int64_t mark,
                IntArrayRef args)
{
    switch (kind) {
    case Kind::Allreduce:
        return allreduced(x, group, mark, weft_op_kind(args[0]));
    case Kind::Replicate:
    case Kind::Join:
        return x.clone(at::MemoryFormat::Contiguous);
    case Kind::Own:
        check_counts(kind, x, group, args);
        return own_part(x, group, args);
    case Kind::Halo:
    case Kind::HaloBack:
        return run_halo(x, group, mark, args, kind == Kind::HaloBack);
    case Kind::Send:
        return run_send(x, group, mark, args);
    case Kind::Recv:
        return run_receive(x, group, mark, args);
    case Kind::Sendrecv:
        return run_sendrecv(x, group, mark, args);
    default:
        break;
    }
    check_counts(kind, x, group, args);
    Job job(kind, x, group, args);

    job.call(mark, nullptr);
    return job.result();
}

} // namespace weft_torch::mpi
