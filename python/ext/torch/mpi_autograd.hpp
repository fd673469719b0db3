/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives of communications. */
#pragma once

#include "mpi.hpp"

namespace weft_torch::mpi
{

bool is_message(Kind kind);

/* What a compiler is told of every operation. The second tag, made for random
 * numbers, is there because the result of a constant is none: a compiler that
 * took it for one would communicate while it traces. */
inline const std::vector<at::Tag> operation_tags = {
    at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};

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
    Tensor batch; /* a send inside transforms: empty, of the input's batch */

    Record(Kind kind, GroupPtr group, IntArrayRef args, const Tensor &x);

    /* The mark of what the backward pass calls. */
    int64_t backward_mark() const;
    /* The input of the adjoint, from the gradient of the result. */
    Tensor adjoint_input(const Tensor &gradient) const;
    Adjoint adjoint() const;
    /* The gradient of the input, from the result of the adjoint. */
    Tensor adjoint_result(Tensor y, const Adjoint &how) const;
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

/* Make `y` the result of `node`, which becomes the last of its communicator. */
void set_node(const Tensor &y, const NodePtr &node, Group &group,
              const Tensor &x, int64_t mark);

/* The same of a node that is tied to its tensors already. */
void append_node(const NodePtr &node, Group &group, int64_t mark);

/* Is this a forward operation in the midst of a backward pass, of a checkpoint
 * say? Its own backward is then part of that pass; see mpi_graph.hpp. */
bool is_computed_again(int64_t mark);

/* MAX and MIN: where the input is the result. */
Tensor mask_of(const Tensor &x, const Tensor &y);

Numbers shape_of(const Tensor &x);

} // namespace weft_torch::mpi
