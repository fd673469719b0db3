/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/handle.hpp"

#include "mpi/collective.hpp"
#include "mpi/message.hpp"

namespace weft_torch::mpi
{

namespace
{

/* An outstanding collective. */
class Flight : public Pending
{
  public:
    Flight(const Args &args, const Tensor &x, Group &group)
        : job_(args, x, group), kind_(args.kind)
    {
    }
    ~Flight() override
    {
        weft_request_release(request_);
    }
    int64_t start(int64_t mark)
    {
        job_.call(mark, &request_);
        return job_.number();
    }
    Tensor wait()
    {
        check_mpi(weft_request_wait(request_, 0), name_of(kind_));
        return job_.result();
    }
    bool done() override
    {
        int done = 1;

        if (request_ != nullptr) {
            (void)weft_request_test(request_, &done);
        }
        return done != 0;
    }

  private:
    Job job_;
    const Kind kind_;
    weft_request *request_ = nullptr;
};

class StartNode : public Link
{
  public:
    StartNode(std::shared_ptr<Handle::Return> shared, const GroupPtr &group)
        : Link(group->chain), shared_(std::move(shared)),
          asker_(shared_->record)
    {
    }
    std::string name() const override
    {
        return std::string("weft::") + name_of(shared_->record.args.kind) +
               "_start_backward";
    }
    variable_list apply(variable_list &&) override
    {
        variable_list result(num_outputs());

        begin();
        asker_.asks();
        if (!shared_->known) {
            return result; /* the sender needs no gradient */
        }
        if (!shared_->adjoint) { /* it was never waited for */
            const Record &r = shared_->record;

            shared_->begin(
                at::zeros(result_shape(r.args, IntArrayRef(r.shape), *r.group),
                          r.options));
        }
        Tensor x = shared_->finish();

        if (next_edge(0).is_valid()) {
            result[0] = x;
        }
        return result;
    }
    void never_runs() override
    {
        asker_.asks();
    }
    std::string owed() const override
    {
        return shared_->record.owed();
    }
    /* Wait's node holds a reference, which alone is no use: that node may be
     * unused itself. So the two are in use together. */
    bool in_use(size_t count) const override
    {
        NodePtr wait = shared_->wait.lock();

        if (!wait) {
            return Link::in_use(count);
        }
        return Link::in_use(count - 1) ||
               static_cast<Link *>(wait.get())->in_use(wait.use_count());
    }
    /* Also release wait's node if this backward did not reach it: the next
     * backward would wait for a gradient that has come already. */
    void release_variables() override
    {
        NodePtr wait = shared_->wait.lock();

        Link::release_variables();
        if (wait) {
            wait->release_variables();
        }
        shared_->over = shared_->known;
    }

  private:
    std::shared_ptr<Handle::Return> shared_;
    Asker asker_;
};

class WaitNode : public Link
{
  public:
    WaitNode(std::shared_ptr<Handle::Return> shared, const GroupPtr &group)
        : Link(group->chain), shared_(std::move(shared))
    {
    }
    std::string name() const override
    {
        return std::string("weft::") + name_of(shared_->record.args.kind) +
               "_wait_backward";
    }
    variable_list apply(variable_list &&gradients) override
    {
        begin();
        shared_->begin(gradients[0].defined() ? gradients[0]
                                              : input_metadata(0).zeros_like());
        return variable_list(num_outputs());
    }
    void release_variables() override
    {
        Link::release_variables();
        shared_->wait = no_node(); /* else its memory would never be freed */
    }

