/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of each operation: the shape of its result, its adjoint, the
 * function that executes it. */
#include "mpi/collective.hpp"
#include "mpi/message.hpp"

namespace weft_torch::mpi
{

namespace
{

Tensor own_part(const Tensor &x, const Group &group, const Args &args)
{
    size_t rank = size_t(group.rank);
    IntArrayRef counts = args.counts;

    return x.narrow(args.axis, total(counts.slice(0, rank)), counts[rank])
        .clone(at::MemoryFormat::Contiguous);
}

template <class N>
List<N> halo_shape(const ArgsOf<N> &args, Slice<N> x, bool back)
{
    List<N> shape = x.vec();

    for (size_t i = 0; i < args.axes.size(); i++) {
        N halo = args.low[i] + args.high[i];
        N &length = shape[size_t(known(args.axes[i]))];

        length = back ? length - halo : length + halo;
    }
    return shape;
}

} // namespace

template <class N>
AdjointOf<N> adjoint_of(const ArgsOf<N> &args, Slice<N> x, const Group &group)
{
    Kind kind = adjoint_kind(args.kind);

    if (args.replicated != N(0)) {
        kind = args.kind == Kind::Allreduce ? Kind::Replicate : Kind::Own;
    }
    ArgsOf<N> to = turned(args, kind);

    switch (args.kind) {
    case Kind::Gather:
        to.shape = x.vec();
        break;
    case Kind::Alltoall:
        std::swap(to.axis, to.from_axis);
        std::swap(to.counts, to.received);
        break;
    case Kind::Scan:
    case Kind::Exscan:
        to.reversed = N(1) - args.reversed;
        break;
    case Kind::Replicate:
    case Kind::Own:
        to.replicated = N(1);
        break;
    case Kind::Sendrecv:
        std::swap(to.peer, to.source);
        std::swap(to.tag, to.source_tag);
        to.shape = x.vec();
        [[fallthrough]];
    case Kind::Send:
    case Kind::Recv:
        to.level = args.level + N(1);
        break;
    default:
        break;
    }
    bool divides = args.op == N(WEFT_OP_AVG) && to.op != args.op;

    return {std::move(to), divides ? 1.0 / double(group.size) : 1.0};
}

template <class N>
List<N> result_shape(const ArgsOf<N> &args, Slice<N> x, const Group &group)
{
    size_t rank = size_t(group.rank);
    Slice<N> counts = args.counts;
    auto along = [&](const N &length) {
        return with_length(x, known(args.axis), length);
    };

    switch (args.kind) {
    case Kind::Gather:
        return along(args.root == N(group.rank) ? total(counts) : N(0));
    case Kind::Allgather:
        return along(total(counts));
    case Kind::ReduceScatter:
    case Kind::Own:
        return along(counts[rank]);
    case Kind::Alltoall: {
        List<N> shape = with_length(x, known(args.from_axis), counts[rank]);

        return with_length<N>(shape, known(args.axis),
                              total(Slice<N>(args.received)));
    }
    case Kind::Halo:
    case Kind::HaloBack:
        return halo_shape(args, x, args.kind == Kind::HaloBack);
    case Kind::Send:
        return {N(0)};
    case Kind::Scatter:
    case Kind::Sendrecv:
        return args.shape;
    default:
        return x.vec();
    }
}

template Adjoint adjoint_of(const Args &, IntArrayRef, const Group &);
template AdjointOf<SymInt> adjoint_of(const SymArgs &, Slice<SymInt>,
                                      const Group &);
template Numbers result_shape(const Args &, IntArrayRef, const Group &);
template List<SymInt> result_shape(const SymArgs &, Slice<SymInt>,
                                   const Group &);

void check_counts(const Args &args, IntArrayRef shape, const Group &group)
{
    auto must_be = [&](int64_t axis, int64_t length) {
        bool there = axis >= 0 && size_t(axis) < shape.size();

        TORCH_CHECK_VALUE(there && shape[size_t(axis)] == length, "weft.mpi ",
                          name_of(args.kind), ": on rank ", group.rank,
                          " the counts say length ", length, " along axis ",
                          axis, ", but the tensor has shape ", shape);
    };
    size_t rank = size_t(group.rank);

    switch (args.kind) {
    case Kind::Gather:
    case Kind::Allgather:
        must_be(args.axis, args.counts[rank]);
        return;
    case Kind::Scatter:
        if (args.root == group.rank) {
            must_be(args.axis, total(args.counts));
        }
        return;
    case Kind::ReduceScatter:
    case Kind::Own:
        must_be(args.axis, total(args.counts));
        return;
    case Kind::Alltoall:
        must_be(args.from_axis, total(args.counts));
        if (args.axis != args.from_axis) {
            must_be(args.axis, args.received[rank]);
        }
        return;
    default:
        return;
    }
}

bool differentiable(const Args &args, at::ScalarType type)
{
    return torch::autograd::isDifferentiableType(type) &&
           args.kind != Kind::Barrier && has_derivative(args.op);
}

Outcome run_kind(const Args &args, const Tensor &x, Group &group, int64_t mark)
{
    check_lost(group);
    switch (args.kind) {
    case Kind::Allreduce:
        return allreduced(x, group, mark, weft_op_kind(args.op));
    case Kind::Replicate:
    case Kind::Join:
        return {x.clone(at::MemoryFormat::Contiguous), {int64_t(group.number)}};
    case Kind::Own:
        check_counts(args, x.sizes(), group);
        return {own_part(x, group, args), {int64_t(group.number)}};
    case Kind::Halo:
    case Kind::HaloBack:
        return run_halo(args, x, group, mark);
    case Kind::Send:
        return run_send(args, x, group, mark);
    case Kind::Recv:
        return run_receive(args, x, group, mark);
    case Kind::Sendrecv:
        return run_sendrecv(args, x, group, mark);
    default:
        break;
    }
    Job job(args, x, group);

    job.call(mark, nullptr);
    return {job.result(), {job.number()}};
}

} // namespace weft_torch::mpi
