/* SPDX-License-Identifier: Apache-2.0 */
/* One collective, from its tensors to the library and back. */
#pragma once

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

class Job
{
  public:
    Job(const Args &args, const Tensor &x, Group &group);
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    /* Execute it, or start it if `out` is not NULL. */
    void call(int64_t mark, weft_request **out);
    /* The result, after completion. */
    Tensor result();
    int64_t number() const
    {
        return number_;
    }

  private:
    void prepare(const Tensor &x);
    void prepare_reduction(const Tensor &x);
    void prepare_bcast(const Tensor &x);
    void prepare_gather(const Tensor &x);
    void prepare_scatter(const Tensor &x);
    void prepare_reduce_scatter(const Tensor &x);
    void prepare_alltoall(const Tensor &x);
    weft_status dispatch(weft_comm *comm, weft_request **out);
    Tensor joined_blocks();

    const Args args_;
    Group &group_;
    const at::Device device_;
    Tensor in_;  /* contiguous, on the host */
    Tensor out_; /* written by the library */
    int64_t axis_ = 0;
    int64_t number_ = 0;
    weft_op op_ = WEFT_SUM;
    weft_dtype type_ = WEFT_U8;
    std::vector<weft_part> src_;
    std::vector<weft_part> dst_;
};

/* A blocking allreduce without a Job, because it is the most frequent call. */
Outcome allreduced(const Tensor &x, Group &group, int64_t mark,
                   weft_op_kind op);

} // namespace weft_torch::mpi
