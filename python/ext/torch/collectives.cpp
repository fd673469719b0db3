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

/* The only list of a call that has one, with a tensor for each rank; `which`
 * is "input" or "output". */
Tensors &only(std::vector<Tensors> &lists, size_t size, const char *which,
              const char *what)
{
    TORCH_CHECK_VALUE(lists.size() == 1, "weft ", what,
                      ": requires a single-element ", which,
                      " list containing a list with ", size, " tensors");
    TORCH_CHECK_VALUE(lists[0].size() == size, "weft ", what, ": Incorrect ",
                      which, " list size ", lists[0].size(), ". ",
                      char(std::toupper(which[0])), which + 1,
                      " list size should be ", size,
                      ", the number of ranks of the group");
    return lists[0];
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

/* Blocks of a reduction are counted in elements. */
std::vector<weft_part> element_parts(const Tensors &list)
{
    std::vector<weft_part> parts;

    for (const at::Tensor &t : list) {
        parts.push_back({t.data_ptr(), size_t(t.numel())});
    }
    return parts;
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

void Backend::check_root(int64_t root, const char *what) const
{
    check_rank(root, "root", what);
}

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    Call call(OpType::BROADCAST, "broadcast", opts.asyncOp, opts.timeout);
    at::Tensor &t = only(tensors, call.name);

    check_root(opts.rootRank, call.name);
    call.inputs = call.outputs = tensors;
    at::Tensor memory =
        opts.rootRank == rank_ ? call.buffers.in(t) : call.buffers.out(t);
    weft_part part = bytes_of(memory);

    return run(std::move(call),
               later<weft_broadcast, weft_ibroadcast>(
                   comm(), part.at, part.n, WEFT_U8, uint32_t(opts.rootRank)));
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    Call call(OpType::ALLREDUCE, "all_reduce", opts.asyncOp, opts.timeout);
    at::Tensor &t = only(tensors, call.name);

    if (t.layout() == at::kSparse) {
        return allreduce_sparse(tensors, opts);
    }
    call.inputs = call.outputs = tensors;
    void *at = call.buffers.inout(t).data_ptr();

    return run(std::move(call),
               later<weft_allreduce, weft_iallreduce>(
                   comm(), at, at, size_t(t.numel()),
                   reduced_type(t, opts.reduceOp), reduction(opts.reduceOp)));
}

WorkPtr
Backend::allreduce_coalesced(Tensors &tensors,
                             const c10d::AllreduceCoalescedOptions &opts)
{
    Call call(OpType::ALLREDUCE_COALESCED, "all_reduce", opts.asyncOp,
              opts.timeout);
    Starts starts;

    call.inputs = call.outputs = tensors;
    for (const at::Tensor &t : tensors) {
        void *at = call.buffers.inout_apart(t).data_ptr();

        starts.push_back(later<weft_allreduce, weft_iallreduce>(
            comm(), at, at, size_t(t.numel()), reduced_type(t, opts.reduceOp),
            reduction(opts.reduceOp)));
    }
    return run_all(std::move(call), starts);
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    Call call(OpType::REDUCE, "reduce", opts.asyncOp, opts.timeout);
    at::Tensor &t = only(tensors, call.name);

    check_root(opts.rootRank, call.name);
    bool root = opts.rootRank == rank_;
    call.inputs = call.outputs = tensors;
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
    Call call(OpType::ALLGATHER, "all_gather", opts.asyncOp, opts.timeout);
    at::Tensor &input = only(inputs, call.name);
    Tensors &list = only(outputs, size_t(size_), "output", call.name);

    check_types(list, input, call.name);
    check_alike(list[size_t(rank_)], input, 1, call.name);
    call.inputs = inputs;
    call.outputs = list;
    void *src = call.buffers.in(input).data_ptr();
    std::vector<weft_part> parts = parts_of(call.buffers.out_apart(list));

    return run(std::move(call), later<weft_allgatherv, weft_iallgatherv>(
                                    comm(), src, parts, WEFT_U8));
}

WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::AllgatherOptions &opts)
{
    Call call(OpType::_ALLGATHER_BASE, "_all_gather_base", opts.asyncOp,
              opts.timeout);

    check_alike(output, input, size_, call.name);
    call.inputs = {input};
    call.outputs = {output};
    weft_part src = bytes_of(call.buffers.in(input));
    void *dst =
        written(call.buffers, output, in_place(output, input)).data_ptr();

    return run(std::move(call), later<weft_allgather, weft_iallgather>(
                                    comm(), src.at, dst, src.n, WEFT_U8));
}

/* Tensor i of every rank goes to list i of rank r, place r. */
WorkPtr Backend::allgather_coalesced(std::vector<Tensors> &outputs,
                                     Tensors &inputs,
                                     const c10d::AllgatherOptions &opts)
{
    Call call(OpType::ALLGATHER_COALESCED, "all_gather", opts.asyncOp,
              opts.timeout);
    Starts starts;

    TORCH_CHECK_VALUE(outputs.size() == size_t(size_),
                      "weft all_gather_coalesced: output lists should be equal "
                      "to world size, ",
                      size_, ", not ", outputs.size());
    call.inputs = inputs;
    call.outputs = joined(outputs);
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
    return run_all(std::move(call), starts);
}

