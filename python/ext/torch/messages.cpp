/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, and the barrier that tells who is missing.
 *
 * Messages are always started and then waited for, also where the caller
 * waits at once: a thread that waits for a message must not keep another one
 * from sending. */
#include "backend.hpp"

#include <thread>

#include "run.hpp"

namespace weft_torch
{

namespace
{

using c10d::OpType;

/* Tags of our own; those of c10d are not negative ints. */
constexpr uint32_t monitored_tags = 0x80000000u;

uint32_t tag_of(int tag)
{
    TORCH_CHECK_VALUE(tag >= 0, "weft: tag is ", tag,
                      "; it must not be negative");
    return uint32_t(tag);
}

at::Tensor &only_message(Tensors &tensors)
{
    TORCH_CHECK_VALUE(tensors.size() == 1,
                      "weft: a message must be one tensor, not ",
                      tensors.size());
    return tensors[0];
}

} // namespace

WorkPtr Backend::send(Tensors &tensors, int to, int tag)
{
    Call call(OpType::SEND, "send", tensors);
    at::Tensor &t = only_message(tensors);

    check_rank(to, "destination", call.name);
    weft_part part = bytes_of(call.buffers.in(t));

    return run(std::move(call),
               later<weft_send, weft_isend>(comm(), part.at, part.n,
                                            uint32_t(to), tag_of(tag)));
}

WorkPtr Backend::receive(Call &&call, Tensors &tensors, uint32_t from, int tag)
{
    at::Tensor &t = only_message(tensors);

    call.message = std::make_unique<weft_message_info>();
    weft_message_info *info = call.message.get();
    weft_part part = bytes_of(call.buffers.out(t));

    return run(std::move(call),
               later<weft_recv, weft_irecv>(comm(), part.at, part.n, from,
                                            tag_of(tag), info));
}

WorkPtr Backend::recv(Tensors &tensors, int from, int tag)
{
    Call call(OpType::RECV, "recv", tensors);

    check_rank(from, "source", call.name);
    return receive(std::move(call), tensors, uint32_t(from), tag);
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return receive(Call(OpType::RECVANYSOURCE, "recvAnySource", tensors),
                   tensors, WEFT_ANY_SOURCE, tag);
}

void Backend::tell(int to, uint32_t tag)
{
    std::lock_guard<std::mutex> guard(lock_);

    check(weft_send(comm(), nullptr, 0, uint32_t(to), tag),
          "monitored_barrier");
}

/* Give up the barrier if a signal handler has raised, and look again at `next`.
 */
void Backend::look_for_signals(Clock::time_point &next)
{
    if (Clock::now() < next) {
        return;
    }
    next = Clock::now() + std::chrono::milliseconds(100);
    if (signal_raised()) {
        weft_comm_abort(comm(), "interrupted");
        throw_interrupt();
    }
}

/* Did an empty message come before `end`? It is looked for, not waited for: a
 * receive that is given up would stay, and fail all of the group once its time
 * is over. `why` is set if none can come any more. */
bool Backend::hear(int from, uint32_t tag, Clock::time_point end,
                   std::string &why)
{
    auto next = Clock::now();
    int found = 0;

    for (;;) {
        std::unique_lock<std::mutex> guard(lock_);
        weft_status st =
            weft_iprobe(comm(), uint32_t(from), tag, &found, nullptr);

        if (st == WEFT_OK && found != 0) {
            st = weft_recv(comm(), nullptr, 0, uint32_t(from), tag, nullptr);
        }
        if (st != WEFT_OK) {
            why = std::string(": ") + weft_error_detail();
            return false;
        }
        if (found != 0) {
            return true;
        }
        guard.unlock();
        look_for_signals(next);
        if (Clock::now() >= end) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

/* Rank 0 hears from each rank and answers all; whoever it has not heard from in
 * time is named. The words are those of torch's own implementation, which
 * programs look for. */
void Backend::monitoredBarrier(const c10d::BarrierOptions &opts,
                               bool wait_all_ranks)
{
    auto timeout =
        opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
    auto end = Clock::now() + timeout;
    uint32_t tag = monitored_tags + 2 * (monitored_++ & 0xffffff);
    std::string why;

    if (rank_ != 0) {
        tell(0, tag);
        TORCH_CHECK(hear(0, tag + 1, end, why), "[Rank ", rank_, "]: Rank ",
                    rank_,
                    " successfully reached monitoredBarrier, but received "
                    "errors while waiting for send/recv from rank 0. Please "
                    "check rank 0 logs for faulty rank",
                    why.empty() ? "." : why);
        return;
    }
    std::vector<int> missing;

    for (int rank = 1; rank < size_; rank++) {
        TORCH_CHECK(wait_all_ranks || timeout.count() > 0,
                    "[Rank 0]: Rank 0 timed out in monitoredBarrier after ",
                    timeout.count(), " ms.");
        if (!hear(rank, tag, end, why)) {
            missing.push_back(rank);
            if (!wait_all_ranks || !why.empty()) {
                break;
            }
        }
    }
    TORCH_CHECK(
        missing.empty(), "[Rank 0]: ", missing.size() > 1 ? "Ranks " : "Rank ",
        c10::Join(", ", missing), " failed to pass monitoredBarrier in ",
        timeout.count(), " ms", why);
    for (int rank = 1; rank < size_; rank++) {
        tell(rank, tag + 1);
    }
}

} // namespace weft_torch
