/* SPDX-License-Identifier: Apache-2.0 */
/* Halos: the edges of the neighbours' blocks around each rank's block. Axes are
 * exchanged one after the other, so that corners come with the second axis.
 *
 *           low        own          high
 *         +-----+----------------+------+
 *         |     | hi |      | lo |      |      the rank below gets our first
 *         +-----+----------------+------+      "high" slices, the rank above
 *            ^    |            |    ^          our last "low" ones
 *      from below  to below  to above  from above */
#include "mpi/group.hpp"

namespace weft_torch::mpi
{

namespace
{

struct Axis {
    int64_t axis, low, high, below, above;
};

Axis axis_at(const Args &args, size_t i)
{
    return {args.axes[i], args.low[i], args.high[i], args.below[i],
            args.above[i]};
}

struct Slabs {
    Tensor below, above;
};

/* The parts for, or from, the two neighbours. */
std::vector<weft_part> parts_for(const Group &group, const Axis &a,
                                 const Slabs &slabs)
{
    std::vector<weft_part> parts(static_cast<size_t>(group.size));

    if (a.below >= 0) {
        parts[size_t(a.below)] = bytes_of(slabs.below);
    }
    if (a.above >= 0) {
        parts[size_t(a.above)] = bytes_of(slabs.above);
    }
    return parts;
}

/* Exchange slabs with both neighbours. `got` has the shapes of the received
 * slabs, and zeros where there is no neighbour. If both are the same rank, it
 * gets one part: the slab for below, then that for above; and sends that from
 * above first. */
void exchange(Group &group, int64_t mark, const Axis &a, const Slabs &give,
              Slabs &got)
{
    bool one = a.below == a.above && a.below >= 0;
    Slabs out = give;
    Slabs in = got;

    if (one) {
        out.below = at::cat({give.below.flatten(), give.above.flatten()});
        in.below = at::cat({got.above.flatten(), got.below.flatten()});
        out.above = out.below;
        in.above = in.below;
    }
    std::vector<weft_part> src = parts_for(group, a, out);
    std::vector<weft_part> dst = parts_for(group, a, in);

    group.call(mark | type_in_mark(give.below.scalar_type()), "halo_exchange",
               [&](weft_comm *comm) {
                   return weft_alltoallv(comm, src.data(), dst.data(), WEFT_U8);
               });
    if (one) {
        int64_t n = got.above.numel();

        got.above.copy_(in.below.narrow(0, 0, n).view_as(got.above));
        got.below.copy_(
            in.below.narrow(0, n, got.below.numel()).view_as(got.below));
    }
}

Tensor zeros_of_length(const Tensor &x, int64_t axis, int64_t length)
{
    return at::zeros(with_length(x.sizes(), axis, length), x.options());
}

Tensor slab_of(const Tensor &x, int64_t axis, int64_t at, int64_t length)
{
    return x.narrow(axis, at, length).contiguous();
}

Tensor add_halo(const Tensor &x, Group &group, int64_t mark, const Axis &a)
{
    int64_t n = x.size(a.axis);
    Slabs give{slab_of(x, a.axis, 0, a.high),
               slab_of(x, a.axis, n - a.low, a.low)};
    Slabs got{zeros_of_length(x, a.axis, a.low),
              zeros_of_length(x, a.axis, a.high)};

    exchange(group, mark, a, give, got);
    return at::cat({got.below, x, got.above}, a.axis);
}

Tensor fold_halo(const Tensor &g, Group &group, int64_t mark, const Axis &a)
{
    int64_t n = g.size(a.axis) - a.low - a.high;
    Slabs give{slab_of(g, a.axis, 0, a.low),
               slab_of(g, a.axis, a.low + n, a.high)};
    Slabs got{zeros_of_length(g, a.axis, a.high),
              zeros_of_length(g, a.axis, a.low)};
    Tensor own = g.narrow(a.axis, a.low, n).clone();

    exchange(group, mark, a, give, got);
    own.narrow(a.axis, 0, a.high).add_(got.below);
    own.narrow(a.axis, n - a.low, a.low).add_(got.above);
    return own;
}

} // namespace

Outcome run_halo(const Args &args, const Tensor &x, Group &group, int64_t mark)
{
    size_t axes = args.axes.size();
    Tensor y = plain(x);

    for (size_t i = 0; i < axes; i++) {
        y = args.kind == Kind::HaloBack
                ? fold_halo(y, group, mark, axis_at(args, axes - 1 - i))
                : add_halo(y, group, mark, axis_at(args, i));
    }
    y = y.is_alias_of(x) ? y.clone() : y.contiguous();
    return {x.is_cpu() ? y : y.to(x.device()), {int64_t(group.number)}};
}

} // namespace weft_torch::mpi
