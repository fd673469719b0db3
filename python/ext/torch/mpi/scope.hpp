/* SPDX-License-Identifier: Apache-2.0 */
/* Chains beside that of a communicator. What a torch.func transform records,
 * and what a node of a backward pass recomputes (a checkpoint), has its
 * backward within that transform or node: it is not linked to what is before or
 * after. */
#pragma once

#include <list>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

/* The torch.func transforms around an operation. Its kernel is called once for
 * each that differentiates, the innermost first, and at last outside all of
 * them. */
struct Transforms {
    int64_t derivatives = 0; /* how many of them differentiate */
    int64_t level = 0;       /* torch's number of the innermost; 0: none */
    bool reverse = false;    /* the innermost is grad or vjp */
    bool forward = false;    /* the innermost is jvp */
};
Transforms transforms_here();
/* Expand x to a batch of every vmap around this call. One rank may have a batch
 * of a derivative and another a constant, but what they exchange must have the
 * same length. */
at::Tensor batched_here(at::Tensor x);

struct Scope {
    NodeWeak tail = no_node();
    /* The tail, until it runs: no other reference exists if its result is
     * dropped, as that of a send is. */
    NodePtr held;
    /* Its nodes never run and exist only for what they save: not held. */
    bool scratch = false;
    /* A result of a message was kept, while others are recomputed. */
    bool replays = false;
};
using ScopePtr = std::shared_ptr<Scope>;

class Scopes
{
  public:
    /* `lock` is the lock of the chain. */
    explicit Scopes(std::mutex &lock) : lock_(lock)
    {
    }
    /* The scope of a node that is created now by an operation with this mark;
     * none if it belongs to the chain of the communicator. */
    ScopePtr here(int64_t mark);
    /* Does that scope have nodes? */
    bool any_here(int64_t mark);
    bool any() const
    {
        return any_;
    }
    /* Remove the scopes that have ended, or all. Returns the nodes they held,
     * which must be freed without the lock. */
    std::vector<NodePtr> forget(bool all);

  private:
    struct Entry {
        std::shared_ptr<bool> alive;
        const Node *node; /* the node that recomputes */
        ScopePtr scope;
    };
    ScopePtr of_transform(int64_t level);
    ScopePtr of_node();

    std::mutex &lock_;
    std::list<Entry> entries_;
    std::atomic<bool> any_{false};
};

/* Throws if a checkpoint communicates this message again but kept the result of
 * another: this rank would send or expect messages that the others do not. */
void check_kept_alike(Kind kind, Group &group, int64_t mark);

} // namespace weft_torch::mpi
