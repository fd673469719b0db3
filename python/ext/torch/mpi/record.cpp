/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/record.hpp"

#include "mpi/autograd.hpp"
#include "mpi/message.hpp"
#include "mpi/scope.hpp"

namespace weft_torch::mpi
{

namespace
{

/* It calls an operation once for each gradient of a batch, and once where the
 * gradient is none: numbers of one would meet those of another. */
void refuse_old_vmap(Kind kind)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::VmapMode),
        "weft.mpi ", name_of(kind),
        ": is_grads_batched=True and vectorize=True have no batches of "
        "communications; use torch.func.jacrev, or vmap of torch.func.vjp");
}

} // namespace

bool is_message(Kind kind)
{
    return kind == Kind::Send || kind == Kind::Recv || kind == Kind::Sendrecv;
}

Record::Record(Kind kind_, GroupPtr group_, IntArrayRef args_, const Tensor &x)
    : kind(kind_), group(std::move(group_)), args(args_.begin(), args_.end()),
      shape(shape_of(x)), options(x.options()),
      number(is_message(kind_) ? last_message().numbers
                               : int64_t(group->number))
{
}

std::string Record::owed() const
{
    if (kind != Kind::Send && kind != Kind::Sendrecv) {
        return "";
    }
    return std::string(kind == Kind::Send ? "Send" : "Sendrecv") +
           ": message " + std::to_string(number & message_mask) + " to rank " +
           std::to_string(args[0]) + " with tag " + std::to_string(args[1]);
}

int64_t Record::backward_mark() const
{
    return mark_backward |
           (is_message(kind) ? swapped_numbers(number) : number);
}

/* A send gets its gradient from elsewhere; its own, which is empty, tells only
 * of which batch it is. */
Tensor Record::adjoint_input(const Tensor &gradient) const
{
    refuse_old_vmap(kind);
    Tensor given = batched_here(gradient);

    if (kind != Kind::Send) {
        return given;
    }
    if (!is_transformed(given)) {
        return at::empty(shape, options);
    }
    at::NoGradGuard no_grad;

    return given.sum().expand(shape);
}

Adjoint Record::adjoint() const
{
    return adjoint_of(kind, shape, *group, args);
}

Tensor Record::adjoint_result(Tensor y, const Adjoint &how) const
{
    if (kind == Kind::Recv) {
        return Tensor();
    }
    if (kind == Kind::Scatter && args[1] != group->rank) {
        return at::zeros(shape, y.options());
    }
    return how.factor == 1 ? y : y * how.factor;
}

Tensor Record::share(const Tensor &like, int64_t mark) const
{
    at::NoGradGuard no_grad;
    Tensor here = mask.to(like.scalar_type());
    Tensor everywhere = call_op(Kind::Allreduce, here, group->id, mark,
                                Numbers{WEFT_OP_SUM, 0});

    return here / everywhere;
}

Tensor Record::gradient(const Tensor &gradient) const
{
    Adjoint how = adjoint();
    int64_t mark = backward_mark();

    Tensor given = adjoint_input(gradient);

    if (mask.defined()) {
        Tensor sum = args[1] != 0
                         ? call_op(Kind::Replicate, given, group->id, mark, {})
                         : call_op(Kind::Allreduce, given, group->id, mark,
                                   Numbers{WEFT_OP_SUM, 0});

        return sum * share(given, mark);
    }
    return adjoint_result(call_op(how.kind, given, group, mark, how.args), how);
}

Asker::Asker(const Record &record)
{
    bool sends = record.kind == Kind::Send;

    if (sends || record.kind == Kind::Sendrecv) {
        int64_t level = record.args[sends ? 2 : 4];

        group_ = record.group;
        words_ = record.owed();
        where_ = {uint32_t(record.args[0]),
                  wire_tag(record.args[1], level + 1)};
        std::lock_guard<std::mutex> guard(group_->message_lock);

        group_->askers[where_]++;
    }
}

Asker::~Asker()
{
    if (group_ == nullptr) {
        return;
    }
    std::lock_guard<std::mutex> guard(group_->message_lock);

    if (--group_->askers[where_] == 0) {
        group_->askers.erase(where_);
    }
    if (!asked_) {
        group_->unasked[where_] = std::move(words_);
        group_->any_unasked = true;
    }
}

} // namespace weft_torch::mpi
