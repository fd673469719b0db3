/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of compiled code:
 *
 *   weft::traced_NAME(Tensor x, Tensor? token, Tensor? of, int comm, int mark,
 *                     SymInt[] args) -> (Tensor, Tensor)
 *
 * They take and return the communicator's token (mpi/token.hpp): an operation
 * cannot be moved before another whose result it takes, and that is the only
 * order that every compiler keeps. The backward pass does the same with the
 * token's gradient.
 *
 * A token contains two numbers that the backward pass needs and that are not
 * known before the code runs: that of the operation that returned it, and the
 * source of a message. A derivative takes them as `of`.
 *
 * The mark has this rank instead of a number, so that a cache of compiled code
 * does not mix up ranks whose code differs only in the shapes of results. */
#include <torch/csrc/autograd/graph_task.h>

#include "mpi/calls.hpp"
#include "mpi/dispatch.hpp"
#include "mpi/message.hpp"
#include "mpi/token.hpp"

namespace weft_torch::mpi
{

namespace
{

using c10::SymIntArrayRef;
using MaybeTensor = std::optional<Tensor>;
using Traced = std::tuple<Tensor, Tensor>;
using TracedSignature = Traced(const Tensor &, const MaybeTensor &,
                               const MaybeTensor &, int64_t, int64_t,
                               SymIntArrayRef);
using TracedHandle = c10::TypedOperatorHandle<TracedSignature>;

constexpr double no_gradient = -1; /* stored as the number of a receive */

const TracedHandle &traced_handle(Kind kind)
{
    static const auto &all =
        *new auto(find_operators<TracedSignature>("traced_"));

    return all[size_t(kind)];
}

/* Is this a backward pass with create_graph? The gradient mode alone does not
 * say so, because a compiled hook may leave it on. */
bool differentiated_again()
{
    return at::GradMode::is_enabled() &&
           torch::autograd::get_current_graph_task_keep_graph();
}

/* Call an operation of compiled code; it returns the next token. */
Tensor call_traced(const SymArgs &args, const Tensor &x, Tensor &token,
                   const MaybeTensor &of, int64_t comm, int64_t mark)
{
    Tensor y;

    std::tie(y, token) =
        traced_handle(args.kind).call(x, token, of, comm, mark, packed(args));
    return y;
}

/* The node of an operation while a graph with gradients is traced, or when such
 * a graph is executed without a compiler. */
class TracedNode : public Node
{
  public:
    TracedNode(RecordOf<SymInt> record, int64_t comm, Tensor info)
        : record_(std::move(record)), comm_(comm), info_(std::move(info))
    {
    }
    std::string name() const override
    {
        return std::string("weft::traced_") + name_of(record_.args.kind) +
               "_backward";
    }
    variable_list apply(variable_list &&gradients) override
    {
        Kind kind = record_.args.kind;

        TORCH_CHECK_NOT_IMPLEMENTED(!differentiated_again(), "weft.mpi ",
                                    name_of(kind),
                                    ": compiled code does not support second "
                                    "derivatives (create_graph)");
        variable_list result(num_outputs());
        Tensor gradient = defined_or_zeros(gradients, 0);
        Tensor token = defined_or_zeros(gradients, 1);
        Tensor x = kind == Kind::Join ? gradient : of_input(gradient, token);

        if (next_edge(0).is_valid() && kind != Kind::Recv) {
            result[0] = x;
        }
        result[1] = token;
        return result;
    }

  private:
    Tensor defined_or_zeros(const variable_list &gradients, uint32_t i) const
    {
        return gradients[i].defined() ? gradients[i]
                                      : input_metadata(i).zeros_like();
    }
    /* The gradient of the token is the order of the backward pass. */
    Tensor of_input(const Tensor &gradient, Tensor &token) const
    {
        GroupPtr group = Group::by_id(comm_);

        return record_.gradient(
            gradient, *group, [&](const SymArgs &args, const Tensor &x) {
                return call_traced(args, x, token, info_, comm_,
                                   mark_backward | group->rank);
            });
    }

