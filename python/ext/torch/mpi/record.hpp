/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of an operation for its backward. */
#pragma once

#include "mpi/composed.hpp"

namespace weft_torch::mpi
{

/* What the backward pass of one operation needs; all of it is known when the
 * operation is called, none is read from the graph later. It does not hold the
 * communicator: what a compiler has traced may live longer. */
template <class N> struct RecordOf {
    ArgsOf<N> args;
    List<N> shape;             /* of the input */
    at::TensorOptions options; /* of the input */
    Tensor mask;               /* MAX and MIN: where the input is the result */

    RecordOf(ArgsOf<N> args, const Tensor &x);

    /* The input of the adjoint, from the gradient of the result. */
    Tensor adjoint_input(const Tensor &gradient) const;
    AdjointOf<N> adjoint(const Group &group) const;
    /* The gradient of the input, from the result of the adjoint. */
    Tensor adjoint_result(const Tensor &y, double factor,
                          const Group &group) const;
    /* MAX and MIN: how much of the gradient is this rank's, because it has the
     * extremum. */
    Tensor share(const Tensor &like, RunOf<N> run) const;
    /* All of it at once. */
    Tensor gradient(const Tensor &gradient, const Group &group,
                    RunOf<N> run) const;
};

/* Of an operation that has been carried out. */
struct Record : RecordOf<int64_t> {
    GroupPtr group;
    int64_t number; /* see Told */

    Record(Args args_, GroupPtr group_, const Tensor &x, int64_t number_)
        : RecordOf(std::move(args_), x), group(std::move(group_)),
          number(number_)
    {
    }
    /* The mark of what the backward pass calls. */
    int64_t backward_mark() const;
    /* See Link. */
    std::string owed() const;
};

/* The mark of a derivative, from the number of the operation. */
int64_t backward_mark_of(Kind kind, int64_t number);

Numbers shape_of(const Tensor &x);

/* MAX and MIN: where the input is the result. */
Tensor mask_of(const Tensor &x, const Tensor &y);

/* Whoever will ask for the gradient of a message, once. If it goes and has not
 * asked, and the gradient comes, it is lost: the next call says so. */
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
    GroupPtr group_; /* none if it is not a message that was sent */
    std::string words_;
    Place where_;
    bool asked_ = false;
};

} // namespace weft_torch::mpi