WorkPtr
Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &opts)
{
    Call call(OpType::_ALLGATHER_BASE, "all_gather_into_tensor_coalesced",
              opts.asyncOp, opts.timeout);
    Starts starts;

    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "weft ", call.name, ": ",
                      outputs.size(), " outputs for ", inputs.size(),
                      " inputs");
    call.inputs = inputs;
    call.outputs = outputs;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_alike(outputs[i], inputs[i], size_, call.name);
        weft_part src = bytes_of(call.buffers.in(inputs[i]));
        bool in = in_place(outputs[i], inputs[i]);

        starts.push_back(later<weft_allgather, weft_iallgather>(
            comm(), src.at, written(call.buffers, outputs[i], in).data_ptr(),
            src.n, WEFT_U8));
    }
    return run_all(std::move(call), starts);
}

WorkPtr Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                        const c10d::GatherOptions &opts)
{
    Call call(OpType::GATHER, "gather", opts.asyncOp, opts.timeout);
    at::Tensor &input = only(inputs, call.name);
    std::vector<weft_part> parts;

    check_root(opts.rootRank, call.name);
    call.inputs = inputs;
    weft_part src = bytes_of(call.buffers.in(input));
    if (opts.rootRank == rank_) {
        Tensors &list = only(outputs, size_t(size_), "output", call.name);

        check_types(list, input, call.name);
        check_alike(list[size_t(rank_)], input, 1, call.name);
        call.outputs = list;
        parts = parts_of(call.buffers.out_apart(list));
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
    Call call(OpType::SCATTER, "scatter", opts.asyncOp, opts.timeout);
    at::Tensor &output = only(outputs, call.name);
    std::vector<weft_part> parts;

    check_root(opts.rootRank, call.name);
    call.outputs = outputs;
    if (opts.rootRank == rank_) {
        Tensors &list = only(inputs, size_t(size_), "input", call.name);

        check_types(list, output, call.name);
        check_alike(list[size_t(rank_)], output, 1, call.name);
        call.inputs = list;
        parts = parts_of(call.buffers.in(list));
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
    Call call(OpType::REDUCE_SCATTER, "reduce_scatter", opts.asyncOp,
              opts.timeout);
    at::Tensor &output = only(outputs, call.name);
    Tensors &list = only(inputs, size_t(size_), "input", call.name);

    check_types(list, output, call.name);
    check_alike(list[size_t(rank_)], output, 1, call.name);
    call.inputs = list;
    call.outputs = outputs;
    std::vector<weft_part> parts = element_parts(call.buffers.in(list));
    void *dst = call.buffers.out_apart(output).data_ptr();

    return run(std::move(call),
               later<weft_reduce_scatterv, weft_ireduce_scatterv>(
                   comm(), parts, dst, reduced_type(output, opts.reduceOp),
                   reduction(opts.reduceOp)));
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &opts)
{
    Call call(OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base",
              opts.asyncOp, opts.timeout);

    check_alike(input, output, size_, call.name);
    call.inputs = {input};
    call.outputs = {output};
    void *src = call.buffers.in(input).data_ptr();
    void *dst =
        written(call.buffers, output, in_place(input, output)).data_ptr();

    return run(std::move(call),
               later<weft_reduce_scatter, weft_ireduce_scatter>(
                   comm(), src, dst, size_t(output.numel()),
                   reduced_type(output, opts.reduceOp),
                   reduction(opts.reduceOp)));
}

WorkPtr
Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::ReduceScatterOptions &opts)
{
    Call call(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor_coalesced",
              opts.asyncOp, opts.timeout);
    Starts starts;

    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "weft ", call.name, ": ",
                      outputs.size(), " outputs for ", inputs.size(),
                      " inputs");
    call.inputs = inputs;
    call.outputs = outputs;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_alike(inputs[i], outputs[i], size_, call.name);
        void *src = call.buffers.in(inputs[i]).data_ptr();
        bool in = in_place(inputs[i], outputs[i]);

        starts.push_back(later<weft_reduce_scatter, weft_ireduce_scatter>(
            comm(), src, written(call.buffers, outputs[i], in).data_ptr(),
            size_t(outputs[i].numel()), reduced_type(outputs[i], opts.reduceOp),
            reduction(opts.reduceOp)));
    }
    return run_all(std::move(call), starts);
}

WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                               std::vector<int64_t> &output_splits,
                               std::vector<int64_t> &input_splits,
                               const c10d::AllToAllOptions &opts)
{
    Call call(OpType::ALLTOALL_BASE, "all_to_all", opts.asyncOp, opts.timeout);

    check_type(output, input, call.name);
    call.inputs = {input};
    call.outputs = {output};
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
    Call call(OpType::ALLTOALL, "all_to_all", opts.asyncOp, opts.timeout);

    TORCH_CHECK_VALUE(inputs.size() == size_t(size_) &&
                          outputs.size() == size_t(size_),
                      "weft all_to_all: lists must have a tensor for each of ",
                      size_, " ranks");
    check_types(outputs, inputs[0], call.name);
    check_types(inputs, inputs[0], call.name);
    call.inputs = inputs;
    call.outputs = outputs;
    std::vector<weft_part> src = parts_of(call.buffers.in(inputs));
    std::vector<weft_part> dst = parts_of(call.buffers.out_apart(outputs));

    return run(std::move(call), later<weft_alltoallv, weft_ialltoallv>(
                                    comm(), src, dst, WEFT_U8));
}

/* The only operation for which the host waits for a device. */
WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    Call call(OpType::BARRIER, "barrier", opts.asyncOp, opts.timeout);

    if (opts.device && opts.device->type() != at::kCPU) {
        wait_for_device(*opts.device);
    }
    return run(std::move(call), later<weft_barrier, weft_ibarrier>(comm()));
}

} // namespace weft_torch
