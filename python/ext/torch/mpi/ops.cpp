/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation is: its name, its result, its adjoint. The rules are
 * written once for numbers and for lengths that a compiler leaves open. */
#include "mpi/group.hpp"

#include <numeric>

#include "mpi/collective.hpp"
#include "mpi/message.hpp"
#include "mpi/trace.hpp"

namespace weft_torch::mpi
{

namespace
{

const char *const kind_names[kinds] = {
    "allreduce", "reduce",         "bcast",     "gather",   "allgather",
    "scatter",   "reduce_scatter", "alltoall",  "scan",     "exscan",
    "halo",      "halo_back",      "replicate", "own_part", "join",
    "barrier",   "send",           "recv",      "sendrecv"};

template <class N> using List = std::vector<N>;
template <class N> using Slice = c10::ArrayRef<N>;

template <class N> List<N> joined(List<N> all, Slice<N> rest)
{
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

template <class N> N total(Slice<N> counts)
{
    return std::accumulate(counts.begin(), counts.end(), N(0));
}

template <class N> List<N> reshaped(Slice<N> x, size_t axis, N length)
{
    List<N> shape = x.vec();

    shape[axis] = std::move(length);
    return shape;
}

size_t index(int64_t n)
{
    return size_t(n);
}

size_t index(const c10::SymInt &n)
{
    return size_t(n.guard_int(__FILE__, __LINE__));
}

Tensor own_part(const Tensor &x, const Group &group, IntArrayRef args)
{
    IntArrayRef counts = args.slice(1);
    int64_t begin = total(counts.slice(0, size_t(group.rank)));

    return x.narrow(args[0], begin, counts[size_t(group.rank)])
        .clone(at::MemoryFormat::Contiguous);
}

template <class N>
List<N> alltoall_shape(Slice<N> x, const Group &group, Slice<N> args)
{
    size_t size = size_t(group.size);
    List<N> shape = reshaped(x, index(args[1]), args[2 + size_t(group.rank)]);

    shape[index(args[0])] = total(args.slice(2 + size, size));
    return shape;
}

template <class N> List<N> halo_shape(Slice<N> x, Slice<N> args, bool back)
{
    List<N> shape = x.vec();

    for (size_t i = 0; i < args.size(); i += 5) {
        N halo = args[i + 1] + args[i + 2];
        N &length = shape[index(args[i])];

        length = back ? length - halo : length + halo;
    }
    return shape;
}

template <class N>
AdjointOf<N> adjoint_rule(Kind kind, Slice<N> x, const Group &group,
                          Slice<N> args)
{
    using Result = AdjointOf<N>;
    size_t size = size_t(group.size);
    bool averages = (kind == Kind::Allreduce || kind == Kind::Reduce ||
                     kind == Kind::ReduceScatter) &&
                    args[0] == N(WEFT_OP_AVG);
    double factor = averages ? 1.0 / double(group.size) : 1.0;

    switch (kind) {
    case Kind::Allreduce:
        return args[1] != N(0) ? Result{Kind::Replicate, {}, factor}
                               : Result{Kind::Allreduce, args.vec()};
    case Kind::Reduce:
        return {Kind::Bcast, {args[1]}, factor};
    case Kind::Bcast:
        return {Kind::Reduce, {N(WEFT_OP_SUM), args[0]}};
    case Kind::Gather:
        return {Kind::Scatter, joined(args.vec(), x)};
    case Kind::Allgather:
        return args[1] != N(0)
                   ? Result{Kind::Own, joined({args[0]}, args.slice(2))}
                   : Result{Kind::ReduceScatter,
                            joined({N(WEFT_OP_SUM), args[0]}, args.slice(2))};
    case Kind::Scatter:
        return {Kind::Gather, args.slice(0, 2 + size).vec()};
    case Kind::ReduceScatter:
        return {Kind::Allgather, joined({args[1], N(0)}, args.slice(2)),
                factor};
    case Kind::Alltoall:
        return {Kind::Alltoall,
                joined(joined({args[1], args[0]}, args.slice(2 + size, size)),
                       args.slice(2, size))};
    case Kind::Scan:
    case Kind::Exscan:
        return {kind, {args[0], N(args[1] == N(0) ? 1 : 0)}};
    case Kind::Halo:
        return {Kind::HaloBack, args.vec()};
    case Kind::HaloBack:
        return {Kind::Halo, args.vec()};
    case Kind::Replicate:
        return {Kind::Allreduce, {N(WEFT_OP_SUM), N(1)}};
    case Kind::Own:
        return {Kind::Allgather, joined({args[0], N(1)}, args.slice(1))};
    case Kind::Send:
        return {Kind::Recv, {args[0], args[1], args[2] + N(1)}};
    case Kind::Recv:
        return {Kind::Send, {args[0], args[1], args[2] + N(1), N(0)}};
    case Kind::Sendrecv:
        return {
            Kind::Sendrecv,
            joined({args[2], args[3], args[0], args[1], args[4] + N(1)}, x)};
    default:
        return {kind, args.vec()};
    }
}

template <class N>
List<N> shape_rule(Kind kind, Slice<N> x, const Group &group, Slice<N> args)
{
    size_t rank = size_t(group.rank);

    switch (kind) {
    case Kind::Gather:
        return reshaped(x, index(args[0]),
                        args[1] == N(group.rank) ? total(args.slice(2)) : N(0));
    case Kind::Allgather:
        return reshaped(x, index(args[0]), total(args.slice(2)));
    case Kind::Scatter:
        return args.slice(2 + size_t(group.size)).vec();
    case Kind::ReduceScatter:
        return reshaped(x, index(args[1]), args[2 + rank]);
    case Kind::Own:
        return reshaped(x, index(args[0]), args[1 + rank]);
    case Kind::Alltoall:
        return alltoall_shape(x, group, args);
    case Kind::Halo:
    case Kind::HaloBack:
        return halo_shape(x, args, kind == Kind::HaloBack);
    case Kind::Send:
        return {N(0)};
    case Kind::Sendrecv:
        return args.slice(5).vec();
    default:
        return x.vec();
    }
}

} // namespace

void check_counts(Kind kind, IntArrayRef shape, const Group &group,
                  IntArrayRef args)
{
    auto must_be = [&](int64_t axis, int64_t length) {
        bool there = axis >= 0 && size_t(axis) < shape.size();

        TORCH_CHECK_VALUE(there && shape[size_t(axis)] == length, "weft.mpi ",
                          name_of(kind), ": on rank ", group.rank,
                          " the counts say ", length, " along axis ", axis,
                          ", but the tensor has shape ", shape);
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
    return adjoint_rule(kind, x, group, args);
}

AdjointOf<c10::SymInt> adjoint_of(Kind kind, c10::SymIntArrayRef x,
                                  const Group &group, c10::SymIntArrayRef args)
{
    return adjoint_rule(kind, x, group, args);
}

Numbers result_shape(Kind kind, IntArrayRef x, const Group &group,
                     IntArrayRef args)
{
    return shape_rule(kind, x, group, args);
}

std::vector<c10::SymInt> result_shape(Kind kind, c10::SymIntArrayRef x,
                                      const Group &group,
                                      c10::SymIntArrayRef args)
{
    return shape_rule(kind, x, group, args);
}

Tensor run_kind(Kind kind, const Tensor &x, Group &group, int64_t mark,
                IntArrayRef args)
{
    check_lost(group);
    switch (kind) {
    case Kind::Allreduce:
        return allreduced(x, group, mark, weft_op_kind(args[0]));
    case Kind::Replicate:
    case Kind::Join:
        return x.clone(at::MemoryFormat::Contiguous);
    case Kind::Own:
        check_counts(kind, x.sizes(), group, args);
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
    Job job(kind, x, group, args);

    job.call(mark, nullptr);
    return job.result();
}

} // namespace weft_torch::mpi
