/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of nodes beside that of a communicator. What a transform of torch.func
 * records, and what a node of a backward pass computes again (a checkpoint),
 * has its backward within that transform, or within that node: it is tied to
 * nothing before or after it. */
#pragma once

#include <list>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

/* The transforms of torch.func around an operation, as its kernel sees them: it
 * is called once for each that differentiates, for the innermost first, and at
 * last for what lies outside of all. */
struct Transforms {
    int64_t derivatives = 0; /* how many of them differentiate */
    int64_t level = 0;       /* torch's number of the innermost; 0: none */
    bool reverse = false;    /* does that one go backward? */
    bool forward = false;    /* or forward? */
};
Transforms transforms_here();
/* x, as a batch of every vmap around this call. Of a derivative one rank may
 * have a batch and another a constant, or none: what they exchange has to have
 * the same length. */
at::Tensor batched_here(at::Tensor x);

struct Scope {
    NodeWeak tail = no_node();
    /* The tail, until it runs: nothing else holds it if its result is dropped,
     * as that of a send is. */
    NodePtr held;
    /* Nodes that never run, made only for what they save: not held. */
    bool scratch = false;
    /* A message among what is computed again was not: its result was kept. */
    bool replays = false;
};
using ScopePtr = std::shared_ptr<Scope>;

class Scopes
{
  public:
    /* The lock is that of the nodes, too. */
    explicit Scopes(std::mutex &lock) : lock_(lock)
    {
    }
    /* The one for a node that is made here and now; none if it belongs to the
     * communicator's own list. `mark` is that of the operation. */
    ScopePtr here(int64_t mark);
    /* Is there anything in that one? */
    bool any_here(int64_t mark);
    bool any() const
    {
        return any_;
    }
    /* Forget those that are over, or all. Returns what they held, to be freed
     * by whoever holds no lock. */
    std::vector<NodePtr> forget(bool all);

  private:
    struct Entry {
        std::shared_ptr<bool> alive;
        const Node *node; /* that computes again */
        ScopePtr scope;
    };
    ScopePtr of_transform(int64_t level);
    ScopePtr of_node();

    std::mutex &lock_;
    std::list<Entry> entries_;
    std::atomic<bool> any_{false};
};

/* Throws if this message is about to be communicated again, and another of the
 * same checkpoint was not. A policy that keeps one and not the other has this
 * rank send, or wait for, what the others do not. */
void check_kept_alike(Kind kind, Group &group, int64_t mark);

} // namespace weft_torch::mpi
