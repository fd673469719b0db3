/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/token.hpp"

#include <torch/csrc/autograd/graph_task.h>

#include "mpi/autograd.hpp"

namespace weft_torch::mpi
{

namespace
{

at::Tensor blank_token()
{
    return at::zeros({2}, at::kDouble);
}

/* The autograd metadata of the token is set below torch's dispatcher, because a
 * compiler that traces must not see it. */
void set_edge(const at::Tensor &token, Edge edge)
{
    torch::autograd::impl::set_gradient_edge(token, std::move(edge));
}

} // namespace

class EntryNode : public Link
{
  public:
    EntryNode(const std::shared_ptr<Chain> &chain,
              std::shared_ptr<void> communicator)
        : Link(chain), listed_in_(chain), communicator_(std::move(communicator))
    {
    }
    std::string name() const override
    {
        return "weft::compiled_entry_backward";
    }
    variable_list apply(variable_list &&) override
    {
        return variable_list(num_outputs());
    }
    void release_variables() override
    {
        Link::release_variables();
        listed_in_->token()->ran(this);
    }
    /* It lives as long as the compiled code, for which the exit answers. */
    bool in_use(size_t) const override
    {
        return false;
    }
    bool counts() const override
    {
        return false;
    }

  private:
    const std::shared_ptr<Chain> listed_in_;
    const std::shared_ptr<void> communicator_;
};

namespace
{

class ExitNode : public Link
{
  public:
    ExitNode(const std::shared_ptr<Chain> &chain, const NodePtr &entry)
        : Link(chain), entry(static_cast<Link *>(entry.get()))
    {
    }
    std::string name() const override
    {
        return "weft::compiled_exit_backward";
    }
    variable_list apply(variable_list &&) override
    {
        variable_list result(num_outputs());

        result[0] = blank_token();
        return result;
    }
    /* Does a result of the compiled code exist? This node holds the token's
     * node, which holds the code's node. */
    bool in_use(size_t count) const override
    {
        const NodePtr &of_token = next_edge(0).function;
        bool used = Link::in_use(count) || of_token.use_count() > 1;

        for (const Edge &edge : of_token->next_edges()) {
            used = used || result_lives(edge.function);
        }
        return used;
    }
    /* It represents the code and its entry. */
    bool stands_for(const Node *code) const override
    {
        if (entry == code) {
            return true;
        }
        for (const Edge &edge : next_edge(0).function->next_edges()) {
            if (edge.function.get() == code) {
                return true;
            }
        }
        return false;
    }
    Link *const entry; /* held by the code, and so by this */

  private:
    static bool result_lives(const NodePtr &code)
    {
        if (!code || dynamic_cast<EntryNode *>(code.get()) != nullptr) {
            return false;
        }
        return size_t(code.use_count()) >
               1 + (code->is_aot_backward() ? own_holders : 0);
    }
};

} // namespace

Token::Token(std::weak_ptr<Chain> chain)
    : chain_(std::move(chain)), token_(blank_token())
{
}

/* The entry, unless compiled code has ended after it. */
NodePtr Token::unused_entry()
{
    std::lock_guard<std::mutex> guard(lock_);
    bool unused = entry_ && token_.grad_fn() == entry_;

    return unused ? entry_ : NodePtr();
}

/* Returns the node that the token held, which must be freed without the lock
 * because that may wait for the GIL. Called with the lock held. */
NodePtr Token::unseat()
{
    NodePtr held = token_.grad_fn();

    set_edge(token_, Edge());
    entry_ = NodePtr();
    return held;
}

void Token::seat(const NodePtr &entry, bool again)
{
    std::lock_guard<std::mutex> guard(lock_);

    set_edge(token_, {entry, entry->add_input_metadata(token_)});
    entry_ = entry;
    again_ = again;
}

at::Tensor Token::begin(std::shared_ptr<void> communicator)
{
    std::shared_ptr<Chain> chain = chain_.lock();
    bool again = is_computed_again(0);

    take_in();
    NodePtr unused = unused_entry();

    if (unused && (again ? again_ : chain->ends_with(unused))) {
        return token_;
    }
    if (unused) {
        chain->remove(static_cast<Link *>(unused.get()));
    }
    NodePtr entry = owned(new EntryNode(chain, std::move(communicator)));

    seat(entry, again);
    if (!again) {
        chain->append(entry);
    }
    return token_;
}

void Token::take_in()
{
    std::shared_ptr<Chain> chain = chain_.lock();
    NodePtr exit;
    NodePtr held;

    {
        std::lock_guard<std::mutex> guard(lock_);

        if (!entry_ || token_.grad_fn() == entry_) {
            return;
        }
        if (!again_) {
            exit = owned(new ExitNode(chain, entry_));
            exit->add_next_edge(torch::autograd::impl::gradient_edge(token_));
            exit->add_input_metadata(Node::undefined_input());
        }
        held = unseat();
    }
    if (exit) {
        warn_of_dropped(chain->append(exit));
    }
}

/* Not every backward pass reaches the entry: torch.autograd.grad stops at its
 * inputs. */
void Token::runs_backward()
{
    NodePtr code = torch::autograd::get_current_node();

    if (!code || torch::autograd::get_current_graph_task_keep_graph()) {
        return;
    }
    take_in();
    std::shared_ptr<Chain> chain = chain_.lock();
    NodePtr exit = chain->standing_for(code.get());

    if (exit) {
        chain->remove(static_cast<Link *>(exit.get()));
        chain->remove(static_cast<ExitNode *>(exit.get())->entry);
    }
}

void Token::ran(const EntryNode *entry)
{
    std::shared_ptr<Chain> chain = chain_.lock();
    NodePtr exit = chain->standing_for(entry);

    if (exit) {
        chain->remove(static_cast<Link *>(exit.get()));
        return;
    }
    NodePtr held;
    std::lock_guard<std::mutex> guard(lock_);

    if (entry_.get() == entry) {
        held = unseat();
    }
}

void Token::forget()
{
    NodePtr held;
    std::lock_guard<std::mutex> guard(lock_);

    held = unseat();
}

} // namespace weft_torch::mpi
