/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi_graph.hpp"

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

size_t Chain::append(const NodePtr &node, bool in_transform)
{
    NodePtr dropped; /* freed after the lock: the end of a node takes it */
    std::lock_guard<std::mutex> guard(lock_);
    Link *link = static_cast<Link *>(node.get());
    NodePtr before = in_transform ? transform_tail_.lock() : tail_;

    node->add_input_metadata(Node::undefined_input());
    node->add_next_edge(before ? Edge(before, hidden_slot) : Edge());
    if (before) {
        static_cast<Link *>(before.get())->next_ = NodeWeak(node);
    }
    link->listed_ = true;
    link->in_transform_ = in_transform;
    if (in_transform) {
        transform_tail_ = NodeWeak(node);
        return 0;
    }
    tail_ = node;
    if (++length_ < look_at_) {
        return 0;
    }
    size_t before_dropping = length_;

    dropped = drop_old();
    return before_dropping - length_;
}

void Chain::remove(Link *link)
{
    NodePtr dropped;
    std::lock_guard<std::mutex> guard(lock_);

    if (!link->listed_) {
        return;
    }
    Edge before = hidden_edge(link);
    NodePtr next = link->next_.lock();

    link->listed_ = false;
    if (before.function) {
        static_cast<Link *>(before.function.get())->next_ = link->next_;
    }
    if (next) {
        dropped = std::move(hidden_edge(next.get()).function);
        hidden_edge(next.get()) = before;
    }
    if (!link->in_transform_) {
        length_--;
        if (tail_.get() == link) {
            dropped = std::move(tail_);
            tail_ = before.function;
        }
        if (!tail_) {
            look_at_ = limit_;
        }
    }
}

void Chain::clear()
{
    NodePtr dropped;
    std::lock_guard<std::mutex> guard(lock_);

    for (NodePtr node = tail_; node; node = hidden_edge(node.get()).function) {
        static_cast<Link *>(node.get())->listed_ = false;
    }
    dropped = std::move(tail_);
    tail_ = NodePtr();
    transform_tail_ = no_node();
    length_ = 0;
    look_at_ = limit_;
}

bool Chain::empty()
{
    return length() == 0;
}

size_t Chain::length()
{
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
    size_t kept = 1;
    size_t at = 1;

    for (NodePtr node = hidden_edge(tail_.get()).function; node;) {
        NodePtr before = hidden_edge(node.get()).function;

        at++;
        /* The list holds it once, and `node` itself. */
        if (node.use_count() > 2) {
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
