/* SPDX-License-Identifier: Apache-2.0 */
/* What torch's profiler sees of a call. Costs nothing while it is off. */
#pragma once

#include <ATen/record_function.h>

#include "call.hpp"

namespace weft_torch
{

/* Who makes the call; for the metadata of the trace. */
struct Caller {
    int rank;
    int size;
    const std::string &group;
    const std::string &description;
};

/* The event of a call that ends before the method returns. A call that goes on
 * has its event in its Work. */
class Event
{
  public:
    Event(const std::string &title, const Tensors &inputs);

  private:
    std::vector<c10::IValue> inputs_; /* the record refers to them */
    at::RecordFunction record_;
};

/* The event "record_param_comms", which trace analysers read. It spans the
 * time that the method takes to start or to carry out the call. */
class CommsEvent
{
  public:
    CommsEvent(const Call &call, const Caller &caller);

  private:
    /* The end of the record looks at both. */
    std::vector<c10::IValue> inputs_;
    std::optional<c10::DebugInfoGuard> guard_;
    at::RecordFunction record_;
};

} // namespace weft_torch
