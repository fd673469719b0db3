/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/dispatch.hpp"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/pybind.h>

#include "mpi/autograd.hpp"
#include "mpi/scope.hpp"

namespace weft_torch::mpi
{

namespace
{

using Pair = std::tuple<Tensor, Tensor>;
using Signature = Pair(const Tensor &, int64_t, int64_t, IntArrayRef);

Tensor info_tensor(const OpInfo &info, Group &group)
{
    Tensor numbers = at::empty({info_length}, at::kLong);
    int64_t *to = numbers.data_ptr<int64_t>();

    to[0] = info.number;
    to[1] = info.mark;
    to[2] = info.peer;
    to[3] = group.id;
    to[4] = ++group.carried_out;
    return numbers;
}

struct Kernels {
    template <Kind kind>
    static Pair plain(const Tensor &x, int64_t comm, int64_t mark,
                      IntArrayRef list)
    {
        GroupPtr group = Group::by_id(comm);

        check_kept_alike(kind, *group, mark);
        Outcome out =
            run_kind(unpacked(kind, list, group->size), x, *group, mark);

        return {out.y, info_tensor(out.info, *group)};
    }
    template <Kind kind>
    static Pair autograd(const Tensor &x, int64_t comm, int64_t mark,
                         IntArrayRef list)
    {
        GroupPtr group = Group::by_id(comm);
        Outcome out = with_derivatives(unpacked(kind, list, group->size), x,
                                       group, mark, false);

        return {out.y, out.numbers};
    }
};

} // namespace

OpInfo info_from(Tensor numbers, Kind kind, const Group &group, int64_t *which)
{
    if (is_transformed(numbers)) {
        pybind11::gil_scoped_acquire gil;
        auto unwrapped = pybind11::module_::import("torch._C._functorch")
                             .attr("get_unwrapped");

        while (is_transformed(numbers)) {
            numbers = unwrapped(numbers).cast<Tensor>();
        }
    }
    bool ours = numbers.is_cpu() && numbers.numel() == info_length &&
                numbers.scalar_type() == at::kLong && numbers.is_contiguous();
    const int64_t *from = ours ? numbers.data_ptr<int64_t>() : nullptr;

    if (!ours || from[3] != group.id) {
        fail_mpi(WEFT_ERR_UNSUPPORTED,
                 std::string("weft.mpi ") + name_of(kind) +
                     ": a torch dispatch mode returned a result that is not "
                     "that of an operation of this communicator");
    }
    *which = from[4];
    return {from[0], from[1], from[2]};
}

Outcome dispatched(const Args &args, const Tensor &x, const Group &group,
                   int64_t mark)
{
    static const auto &operators = *new auto(find_operators<Signature>(""));
    auto [y, numbers] =
        operators[size_t(args.kind)].call(x, group.id, mark, packed(args));

    return {y, {}, numbers};
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

TORCH_LIBRARY_FRAGMENT(weft, library)
{
    define_operators<Kernels>(
        library, "",
        "(Tensor x, int comm, int mark, int[] args) -> (Tensor, Tensor)",
        AllKinds());
}

} // namespace weft_torch::mpi
