/* SPDX-License-Identifier: Apache-2.0 */
/* The operations weft::*, as torch's dispatcher knows them: with gradients and
 * tangents. The rules for vmap and the fake kernels are in python/weft/mpi. */
#include "mpi/autograd.hpp"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/library.h>

#include "mpi/message.hpp"
#include "mpi/needed.hpp"
#include "mpi/scope.hpp"

namespace weft_torch::mpi
{

namespace
{

using Signature = Tensor(const Tensor &, int64_t, int64_t, IntArrayRef);
using OpHandle = c10::TypedOperatorHandle<Signature>;

const OpHandle &handle_of(Kind kind)
{
    static const std::vector<OpHandle> *const all = [] {
        auto *list = new std::vector<OpHandle>;

        for (int k = 0; k < kinds; k++) {
            std::string name = std::string("weft::") + name_of(Kind(k));

            list->push_back(c10::Dispatcher::singleton()
                                .findSchemaOrThrow(name.c_str(), "")
                                .typed<Signature>());
        }
        return list;
    }();

    return (*all)[size_t(kind)];
}

bool receives(Kind kind)
{
    return kind == Kind::Recv || kind == Kind::Sendrecv;
}

/* The node of an operation that is over when the call returns. */
class OpNode : public Link
{
  public:
    explicit OpNode(Record record)
        : Link(record.group->chain), record_(std::move(record)), asker_(record_)
    {
    }
    std::string name() const override
    {
        return std::string("weft::") + name_of(record_.kind) + "_backward";
    }
    variable_list apply(variable_list &&gradients) override
    {
        variable_list result(num_outputs());
        Tensor gradient = gradients[0];

        if (record_.kind == Kind::Join) {
            need_all_before(*record_.group->chain, this);
            result[0] = gradient;
            return result;
        }
        TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
        begin();
        asker_.asks();
        if (!gradient.defined()) {
            gradient = input_metadata(0).zeros_like();
        }
        Tensor x = record_.gradient(gradient);

        if (next_edge(0).is_valid()) {
            result[0] = x;
        }
        return result;
    }
    void release_variables() override
    {
        Link::release_variables();
        released_ = record_.mask.defined();
        record_.mask.reset();
    }
    void never_runs() override
    {
        asker_.asks();
    }
    std::string owed() const override
    {
        return record_.owed();
    }

  private:
    Record record_;
    Asker asker_;
    bool released_ = false;
};

/* What stands in a mark for the layer of transforms that a kernel is called
 * for. Collectives compare what all layers do together. */
struct Layer {
    int64_t grad = mark_grad;
    int64_t tangent = mark_tangent;
    bool reverse = false;
    bool forward = false;
    bool outside = true; /* of all transforms */
};

Layer layer_here(Kind kind)
{
    Transforms here = transforms_here();
    Layer layer;

    layer.reverse = here.reverse;
    layer.forward = here.forward;
    layer.outside = here.level == 0;
    if (here.derivatives > 0 && is_message(kind)) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            here.derivatives <= most_transforms, "weft.mpi ", name_of(kind),
            ": a message can be inside of ", most_transforms,
            " transforms that differentiate, not ", here.derivatives);
        layer.grad = int64_t(1)
                     << (mark_type_shift + 2 * (here.derivatives - 1));
        layer.tangent = layer.grad << 1;
    }
    return layer;
}

/* What a receive learns from the sender. That it may, is sure: it was told that
 * it can (Letter::check_header). */
bool sender_says(Kind kind, const Group &group, int64_t mark, bool own,
                 int64_t flag, const char *what)
{
    bool theirs = (last_message().mark & flag) != 0;

    if (kind == Kind::Recv) {
        return (mark & flag) == 0 && theirs;
    }
    if (own && !theirs) {
        fail_mpi(WEFT_ERR_MISMATCH,
                 "weft.mpi Sendrecv: rank " + std::to_string(group.rank) +
                     what + " of what it sent, but rank " +
                     std::to_string(last_message().peer) + " does not");
    }
    return own;
}

/* `recorded`: by all ranks, also if the tangent is a constant here. */
Tensor tangent_of(const Record &record, const Tensor &tangent, bool recorded)
{
    int64_t comm = record.group->id;
    int64_t mark = mark_is_tangent | record.number;
    Tensor given = batched_here(
        tangent.defined() ? tangent : at::zeros(record.shape, record.options));

    if (recorded && !given.requires_grad()) {
        given = given.detach().requires_grad_();
    }
    if (record.mask.defined()) {
        return call_op(Kind::Allreduce, given * record.share(given, mark), comm,
                       mark, Numbers{WEFT_OP_SUM, 0});
    }
    LastMessage of_value = last_message();
    Tensor result = call_op(record.kind, given, comm, mark, record.args);

    last_message() = of_value; /* layers above want to know of that one */
    return result;
}

