/* SPDX-License-Identifier: Apache-2.0 */
/* What torch's profiler sees of a call. Costs nothing while it is off. */
#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include "call.hpp"

namespace weft_torch
{

/* The event of a call that ends before the method returns. A call that goes on
 * has its event in its Work. */
class Event
{
  public:
    Event(const std::string &title, const Call &call);

    void end()
    {
        record_.end();
    }

  private:
    std::vector<c10::IValue> inputs_; /* the record refers to them */
    at::RecordFunction record_;
};

/* Opens the event of a Work. The function returned ends it, from any thread; it
 * is empty while no profiler is on. */
std::function<void()> event_until_called(const std::string &title,
                                         const Call &call);

/* Is there a profiler that wants more than the event? */
inline bool profiling()
{
    return at::hasCallbacks() && at::isRecordFunctionEnabled();
}

int64_t elements(const Tensors &list);

/* Opens the event "record_param_comms", which trace analysers read, until the
 * end of the block. A macro because torch's is one. */
#define WEFT_RECORD_COMMS(call, rank, size, group, description)                \
    RECORD_PARAM_COMMS_DATA(                                                   \
        std::make_tuple(int64_t((call).sequence), c10d::isP2POp((call).type)), \
        std::make_tuple(group, description), (call).inputs, (call).outputs,    \
        rank, std::string((call).name), elements((call).inputs),               \
        elements((call).outputs),                                              \
        (call).inputs.empty() ? at::kByte : (call).inputs[0].scalar_type(),    \
        std::vector<int64_t>(), std::vector<int64_t>(), 0, 1, size)

} // namespace weft_torch
