/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/graph.hpp"

#include <ATen/SavedTensorHooks.h>

#include "mpi/scope.hpp"
#include "mpi/token.hpp"

namespace weft_torch::mpi
{

namespace
{

constexpr uint32_t hidden_slot = 1;

Edge &hidden_edge(Node *node)
{
    return node->next_edges().back();
}

NodePtr end_of(const ScopePtr &scope, const NodePtr &tail)
{
    return scope ? scope->tail.lock() : tail;
}

} // namespace

const NodePtr &node_before(const Node *node)
{
    return node->next_edges().back().function;
}

void Link::save_something()
{
    const auto &hooks = at::SavedTensorDefaultHooks::get_tls_state();

    if (!hooks.stack.empty() && !hooks.is_tracing) {
        saved_ = torch::autograd::SavedVariable(at::zeros({1}), false);
        saves_ = true;
    }
}

void Link::begin()
{
    ran_ = true;
    if (in_scope_) {
        chain_->let_go(this);
    }
    if (saves_) {
        (void)saved_.unpack(); /* makes a checkpoint recompute */
    }
}

Chain::Chain() : scopes_(std::make_unique<Scopes>(lock_))
{
}

Chain::~Chain() = default;

const std::shared_ptr<Token> &Chain::token()
{
    std::lock_guard<std::mutex> guard(lock_);

    if (!token_) {
        token_ = std::make_shared<Token>(weak_from_this());
        has_token_ = true;
    }
    return token_;
}

void Chain::take_in_compiled()
{
    if (has_token_) {
        token_->take_in();
    }
}

bool Chain::ends_with(const NodePtr &node)
{
    std::lock_guard<std::mutex> guard(lock_);

    return tail_ == node;
}

size_t Chain::append(const NodePtr &node, const ScopePtr &scope)
{
    take_in_compiled();
    tidy();
    NodePtr dropped; /* freed without the lock, which its destructor takes */
    std::lock_guard<std::mutex> guard(lock_);
    Link *link = static_cast<Link *>(node.get());
    NodePtr before = end_of(scope, tail_);

    node->add_input_metadata(Node::undefined_input());
    node->add_next_edge(before ? Edge(before, hidden_slot) : Edge());
    if (before) {
        static_cast<Link *>(before.get())->next_ = NodeWeak(node);
    }
    link->listed_ = true;
    if (scope) {
        link->in_scope_ = true;
        link->scope_ = scope;
        scope->tail = NodeWeak(node);
        dropped = std::move(scope->held);
        scope->held = scope->scratch ? NodePtr() : node;
        if (scope->scratch) {
            link->never_runs();
        }
        return 0;
    }
    tail_ = node;
    length_ += link->counts() ? 1 : 0;
    if (length_ < look_at_) {
        return 0;
    }
    size_t before_dropping = length_;

    dropped = drop_old();
    return before_dropping - length_;
}

void Chain::let_go(Link *link)
{
    NodePtr dropped;
    ScopePtr scope = link->scope_.lock();
    std::lock_guard<std::mutex> guard(lock_);

    if (scope && scope->held.get() == link) {
        dropped = std::move(scope->held);
        scope->held = node_before(link);
    }
}

void Chain::remove(Link *link)
{
    if (link->in_scope_) {
        let_go(link);
    }
    NodePtr dropped;
    NodePtr next;
    ScopePtr scope = link->scope_.lock();
    std::lock_guard<std::mutex> guard(lock_);

    if (!link->listed_) {
        return;
    }
    Edge before = hidden_edge(link);

    next = link->next_.lock();

    link->listed_ = false;
    if (before.function) {
        static_cast<Link *>(before.function.get())->next_ = link->next_;
    }
    if (next) {
        dropped = std::move(hidden_edge(next.get()).function);
        hidden_edge(next.get()) = before;
    }
    if (scope && !next) {
        scope->tail = NodeWeak(before.function);
    }
    if (!link->in_scope_) {
        length_ -= link->counts() ? 1 : 0;
        if (tail_.get() == link) {
            dropped = std::move(tail_);
            tail_ = before.function;
        }
        if (!tail_) {
            look_at_ = limit_;
        }
    }
}

std::vector<NodePtr> Chain::before(const Node *node, int task)
{
    std::vector<NodePtr> all;
    std::lock_guard<std::mutex> guard(lock_);

    for (NodePtr at = node_before(node); at; at = node_before(at.get())) {
        Link *link = static_cast<Link *>(at.get());

        if (link->asked_for_ == task) {
            break;
        }
        link->asked_for_ = task;
        all.push_back(at);
    }
    return all;
}

NodePtr Chain::standing_for(const Node *code)
{
    std::lock_guard<std::mutex> guard(lock_);
    NodePtr node = tail_;

    while (node && !static_cast<Link *>(node.get())->stands_for(code)) {
        node = hidden_edge(node.get()).function;
    }
    return node;
}

void Chain::clear()
{
    std::vector<NodePtr> over = scopes_->forget(true);

    if (has_token_) {
        token_->forget();
    }
    std::lock_guard<std::mutex> guard(lock_);

    for (NodePtr node = tail_; node; node = hidden_edge(node.get()).function) {
        static_cast<Link *>(node.get())->listed_ = false;
    }
    over.push_back(std::move(tail_));
    tail_ = NodePtr();
    length_ = 0;
    look_at_ = limit_;
}

void Chain::tidy()
{
    if (scopes_->any()) {
        (void)scopes_->forget(false);
    }
}

bool Chain::empty()
{
    return length() == 0;
}

size_t Chain::length()
{
    take_in_compiled();
    tidy();
    std::lock_guard<std::mutex> guard(lock_);

    return length_;
}

void Chain::set_limit(size_t nodes)
{
    std::lock_guard<std::mutex> guard(lock_);

    limit_ = look_at_ = nodes;
}

/* A forward pass without a backward leaves nodes that only the list holds. So
 * does one that only sends, whose backward may still come: so they are dropped
 * only when there are many. Returns the first dropped node, which holds the
 * others. Called with the lock held. */
NodePtr Chain::drop_old()
{
    NodePtr oldest_in_use = tail_;
    size_t at = static_cast<Link *>(tail_.get())->counts() ? 1 : 0;
    size_t kept = at;

    for (NodePtr node = hidden_edge(tail_.get()).function; node;) {
        NodePtr before = hidden_edge(node.get()).function;

        at += static_cast<Link *>(node.get())->counts() ? 1 : 0;
        /* The list and `node` hold a reference each. */
        if (static_cast<Link *>(node.get())->in_use(node.use_count())) {
            oldest_in_use = node;
            kept = at;
        }
        node = before;
    }
    NodePtr dropped = hidden_edge(oldest_in_use.get()).function;

    hidden_edge(oldest_in_use.get()) = Edge();
    for (Node *node = dropped.get(); node != nullptr;
         node = hidden_edge(node).function.get()) {
        static_cast<Link *>(node)->listed_ = false;
    }
    length_ = kept;
    look_at_ = std::max(limit_, 2 * length_);
    return dropped;
}

} // namespace weft_torch::mpi
