/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/record.hpp"

#include "mpi/autograd.hpp"
#include "mpi/message.hpp"
#include "mpi/scope.hpp"

namespace weft_torch::mpi
{

namespace
{

/* A batched backward calls an operation once for each gradient of a batch, but
 * only once if there is no gradient: ranks would not match. */
void refuse_old_vmap(Kind kind)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::VmapMode),
        "weft.mpi ", name_of(kind),
        ": is_grads_batched=True and vectorize=True are not supported for "
        "communications; use torch.func.jacrev, or vmap of torch.func.vjp");
}

void lengths_of(const Tensor &x, Numbers &out)
{
    out = shape_of(x);
}

void lengths_of(const Tensor &x, List<SymInt> &out)
{
    out = x.sym_sizes().vec();
}

c10::SymIntArrayRef as_symbols(const Numbers &shape)
{
    return c10::fromIntArrayRefSlow(shape);
}

c10::SymIntArrayRef as_symbols(const List<SymInt> &shape)
{
    return shape;
}

} // namespace

Numbers shape_of(const Tensor &x)
{
    Numbers shape;

    for (const SymInt &length : x.sym_sizes()) {
        shape.push_back(known(length));
    }
    return shape;
}

Tensor mask_of(const Tensor &x, const Tensor &y)
{
    at::NoGradGuard no_grad;

    return at::logical_or(x.eq(y), at::logical_and(x.ne(x), y.ne(y)));
}

template <class N>
RecordOf<N>::RecordOf(ArgsOf<N> args_, const Tensor &x)
    : args(std::move(args_)), options(x.options())
{
    lengths_of(x, shape);
}

/* A send receives its gradient from another rank; the given one, which is
 * empty, has only the batch. */
template <class N>
Tensor RecordOf<N>::adjoint_input(const Tensor &gradient) const
{
    refuse_old_vmap(args.kind);
    Tensor given = batched_here(gradient);

    if (args.kind != Kind::Send) {
        return given;
    }
    if (!is_transformed(given)) {
        return at::empty_symint(as_symbols(shape), options);
    }
    at::NoGradGuard no_grad;

    return given.sum().expand_symint(as_symbols(shape));
}

template <class N> AdjointOf<N> RecordOf<N>::adjoint(const Group &group) const
{
    return adjoint_of(args, Slice<N>(shape), group);
}

template <class N>
Tensor RecordOf<N>::adjoint_result(const Tensor &y, double factor,
                                   const Group &group) const
{
    if (args.kind == Kind::Recv) {
        return Tensor();
    }
    if (args.kind == Kind::Scatter && args.root != N(group.rank)) {
        return at::zeros_symint(as_symbols(shape), y.options());
    }
    return factor == 1 ? y : y * factor;
}

template <class N>
Tensor RecordOf<N>::share(const Tensor &like, RunOf<N> run) const
{
    at::NoGradGuard no_grad;
    Tensor here = mask.to(like.scalar_type());

    return here / run(ArgsOf<N>{Kind::Allreduce}, here);
}

template <class N>
Tensor RecordOf<N>::gradient(const Tensor &gradient, const Group &group,
                             RunOf<N> run) const
{
    AdjointOf<N> how = adjoint(group);
    Tensor given = adjoint_input(gradient);

    if (mask.defined()) { /* the gradient of the ranks that have the extremum */
        how.args.op = N(WEFT_OP_SUM);
        Tensor sum = run(how.args, given);

        return sum * share(given, run);
    }
    return adjoint_result(run(how.args, given), how.factor, group);
}

template struct RecordOf<int64_t>;
template struct RecordOf<SymInt>;

std::string Record::owed() const
{
    if (args.kind != Kind::Send && args.kind != Kind::Sendrecv) {
        return "";
    }
    return std::string(args.kind == Kind::Send ? "Send" : "Sendrecv") +
           ": message " + std::to_string(number & message_mask) + " to rank " +
           std::to_string(args.peer) + " with tag " + std::to_string(args.tag);
}

int64_t backward_mark_of(Kind kind, int64_t number)
{
    return mark_backward |
           (is_message(kind) ? swapped_numbers(number) : number);
}

int64_t Record::backward_mark() const
{
    return backward_mark_of(args.kind, number);
}

Asker::Asker(const Record &record)
{
    const Args &args = record.args;

    if (args.kind == Kind::Send || args.kind == Kind::Sendrecv) {
        group_ = record.group;
        words_ = record.owed();
        where_ = {uint32_t(args.peer), wire_tag(args.tag, args.level + 1)};
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
