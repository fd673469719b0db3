/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of communications: nodes of torch's graph that are tied to
 * each other, in the order of the forward pass, by hidden edges.
 *
 *      x1 -> [ op 1 ] -> y1          data edges: what torch knows itself
 *               ^
 *               | hidden             "run me after op 2's node": carries no
 * value
 *               |
 *      x2 -> [ op 2 ] -> y2
 *               ^
 *             tail                   one per communicator
 *
 * So a backward that begins behind the tail (join) runs every communication,
 * exactly in reverse, whether or not this rank's loss depends on its result.
 *
 * Rules.
 *  1. A node has two inputs: the gradient of its result, and slot 1, which is
 *     never given a value: the hidden edge of its successor ends there.
 *  2. Its last outgoing edge is the hidden one to its predecessor.
 *  3. A node that has run and will not run again takes itself out of the list:
 *     its successor's hidden edge goes to its predecessor. Its own stays: the
 *     engine is about to follow it.
 *  4. The tail is held by the communicator, or a node whose result is dropped,
 *     a send say, would be lost. Old nodes that nothing else holds are dropped
 *     when there are too many of them.
 *  5. Nodes made while a graph is traced are not linked: the effect of the
 *     operations keeps their order there, and the code takes its place in the
 *     list when it runs (mpi/token.hpp). Nodes made inside a transform
 *     (torch.func), or by what a backward pass computes again (a checkpoint),
 *     have their backward there and a list of their own (mpi/scope.hpp).
 *  6. A checkpoint computes again up to the last thing that was saved. So a
 * node saves something whenever somebody looks at what is saved, or ranks would
 *     differ in what they communicate again. */
#pragma once

#include <ATen/core/grad_mode.h>
#include <atomic>
#include <mutex>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace weft_torch::mpi
{

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePtr = decltype(Edge::function);

#if __has_include(<torch/csrc/autograd/node.h>) /* nodes count themselves */
constexpr size_t own_holders = 1; /* of a node in Python: its object */
using NodeWeak = c10::weak_intrusive_ptr<Node>;
inline NodeWeak no_node()
{
    return NodeWeak(NodePtr());
}
template <class T> NodePtr owned(T *node)
{
    return NodePtr(c10::intrusive_ptr<T>::unsafe_steal_from_new(node));
}
#else
constexpr size_t own_holders = 0;
using NodeWeak = std::weak_ptr<Node>;
inline NodeWeak no_node()
{
    return NodeWeak();
}
template <class T> NodePtr owned(T *node)
{
    return NodePtr(node, torch::autograd::deleteNode);
}
#endif

class Link;
class Token;
class Scopes;
struct Scope;

/* The list of a communicator's nodes that have not run. */
class Chain : public std::enable_shared_from_this<Chain>
{
  public:
    Chain();
    ~Chain();
    /* Compiled code's part in the order; see mpi/token.hpp. */
    const std::shared_ptr<Token> &token();
    bool ends_with(const NodePtr &node);
    /* Put `node` at the end of this list, or of the one of a scope. Its other
     * edges are there already. Returns how many old ones were dropped. */
    size_t append(const NodePtr &node,
                  const std::shared_ptr<Scope> &scope = nullptr);
    /* Take a node out that will not run again. */
    void remove(Link *link);
    /* A node of a scope runs: from now on only its results hold it. */
    void let_go(Link *link);
    /* The nodes before `node` in its list, the last first, up to those that
     * were asked for in the same backward pass, number `task`, before. */
    std::vector<NodePtr> before(const Node *node, int task);
    /* Forget lists beside this one that are over. */
    void tidy();
    /* Lists beside this one. */
    Scopes &scopes()
    {
        return *scopes_;
    }
    /* The last node in the list that stands for `code`, if there is one. */
    NodePtr standing_for(const Node *code);
    /* Forget all nodes; those that results still hold lose nothing else. */
    void clear();
    bool empty();
    size_t length();
    void set_limit(size_t nodes);

  private:
    void take_in_compiled();
    NodePtr drop_old();

    std::mutex lock_;
    std::shared_ptr<Token> token_; /* once compiled code has asked for it */
    std::atomic<bool> has_token_{false};
    NodePtr tail_;
    const std::unique_ptr<Scopes> scopes_;
    size_t length_ = 0;
    size_t limit_ = 1000;
    size_t look_at_ = 1000; /* the length at which old nodes are looked for */
};

/* A node of the list. */
class Link : public Node
{
  public:
    explicit Link(std::shared_ptr<Chain> chain) : chain_(std::move(chain))
    {
    }
    void release_variables() override
    {
        chain_->remove(this);
        saved_.reset_data();
    }
    /* Called when its result has been computed, before it is appended. */
    void save_something();
    /* What it sent, in words, if a gradient of it may come; else "". */
    virtual std::string owed() const
    {
        return "";
    }
    /* It is made only for what it saves: nothing is owed to it. */
    virtual void never_runs()
    {
    }
    bool has_run() const
    {
        return ran_;
    }
    /* Does anything but the list hold it, if so many hold it in all: the list,
     * who asks, and others? */
    virtual bool in_use(size_t count) const
    {
        return count > 2;
    }
    /* Does it lead to another node, that of compiled code? */
    virtual bool stands_for(const Node *) const
    {
        return false;
    }
    /* Is it a communication? */
    virtual bool counts() const
    {
        return true;
    }

  protected:
    /* The first thing a node does when it runs. */
    void begin();

  private:
    friend class Chain;
    std::shared_ptr<Chain> chain_;
    NodeWeak next_ = no_node(); /* the node that was appended after it */
    bool listed_ = false;
    bool in_scope_ = false;
    bool ran_ = false;
    bool saves_ = false;
    int asked_for_ = -1; /* the number of a backward pass, see Chain::before */
    std::weak_ptr<Scope> scope_;
    torch::autograd::SavedVariable saved_;
};

/* The node before it in its list, if there is one. */
const NodePtr &node_before(const Node *node);

} // namespace weft_torch::mpi
