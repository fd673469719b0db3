/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of this layer, and their arguments by name.
 *
 * Every operation is a function of one tensor and of numbers. torch's
 * dispatcher takes the numbers as one list. Which arguments a kind has, and
 * where each stands in that list, says the table in args.cpp and nothing else.
 * So a new operation is a row there, its rules in ops.cpp and the call that
 * carries it out.
 *
 * N is int64_t; or c10::SymInt, for lengths that a compiler leaves open. */
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
    Replicate, /* x is x; its adjoint is a sum over ranks */
    Own,       /* this rank's part of what all have */
    Join,      /* x is x, behind all communications */
    Barrier,   /* x is x, when all ranks are there */
    Send,      /* the result is empty */
    Recv,      /* x says shape and type */
    Sendrecv,
};
constexpr int kinds = 19;
using AllKinds = std::make_integer_sequence<int, kinds>;

/* The arguments that a kind does not have keep their defaults. */
template <class N> struct ArgsOf {
    Kind kind;
    N op = N(WEFT_OP_SUM); /* weft_op_kind */
    N root = N(0);
    N axis = N(0);      /* along which it is gathered or scattered */
    N from_axis = N(0); /* Alltoall: along which it is scattered */
    N replicated = N(0);
    N reversed = N(0); /* Scan: begins with the last rank */
    N inside = N(0);   /* Join: only those of the transform around it */
    N peer = N(0);     /* who gets the message; of Recv, who sent it */
    N tag = N(0);
    N source = N(0); /* Sendrecv: of the message that is received */
    N source_tag = N(0);
    N level = N(0);      /* which derivative the message belongs to */
    N lazy = N(0);       /* Send: nobody waits for it */
    List<N> counts = {}; /* each rank's length along the axis; Alltoall: sent */
    List<N> received = {};
    List<N> shape = {}; /* of the result on this rank */
    /* Halos, for each axis that has them: the axis, how many slices there are
     * below and above, and the ranks they come from. */
    List<N> axes = {}, low = {}, high = {}, below = {}, above = {};
};
using Args = ArgsOf<int64_t>;
using SymArgs = ArgsOf<SymInt>;

/* "allreduce". */
const char *name_of(Kind kind);
Kind kind_named(const std::string &name);
bool is_message(Kind kind);
/* Can it be started now and waited for later? */
bool starts(Kind kind);
/* The kind of the adjoint, unless an argument says otherwise. */
Kind adjoint_kind(Kind kind);
/* The names of the arguments, in the order of the list. */
std::vector<std::string> argument_names(Kind kind);

/* To and from the list. */
template <class N> List<N> packed(const ArgsOf<N> &args);
template <class N> ArgsOf<N> unpacked(Kind kind, Slice<N> list, int64_t ranks);

/* An operation of another kind, with what the two have in common. */
template <class N> ArgsOf<N> turned(const ArgsOf<N> &args, Kind kind);

/* As it is for a tensor with a batch of this length as its first axis. */
template <class N> ArgsOf<N> batched(ArgsOf<N> args, const N &batch);

/* A number that must be known here and now. */
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

/* Reductions; what does not reduce is linear. */
inline bool has_derivative(int64_t op)
{
    return op <= WEFT_OP_AVG; /* SUM, PROD, MIN, MAX, AVG */
}
template <class N> bool is_linear(const ArgsOf<N> &args)
{
    return args.op == N(WEFT_OP_SUM) || args.op == N(WEFT_OP_AVG);
}
/* The gradient goes to the ranks that have the result. */
template <class N> bool finds_extremum(const ArgsOf<N> &args)
{
    return args.kind == Kind::Allreduce &&
           (args.op == N(WEFT_OP_MAX) || args.op == N(WEFT_OP_MIN));
}

} // namespace weft_torch::mpi
