/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/composed.hpp"

namespace weft_torch::mpi
{

namespace
{

Tensor fold(const Tensor &stack, int64_t op)
{
    return op == WEFT_OP_PROD  ? stack.prod(0)
           : op == WEFT_OP_MAX ? stack.amax(0)
                               : stack.amin(0);
}

/* The tensors of all ranks, stacked. */
template <class N>
Tensor stacked(const N &replicated, const Tensor &x, const Group &group,
               RunOf<N> run)
{
    ArgsOf<N> gather{Kind::Allgather};

    gather.replicated = replicated;
    gather.counts.assign(size_t(group.size), N(1));
    return run(gather, x.unsqueeze(0));
}

/* The derivative is not product / own factor, which may be 0. */
template <class N>
Tensor reduced(const ArgsOf<N> &args, const Tensor &x, const Group &group,
               RunOf<N> run)
{
    return args.op == N(WEFT_OP_PROD)
               ? fold(stacked(args.replicated, x, group, run), WEFT_OP_PROD)
               : run(turned(args, Kind::Allreduce), x);
}

Tensor scanned(const Tensor &stack, int64_t op, int64_t ranks)
{
    if (ranks > 0) {
        return fold(stack.narrow(0, 0, ranks), op);
    }
    double inf = std::numeric_limits<double>::infinity();
    Tensor nothing =
        stack.narrow(0, 0, 0).sum(0); /* keeps the result in the graph */

    return nothing + (op == WEFT_OP_PROD  ? 1.0
                      : op == WEFT_OP_MAX ? -inf
                                          : inf);
}

} // namespace

template <class N>
Tensor composed(const ArgsOf<N> &args, const Tensor &x, const Group &group,
                RunOf<N> run)
{
    size_t rank = size_t(group.rank);
    Slice<N> counts = args.counts;

    switch (args.kind) {
    case Kind::Reduce: {
        Tensor y = reduced(args, x, group, run);

        return args.root == N(group.rank)
                   ? y
                   : y.masked_fill(at::ones_like(y, at::kBool), 0);
    }
    case Kind::ReduceScatter:
        return reduced(args, x, group, run)
            .narrow_symint(known(args.axis), total(counts.slice(0, rank)),
                           counts[rank])
            .contiguous();
    case Kind::Scan:
    case Kind::Exscan:
        return scanned(stacked(N(0), x, group, run), known(args.op),
                       group.rank + (args.kind == Kind::Scan ? 1 : 0));
    default:
        return reduced(args, x, group, run);
    }
}

template Tensor composed(const Args &, const Tensor &, const Group &,
                         RunOf<int64_t>);
template Tensor composed(const SymArgs &, const Tensor &, const Group &,
                         RunOf<SymInt>);

} // namespace weft_torch::mpi
