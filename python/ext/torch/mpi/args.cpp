/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/args.hpp"

#include <algorithm>

namespace weft_torch::mpi
{

namespace
{

enum class Form {
    Number,
    Axis,   /* of the tensor; a batch in front adds 1 */
    Counts, /* a list with one number per rank */
    Each,   /* one of several lists of equal length */
    Axes,   /* like Each, with axes */
    Shape,  /* a list of lengths; a batch adds one in front */
};

template <class N> struct Field {
    const char *name;
    Form form;
    N ArgsOf<N>::*number;
    List<N> ArgsOf<N>::*list;

    Field(const char *name_, N ArgsOf<N>::*number_, Form form_ = Form::Number)
        : name(name_), form(form_), number(number_), list(nullptr)
    {
    }
    Field(const char *name_, List<N> ArgsOf<N>::*list_, Form form_)
        : name(name_), form(form_), number(nullptr), list(list_)
    {
    }
};

enum : unsigned { later = 1, message = 2 };

template <class N> struct Row {
    const char *name;
    Kind adjoint;
    unsigned flags;
    List<Field<N>> fields;
};

template <class N> List<Row<N>> all_rows()
{
    using A = ArgsOf<N>;
    using F = Field<N>;
    using K = Kind;
    const F op("op", &A::op), root("root", &A::root), tag("tag", &A::tag);
    const F replicated("replicated", &A::replicated), peer("peer", &A::peer);
    const F reversed("reversed", &A::reversed), level("level", &A::level);
    const F from("source", &A::source), from_tag("source_tag", &A::source_tag);
    const F axis("axis", &A::axis, Form::Axis);
    const F from_axis("from_axis", &A::from_axis, Form::Axis);
    const F counts("counts", &A::counts, Form::Counts);
    const F received("received", &A::received, Form::Counts);
    const F shape("shape", &A::shape, Form::Shape);
    const List<F> halo = {{"axes", &A::axes, Form::Axes},
                          {"low", &A::low, Form::Each},
                          {"high", &A::high, Form::Each},
                          {"below", &A::below, Form::Each},
                          {"above", &A::above, Form::Each}};

    return {
        {"allreduce", K::Allreduce, later, {op, replicated}},
        {"reduce", K::Bcast, later, {op, root}},
        {"bcast", K::Reduce, later, {root}},
        {"gather", K::Scatter, later, {axis, root, counts}},
        {"allgather", K::ReduceScatter, later, {axis, replicated, counts}},
        {"scatter", K::Gather, later, {axis, root, counts, shape}},
        {"reduce_scatter", K::Allgather, later, {op, axis, counts}},
        {"alltoall", K::Alltoall, later, {axis, from_axis, counts, received}},
        {"scan", K::Scan, later, {op, reversed}},
        {"exscan", K::Exscan, later, {op, reversed}},
        {"halo", K::HaloBack, 0, halo},
        {"halo_back", K::Halo, 0, halo},
        {"replicate", K::Allreduce, 0, {}},
        {"own_part", K::Allgather, 0, {axis, counts}},
        {"join", K::Join, 0, {{"inside", &A::inside}}},
        {"barrier", K::Barrier, later, {}},
        {"send",
         K::Recv,
         later | message,
         {peer, tag, level, {"lazy", &A::lazy}}},
        {"recv", K::Send, later | message, {peer, tag, level}},
        {"sendrecv",
         K::Sendrecv,
         message,
         {peer, tag, from, from_tag, level, shape}},
    };
}

template <class N = int64_t> const Row<N> &row_of(Kind kind)
{
    static const List<Row<N>> rows = all_rows<N>();

    return rows[size_t(kind)];
}

/* The length of an argument in the list. Lists that do not have one number per
 * rank share the rest equally. */
template <class N>
size_t length_of(const Field<N> &field, size_t ranks, size_t share)
{
    return field.list == nullptr        ? 1
           : field.form == Form::Counts ? ranks
                                        : share;
}

} // namespace

const char *name_of(Kind kind)
{
    return row_of(kind).name;
}

Kind kind_named(const std::string &name)
{
    for (int k = 0; k < kinds; k++) {
        if (name == name_of(Kind(k))) {
            return Kind(k);
        }
    }
    TORCH_CHECK_VALUE(false, "weft.mpi: ", name, " is not an operation");
}

bool is_message(Kind kind)
{
    return (row_of(kind).flags & message) != 0;
}

bool starts(Kind kind)
{
    return (row_of(kind).flags & later) != 0;
}

Kind adjoint_kind(Kind kind)
{
    return row_of(kind).adjoint;
}

std::vector<std::string> argument_names(Kind kind)
{
    std::vector<std::string> names;

    for (const Field<int64_t> &field : row_of(kind).fields) {
        names.emplace_back(field.name);
    }
    return names;
}

template <class N> List<N> packed(const ArgsOf<N> &args)
{
    List<N> all;

    for (const Field<N> &field : row_of<N>(args.kind).fields) {
        if (field.list == nullptr) {
            all.push_back(args.*field.number);
        } else {
            const List<N> &list = args.*field.list;

            all.insert(all.end(), list.begin(), list.end());
        }
    }
    return all;
}

template <class N> ArgsOf<N> unpacked(Kind kind, Slice<N> list, int64_t ranks)
{
    const List<Field<N>> &fields = row_of<N>(kind).fields;
    size_t fixed = 0;
    size_t shares = 0;

    for (const Field<N> &field : fields) {
        fixed += length_of(field, size_t(ranks), 0);
        shares += field.list != nullptr && field.form != Form::Counts ? 1 : 0;
    }
    size_t left = list.size() - fixed;

    TORCH_CHECK_VALUE(
        list.size() >= fixed && (shares == 0 ? left == 0 : left % shares == 0),
        "weft::", name_of(kind), ": the list of ", list.size(),
        " numbers does not fit the arguments on ", ranks, " ranks");
    ArgsOf<N> args{kind};

    for (const Field<N> &field : fields) {
        size_t n = length_of(field, size_t(ranks), shares ? left / shares : 0);

        if (field.list == nullptr) {
            args.*field.number = list[0];
        } else {
            args.*field.list = list.slice(0, n).vec();
        }
        list = list.slice(n);
    }
    return args;
}

template <class N> ArgsOf<N> turned(const ArgsOf<N> &args, Kind kind)
{
    ArgsOf<N> other{kind};

    for (const Field<N> &field : row_of<N>(kind).fields) {
        if (field.list == nullptr) {
            other.*field.number = args.*field.number;
        } else {
            other.*field.list = args.*field.list;
        }
    }
    return other;
}

template <class N> ArgsOf<N> batched(ArgsOf<N> args, const N &batch)
{
    for (const Field<N> &field : row_of<N>(args.kind).fields) {
        if (field.form == Form::Axis) {
            args.*field.number = args.*field.number + N(1);
        } else if (field.form == Form::Axes) {
            for (N &axis : args.*field.list) {
                axis = axis + N(1);
            }
        } else if (field.form == Form::Shape) {
            (args.*field.list).insert((args.*field.list).begin(), batch);
        }
    }
    return args;
}

template Numbers packed(const Args &args);
template List<SymInt> packed(const SymArgs &args);
template Args unpacked(Kind kind, IntArrayRef list, int64_t ranks);
template SymArgs unpacked(Kind kind, Slice<SymInt> list, int64_t ranks);
template Args turned(const Args &args, Kind kind);
template SymArgs turned(const SymArgs &args, Kind kind);
template SymArgs batched(SymArgs args, const SymInt &batch);

} // namespace weft_torch::mpi
