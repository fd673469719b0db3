/* SPDX-License-Identifier: Apache-2.0 */
/* Halos: the edges of each rank's block, in its neighbours' blocks. One axis
 * after the other, so that what goes round a corner comes with the second.
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

Axis axis_at(IntArrayRef args, size_t i)
{
    return {args[5 * i], args[5 * i + 1], args[5 * i + 2], args[5 * i + 3],
            args[5 * i + 4]};
}

/* What goes to a rank: the slab for below first, then that for above. From the
 * other side the first one comes from above. */
struct Slabs {
    Tensor below, above;
};

void add_bytes(std::vector<size_t> &bytes, int64_t rank, const Tensor &slab)
{
    if (rank >= 0) {
        bytes[size_t(rank)] += slab.nbytes();
    }
}

std::vector<weft_part> packed(const std::vector<size_t> &bytes,
                              const Tensor &memory)
{
    std::vector<weft_part> parts;
    char *at = static_cast<char *>(memory.data_ptr());

    for (size_t n : bytes) {
        parts.push_back({at, n});
        at += n;
    }
    return parts;
}

/* Copy between a slab and its place in a part, and go on behind it. */
void pass(weft_part &place, const Tensor &slab, bool out)
{
    size_t n = slab.nbytes();

    if (n > 0) {
        if (out) {
            std::memcpy(place.at, slab.data_ptr(), n);
        } else {
            std::memcpy(slab.data_ptr(), place.at, n);
        }
    }
    place.at = static_cast<char *>(place.at) + n;
}

Tensor memory_for(Group &group, const std::vector<size_t> &bytes)
{
    size_t total = 0;

    for (size_t n : bytes) {
        total += n;
    }
    return group.memory->empty({int64_t(total)}, at::kByte);
}

/* Exchange slabs with both neighbours. `got` has the shapes of what comes, and
 * zeros where there is no neighbour. */
void exchange(Group &group, int64_t mark, const Axis &a, const Slabs &give,
              Slabs &got)
{
    std::vector<size_t> sent(size_t(group.size), 0);
    std::vector<size_t> came(size_t(group.size), 0);

    add_bytes(sent, a.below, give.below);
    add_bytes(sent, a.above, give.above);
    add_bytes(came, a.above, got.above);
    add_bytes(came, a.below, got.below);
    Tensor source = memory_for(group, sent);
    Tensor target = memory_for(group, came);
    std::vector<weft_part> src = packed(sent, source);
    std::vector<weft_part> dst = packed(came, target);
    std::vector<weft_part> at = src;

    if (a.below >= 0) {
        pass(at[size_t(a.below)], give.below, true);
    }
    if (a.above >= 0) {
        pass(at[size_t(a.above)], give.above, true);
    }
    std::unique_lock<std::mutex> guard(group.lock);
    weft_comm *comm = group.comm();

    mark |= type_in_mark(give.below.scalar_type());
    weft_comm_set_mark(comm, uint64_t(group.next_mark(mark)));
    weft_status status = weft_alltoallv(comm, src.data(), dst.data(), WEFT_U8);
    weft_comm_set_mark(comm, 0);
    guard.unlock();
    check_mpi(status, "halo_exchange");
    at = dst;
    if (a.above >= 0) {
        pass(at[size_t(a.above)], got.above, false);
    }
    if (a.below >= 0) {
        pass(at[size_t(a.below)], got.below, false);
    }
}

Tensor zeros_of_length(const Tensor &x, int64_t axis, int64_t length)
{
    Numbers shape = x.sizes().vec();

    shape[size_t(axis)] = length;
    return at::zeros(shape, x.options());
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

Tensor run_halo(const Tensor &x, Group &group, int64_t mark, IntArrayRef args,
                bool back)
{
    size_t axes = args.size() / 5;
    Tensor y = plain(x);

    for (size_t i = 0; i < axes; i++) {
        y = back ? fold_halo(y, group, mark, axis_at(args, axes - 1 - i))
                 : add_halo(y, group, mark, axis_at(args, i));
    }
    y = y.is_alias_of(x) ? y.clone() : y.contiguous();
    return x.is_cpu() ? y : y.to(x.device());
}

} // namespace weft_torch::mpi