/* In a backward pass that is itself recorded, all ranks record, or the next one
 * could not go through all of them: a gradient may be a constant on one rank
 * and not on another. If the mark says that it is recorded already, it is so by
 * a transform above this one, of which what lies outside of all transforms need
 * not know. */
bool wants_node(Kind kind, const Tensor &x, Group &group, int64_t mark,
                IntArrayRef args, bool traced, const Layer &layer)
{
    bool recorded_above = (mark & mark_grads) != 0;
    bool backward = (mark & mark_backward) != 0 && !traced &&
                    (layer.reverse || !recorded_above);
    bool tangent = (mark & mark_is_tangent) != 0 && !traced && layer.reverse;

    return x.requires_grad() || backward || tangent ||
           (kind == Kind::Join && !traced &&
            (args.empty()
                 ? !group.chain->empty()
                 : layer.reverse && group.chain->scopes().any_here(mark)));
}

/* The same for the tangents of a backward pass. */
bool wants_tangent(int64_t mark, bool traced, const Layer &layer)
{
    using torch::autograd::ForwardADLevel;
    bool here = layer.outside ? (mark & mark_tangents) == 0 &&
                                    ForwardADLevel::try_get_by_idx(0) != nullptr
                              : layer.forward;

    return (mark & mark_backward) != 0 && !traced && here &&
           c10::AutogradState::get_tls_state().get_fw_grad_mode();
}

/* The operation, which a dispatch mode may see and need not carry out. */
Tensor call_below(Kind kind, const Tensor &x, Group &group, int64_t mark,
                  IntArrayRef args, bool traced)
{
    bool seen = is_message(kind) && !traced && !in_transform() &&
                c10::impl::dispatch_mode_enabled();

    last_message().moved = false;
    Tensor y = handle_of(kind).call(x, group.id, mark, args);

    if (seen && last_message().moved) {
        group.kept.keep(y, last_message());
    } else if (seen) {
        if (!group.kept.recall(y, &last_message())) {
            fail_mpi(WEFT_ERR_UNSUPPORTED,
                     std::string("weft.mpi ") + name_of(kind) +
                         ": a torch dispatch mode gave a result in its place "
                         "that is of no message of this communicator");
        }
        if (is_computed_again(mark)) {
            group.chain->scopes().here(mark)->replays = true;
        }
    }
    return y;
}

/* `direct`: nobody is to see the operation below this one. */
Tensor with_derivatives(Kind kind, const Tensor &x, const GroupPtr &group,
                        int64_t mark, IntArrayRef args, bool direct)
{
    bool traced = !direct && is_traced(x);
    bool smooth = differentiable(kind, args, x.scalar_type());
    bool recording = smooth && at::GradMode::is_enabled();
    Layer layer = direct ? Layer() : layer_here(kind);
    bool grad =
        recording && wants_node(kind, x, *group, mark, args, traced, layer);
    Tensor tangent = smooth ? x._fw_grad(/*level=*/0) : Tensor();
    bool has_tangent =
        kind != Kind::Recv && smooth &&
        (tangent.defined() || wants_tangent(mark, traced, layer));
    Tensor y;

    {
        at::AutoDispatchBelowADInplaceOrView below;
        bool takes = kind == Kind::Recv;
        int64_t below_mark =
            mark | ((takes ? recording : grad) ? layer.grad : 0) |
            ((takes ? smooth : has_tangent) ? layer.tangent : 0);

        y = direct ? run_kind(kind, x, *group, below_mark, args)
                   : call_below(kind, x, *group, below_mark, args, traced);
    }
    if (receives(kind) && smooth && !traced) {
        grad = sender_says(kind, *group, mark, grad, layer.grad,
                           " records gradients");
        has_tangent = sender_says(kind, *group, mark, has_tangent,
                                  layer.tangent, " has a tangent");
    }
    if (!grad && !has_tangent) {
        return y;
    }
    Record record(kind, group, args, x);

    if (traced) {
        record.number = 0;
    }
    if (kind == Kind::Recv && !traced) {
        record.args[0] = last_message().peer;
    }
    if (kind == Kind::Allreduce &&
        (args[0] == WEFT_OP_MAX || args[0] == WEFT_OP_MIN)) {
        record.mask = mask_of(x.detach(), y);
    }
    bool in_backward = grad && layer.outside && (mark & mark_backward) != 0;
    Tensor y_tangent =
        has_tangent ? tangent_of(record, tangent, in_backward) : Tensor();

    if (grad) {
        set_node(y, owned(new OpNode(std::move(record))), *group, x, mark);
    }
    if (y_tangent.defined()) {
        y._set_fw_grad(y_tangent, /*level=*/0, /*is_inplace_op=*/false);
    }
    return y;
}