  private:
    std::shared_ptr<Handle::Return> shared_;
};

} // namespace

void Handle::Return::begin(const Tensor &gradient)
{
    Adjoint how = record.adjoint(*record.group);

    adjoint = Handle::start(how.args, record.adjoint_input(gradient),
                            record.group, record.backward_mark());
}

Tensor Handle::Return::finish()
{
    std::shared_ptr<Handle> handle = std::move(adjoint);

    adjoint = nullptr;
    const Group &group = *record.group;

    return record.adjoint_result(handle->wait(), record.adjoint(group).factor,
                                 group);
}

Handle::Handle(Args args, const Tensor &x, GroupPtr group, int64_t mark)
    : args_(std::move(args)), group_(std::move(group)), mark_(mark), x_(x)
{
}

Handle::~Handle()
{
    if (waited_) {
        return;
    }
    if (pending_) {
        group_->keep(std::move(pending_));
    }
    if (node_ && args_.kind == Kind::Recv) {
        group_->chain->remove(static_cast<Link *>(node_.get()));
    }
}

/* What needs more than one call of the library is executed at once. */
std::shared_ptr<Handle> Handle::start(const Args &args, const Tensor &x,
                                      const GroupPtr &group, int64_t mark)
{
    refuse_jit_trace(args.kind);
    std::shared_ptr<Handle> handle(new Handle(args, x, group, mark));
    bool smooth = differentiable(args, x.scalar_type());
    bool grad = handle->records(x);
    bool elsewhere = is_traced(x) || is_transformed(x) || in_transform() ||
                     (smooth && x._fw_grad(/*level=*/0).defined());

    if (elsewhere && args.kind == Kind::Recv) {
        handle->deferred_ = true;
    } else if (elsewhere || !starts(args.kind) || (grad && !is_linear(args))) {
        Args now = args;

        now.lazy = args.kind == Kind::Send; /* may be received by this rank */
        handle->ready_ = call_op(now, x, group, mark);
    } else {
        at::AutoDispatchBelowADInplaceOrView below;

        handle->start_now(x);
    }
    if (handle->pending_ && grad) {
        handle->record(x);
    }
    return handle;
}

/* In a recorded backward pass all ranks record, see mpi/autograd.cpp. A receive
 * may prove not to need it. */
bool Handle::records(const Tensor &x) const
{
    return differentiable(args_, x.scalar_type()) &&
           at::GradMode::is_enabled() &&
           (x.requires_grad() || (mark_ & mark_backward) != 0 ||
            args_.kind == Kind::Recv);
}

void Handle::start_now(const Tensor &x)
{
    int64_t mark = mark_ | (records(x) ? mark_grad : 0);

    group_->keep(nullptr);
    check_lost(*group_);
    if (args_.kind == Kind::Send) {
        auto letter = std::make_unique<Letter>(*group_, args_);

        letter->send(plain(x), mark, false);
        number_ = numbers_in_one(letter->number(), 0);
        pending_ = std::move(letter);
    } else if (args_.kind == Kind::Recv) {
        auto letter = std::make_unique<Letter>(*group_, args_);

        ready_ = group_->memory->empty(x.sizes(), x.options().device(at::kCPU));
        letter->start_receive(ready_, differentiable(args_, x.scalar_type())
                                          ? mark | mark_tangent
                                          : mark);
        pending_ = std::move(letter);
    } else {
        auto flight = std::make_unique<Flight>(args_, x, *group_);

        number_ = flight->start(mark);
        pending_ = std::move(flight);
    }
}

/* Make the node of the start. That of a receive may prove unnecessary. */
void Handle::record(const Tensor &x)
{
    return_ = std::make_shared<Return>(Record(args_, group_, x, number_));
    return_->known = args_.kind != Kind::Recv;
    node_ = owned(new StartNode(return_, group_));
    if (x.requires_grad() && args_.kind != Kind::Recv) {
        node_->set_next_edges(torch::autograd::collect_next_edges(x));
    } else {
        node_->add_next_edge(Edge());
    }
    node_->add_input_metadata(Node::undefined_input());
    append_node(node_, *group_, mark_);
}

Tensor Handle::finish_receive()
{
    auto *letter = static_cast<Letter *>(pending_.get());

    letter->wait("Wait");
    bool grad = (letter->mark() & mark_grad) != 0;

    number_ = numbers_in_one(0, letter->number());
    if (return_) {
        return_->known = grad;
        return_->record.number = number_;
        return_->record.args.peer = letter->peer();
    }
    if (node_ && !grad) {
        group_->chain->remove(static_cast<Link *>(node_.get()));
        node_ = NodePtr();
    }
    Tensor y = x_.is_cpu() ? ready_ : ready_.to(x_.device());

    if ((letter->mark() & mark_tangent) != 0) {
        Args args = args_;

        args.peer = letter->peer();
        y._set_fw_grad(call_op(args, x_, group_, mark_is_tangent | number_),
                       /*level=*/0, /*is_inplace_op=*/false);
    }
    return y;
}

void Handle::add_node(const Tensor &y)
{
    NodePtr node = owned(new WaitNode(return_, group_));

    return_->wait = NodeWeak(node);
    node->add_next_edge(Edge(node_, 0));
    torch::autograd::set_history(y, node);
    append_node(node, *group_, mark_);
}

Tensor Handle::wait()
{
    TORCH_CHECK_VALUE(!waited_,
                      "weft.mpi Wait: this handle was waited for before");
    waited_ = true;
    if (deferred_) {
        return call_op(args_, x_, group_, mark_);
    }
    if (!pending_) {
        return std::move(ready_);
    }
    Tensor y;

    try {
        if (args_.kind == Kind::Recv) {
            y = finish_receive();
        } else if (args_.kind == Kind::Send) {
            static_cast<Letter *>(pending_.get())->wait("Wait");
            y = at::empty({0}, x_.options());
        } else {
            at::AutoDispatchBelowADInplaceOrView below;

            y = static_cast<Flight *>(pending_.get())->wait();
        }
    } catch (...) {
        group_->keep(std::move(pending_));
        throw;
    }
    /* A send's gradient comes once; what else is waited for has a value. */
    if (node_ && !(args_.kind == Kind::Send && return_->over)) {
        add_node(y);
    }
    pending_.reset();
    x_.reset();
    return y;
}

bool Handle::test()
{
    return !pending_ || pending_->done();
}

} // namespace weft_torch::mpi
