/* SPDX-License-Identifier: Apache-2.0 */
/* Collective operations: the tensors of each are turned into memory, and one
 * function of the library is called, in its blocking form or the other one. */
#include "backend.hpp"

#include <cctype>

#include "run.hpp"

namespace weft_torch
{

namespace
{

using c10d::OpType;

at::Tensor &only(Tensors &list, const char *what)
{
    TORCH_CHECK_VALUE(list.size() == 1, "weft ", what,
                      ": requires a single-element tensor list, not one of ",
                      list.size());
    return list[0];
}

void check_type(const at::Tensor &t, const at::Tensor &like, const char *what)
{
    TORCH_CHECK_TYPE(t.scalar_type() == like.scalar_type(), "weft ", what,
                     ": invalid tensor type: the tensors are of ",
                     t.scalar_type(), " and ", like.scalar_type());
}

void check_types(const Tensors &list, const at::Tensor &like, const char *what)
{
    for (const at::Tensor &t : list) {
        check_type(t, like, what);
    }
}

void check_as_many(const Tensors &outputs, const Tensors &inputs,
                   const char *what)
{
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "weft ", what, ": ",
                      outputs.size(), " outputs for ", inputs.size(),
                      " inputs");
}

void check_alike(const at::Tensor &a, const at::Tensor &b, int64_t factor,
                 const char *what)
{
    check_type(a, b, what);
    TORCH_CHECK_VALUE(a.numel() == b.numel() * factor, "weft ", what,
                      ": invalid tensor size: ", a.numel(), " elements where ",
                      b.numel() * factor, " are expected");
}

Tensors joined(const std::vector<Tensors> &lists)
{
    Tensors all;

    for (const Tensors &list : lists) {
        all.insert(all.end(), list.begin(), list.end());
    }
    return all;
}

at::Tensor written(Buffers &buffers, const at::Tensor &t, bool in_place)
{
    return in_place ? buffers.out(t) : buffers.out_apart(t);
}

} // namespace

/* Does this rank's part lie in its own place of the whole? The library allows
 * that overlap, and no other. */
bool Backend::in_place(const at::Tensor &whole, const at::Tensor &part) const
{
    return part.data_ptr() == static_cast<char *>(whole.data_ptr()) +
                                  size_t(rank_) * part.nbytes();
}

void Backend::check_rank(int64_t rank, const char *role, const char *what) const
{
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "weft ", what, ": invalid ",
                      role, " rank: ", rank, " is out of range (size ", size_,
                      ")");
}

/* The only list of a call that has one, with a tensor for each rank: all of the
 * type of `own`, and this rank's of its length. `which` is "input" or "output".
 */
Tensors &Backend::list_of_ranks(std::vector<Tensors> &lists,
                                const at::Tensor &own, const char *which,
                                const char *what) const
{
    TORCH_CHECK_VALUE(lists.size() == 1, "weft ", what,
                      ": requires a single-element ", which,
                      " list containing a list with ", size_, " tensors");
    TORCH_CHECK_VALUE(lists[0].size() == size_t(size_), "weft ", what,
                      ": Incorrect ", which, " list size ", lists[0].size(),
                      ". ", char(std::toupper(which[0])), which + 1,
                      " list size should be ", size_,
                      ", the number of ranks of the group");
    check_types(lists[0], own, what);
    check_alike(lists[0][size_t(rank_)], own, 1, what);
    return lists[0];
}

auto Backend::reduces_all(const at::Tensor &memory,
                          const c10d::ReduceOp &op) const
{
    void *at = memory.data_ptr();

    return later<weft_allreduce, weft_iallreduce>(
        comm(), at, at, size_t(memory.numel()), reduced_type(memory, op),
        reduction(op));
}

auto Backend::gathers_into(Call &call, const at::Tensor &output,
                           const at::Tensor &input) const
{
    check_alike(output, input, size_, call.name);
    weft_part src = bytes_of(call.buffers.in(input));
    void *dst =
        written(call.buffers, output, in_place(output, input)).data_ptr();

    return later<weft_allgather, weft_iallgather>(comm(), src.at, dst, src.n,
                                                  WEFT_U8);
}