template <int K>
Tensor autograd_kernel(const Tensor &x, int64_t comm, int64_t mark,
                       IntArrayRef args)
{
    return with_derivatives(Kind(K), x, Group::by_id(comm), mark, args, false);
}

template <int K>
Tensor plain_kernel(const Tensor &x, int64_t comm, int64_t mark,
                    IntArrayRef args)
{
    GroupPtr group = Group::by_id(comm);

    check_kept_alike(Kind(K), *group, mark);
    return run_kind(Kind(K), x, *group, mark, args);
}

template <int... K>
void define_all(torch::Library &library, std::integer_sequence<int, K...>)
{
    (library.def(
         torch::schema((std::string(name_of(Kind(K))) +
                        "(Tensor x, int comm, int mark, int[] args) -> Tensor")
                           .c_str()),
         operation_tags),
     ...);
}

template <int... K>
void implement_plain(torch::Library &library, std::integer_sequence<int, K...>)
{
    (library.impl(name_of(Kind(K)), &plain_kernel<K>), ...);
}

template <int... K>
void implement_autograd(torch::Library &library,
                        std::integer_sequence<int, K...>)
{
    (library.impl(name_of(Kind(K)), &autograd_kernel<K>), ...);
}

} // namespace

Tensor mask_of(const Tensor &x, const Tensor &y)
{
    at::NoGradGuard no_grad;

    return at::logical_or(x.eq(y), at::logical_and(x.ne(x), y.ne(y)));
}

Numbers shape_of(const Tensor &x)
{
    Numbers shape;

    for (const c10::SymInt &size : x.sym_sizes()) {
        shape.push_back(size.guard_int(__FILE__, __LINE__));
    }
    return shape;
}

bool is_traced(const Tensor &x)
{
    using Modes = c10::impl::TorchDispatchModeTLS;
    using Mode = c10::impl::TorchDispatchModeKey;

    return x.key_set().has(c10::DispatchKey::Python) ||
           x.key_set().has(c10::DispatchKey::Functionalize) ||
           Modes::get_mode(Mode::FAKE).has_value() ||
           Modes::get_mode(Mode::PROXY).has_value() ||
           Modes::get_mode(Mode::FUNCTIONAL).has_value();
}

bool is_transformed(const Tensor &x)
{
    return x.key_set().has(c10::DispatchKey::FuncTorchGradWrapper) ||
           x.key_set().has(c10::DispatchKey::FuncTorchBatched);
}

bool in_transform()
{
    return c10::impl::tls_is_dispatch_key_included(
        c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

void refuse_jit_trace(Kind kind)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        !torch::jit::tracer::isTracing(), "weft.mpi ", name_of(kind),
        ": torch.jit.trace cannot record communications; use torch.compile or "
        "torch.export");
}

Tensor call_op(Kind kind, const Tensor &x, int64_t comm, int64_t mark,
               IntArrayRef args)
{
    refuse_jit_trace(kind);
    return handle_of(kind).call(x, comm, mark, args);
}

/* The dispatcher would find the same function; a small operation is over in the
 * time it takes to look. */
Tensor call_op(Kind kind, const Tensor &x, const GroupPtr &group, int64_t mark,
               IntArrayRef args)
{
    refuse_jit_trace(kind);
    static const c10::DispatchKeySet plain_keys =
        c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA,
                             c10::DispatchKey::ADInplaceOrView}) |
        c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;
    uint64_t others = (x.key_set() - plain_keys).raw_repr();
    bool plain = (others & ~c10::full_backend_mask) == 0 &&
                 x.key_set().has_any(c10::autograd_dispatch_keyset) &&
                 !c10::impl::dispatch_mode_enabled() && !in_transform() &&
                 !at::hasCallbacks();

    return plain ? with_derivatives(kind, x, group, mark, args, true)
                 : call_op(kind, x, group->id, mark, args);
}

bool is_computed_again(int64_t mark)
{
    return (mark & (mark_backward | mark_is_tangent)) == 0 &&
           torch::autograd::get_current_graph_task_id() != -1;
}

void set_node(const Tensor &y, const NodePtr &node, Group &group,
              const Tensor &x, int64_t mark)
{
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    torch::autograd::set_history(y, node);
    if (!is_traced(y)) {
        append_node(node, group, mark);
    }
}

void append_node(const NodePtr &node, Group &group, int64_t mark)
{
    static_cast<Link *>(node.get())->save_something();
    warn_of_dropped(
        group.chain->append(node, group.chain->scopes().here(mark)));
}

TORCH_LIBRARY_FRAGMENT(weft, library)
{
    define_all(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, CPU, library)
{
    implement_plain(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, CUDA, library)
{
    implement_plain(library, AllKinds());
}

TORCH_LIBRARY_IMPL(weft, Autograd, library)
{
    implement_autograd(library, AllKinds());
}

} // namespace weft_torch::mpi
