/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/handle.hpp"

#include "mpi/collective.hpp"
#include "mpi/message.hpp"

namespace weft_torch::mpi
{

namespace
{

/* A collective under way. */
class Flight : public Pending
{
  public:
    Flight(Kind kind, const Tensor &x, Group &group, IntArrayRef args)
        : job_(kind, x, group, args), kind_(kind)
    {
    }
    ~Flight() override
    {
        weft_request_release(request_);
    }
    void start(int64_t mark)
    {
        job_.call(mark, &request_);
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

bool can_start(Kind kind, IntArrayRef args, bool records)
{
    switch (kind) {
    case Kind::Allreduce: /* MAX and MIN save where they were found */
        return !records || (args[0] != WEFT_OP_MAX && args[0] != WEFT_OP_MIN);
    case Kind::Reduce:
    case Kind::ReduceScatter:
    case Kind::Scan:
    case Kind::Exscan:
    case Kind::Bcast:
    case Kind::Gather:
    case Kind::Allgather:
    case Kind::Scatter:
    case Kind::Alltoall:
    case Kind::Barrier:
    case Kind::Send:
    case Kind::Recv:
        return true;
    default:
        return false;
    }
}

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
        return std::string("weft::") + name_of(shared_->record.kind) +
               "_start_backward";
    }
    variable_list apply(variable_list &&) override
    {
        variable_list result(num_outputs());

        begin();
        asker_.asks();
        if (!shared_->known) {
            return result; /* a receive of what needs no gradient */
        }
        if (!shared_->adjoint) { /* it was never waited for */
            const Record &r = shared_->record;

            shared_->begin(at::zeros(
                result_shape(r.kind, r.shape, *r.group, r.args), r.options));
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
    /* Wait's node holds it, too, and alone that is no use: nobody may hold
     * that one. But the two go together. */
    bool in_use(size_t count) const override
    {
        NodePtr wait = shared_->wait.lock();

        if (!wait) {
            return Link::in_use(count);
        }
        return Link::in_use(count - 1) ||
               static_cast<Link *>(wait.get())->in_use(wait.use_count());
    }
    /* With it goes wait's node, if this backward did not come to it: the next
     * one would wait for a gradient that was here. */
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
        return std::string("weft::") + name_of(shared_->record.kind) +
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
        shared_->wait = no_node(); /* whose memory that would keep for ever */
    }

  private:
    std::shared_ptr<Handle::Return> shared_;
};

} // namespace

void Handle::Return::begin(const Tensor &gradient)
{
    Adjoint how = record.adjoint();

    adjoint = Handle::start(how.kind, record.adjoint_input(gradient),
                            record.group, record.backward_mark(), how.args);
}

Tensor Handle::Return::finish()
{
    std::shared_ptr<Handle> handle = std::move(adjoint);

    adjoint = nullptr;
    return record.adjoint_result(handle->wait(), record.adjoint());
}

Handle::Handle(Kind kind, const Tensor &x, GroupPtr group, int64_t mark,
               IntArrayRef args)
    : kind_(kind), group_(std::move(group)), mark_(mark),
      args_(args.begin(), args.end()), x_(x)
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
    if (node_ && kind_ == Kind::Recv) {
        group_->chain->remove(static_cast<Link *>(node_.get()));
    }
}

std::shared_ptr<Handle> Handle::start(Kind kind, const Tensor &x,
                                      const GroupPtr &group, int64_t mark,
                                      IntArrayRef args)
{
    refuse_jit_trace(kind);
    std::shared_ptr<Handle> handle(new Handle(kind, x, group, mark, args));
    bool smooth = differentiable(kind, args, x.scalar_type());
    bool grad = handle->records(x);
    bool elsewhere = is_traced(x) || is_transformed(x) || in_transform() ||
                     (smooth && x._fw_grad(/*level=*/0).defined());

    if (elsewhere && kind == Kind::Recv) {
        handle->deferred_ = true;
    } else if (elsewhere || !can_start(kind, args, grad)) {
        Numbers now = args.vec();

        if (kind == Kind::Send) {
            now[3] = 1; /* the receive may come after our own */
        }
        handle->ready_ = call_op(kind, x, group->id, mark, now);
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
 * may turn out not to. */
bool Handle::records(const Tensor &x) const
{
    return differentiable(kind_, args_, x.scalar_type()) &&
           at::GradMode::is_enabled() &&
           (x.requires_grad() || (mark_ & mark_backward) != 0 ||
            kind_ == Kind::Recv);
}

std::shared_ptr<Handle> Handle::finished(const Tensor &y, const GroupPtr &group)
{
    std::shared_ptr<Handle> handle(new Handle(Kind::Join, y, group, 0, {}));

    handle->ready_ = y;
    return handle;
}

void Handle::start_now(const Tensor &x)
{
    int64_t mark = mark_ | (records(x) ? mark_grad : 0);

    group_->keep(nullptr);
    check_lost(*group_);
    if (kind_ == Kind::Send) {
        auto letter =
            std::make_unique<Letter>(*group_, args_[0], args_[1], args_[2]);

        letter->start_send(plain(x), mark);
        last_message().numbers = numbers_in_one(letter->number(), 0);
        pending_ = std::move(letter);
    } else if (kind_ == Kind::Recv) {
        auto letter =
            std::make_unique<Letter>(*group_, args_[0], args_[1], args_[2]);

        ready_ = group_->memory->empty(x.sizes(), x.options().device(at::kCPU));
        letter->start_receive(ready_,
                              differentiable(kind_, args_, x.scalar_type())
                                  ? mark | mark_tangent
                                  : mark);
        pending_ = std::move(letter);
    } else {
        auto flight = std::make_unique<Flight>(kind_, x, *group_, args_);

        flight->start(mark);
        pending_ = std::move(flight);
    }
}

/* The node of the start. That of a receive may turn out not to be needed. */
void Handle::record(const Tensor &x)
{
    return_ = std::make_shared<Return>(Record(kind_, group_, args_, x));
    return_->known = kind_ != Kind::Recv;
    node_ = owned(new StartNode(return_, group_));
    if (x.requires_grad() && kind_ != Kind::Recv) {
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

    last_message().numbers = numbers_in_one(0, letter->number());
    if (return_) {
        return_->known = grad;
        return_->record.number = last_message().numbers;
        return_->record.args[0] = letter->peer();
    }
    if (node_ && !grad) {
        group_->chain->remove(static_cast<Link *>(node_.get()));
        node_ = NodePtr();
    }
    Tensor y = x_.is_cpu() ? ready_ : ready_.to(x_.device());

    if ((letter->mark() & mark_tangent) != 0) {
        Numbers args = args_;

        args[0] = letter->peer();
        y._set_fw_grad(call_op(kind_, x_, group_->id,
                               mark_is_tangent | last_message().numbers, args),
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
        return call_op(kind_, x_, group_->id, mark_, args_);
    }
    if (!pending_) {
        return std::move(ready_);
    }
    Tensor y;

    try {
        if (kind_ == Kind::Recv) {
            y = finish_receive();
        } else if (kind_ == Kind::Send) {
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
    if (node_ && !(kind_ == Kind::Send && return_->over)) {
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
