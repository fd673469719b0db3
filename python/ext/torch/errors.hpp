/* SPDX-License-Identifier: Apache-2.0 */
/* How a failure of the library becomes an exception of torch. */
#pragma once

#include <string>
#include <weft/weft.h>

#include "versions.hpp"

namespace weft_torch
{

/* Throws unless `status` is WEFT_OK. `what` is the operation, as "all_reduce";
 * the library's own account of the failure on this thread is added. */
void check(weft_status status, const char *what);

/* The exception that check() would throw. */
std::exception_ptr error_of(weft_status status, const char *what);

/* For a call on a group that is no more. */
std::exception_ptr destroyed_error(const char *what);
std::string text_of(const std::exception_ptr &error);

/* check() for a call that waited on the caller's thread. */
void check_waited(weft_status status, const char *what);

/* A signal handler of Python may have raised while the library waited, which
 * gives the wait up: then that is what the caller is to see, a
 * KeyboardInterrupt mostly. */
void throw_interrupt();

/* Has a signal handler of Python raised? For waits in which the library does
 * not ask, to be asked about ten times a second. If so, throw_interrupt()
 * throws it. */
bool signal_raised();

} // namespace weft_torch
