/* SPDX-License-Identifier: Apache-2.0 */
/* Data of an operation that its backward needs. */
#pragma once

#include "mpi/composed.hpp"

namespace weft_torch::mpi
{

/* Data for the backward of one operation, all of it known when the operation is
 * called. It does not hold the communicator, because a traced graph may live
 * longer. */
template <class N> struct RecordOf {
    ArgsOf<N> args;
    List<N> shape;             /* of the input */
    at::TensorOptions options; /* of the input */
    Tensor mask;               /* MAX, MIN: input == result */

    RecordOf(ArgsOf<N> args, const Tensor &x);

    /* The input of the adjoint, from the gradient of the result. */
    Tensor adjoint_input(const Tensor &gradient) const;
    AdjointOf<N> adjoint(const Group &group) const;
    /* The gradient of the input, from the result of the adjoint. */
    Tensor adjoint_result(const Tensor &y, double factor,
                          const Group &group) const;
    /* MAX and MIN: the fraction of the gradient that this rank gets. */
    Tensor share(const Tensor &like, RunOf<N> run) const;
    /* The gradient of the input from that of the result, in one call. */
    Tensor gradient(const Tensor &gradient, const Group &group,
                    RunOf<N> run) const;
};

/* The record of an operation that was executed. */
struct Record : RecordOf<int64_t> {
    GroupPtr group;
    int64_t number; /* see OpInfo */

    Record(Args args_, GroupPtr group_, const Tensor &x, int64_t number_)
        : RecordOf(std::move(args_), x), group(std::move(group_)),
          number(number_)
    {
    }
    /* The mark of the operation in the backward pass. */
    int64_t backward_mark() const;
    std::string owed() const;
};

/* The mark of a derivative, from the number of the operation. */
int64_t backward_mark_of(Kind kind, int64_t number);

Numbers shape_of(const Tensor &x);

/* MAX and MIN: the elements whose input equals the result. */
Tensor mask_of(const Tensor &x, const Tensor &y);

/* Held by the node that will receive the gradient of a message. If it is
 * destroyed before and the gradient comes, the next call reports it. */
class Asker
{
  public:
    explicit Asker(const Record &record);
    ~Asker();
    Asker(const Asker &) = delete;
    Asker &operator=(const Asker &) = delete;
    void asks()
    {
        asked_ = true;
    }

  private:
    GroupPtr group_; /* none unless a message was sent */
    std::string words_;
    Envelope where_;
    bool asked_ = false;
};

} // namespace weft_torch::mpi
