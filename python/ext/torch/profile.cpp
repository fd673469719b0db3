/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.hpp"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

namespace weft_torch
{

namespace
{

int64_t elements(const Tensors &list)
{
    int64_t n = 0;

    for (const at::Tensor &t : list) {
        n += t.numel();
    }
    return n;
}

} // namespace

Event::Event(const std::string &title, const Tensors &inputs)
    : record_(at::RecordScope::USER_SCOPE)
{
    if (record_.isActive()) {
        inputs_ = {inputs.begin(), inputs.end()};
        /* As the events of a Work are, so that both look alike in a trace. */
        record_._setAsync();
        record_.before(title, c10::ArrayRef<const c10::IValue>(inputs_.data(),
                                                               inputs_.size()));
    }
}

CommsEvent::CommsEvent(const Call &call, const Caller &caller)
    : record_(at::RecordScope::FUNCTION)
{
    if (!record_.isActive()) {
        return;
    }
    auto name = std::make_tuple(caller.group, caller.description);
    auto type = call.inputs.empty() ? at::kByte : call.inputs[0].scalar_type();
    auto info = std::make_shared<torch::ParamCommsDebugInfo>(
        name, caller.rank, std::string(call.name), elements(call.inputs),
        elements(call.outputs), type, std::vector<int64_t>(),
        std::vector<int64_t>(), 0, 1, caller.size, call.async);
    inputs_ = {
        c10::IValue(call.inputs),
        std::make_tuple(int64_t(call.sequence), c10d::isP2POp(call.type)),
        name,
        caller.rank,
        std::string(call.name),
        std::vector<int64_t>(),
        std::vector<int64_t>(),
        0,
        1,
        caller.size,
        call.async};

    guard_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, info);
    record_.before(
        at::kParamCommsCallName,
        c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()));
}

} // namespace weft_torch
