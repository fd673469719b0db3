/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi_graph.hpp"

#include "mpi_token.hpp"

namespace weft_torch::mpi
{

namespace
{

constexpr uint32_t hidden_slot = 1;

Edge &hidden_edge(Node *node)
{
    return node->next_edges().back();
}

} // namespace

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

size_t Chain::append(const NodePtr &node, bool passing)
{
    take_in_compiled();
    NodePtr dropped; /* freed after the lock: the end of a node takes it */
    std::lock_guard<std::mutex> guard(lock_);
    Link *link = static_cast<Link *>(node.get());
    NodePtr before = passing ? passing_tail_.lock() : tail_;

    node->add_input_metadata(Node::undefined_input());
    node->add_next_edge(before ? Edge(before, hidden_slot) : Edge());
    if (before) {
        static_cast<Link *>(before.get())->next_ = NodeWeak(node);
    }
    link->listed_ = true;
    link->passing_ = passing;
    if (passing) {
        passing_tail_ = NodeWeak(node);
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

void Chain::remove(Link *link)
{
    NodePtr dropped;
    NodePtr next;
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
    if (!link->passing_) {
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
    NodePtr dropped;

    if (has_token_) {
        token_->forget();
    }
    std::lock_guard<std::mutex> guard(lock_);

    for (NodePtr node = tail_; node; node = hidden_edge(node.get()).function) {
        static_cast<Link *>(node.get())->listed_ = false;
    }
    dropped = std::move(tail_);
    tail_ = NodePtr();
    passing_tail_ = no_node();
    length_ = 0;
    look_at_ = limit_;
}

bool Chain::empty()
{
    return length() == 0;
}

size_t Chain::length()
{
    take_in_compiled();
    std::lock_guard<std::mutex> guard(lock_);

    return length_;
}

void Chain::set_limit(size_t nodes)
{
    std::lock_guard<std::mutex> guard(lock_);

    limit_ = look_at_ = nodes;
}

/* A forward pass that is never followed by a backward leaves nodes that nothing
 * but the list holds. So does one that only sends, of which the backward may
 * still come: hence not before there are many. Returns the first of those that
 * go, which holds the others. Called with the lock held. */
NodePtr Chain::drop_old()
{
    NodePtr oldest_in_use = tail_;
    size_t at = static_cast<Link *>(tail_.get())->counts() ? 1 : 0;
    size_t kept = at;

    for (NodePtr node = hidden_edge(tail_.get()).function; node;) {
        NodePtr before = hidden_edge(node.get()).function;

        at += static_cast<Link *>(node.get())->counts() ? 1 : 0;
        /* The list holds it once, and `node` itself. */
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
