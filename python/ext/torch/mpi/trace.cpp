/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/trace.hpp"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include "mpi/calls.hpp"
#include "mpi/message.hpp"
#include "mpi/token.hpp"

namespace weft_torch::mpi
{

namespace
{

using c10::SymInt;
using c10::SymIntArrayRef;
using MaybeTensor = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;
using TracedSignature = Pair(const Tensor &, const MaybeTensor &,
                             const MaybeTensor &, int64_t, int64_t,
                             SymIntArrayRef);
using TracedHandle = c10::TypedOperatorHandle<TracedSignature>;

constexpr double no_gradient = -1; /* as the number of a receive */

std::string traced_name(Kind kind)
{
    return std::string("traced_") + name_of(kind);
}

const TracedHandle &traced_handle(Kind kind)
{
    static const std::vector<TracedHandle> *const all = [] {
        auto *list = new std::vector<TracedHandle>;

        for (int k = 0; k < kinds; k++) {
            std::string name = "weft::" + traced_name(Kind(k));

            list->push_back(c10::Dispatcher::singleton()
                                .findSchemaOrThrow(name.c_str(), "")
                                .typed<TracedSignature>());
        }
        return list;
    }();

    return (*all)[size_t(kind)];
}

/* Is this a backward pass with create_graph? A hook that was compiled may leave
 * the gradient mode on in any. */
bool differentiated_again()
{
    return at::GradMode::is_enabled() &&
           torch::autograd::get_current_graph_task_keep_graph();
}

/* The node of an operation while a graph with gradients is traced; or when such
 * a graph is carried out as it stands. */
class TracedNode : public Node
{
  public:
    TracedNode(Kind kind, const Tensor &x, int64_t comm, SymIntArrayRef args)
        : kind_(kind), comm_(comm), args_(args.vec()),
          shape_(x.sym_sizes().vec()), options_(x.options())
    {
    }
    std::string name() const override
    {
        return "weft::" + traced_name(kind_) + "_backward";
    }
    /* `mask`: MAX and MIN, where the input is the result. */
    void keep(const Tensor &told, const Tensor &mask)
    {
        told_ = told;
        mask_ = mask;
    }
    variable_list apply(variable_list &&gradients) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(!differentiated_again(), "weft.mpi ",
                                    name_of(kind_),
                                    ": compiled code has no second "
                                    "derivatives (create_graph)");
        variable_list result(num_outputs());
        Tensor gradient = defined_or_zeros(gradients, 0);
        Tensor token = defined_or_zeros(gradients, 1);
        Tensor x = kind_ == Kind::Join ? gradient : of_input(gradient, token);