auto Backend::scatters_into(Call &call, const at::Tensor &output,
                            const at::Tensor &input,
                            const c10d::ReduceOp &op) const
{
    check_alike(input, output, size_, call.name);
    void *src = call.buffers.in(input).data_ptr();
    void *dst =
        written(call.buffers, output, in_place(input, output)).data_ptr();

    return later<weft_reduce_scatter, weft_ireduce_scatter>(
        comm(), src, dst, size_t(output.numel()), reduced_type(output, op),
        reduction(op));
}

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    Call call(OpType::BROADCAST, "broadcast", opts, tensors, tensors);
    at::Tensor &t = only(tensors, call.name);

    check_rank(opts.rootRank, "root", call.name);
    at::Tensor memory =
        opts.rootRank == rank_ ? call.buffers.in(t) : call.buffers.out(t);
    weft_part part = bytes_of(memory);

    return run(std::move(call),
               later<weft_broadcast, weft_ibroadcast>(
                   comm(), part.at, part.n, WEFT_U8, uint32_t(opts.rootRank)));
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    Call call(OpType::ALLREDUCE, "all_reduce", opts, tensors, tensors);
    at::Tensor &t = only(tensors, call.name);

    if (t.layout() == at::kSparse) {
        return allreduce_sparse(tensors, opts);
    }
    at::Tensor memory = call.buffers.inout(t);

    return run(std::move(call), reduces_all(memory, opts.reduceOp));
}

WorkPtr
Backend::allreduce_coalesced(Tensors &tensors,
                             const c10d::AllreduceCoalescedOptions &opts)
{
    Call call(OpType::ALLREDUCE_COALESCED, "all_reduce", opts, tensors,
              tensors);
    Starts starts;

    for (const at::Tensor &t : tensors) {
        starts.push_back(
            reduces_all(call.buffers.inout_apart(t), opts.reduceOp));
    }
    return run(std::move(call), starts.data(), starts.size());
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    Call call(OpType::REDUCE, "reduce", opts, tensors, tensors);
    at::Tensor &t = only(tensors, call.name);

    check_rank(opts.rootRank, "root", call.name);
    bool root = opts.rootRank == rank_;
    void *at = (root ? call.buffers.inout(t) : call.buffers.in(t)).data_ptr();

    return run(std::move(call),
               later<weft_reduce, weft_ireduce>(
                   comm(), at, root ? at : nullptr, size_t(t.numel()),
                   reduced_type(t, opts.reduceOp), reduction(opts.reduceOp),
                   uint32_t(opts.rootRank)));
}

WorkPtr Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                           const c10d::AllgatherOptions &opts)
{
    Call call(OpType::ALLGATHER, "all_gather", opts, inputs);
    at::Tensor &input = only(inputs, call.name);
    Tensors &list = list_of_ranks(outputs, input, "output", call.name);

    call.outputs = list;
    void *src = call.buffers.in(input).data_ptr();
    std::vector<weft_part> parts = parts_of(call.buffers.out_apart(list));

    return run(std::move(call), later<weft_allgatherv, weft_iallgatherv>(
                                    comm(), src, parts, WEFT_U8));
}

WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::AllgatherOptions &opts)
{
    Call call(OpType::_ALLGATHER_BASE, "_all_gather_base", opts, {input},
              {output});
    auto start = gathers_into(call, output, input);

    return run(std::move(call), start);
}

/* Tensor i of every rank goes to list i of rank r, place r. */
WorkPtr Backend::allgather_coalesced(std::vector<Tensors> &outputs,
                                     Tensors &inputs,
                                     const c10d::AllgatherOptions &opts)
{
    Call call(OpType::ALLGATHER_COALESCED, "all_gather", opts, inputs,
              joined(outputs));
    Starts starts;

    TORCH_CHECK_VALUE(outputs.size() == size_t(size_),
                      "weft all_gather_coalesced: output lists should be equal "
                      "to world size, ",
                      size_, ", not ", outputs.size());
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors list;

        for (Tensors &of_rank : outputs) {
            TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                              "weft all_gather_coalesced: ", of_rank.size(),
                              " outputs for ", inputs.size(), " inputs");
            list.push_back(of_rank[i]);
        }
        check_types(list, inputs[i], call.name);
        check_alike(list[size_t(rank_)], inputs[i], 1, call.name);
        void *src = call.buffers.in(inputs[i]).data_ptr();

        starts.push_back(later<weft_allgatherv, weft_iallgatherv>(
            comm(), src, parts_of(call.buffers.out_apart(list)), WEFT_U8));
    }
    return run(std::move(call), starts.data(), starts.size());
}

WorkPtr
Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &opts)
{
    Call call(OpType::_ALLGATHER_BASE, "all_gather_into_tensor_coalesced", opts,
              inputs, outputs);
    Starts starts;

    check_as_many(outputs, inputs, call.name);
    for (size_t i = 0; i < inputs.size(); i++) {
        starts.push_back(gathers_into(call, outputs[i], inputs[i]));
    }
    return run(std::move(call), starts.data(), starts.size());
}

