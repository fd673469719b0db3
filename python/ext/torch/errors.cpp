/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.hpp"

#include <unistd.h>

namespace weft_torch
{

namespace
{

/* Programs and torch's own tests look for the words "Timed out" between blanks.
 */
std::string failure_text(weft_status status, const char *what)
{
    const char *detail = weft_error_detail();
    std::string text = std::string("weft ") + what + ": ";

    if (status == WEFT_ERR_TIMEOUT) {
        text += "Timed out waiting: ";
    }
    return text + (detail[0] != '\0' ? detail : weft_status_text(status));
}

/* Python runs its signal handlers on the main thread only. */
bool runs_handlers()
{
    return gettid() == getpid() && Py_IsInitialized() != 0;
}

} // namespace

void check(weft_status status, const char *what)
{
    switch (status) {
    case WEFT_OK:
        return;
    case WEFT_ERR_INVALID:
        TORCH_CHECK_VALUE(false, failure_text(status, what));
    case WEFT_ERR_UNSUPPORTED:
        TORCH_CHECK_NOT_IMPLEMENTED(false, failure_text(status, what));
    case WEFT_ERR_PEER:
    case WEFT_ERR_CLOSED:
        TORCH_CHECK_WITH(DistNetworkError, false, failure_text(status, what));
    default:
        TORCH_CHECK_WITH(DistBackendError, false, failure_text(status, what));
    }
}

void throw_interrupt()
{
    if (!runs_handlers()) {
        return;
    }
    pybind11::gil_scoped_acquire gil;

    if (PyErr_Occurred() != nullptr) {
        throw pybind11::error_already_set();
    }
}

bool signal_raised()
{
    if (!runs_handlers()) {
        return false;
    }
    pybind11::gil_scoped_acquire gil;

    return PyErr_CheckSignals() < 0;
}

void check_waited(weft_status status, const char *what)
{
    if (status == WEFT_ERR_ABORTED) {
        throw_interrupt();
    }
    check(status, what);
}

std::exception_ptr error_of(weft_status status, const char *what)
{
    try {
        check(status, what);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

std::exception_ptr destroyed_error(const char *what)
{
    try {
        TORCH_CHECK_WITH(DistNetworkError, false, "weft ", what,
                         ": this process group was destroyed");
    } catch (...) {
        return std::current_exception();
    }
}

std::string text_of(const std::exception_ptr &error)
{
    try {
        std::rethrow_exception(error);
    } catch (const c10::Error &e) {
        return e.what_without_backtrace();
    } catch (const std::exception &e) {
        return e.what();
    }
}

} // namespace weft_torch
