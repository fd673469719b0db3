/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of this layer, and their arguments by name.
 *
 * Every operation is a function of one tensor and of numbers. torch's
 * dispatcher takes the numbers as one list. Only the table in args.cpp says
 * which arguments a kind has and where each is in that list. So a new operation
 * is a row there, its rules in ops.cpp and the call that executes it.
 *
 * N is int64_t, or c10::SymInt for lengths that are symbolic in a compiler. */
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <numeric>
#include <weft/weft.h>

namespace weft_torch::mpi
{

using at::IntArrayRef;
using at::Tensor;
using c10::SymInt;
template <class N> using List = std::vector<N>;
template <class N> using Slice = c10::ArrayRef<N>;
using Numbers = List<int64_t>;

enum class Kind : int {
    Allreduce,
    Reduce,
    Bcast,
    Gather,
    Allgather,
    Scatter,
    ReduceScatter,
    Alltoall,
    Scan,
    Exscan,
    Halo,
    HaloBack,  /* the adjoint of Halo */
    Replicate, /* the identity, whose adjoint is a sum over ranks */
    Own,       /* selects this rank's part of a replicated tensor */
    Join,      /* the identity, ordered after all communications */
    Barrier,   /* the identity, once all ranks have called it */
    Send,      /* the result is empty */
    Recv,      /* x has the shape and type of the result */
    Sendrecv,
};
constexpr int kinds = 19;
using AllKinds = std::make_integer_sequence<int, kinds>;

/* The arguments that a kind does not have keep their defaults. */
template <class N> struct ArgsOf {
    Kind kind;
    N op = N(WEFT_OP_SUM); /* weft_op_kind */
    N root = N(0);
    N axis = N(0);      /* the axis that is gathered or scattered */
    N from_axis = N(0); /* Alltoall: the axis that is scattered */
    N replicated = N(0);
    N reversed = N(0); /* Scan: starts at the last rank */
    N inside = N(0);   /* Join: only communications of this transform */
    N peer = N(0);     /* destination of the message; Recv: its source */
    N tag = N(0);
    N source = N(0); /* Sendrecv: source of the received message */
    N source_tag = N(0);
    N level = N(0);      /* order of the derivative that is sent */
    N lazy = N(0);       /* Send: its completion is not waited for */
    List<N> counts = {}; /* lengths along the axis by rank; Alltoall: sent */
    List<N> received = {};
    List<N> shape = {}; /* of the result on this rank */
    /* Halos: each axis that has one, its widths below and above, and the ranks
     * they come from. */
    List<N> axes = {}, low = {}, high = {}, below = {}, above = {};
};
using Args = ArgsOf<int64_t>;
using SymArgs = ArgsOf<SymInt>;

const char *name_of(Kind kind);
Kind kind_named(const std::string &name);
bool is_message(Kind kind);
/* Does the kind have a nonblocking form? */
bool starts(Kind kind);
/* The kind of the adjoint, unless an argument says otherwise. */
Kind adjoint_kind(Kind kind);
/* The names of the arguments, in the order of the list. */
std::vector<std::string> argument_names(Kind kind);

/* Convert arguments to and from the list. */
template <class N> List<N> packed(const ArgsOf<N> &args);
template <class N> ArgsOf<N> unpacked(Kind kind, Slice<N> list, int64_t ranks);

/* Arguments of another kind, with the values of those that both have. */
template <class N> ArgsOf<N> turned(const ArgsOf<N> &args, Kind kind);

/* Arguments for a tensor with a batch of this length as its first axis. */
template <class N> ArgsOf<N> batched(ArgsOf<N> args, const N &batch);

/* The value of a number; a symbolic one is specialized. */
inline int64_t known(int64_t n)
{
    return n;
}
inline int64_t known(const SymInt &n)
{
    return n.guard_int(__FILE__, __LINE__);
}
template <class N> N total(Slice<N> counts)
{
    return std::accumulate(counts.begin(), counts.end(), N(0));
}
inline int64_t total(const Numbers &counts)
{
    return total(IntArrayRef(counts));
}
/* `shape` with another length along an axis. */
template <class N>
List<N> with_length(Slice<N> shape, int64_t axis, const N &length)
{
    List<N> result = shape.vec();

    result[size_t(axis)] = length;
    return result;
}

/* Kinds that do not reduce have op SUM, so that they count as linear. */
inline bool has_derivative(int64_t op)
{
    return op <= WEFT_OP_AVG; /* SUM, PROD, MIN, MAX, AVG */
}
template <class N> bool is_linear(const ArgsOf<N> &args)
{
    return args.op == N(WEFT_OP_SUM) || args.op == N(WEFT_OP_AVG);
}
/* Only the ranks whose input is the extremum get a gradient. */
template <class N> bool finds_extremum(const ArgsOf<N> &args)
{
    return args.kind == Kind::Allreduce &&
           (args.op == N(WEFT_OP_MAX) || args.op == N(WEFT_OP_MIN));
}

} // namespace weft_torch::mpi
