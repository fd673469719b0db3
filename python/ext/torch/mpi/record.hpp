/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of an operation for its backward. */
#pragma once

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

bool is_message(Kind kind);

/* What the backward pass of one operation needs; all of it is known when the
 * operation is called, none is read from the graph later. */
struct Record {
    Kind kind;
    GroupPtr group;
    Numbers args;
    Numbers shape;             /* of the input */
    at::TensorOptions options; /* of the input */
    int64_t number;            /* of the operation, or of its messages */
    Tensor mask;               /* MAX and MIN: where the input is the result */

    Record(Kind kind, GroupPtr group, IntArrayRef args, const Tensor &x);

    /* The mark of what the backward pass calls. */
    int64_t backward_mark() const;
    /* The input of the adjoint, from the gradient of the result. */
    Tensor adjoint_input(const Tensor &gradient) const;
    Adjoint adjoint() const;
    /* The gradient of the input, from the result of the adjoint. */
    Tensor adjoint_result(Tensor y, const Adjoint &how) const;
    /* MAX and MIN: how much of the gradient is this rank's, because it has the
     * extremum. */
    Tensor share(const Tensor &like, int64_t mark) const;
    /* All of it at once. */
    Tensor gradient(const Tensor &gradient) const;
    /* See Link. */
    std::string owed() const;
};

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