        if (next_edge(0).is_valid() && kind_ != Kind::Recv) {
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
    /* The gradient of the token is the order of the backward pass: each
     * operation takes it and gives the next one. */
    Tensor call(Kind kind, const Tensor &x, Tensor &token,
                SymIntArrayRef args) const
    {
        int64_t mark = mark_backward | Group::by_id(comm_)->rank;
        Tensor y;

        std::tie(y, token) =
            traced_handle(kind).call(x, token, told_, comm_, mark, args);
        return y;
    }
    Tensor sum(const Tensor &x, Tensor &token) const
    {
        return call(Kind::Allreduce, x, token,
                    {SymInt(WEFT_OP_SUM), SymInt(0)});
    }
    Tensor of_input(const Tensor &gradient, Tensor &token) const
    {
        GroupPtr group = Group::by_id(comm_);

        if (mask_.defined()) {
            bool replicated = args_[1] != SymInt(0);
            Tensor all = replicated ? call(Kind::Replicate, gradient, token, {})
                                    : sum(gradient, token);
            Tensor here = mask_.to(gradient.scalar_type());

            return all * (here / sum(here, token));
        }
        AdjointOf<SymInt> how = adjoint_of(kind_, shape_, *group, args_);
        Tensor given =
            kind_ == Kind::Send ? at::empty_symint(shape_, options_) : gradient;
        Tensor y = call(how.kind, given, token, how.args);

        if (kind_ == Kind::Scatter && args_[1] != SymInt(group->rank)) {
            return at::zeros_symint(shape_, options_);
        }
        return how.factor == 1 ? y : y * how.factor;
    }

    const Kind kind_;
    const int64_t comm_;
    const std::vector<SymInt> args_;
    const std::vector<SymInt> shape_;
    const at::TensorOptions options_;
    Tensor told_;
    Tensor mask_;
};

bool takes_extremum(Kind kind, SymIntArrayRef args)
{
    return kind == Kind::Allreduce &&
           (args[0] == SymInt(WEFT_OP_MAX) || args[0] == SymInt(WEFT_OP_MIN));
}

template <int K>
Pair traced_autograd(const Tensor &x, const MaybeTensor &token,
                     const MaybeTensor &of, int64_t comm, int64_t mark,
                     SymIntArrayRef args)
{
    bool records = at::GradMode::is_enabled() && token.has_value() &&
                   token->requires_grad();
    Tensor y;
    Tensor told;

    {
        at::AutoDispatchBelowADInplaceOrView below;

        std::tie(y, told) =
            traced_handle(Kind(K)).call(x, token, of, comm, mark, args);
    }
    if (!records) {
        return {y, told};
    }
    auto *traced = new TracedNode(Kind(K), x, comm, args);
    NodePtr node = owned(traced);

    traced->keep(told.detach(), takes_extremum(Kind(K), args)
                                    ? mask_of(x.detach(), y)
                                    : Tensor());
    node->set_next_edges(torch::autograd::collect_next_edges(x, *token));
    torch::autograd::set_history(y, node);
    torch::autograd::set_history(told, node);
    return {y, told};
}

/* What mpi_calls checks before a call that is not compiled. */
void check_call(Kind kind, const Group &group, IntArrayRef args)
{
    switch (kind) {
    case Kind::Bcast:
        return check_rank(group, args[0], "root");
    case Kind::Reduce:
    case Kind::Gather:
    case Kind::Scatter:
        return check_rank(group, args[1], "root");
    case Kind::Send:
        check_rank(group, args[0], "dest");
        return check_tag(args[1]);
    case Kind::Recv:
        if (args[0] != any_rank) {
            check_rank(group, args[0], "source");
        }
        return check_tag(args[1]);
    case Kind::Sendrecv:
        check_rank(group, args[0], "dest");
        check_rank(group, args[2], "source");
        check_tag(args[1]);
        return check_tag(args[3]);
    default:
        return;
    }
}

/* A scatter that is not compiled begins with an exchange of lengths. So does
 * this one: other ranks' code need not be compiled. */
void check_scatter(const Tensor &x, Group &group, IntArrayRef args)
{
    Call call = scatter_call(group, x, args[0], -1, args[1]);

    TORCH_CHECK_VALUE(IntArrayRef(call.args) == args,
                      "weft.mpi Scatter: in compiled code the tensor of every "
                      "rank must have the shape of the root's; on rank ",
                      group.rank, " it is ", x.sizes());
}

/* What a message says of gradients, next to what was compiled. Returns whether
 * one is to be sent back. */
bool sender_records(Kind kind, const Group &group, int64_t mark)
{
    bool ours = (mark & mark_grad) != 0;
    bool theirs = (last_message().mark & mark_grad) != 0;

    if (theirs != ours && (theirs || kind == Kind::Sendrecv)) {
        fail_mpi(WEFT_ERR_MISMATCH,
                 std::string("weft.mpi ") + name_of(kind) + ": rank " +
                     std::to_string(theirs ? last_message().peer : group.rank) +
                     " records gradients of what it sent, but rank " +
                     std::to_string(theirs ? group.rank : last_message().peer) +
                     " does not");
    }
    return theirs;
}

/* The numbers of the operation that was just carried out. */
Tensor told_of(Kind kind, const Group &group, int64_t mark)
{
    double number = double(is_message(kind) ? last_message().numbers
                                            : int64_t(group.number));
    bool receives = kind == Kind::Recv || kind == Kind::Sendrecv;

    if (receives && !sender_records(kind, group, mark)) {
        number = no_gradient;
    }
    Tensor told = at::empty({2}, at::kDouble);
    double *numbers = told.data_ptr<double>();

    numbers[0] = number;
    numbers[1] = double(last_message().peer);
    return told;
}

Pair run_forward(Kind kind, const Tensor &x, Group &group, int64_t mark,
                 IntArrayRef args)
{
    check_call(kind, group, args);
    if (kind == Kind::Scatter) {
        check_scatter(x, group, args);
    }
    Tensor y = run_kind(kind, x, group, mark & ~mark_number, args);

    return {y, told_of(kind, group, mark)};
}

/* `told` is what the operation has said of itself whose derivative this is. */
Pair run_backward(Kind kind, const Tensor &x, const Tensor &told, Group &group,
                  IntArrayRef args)
{
    const double *numbers = told.data_ptr<double>();
    int64_t number = int64_t(numbers[0]);
    Numbers all = args.vec();

    group.chain->token()->runs_backward();
    if (kind == Kind::Send) {
        if (numbers[0] == no_gradient) {
            return {at::empty({0}, x.options()), at::zeros({2}, at::kDouble)};
        }
        all[0] = int64_t(numbers[1]);
        all[3] = 1; /* as in the forward pass, nobody waits for it */
    }
    int64_t mark =
        mark_backward | (is_message(kind) ? swapped_numbers(number) : number);
    Tensor y = run_kind(kind, x, group, mark, all);

    return {y, at::zeros({2}, at::kDouble)};
}

template <int K>
Pair traced_plain(const Tensor &x, const MaybeTensor &, const MaybeTensor &of,
                  int64_t comm, int64_t mark, SymIntArrayRef args)
{
    GroupPtr group = Group::by_id(comm);
    IntArrayRef numbers = C10_AS_INTARRAYREF_SLOW(args);

    return (mark & mark_backward) != 0
               ? run_backward(Kind(K), x, *of, *group, numbers)
               : run_forward(Kind(K), x, *group, mark, numbers);
}

template <int... K>
void define_traced(torch::Library &library, std::integer_sequence<int, K...>)
{
    (library.def(
         torch::schema((traced_name(Kind(K)) +
                        "(Tensor x, Tensor? token, Tensor? of, int "
                        "comm, int mark, SymInt[] args) -> (Tensor, Tensor)")
                           .c_str()),
         operation_tags),
     ...);
}

template <int... K>
void implement_traced_plain(torch::Library &library,
                            std::integer_sequence<int, K...>)
{
    (library.impl(traced_name(Kind(K)).c_str(), &traced_plain<K>), ...);
}

template <int... K>
void implement_traced_autograd(torch::Library &library,
                               std::integer_sequence<int, K...>)
{
    (library.impl(traced_name(Kind(K)).c_str(), &traced_autograd<K>), ...);
}

} // namespace

TORCH_LIBRARY_FRAGMENT(weft, library)
{
    define_traced(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, CPU, library)
{
    implement_traced_plain(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, CUDA, library)
{
    implement_traced_plain(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, Autograd, library)
{
    implement_traced_autograd(library, AllKinds());
}

} // namespace weft_torch::mpi
