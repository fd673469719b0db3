/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of sparse tensors: everybody gets everybody's entries, and adds them
 * in the order of ranks. Runs while the caller waits, in either form. */
#include "backend.hpp"

#include <numeric>

#include "run.hpp"

namespace weft_torch
{

namespace
{

/* Everybody's `own`, whose first dimension differs from rank to rank as `rows`
 * says, one after the other. */
at::Tensor gathered(weft_comm *comm, const at::Tensor &own,
                    const std::vector<int64_t> &rows)
{
    std::vector<int64_t> shape = own.sizes().vec();

    shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t(0));
    at::Tensor all = at::empty(shape, own.options());
    std::vector<weft_part> parts = parts_of(all, rows.size(), rows);

    check_waited(weft_allgatherv(comm, own.data_ptr(), parts.data(), WEFT_U8),
                 "all_reduce of a sparse tensor");
    return all;
}

std::vector<int64_t> everybodys(weft_comm *comm, int64_t own)
{
    std::vector<int64_t> all(weft_comm_size(comm));

    check_waited(weft_allgather(comm, &own, all.data(), 1, WEFT_I64),
                 "all_reduce of a sparse tensor");
    return all;
}

} // namespace

WorkPtr Backend::allreduce_sparse(Tensors &tensors,
                                  const c10d::AllreduceOptions &opts)
{
    Call call(c10d::OpType::_ALLREDUCE_SPARSE, "all_reduce", opts, tensors,
              tensors);
    const std::string title = name_ + ":all_reduce";

    TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].layout() == at::kSparse,
                      "weft all_reduce_sparse: takes one sparse tensor");
    TORCH_CHECK_VALUE(
        opts.reduceOp == c10d::ReduceOp::SUM,
        "weft: unsupported reduction operation: all_reduce of sparse tensors "
        "only works with SUM");
    at::NoGradGuard no_grad;
    at::Tensor &t = tensors[0];
    at::Tensor own = t.coalesce().cpu();

    number(call);
    follow_staged(call.name);
    {
        std::lock_guard<std::mutex> guard(lock_);
        Event blocking(title, call);
        CallTimeout limit(comm(), opts.timeout);
        std::vector<int64_t> rows = everybodys(comm(), own._nnz());
        /* With the entries first, so that ranks' parts follow each other. */
        at::Tensor indices =
            gathered(comm(), own.indices().t().contiguous(), rows);
        at::Tensor values = gathered(comm(), own.values().contiguous(), rows);

        t.copy_(at::_sparse_coo_tensor_unsafe(indices.t(), values, own.sizes())
                    .coalesce());
    }
    if (!opts.asyncOp) {
        return nullptr;
    }
    auto work =
        c10::make_intrusive<Work>(std::move(call), comm(), rank_, title);

    work->isCompleted();
    return remember(std::move(work));
}

} // namespace weft_torch
