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

namespace weft_torch
{

void run_elsewhere(std::function<void()> callback);

} // namespace weft_torch