    const RecordOf<SymInt> record_;
    const int64_t comm_;
    const Tensor info_;
};

Traced traced_autograd(SymArgs args, const Tensor &x, const MaybeTensor &token,
                       const MaybeTensor &of, const Group &group, int64_t mark)
{
    bool records = at::GradMode::is_enabled() && token.has_value() &&
                   token->requires_grad();
    Traced out;
    auto &[y, info] = out;

    if (records && is_composed(args)) {
        info = *token;
        y = composed<SymInt>(
            args, x, group, [&](const SymArgs &part, const Tensor &given) {
                return call_traced(part, given, info, of, group.id, mark);
            });
        return out;
    }
    {
        at::AutoDispatchBelowADInplaceOrView below;

        out = traced_handle(args.kind).call(x, token, of, group.id, mark,
                                            packed(args));
    }
    if (records) {
        RecordOf<SymInt> record(std::move(args), x);

        if (finds_extremum(record.args)) {
            record.mask = mask_of(x.detach(), y);
        }
        NodePtr node =
            owned(new TracedNode(std::move(record), group.id, info.detach()));

        node->set_next_edges(torch::autograd::collect_next_edges(x, *token));
        torch::autograd::set_history(y, node);
        torch::autograd::set_history(info, node);
    }
    return out;
}

/* An eager scatter begins with an exchange of lengths. So does this one,
 * because other ranks may be eager. */
void check_scatter(const Args &args, const Tensor &x, Group &group)
{
    Call call = scatter_call(group, x, args.axis, -1, args.root);

    TORCH_CHECK_VALUE(packed(call.args) == packed(args),
                      "weft.mpi Scatter: in compiled code the tensor of every "
                      "rank must have the shape of the root's; on rank ",
                      group.rank, " its shape is ", x.sizes());
}

/* Compare whether the sender records gradients with what was compiled. Returns
 * whether a gradient must be sent back. */
bool sender_records(Kind kind, const OpInfo &info, const Group &group,
                    int64_t mark)
{
    bool ours = (mark & mark_grad) != 0;
    bool theirs = (info.mark & mark_grad) != 0;

    if (theirs != ours && (theirs || kind == Kind::Sendrecv)) {
        fail_mpi(WEFT_ERR_MISMATCH,
                 std::string("weft.mpi ") + name_of(kind) + ": rank " +
                     std::to_string(theirs ? info.peer : group.rank) +
                     " records gradients of what it sent, but rank " +
                     std::to_string(theirs ? group.rank : info.peer) +
                     " does not");
    }
    return theirs;
}

Traced run_forward(const Args &args, const Tensor &x, Group &group,
                   int64_t mark)
{
    check_call(args, group);
    if (args.kind == Kind::Scatter) {
        check_scatter(args, x, group);
    }
    Outcome out = run_kind(args, x, group, mark & ~mark_number);
    bool receives = args.kind == Kind::Recv || args.kind == Kind::Sendrecv;
    bool back = !receives || sender_records(args.kind, out.info, group, mark);
    Tensor info = at::empty({2}, at::kDouble);
    double *numbers = info.data_ptr<double>();

    numbers[0] = back ? double(out.info.number) : no_gradient;
    numbers[1] = double(out.info.peer);
    return {out.y, info};
}

/* `info` is the token of the operation whose derivative this is. */
Traced run_backward(Args args, const Tensor &x, const Tensor &info,
                    Group &group)
{
    const double *numbers = info.data_ptr<double>();
    Tensor nothing = at::zeros({2}, at::kDouble);

    group.chain->token()->runs_backward();
    if (args.kind == Kind::Send) {
        if (numbers[0] == no_gradient) {
            return {at::empty({0}, x.options()), nothing};
        }
        args.peer = int64_t(numbers[1]);
        args.lazy = 1; /* as in the forward pass */
    }
    int64_t mark = backward_mark_of(args.kind, int64_t(numbers[0]));

    return {run_kind(args, x, group, mark).y, nothing};
}

struct TracedKernels {
    template <Kind kind>
    static Traced plain(const Tensor &x, const MaybeTensor &,
                        const MaybeTensor &of, int64_t comm, int64_t mark,
                        SymIntArrayRef list)
    {
        GroupPtr group = Group::by_id(comm);
        Args args = unpacked(kind, C10_AS_INTARRAYREF_SLOW(list), group->size);

        return (mark & mark_backward) != 0
                   ? run_backward(std::move(args), x, *of, *group)
                   : run_forward(args, x, *group, mark);
    }
    template <Kind kind>
    static Traced autograd(const Tensor &x, const MaybeTensor &token,
                           const MaybeTensor &of, int64_t comm, int64_t mark,
                           SymIntArrayRef list)
    {
        GroupPtr group = Group::by_id(comm);

        return traced_autograd(unpacked(kind, list, group->size), x, token, of,
                               *group, mark);
    }
};

} // namespace

TORCH_LIBRARY_FRAGMENT(weft, library)
{
    define_operators<TracedKernels>(
        library, "traced_",
        "(Tensor x, Tensor? token, Tensor? of, int comm, int mark, SymInt[] "
        "args) -> (Tensor, Tensor)",
        AllKinds());
}

} // namespace weft_torch::mpi