WorkPtr Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                        const c10d::GatherOptions &opts)
{
    Call call(OpType::GATHER, "gather", opts, inputs);
    at::Tensor &input = only(inputs, call.name);
    std::vector<weft_part> parts;

    check_rank(opts.rootRank, "root", call.name);
    weft_part src = bytes_of(call.buffers.in(input));
    if (opts.rootRank == rank_) {
        call.outputs = list_of_ranks(outputs, input, "output", call.name);
        parts = parts_of(call.buffers.out_apart(call.outputs));
    } else {
        TORCH_CHECK_VALUE(joined(outputs).empty(),
                          "weft gather: requires empty output on non-root");
    }
    return run(std::move(call), later<weft_gatherv, weft_igatherv>(
                                    comm(), src.at, src.n, parts, WEFT_U8,
                                    uint32_t(opts.rootRank)));
}

WorkPtr Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                         const c10d::ScatterOptions &opts)
{
    Call call(OpType::SCATTER, "scatter", opts, {}, outputs);
    at::Tensor &output = only(outputs, call.name);
    std::vector<weft_part> parts;

    check_rank(opts.rootRank, "root", call.name);
    if (opts.rootRank == rank_) {
        call.inputs = list_of_ranks(inputs, output, "input", call.name);
        parts = parts_of(call.buffers.in(call.inputs));
    } else {
        TORCH_CHECK_VALUE(joined(inputs).empty(),
                          "weft scatter: requires empty input on non-root");
    }
    weft_part dst = bytes_of(call.buffers.out_apart(output));

    return run(std::move(call), later<weft_scatterv, weft_iscatterv>(
                                    comm(), parts, dst.at, dst.n, WEFT_U8,
                                    uint32_t(opts.rootRank)));
}

WorkPtr Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                const c10d::ReduceScatterOptions &opts)
{
    Call call(OpType::REDUCE_SCATTER, "reduce_scatter", opts, {}, outputs);
    at::Tensor &output = only(outputs, call.name);

    call.inputs = list_of_ranks(inputs, output, "input", call.name);
    std::vector<weft_part> parts =
        parts_of(call.buffers.in(call.inputs), output.itemsize());
    void *dst = call.buffers.out_apart(output).data_ptr();

    return run(std::move(call),
               later<weft_reduce_scatterv, weft_ireduce_scatterv>(
                   comm(), parts, dst, reduced_type(output, opts.reduceOp),
                   reduction(opts.reduceOp)));
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &opts)
{
    Call call(OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", opts,
              {input}, {output});
    auto start = scatters_into(call, output, input, opts.reduceOp);

    return run(std::move(call), start);
}

WorkPtr
Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::ReduceScatterOptions &opts)
{
    Call call(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor_coalesced",
              opts, inputs, outputs);
    Starts starts;

    check_as_many(outputs, inputs, call.name);
    for (size_t i = 0; i < inputs.size(); i++) {
        starts.push_back(
            scatters_into(call, outputs[i], inputs[i], opts.reduceOp));
    }
    return run(std::move(call), starts.data(), starts.size());
}

WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                               std::vector<int64_t> &output_splits,
                               std::vector<int64_t> &input_splits,
                               const c10d::AllToAllOptions &opts)
{
    Call call(OpType::ALLTOALL_BASE, "all_to_all", opts, {input}, {output});

    check_type(output, input, call.name);
    std::vector<weft_part> src =
        parts_of(call.buffers.in(input), size_t(size_), input_splits);
    std::vector<weft_part> dst =
        parts_of(call.buffers.out_apart(output), size_t(size_), output_splits);

    return run(std::move(call), later<weft_alltoallv, weft_ialltoallv>(
                                    comm(), src, dst, WEFT_U8));
}

WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs,
                          const c10d::AllToAllOptions &opts)
{
    Call call(OpType::ALLTOALL, "all_to_all", opts, inputs, outputs);

    TORCH_CHECK_VALUE(inputs.size() == size_t(size_) &&
                          outputs.size() == size_t(size_),
                      "weft all_to_all: lists must have a tensor for each of ",
                      size_, " ranks");
    check_types(outputs, inputs[0], call.name);
    check_types(inputs, inputs[0], call.name);
    std::vector<weft_part> src = parts_of(call.buffers.in(inputs));
    std::vector<weft_part> dst = parts_of(call.buffers.out_apart(outputs));

    return run(std::move(call), later<weft_alltoallv, weft_ialltoallv>(
                                    comm(), src, dst, WEFT_U8));
}

/* The only operation for which the host waits for a device. */
WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    Call call(OpType::BARRIER, "barrier", opts);

    if (opts.device && opts.device->type() != at::kCPU) {
        wait_for_device(*opts.device);
    }
    return run(std::move(call), later<weft_barrier, weft_ibarrier>(comm()));
}

} // namespace weft_torch
