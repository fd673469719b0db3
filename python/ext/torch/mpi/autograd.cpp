/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients and tangents of the operations. The rules for vmap and the fake
 * kernels are in python/weft/mpi. */
#include "mpi/autograd.hpp"

#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "mpi/dispatch.hpp"
#include "mpi/message.hpp"
#include "mpi/needed.hpp"
#include "mpi/scope.hpp"

namespace weft_torch::mpi
{

namespace
{

bool receives(Kind kind)
{
    return kind == Kind::Recv || kind == Kind::Sendrecv;
}

/* The node of a blocking operation. */
class OpNode : public Link
{
  public:
    explicit OpNode(Record record)
        : Link(record.group->chain), record_(std::move(record)), asker_(record_)
    {
    }
    std::string name() const override
    {
        return std::string("weft::") + name_of(record_.args.kind) + "_backward";
    }
    variable_list apply(variable_list &&gradients) override
    {
        variable_list result(num_outputs());
        Tensor gradient = gradients[0];

        if (record_.args.kind == Kind::Join) {
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
        int64_t mark = record_.backward_mark();
        Tensor x = record_.gradient(gradient, *record_.group,
                                    [&](const Args &args, const Tensor &given) {
                                        return call_op(args, given,
                                                       record_.group, mark);
                                    });

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

/* The bits of a mark for the transform that a kernel is called for. Collectives
 * have one pair of bits for all transforms. */
struct Layer : Transforms {
    int64_t grad = mark_grad;
    int64_t tangent = mark_tangent;
};

Layer layer_here(Kind kind)
{
    Layer layer{transforms_here()};

    if (layer.derivatives > 0 && is_message(kind)) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            layer.derivatives <= most_transforms, "weft.mpi ", name_of(kind),
            ": a message can be in at most ", most_transforms,
            " nested transforms that differentiate, not ", layer.derivatives);
        layer.grad = int64_t(1)
                     << (mark_type_shift + 2 * (layer.derivatives - 1));
        layer.tangent = layer.grad << 1;
    }
    return layer;
}

/* Does the sender record this derivative? Letter::check_header has checked that
 * the receiver can. */
bool sender_says(const Args &args, const OpInfo &info, const Group &group,
                 int64_t mark, bool own, int64_t flag, const char *what)
{
    bool theirs = (info.mark & flag) != 0;

    if (args.kind == Kind::Recv) {
        return (mark & flag) == 0 && theirs;
    }
    if (own && !theirs) {
        fail_mpi(WEFT_ERR_MISMATCH,
                 "weft.mpi Sendrecv: rank " + std::to_string(group.rank) +
                     what + " of what it sent, but rank " +
                     std::to_string(info.peer) + " does not");
    }
    return own;
}

/* `recorded` says that all ranks record, also where the tangent is a
 * constant. */
Tensor tangent_of(const Record &record, const Tensor &tangent, bool recorded)
{
    int64_t mark = mark_is_tangent | record.number;
    Tensor given = batched_here(
        tangent.defined() ? tangent : at::zeros(record.shape, record.options));
    auto run = [&](const Args &args, const Tensor &x) {
        return call_op(args, x, record.group, mark);
    };

    if (recorded && !given.requires_grad()) {
        given = given.detach().requires_grad_();
    }
    return record.mask.defined()
               ? run({Kind::Allreduce}, given * record.share(given, run))
               : run(record.args, given);
}

/* In a backward pass that is itself recorded all ranks record, although a
 * gradient may be a constant on one of them: else the next backward pass could
 * not reach all ranks. If the mark says that it is recorded already, an inner
 * transform does so, and the code outside of all transforms need not. */
bool wants_node(const Args &args, const Tensor &x, Group &group, int64_t mark,
                bool traced, const Layer &layer)
{
    bool recorded_above = (mark & mark_grads) != 0;
    bool backward = (mark & mark_backward) != 0 && !traced &&
                    (layer.reverse || !recorded_above);
    bool tangent = (mark & mark_is_tangent) != 0 && !traced && layer.reverse;

    return x.requires_grad() || backward || tangent ||
           (args.kind == Kind::Join && !traced &&
            (args.inside == 0
                 ? !group.chain->empty()
                 : layer.reverse && group.chain->scopes().any_here(mark)));
}

/* Like wants_node, for the tangents of a backward pass. */
bool wants_tangent(int64_t mark, bool traced, const Layer &layer)
{
    using torch::autograd::ForwardADLevel;
    bool here = layer.level == 0
                    ? (mark & mark_tangents) == 0 &&
                          ForwardADLevel::try_get_by_idx(0) != nullptr
                    : layer.forward;

    return (mark & mark_backward) != 0 && !traced && here &&
           c10::AutogradState::get_tls_state().get_fw_grad_mode();
}

/* Call the operator; a dispatch mode may return a kept result instead. */
Outcome call_below(const Args &args, const Tensor &x, Group &group,
                   int64_t mark, bool traced)
{
    int64_t before = group.carried_out;
    Outcome out = dispatched(args, x, group, mark);

    if (!traced) {
        int64_t which;

        out.info = info_from(out.numbers, args.kind, group, &which);
        if (is_message(args.kind) && which <= before &&
            is_computed_again(mark)) {
            group.chain->scopes().here(mark)->replays = true;
        }
    }
    return out;
}

/* Which derivatives of an operation are wanted. */
struct Wanted {
    bool traced, smooth, recording, grad, has_tangent;
    Layer layer;
    Tensor tangent;

