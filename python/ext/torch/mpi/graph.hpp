/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of communications: nodes of torch's graph that hidden edges
 * link in the order of the forward pass.
 *
 *      x1 -> [ op 1 ] -> y1          data edges: what torch knows itself
 *               ^
 *               | hidden             "run after op 2's node"; carries no value
 *               |
 *      x2 -> [ op 2 ] -> y2
 *               ^
 *             tail                   one per communicator
 *
 * So a backward that begins behind the tail (join) runs every communication,
 * exactly in reverse, whether or not this rank's loss depends on its result.
 *
 * Rules.
 *  1. A node has two inputs: the gradient of its result, and slot 1, where the
 *     hidden edge of its successor ends and which never gets a value.
 *  2. Its last outgoing edge is the hidden one to its predecessor.
 *  3. A node that has run and will not run again removes itself from the list:
 *     its successor's hidden edge goes to its predecessor. Its own stays,
 *     because the engine is about to follow it.
 *  4. The communicator holds the tail, or a node whose result is dropped, as
 *     that of a send, would be lost. Old nodes without other references are
 *     dropped when there are too many of them.
 *  5. Nodes made while a graph is traced are not linked: the effect of the
 *     operations keeps their order there, and the compiled code is linked when
 *     it runs (mpi/token.hpp). Nodes made inside a torch.func transform, or
 *     recomputed by a backward pass (a checkpoint), have their backward there
 *     and a list of their own (mpi/scope.hpp).
 *  6. A checkpoint recomputes up to the last tensor that was saved. So a node
 *     saves one whenever saved-tensor hooks are set, or ranks would differ in
 *     what they communicate again. */
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

/* The nodes of a communicator that have not run, as a linked list. */
class Chain : public std::enable_shared_from_this<Chain>
{
  public:
    Chain();
    ~Chain();
    /* The token of compiled code; see mpi/token.hpp. */
    const std::shared_ptr<Token> &token();
    bool ends_with(const NodePtr &node);
    /* Append `node`, whose other edges are set, to this list or to that of a
     * scope. Returns the number of old nodes that were dropped. */
    size_t append(const NodePtr &node,
                  const std::shared_ptr<Scope> &scope = nullptr);
    /* Remove a node that will not run again. */
    void remove(Link *link);
    /* Release the reference to a node of a scope, which runs now. */
    void let_go(Link *link);
    /* The nodes before `node` in its list, the last first, up to those that an
     * earlier call for the same backward pass `task` returned. */
    std::vector<NodePtr> before(const Node *node, int task);
    /* Free the lists of scopes that have ended. */
    void tidy();
    Scopes &scopes()
    {
        return *scopes_;
    }
    /* The last node that represents the compiled node `code`, or none. */
    NodePtr standing_for(const Node *code);
    /* Remove all nodes. Those that results hold keep their data. */
    void clear();
    bool empty();
    size_t length();
    void set_limit(size_t nodes);

  private:
    void take_in_compiled();
    NodePtr drop_old();

    std::mutex lock_;
    std::shared_ptr<Token> token_; /* created by the first compiled code */
    std::atomic<bool> has_token_{false};
    NodePtr tail_;
    const std::unique_ptr<Scopes> scopes_;
    size_t length_ = 0;
    size_t limit_ = 1000;
    size_t look_at_ = 1000; /* the length at which drop_old is called */
};

/* A node of a chain. */
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
    /* Called after its result was computed, before it is appended. */
    void save_something();
    /* Describes a sent message whose gradient may come; else "". */
    virtual std::string owed() const
    {
        return "";
    }
    /* Called if it is made only for what it saves: it gets no gradient. */
    virtual void never_runs()
    {
    }
    bool has_run() const
    {
        return ran_;
    }
    /* Is there another reference than those of the list and of the caller, if
     * there are `count` in all? */
    virtual bool in_use(size_t count) const
    {
        return count > 2;
    }
    /* Does it represent this node of compiled code? */
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
    /* Must be called first when a node runs. */
    void begin();

  private:
    friend class Chain;
    std::shared_ptr<Chain> chain_;
    NodeWeak next_ = no_node(); /* the successor */
    bool listed_ = false;
    bool in_scope_ = false;
    bool ran_ = false;
    bool saves_ = false;
    int asked_for_ = -1; /* a backward pass, see Chain::before */
    std::weak_ptr<Scope> scope_;
    torch::autograd::SavedVariable saved_;
};

/* The predecessor of a node in its list, if there is one. */
const NodePtr &node_before(const Node *node);

} // namespace weft_torch::mpi
