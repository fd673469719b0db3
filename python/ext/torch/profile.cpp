/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.hpp"

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

} // namespace weft_torch
