/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.hpp"

#include <ATen/ThreadLocalState.h>

namespace weft_torch
{

int64_t elements(const Tensors &list)
{
    int64_t n = 0;

    for (const at::Tensor &t : list) {
        n += t.numel();
    }
    return n;
}

namespace
{

/* What this rank passes; of a receive, or of all others' blocks, what it gets.
 */
int64_t bytes(const Call &call)
{
    const Tensors &list = call.inputs.empty() ? call.outputs : call.inputs;
    int64_t n = 0;

    for (const at::Tensor &t : list) {
        n += t.numel() * int64_t(t.element_size());
    }
    return n;
}

} // namespace

Event::Event(const std::string &title, const Call &call)
    : record_(at::RecordScope::USER_SCOPE)
{
    if (record_.isActive()) {
        const std::unordered_map<std::string, c10::IValue> facts = {
            {"bytes", bytes(call)},
            {"rank", int64_t(call.rank)},
            {"world size", int64_t(call.size)}};

        inputs_ = {call.inputs.begin(), call.inputs.end()};
        /* It may end on another thread, and then looks the same in a trace. */
        record_._setAsync();
        record_.before(
            title,
            c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()),
            &facts);
    }
}

std::function<void()> event_until_called(const std::string &title,
                                         const Call &call)
{
    if (!profiling()) {
        return nullptr;
    }
    auto event = std::make_shared<Event>(title, call);

    return at::wrapPropagateTLSState([event] { event->end(); });
}

} // namespace weft_torch
