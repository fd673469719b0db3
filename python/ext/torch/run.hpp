/* SPDX-License-Identifier: Apache-2.0 */
/* The one way from a Backend method to the library. */
#pragma once

#include "backend.hpp"
#include "errors.hpp"
#include "profile.hpp"
#include "work.hpp"

namespace weft_torch
{

/* The timeout of one blocking call; the communicator's own comes back after. */
class CallTimeout
{
  public:
    CallTimeout(weft_comm *comm, std::chrono::milliseconds timeout)
        : comm_(timeout == c10d::kUnsetTimeout ? nullptr : comm)
    {
        if (comm_ != nullptr) {
            before_ = weft_comm_timeout(comm_);
            weft_comm_set_timeout(
                comm_, std::max<double>(double(timeout.count()), 1) / 1000);
        }
    }
    ~CallTimeout()
    {
        if (comm_ != nullptr) {
            weft_comm_set_timeout(comm_, before_);
        }
    }

  private:
    weft_comm *comm_;
    double before_ = 0;
};

template <class Start>
WorkPtr Backend::run(Call &&call, const Start *starts, size_t count)
{
    number(call);
    if (profiling()) {
        WEFT_RECORD_COMMS(call, rank_, size_, pg_uid_, pg_desc_);
        return carry_out(std::move(call), starts, count);
    }
    return carry_out(std::move(call), starts, count);
}

template <class Start>
WorkPtr Backend::carry_out(Call &&call, const Start *starts, size_t count)
{
    const std::string title = name_ + ":" + call.name;

    if (call.buffers.device()) {
        return stage(std::move(call), Starts(starts, starts + count), title);
    }
    follow_staged(call.name);
    std::lock_guard<std::mutex> guard(lock_);
    weft_comm *own = comm();

    if (!call.async) {
        Event blocking(title, call);
        CallTimeout limit(own, call.timeout);

        for (size_t i = 0; i < count; i++) {
            check_waited(starts[i](nullptr), call.name);
        }
        call.buffers.copy_back();
        return nullptr;
    }
    const char *name = call.name;
    auto work = c10::make_intrusive<Work>(std::move(call), own, rank_, title);

    for (size_t i = 0; i < count; i++) {
        weft_request *request = nullptr;

        check(starts[i](&request), name);
        work->add(request);
    }
    work->started();
    return remember(std::move(work));
}

template <class Start> WorkPtr Backend::run(Call &&call, const Start &start)
{
    return run(std::move(call), &start, 1);
}

} // namespace weft_torch
