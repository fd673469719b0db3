/* SPDX-License-Identifier: Apache-2.0 */
/* Where the callbacks of futures run.
 *
 * They are the user's: they may start operations and wait for them. On a thread
 * of the library that would stop the very progress they wait for, and one that
 * waits for another must not keep that one from running. So each runs on a
 * thread that has nothing else to do; there are as many as were ever needed at
 * once. */
#pragma once

#include <functional>
#include <weft/weft.h>

namespace weft_torch
{

void run_elsewhere(std::function<void()> callback);

/* While it lives, this thread runs callbacks of the future of collective number
 * `order` on `comm`.
 *
 * Collectives are matched by their order alone. One that a callback calls comes
 * right after its own only if the program calls nothing until the callback is
 * over; else it comes after more of them or fewer, which differs from rank to
 * rank. Two that look alike are then mixed up, and nothing else would tell. */
class CallbackScope
{
  public:
    CallbackScope(const weft_comm *comm, uint64_t order);
    ~CallbackScope();
    CallbackScope(const CallbackScope &) = delete;
    CallbackScope &operator=(const CallbackScope &) = delete;

  private:
    friend void note_call(const weft_comm *comm, uint64_t order);

    const weft_comm *comm_;
    uint64_t last_; /* the collective, or what its callbacks called since */
    CallbackScope *outer_;
};

/* Collective number `order` is being called; warns, once, if it is a callback's
 * and others came between. */
void note_call(const weft_comm *comm, uint64_t order);

} // namespace weft_torch
