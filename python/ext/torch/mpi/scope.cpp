/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/scope.hpp"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>

#include "mpi/autograd.hpp"

namespace at::functorch
{

/* The header that declares it includes one that torch does not install. */
TORCH_API const std::shared_ptr<bool> &getLifeHandleForLevel(int64_t level);

} // namespace at::functorch

namespace weft_torch::mpi
{

namespace
{

/* Destroyed at the end of a backward pass, also if it fails. */
struct Ending {
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    ~Ending()
    {
        *alive = false;
    }
};

/* A batch of zeros, made below all transforms. */
at::Tensor batch_of_zeros(int64_t length, const pybind11::object &level,
                          const at::TensorOptions &options)
{
    namespace py = pybind11;
    using Key = c10::DispatchKey;
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKeySet(
        {Key::FuncTorchDynamicLayerFrontMode,
         Key::FuncTorchDynamicLayerBackMode, Key::FuncTorchVmapMode}));

    return py::module_::import("torch._C._functorch")
        .attr("_add_batch_dim")(at::zeros({length}, options), 0, level)
        .cast<at::Tensor>();
}

/* Throws if a message that was sent by a recomputation has lost its gradient:
 * its node was not reached from the recomputed result. */
void check_all_ran(const Scope &scope)
{
    for (NodePtr node = scope.held; node; node = node_before(node.get())) {
        const Link *link = static_cast<Link *>(node.get());

        if (!link->has_run() && !link->in_use(node.use_count()) &&
            !link->owed().empty()) {
            fail_mpi(
                WEFT_ERR_MISMATCH,
                "weft.mpi " + link->owed() +
                    " was sent again by a backward pass (of a checkpoint), "
                    "and no backward receives its gradient: return "
                    "comm.join(result) from the checkpointed function, or use "
                    "checkpoint(..., use_reentrant=False)");
        }
    }
}

} // namespace

Transforms transforms_here()
{
    namespace py = pybind11;
    Transforms here;

    if (!c10::impl::tls_is_dispatch_key_included(
            c10::DispatchKey::FuncTorchDynamicLayerBackMode)) {
        return here;
    }
    py::gil_scoped_acquire gil;
    py::module_ functorch = py::module_::import("torch._C._functorch");
    py::object types = functorch.attr("TransformType");

    for (py::handle each : functorch.attr("get_interpreter_stack")()) {
        py::object type = each.attr("key")();

        here.level = each.attr("level")().cast<int64_t>();
        here.reverse = type.equal(types.attr("Grad"));
        here.forward = type.equal(types.attr("Jvp"));
        here.derivatives += here.reverse || here.forward;
    }
    return here;
}

at::Tensor batched_here(at::Tensor x)
{
    namespace py = pybind11;
    using Key = c10::DispatchKey;

    if (!c10::impl::tls_is_dispatch_key_included(
            Key::FuncTorchDynamicLayerBackMode)) {
        return x;
    }
    py::gil_scoped_acquire gil;
    py::module_ functorch = py::module_::import("torch._C._functorch");
    py::object vmap = functorch.attr("TransformType").attr("Vmap");

    for (py::handle each : functorch.attr("get_interpreter_stack")()) {
        if (each.attr("key")().equal(vmap)) {
            py::object of_vmap = functorch.attr("CVmapInterpreterPtr")(each);

            x = x + batch_of_zeros(of_vmap.attr("batchSize")().cast<int64_t>(),
                                   each.attr("level")(), x.options());
        }
    }
    return x;
}

ScopePtr Scopes::here(int64_t mark)
{
    int64_t level = transforms_here().level;

    if (level > 0) {
        return of_transform(level);
    }
    return is_computed_again(mark) ? of_node() : nullptr;
}

void check_kept_alike(Kind kind, Group &group, int64_t mark)
{
    if (is_message(kind) && is_computed_again(mark) &&
        group.chain->scopes().here(mark)->replays) {
        fail_mpi(WEFT_ERR_MISMATCH,
                 std::string("weft.mpi ") + name_of(kind) +
                     ": the policy of this selective checkpoint keeps the "
                     "results of some messages and communicates others again; "
                     "it must keep all operations of torch.ops.weft, as "
                     "weft.mpi.checkpoint_policy does, or none of them");
    }
}

ScopePtr Scopes::of_transform(int64_t level)
{
    const std::shared_ptr<bool> &alive =
        at::functorch::getLifeHandleForLevel(level);
    std::lock_guard<std::mutex> guard(lock_);

    for (const Entry &entry : entries_) {
        if (entry.alive == alive) {
            return entry.scope;
        }
    }
    any_ = true;
    entries_.push_back({alive, nullptr, std::make_shared<Scope>()});
    return entries_.back().scope;
}

/* A checkpoint with use_reentrant=False recomputes only for saved tensors. With
 * use_reentrant=True it runs a backward pass of its own. */
ScopePtr Scopes::of_node()
{
    NodePtr node = torch::autograd::get_current_node();
    std::lock_guard<std::mutex> guard(lock_);

    for (const Entry &entry : entries_) {
        if (node && entry.node == node.get() && *entry.alive) {
            return entry.scope;
        }
    }
    auto scope = std::make_shared<Scope>();
    auto ending = std::make_shared<Ending>();

    scope->scratch =
        !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
    any_ = true;
    entries_.push_back({ending->alive, node.get(), scope});
    torch::autograd::Engine::get_default_engine().queue_callback(
        [scope, ending] { check_all_ran(*scope); });
    return scope;
}

bool Scopes::any_here(int64_t mark)
{
    ScopePtr scope = here(mark);

    return scope && scope->tail.lock();
}

std::vector<NodePtr> Scopes::forget(bool all)
{
    std::vector<NodePtr> held;
    std::lock_guard<std::mutex> guard(lock_);

    entries_.remove_if([&](Entry &entry) {
        bool over = all || !*entry.alive;

        if (over && entry.scope->held) {
            held.push_back(std::move(entry.scope->held));
            entry.scope->held = NodePtr();
        }
        return over;
    });
    any_ = !entries_.empty();
    return held;
}

} // namespace weft_torch::mpi
