/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled code in the order of the backward pass.
 *
 * A compiler sees values only. So the order of a communicator is a value there,
 * the token: each operation takes it and gives a new one, and the last is what
 * the token holds when the compiled code has ended. For torch's graph all of
 * that code is one node, R:
 *
 *     list of the communicator       [ entry ] <-------- [ exit ] <-- ...
 *                                        ^                  |
 *     torch's graph                      +---- R <- token <-+
 *
 * The entry is made when the compiled code asks for the token, just before it
 * runs; the exit as soon as the list is used again. A backward that comes to
 * the exit runs R, with zeros if nothing else came, and with it every
 * communication of the compiled code; one that comes to R goes on to what was
 * communicated before.
 *
 * What a backward pass computes again, for a checkpoint, is no part of the
 * list.
 *
 * The numbers in a token are what the backward pass must know of an operation:
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

    /* The token, for code that is about to run, whose graph keeps the
     * communicator: the code itself knows no more than its number. */
    at::Tensor begin(std::shared_ptr<void> communicator);
    /* If compiled code has ended since, make it a part of the list. */
    void take_in();
    /* Called by the backward pass of compiled code, as it runs: it is out of
     * the list, unless it may run again. */
    void runs_backward();
    /* The same of what only joins: the code behind `entry` has run. */
    void ran(const EntryNode *entry);
    void forget();

  private:
    NodePtr unused_entry();
    void seat(const NodePtr &entry, bool again);
    NodePtr unseat();

    const std::weak_ptr<Chain> chain_;
    std::mutex lock_;
    const at::Tensor token_;
    NodePtr entry_;      /* of the code that runs next, or has just ended */
    bool again_ = false; /* it only computes again, for a backward pass */
};

} // namespace weft_torch::mpi
