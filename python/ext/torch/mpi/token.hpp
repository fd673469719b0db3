/* SPDX-License-Identifier: Apache-2.0 */
/* The order of communications in compiled code.
 *
 * A compiler orders operations only by values. So the order of a communicator
 * is a value, the token: each operation takes it and returns a new one, and the
 * token holds the last when the compiled code ends. For torch's graph all of
 * that code is one node, R:
 *
 *     list of the communicator       [ entry ] <-------- [ exit ] <-- ...
 *                                        ^                  |
 *     torch's graph                      +---- R <- token <-+
 *
 * The entry is created when the compiled code reads the token, just before it
 * runs; the exit when the list is used next. A backward that reaches the exit
 * runs R, with zeros if there is no other gradient, and so every communication
 * of the compiled code; one that reaches R continues with earlier
 * communications.
 *
 * What a backward pass recomputes, for a checkpoint, is not in the list.
 *
 * A token contains the numbers of an operation that the backward pass needs:
 * see mpi/trace.cpp. */
#pragma once

#include "mpi/graph.hpp"

namespace weft_torch::mpi
{

class EntryNode;

class Token
{
  public:
    explicit Token(std::weak_ptr<Chain> chain);

    /* The token for code that is about to run. Its graph holds the
     * communicator, of which the code has only the id. */
    at::Tensor begin(std::shared_ptr<void> communicator);
    /* Append compiled code that has ended since to the list. */
    void take_in();
    /* Called when the backward of compiled code runs: removes it from the list
     * unless it may run again. */
    void runs_backward();
    /* Like runs_backward, for an exit: the code after `entry` has run. */
    void ran(const EntryNode *entry);
    void forget();

  private:
    NodePtr unused_entry();
    void seat(const NodePtr &entry, bool again);
    NodePtr unseat();

    const std::weak_ptr<Chain> chain_;
    std::mutex lock_;
    const at::Tensor token_;
    NodePtr entry_;      /* of the code that runs next or ended last */
    bool again_ = false; /* it is recomputed by a backward pass */
};

} // namespace weft_torch::mpi