    Wanted(const Args &args, const Tensor &x, Group &group, int64_t mark,
           bool direct)
        : traced(!direct && is_traced(x)),
          smooth(differentiable(args, x.scalar_type())),
          recording(smooth && at::GradMode::is_enabled()),
          layer(direct ? Layer() : layer_here(args.kind))
    {
        grad = recording && wants_node(args, x, group, mark, traced, layer);
        if (smooth) {
            tangent = x._fw_grad(/*level=*/0);
        }
        has_tangent = args.kind != Kind::Recv && smooth &&
                      (tangent.defined() || wants_tangent(mark, traced, layer));
    }
    int64_t below(int64_t mark, bool takes) const
    {
        return mark | ((takes ? recording : grad) ? layer.grad : 0) |
               ((takes ? smooth : has_tangent) ? layer.tangent : 0);
    }
};

/* Set the node and the tangent of a result. */
void add_derivatives(const Outcome &out, const Args &args, const Tensor &x,
                     const GroupPtr &group, int64_t mark, const Wanted &wanted)
{
    Record record(args, group, x, out.info.number);
    bool in_backward =
        wanted.grad && wanted.layer.level == 0 && (mark & mark_backward) != 0;
    Tensor tangent;

    if (args.kind == Kind::Recv && !wanted.traced) {
        record.args.peer = out.info.peer;
    }
    if (finds_extremum(args)) {
        record.mask = mask_of(x.detach(), out.y);
    }
    if (wanted.has_tangent) {
        tangent = tangent_of(record, wanted.tangent, in_backward);
    }
    if (wanted.grad) {
        NodePtr node = owned(new OpNode(std::move(record)));

        node->set_next_edges(torch::autograd::collect_next_edges(x));
        torch::autograd::set_history(out.y, node);
        if (!is_traced(out.y)) {
            append_node(node, *group, mark);
        }
    }
    if (tangent.defined()) {
        out.y._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
    }
}

/* The dispatcher would find the same function, but takes as long as a small
 * operation. */
Outcome call_whole(const Args &args, const Tensor &x, const GroupPtr &group,
                   int64_t mark)
{
    static const c10::DispatchKeySet plain_keys =
        c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA,
                             c10::DispatchKey::ADInplaceOrView}) |
        c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;
    uint64_t others = (x.key_set() - plain_keys).raw_repr();
    bool plain = (others & ~c10::full_backend_mask) == 0 &&
                 x.key_set().has_any(c10::autograd_dispatch_keyset) &&
                 !c10::impl::dispatch_mode_enabled() && !in_transform() &&
                 !at::hasCallbacks();

    return plain ? with_derivatives(args, x, group, mark, true)
                 : dispatched(args, x, *group, mark);
}

/* The OpInfo is that of the last part. */
Outcome call_parts(const Args &args, const Tensor &x, const GroupPtr &group,
                   int64_t mark, bool direct)
{
    Outcome last;

    last.y = composed<int64_t>(
        args, x, *group, [&](const Args &part, const Tensor &of) {
            last = direct ? call_whole(part, of, group, mark)
                          : dispatched(part, of, *group, mark);
            return last.y;
        });
    return last;
}

} // namespace

Outcome with_derivatives(const Args &args, const Tensor &x,
                         const GroupPtr &group, int64_t mark, bool direct)
{
    Wanted wanted(args, x, *group, mark, direct);
    bool takes = args.kind == Kind::Recv;
    Outcome out;

    if (is_composed(args) && (wanted.grad || wanted.has_tangent)) {
        return call_parts(args, x, group, mark, direct);
    }
    {
        at::AutoDispatchBelowADInplaceOrView below;
        int64_t mark_below = wanted.below(mark, takes);

        out = direct ? run_kind(args, x, *group, mark_below)
                     : call_below(args, x, *group, mark_below, wanted.traced);
    }
    if (receives(args.kind) && wanted.smooth && !wanted.traced) {
        wanted.grad = sender_says(args, out.info, *group, mark, wanted.grad,
                                  wanted.layer.grad, " records gradients");
        wanted.has_tangent =
            sender_says(args, out.info, *group, mark, wanted.has_tangent,
                        wanted.layer.tangent, " has a tangent");
    }
    if (wanted.grad || wanted.has_tangent) {
        add_derivatives(out, args, x, group, mark, wanted);
    }
    return out;
}

Tensor call_op(const Args &args, const Tensor &x, const GroupPtr &group,
               int64_t mark)
{
    refuse_jit_trace(args.kind);
    return call_whole(args, x, group, mark).y;
}

bool is_computed_again(int64_t mark)
{
    return (mark & (mark_backward | mark_is_tangent)) == 0 &&
           torch::autograd::get_current_graph_task_id() != -1;
}

void append_node(const NodePtr &node, Group &group, int64_t mark)
{
    static_cast<Link *>(node.get())->save_something();
    warn_of_dropped(
        group.chain->append(node, group.chain->scopes().here(mark)));
}

} // namespace weft_torch::mpi
