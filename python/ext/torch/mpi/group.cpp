/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, and the exceptions for their failures. */
#include "mpi/message.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <torch/csrc/Exceptions.h>

#include "errors.hpp"

namespace weft_torch::mpi
{

namespace
{

namespace py = pybind11;

/* All Groups by id; an id is never used twice. */
struct Register {
    std::mutex lock;
    std::vector<std::weak_ptr<Group>> groups;
};

Register &group_register()
{
    static Register *all = new Register; /* outlives static destructors */

    return *all;
}

int64_t next_id()
{
    Register &all = group_register();
    std::lock_guard<std::mutex> guard(all.lock);

    all.groups.emplace_back();
    return int64_t(all.groups.size()) - 1;
}

/* The exception class whose attribute `status` is this one. */
py::object exception_of(weft_status status)
{
    py::object base = py::module_::import("weft").attr("Error");

    for (py::handle each : base.attr("__subclasses__")()) {
        if (each.attr("status").cast<int>() == int(status)) {
            return py::reinterpret_borrow<py::object>(each);
        }
    }
    return base;
}

std::string mark_words(int64_t mark)
{
    std::string text = (mark & mark_backward) != 0 ? "backward of operation "
                       : (mark & mark_is_tangent) != 0 ? "tangent of operation "
                                                       : "operation ";

    text += std::to_string(mark & mark_number);
    if ((mark & mark_type) != 0) {
        text += std::string(" on ") +
                c10::toString(at::ScalarType(
                    ((mark & mark_type) >> mark_type_shift) - 1));
    }
    if ((mark & mark_grad) != 0) {
        text += ", recording gradients";
    }
    if ((mark & mark_tangent) != 0) {
        text += ", with a tangent";
    }
    return text;
}

/* Replace the marks in an error text of the library by descriptions. */
std::string with_marks_read(std::string text)
{
    static const std::string sign = ", mark 0x";
    size_t at = 0;

    while ((at = text.find(sign, at)) != std::string::npos) {
        size_t digits = at + sign.size();
        size_t end = text.find_first_not_of("0123456789abcdef", digits);
        int64_t mark = int64_t(
            std::stoull(text.substr(digits, end - digits), nullptr, 16));

        text.replace(at, (end == std::string::npos ? text.size() : end) - at,
                     " (weft.mpi " + mark_words(mark) + ")");
    }
    return text;
}

/* Is this error text, after both replacements, about a derivative? */
bool in_backward(const std::string &text)
{
    return text.find("a gradient, ") != std::string::npos ||
           text.find("weft.mpi backward of") != std::string::npos;
}

/* Called with the GIL held. */
[[noreturn]] void throw_raised()
{
    python_error error;

    error.persist();
    throw error;
}

} // namespace

void fail_mpi(weft_status status, const std::string &text)
{
    py::gil_scoped_acquire gil;

    if (PyErr_Occurred() ==
        nullptr) { /* else it is why the call was given up */
        PyErr_SetString(exception_of(status).ptr(), text.c_str());
    }
    throw_raised();
}

void check_signals()
{
    bool raised = signal_raised();
    py::gil_scoped_acquire gil;

    if (raised || PyErr_Occurred() != nullptr) {
        throw_raised();
    }
}

void check_mpi(weft_status status, const char *what)
{
    if (status == WEFT_OK) {
        return;
    }
    const char *detail = weft_error_detail();
    std::string text = "weft.mpi " + std::string(what) + ": ";

    text += detail[0] != '\0' ? with_messages_read(with_marks_read(detail))
                              : weft_status_text(status);
    if (status == WEFT_ERR_MISMATCH) {
        text += "; all ranks must make the same calls in the same order, with "
                "requires_grad on all or none, and run the backward pass by "
                "weft.mpi.backward(loss) or from comm.join(loss)";
    } else if ((status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_PEER) &&
               in_backward(text)) {
        text += status == WEFT_ERR_TIMEOUT
                    ? "; a backward pass waits for a rank that does not reach "
                      "the same communication: "
                    : "; if its backward pass left out this communication: ";
        text += "run it by weft.mpi.backward(loss) or from comm.join(loss) on "
                "all ranks, also with torch.autograd.grad(comm.join(loss), "
                "inputs), which runs only what leads to its inputs otherwise";
    }
    fail_mpi(status, text);
}

void warn_of_dropped(size_t nodes)
{
    static std::atomic<bool> said{false};

    if (nodes == 0 || said.exchange(true)) {
        return;
    }
    std::string text =
        "weft.mpi: " + std::to_string(nodes) +
        " communications that were recorded for gradients are dropped: their "
        "results are gone and no backward ran. Use torch.no_grad() where no "
        "gradients are wanted, or comm.detach_history() after such a forward "
        "pass, or raise the limit with comm.set_history_limit()";
    py::gil_scoped_acquire gil;

    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) {
        throw_raised();
    }
}

Group::Group(py::object group_comm)
    : id(next_id()),
      rank(int64_t(group_comm.attr("comm").attr("rank").cast<int64_t>())),
      size(int64_t(group_comm.attr("comm").attr("size").cast<int64_t>())),
      lease_(std::make_shared<Lease>(std::move(group_comm)))
{
}

Group::~Group()
{
    close();
}

/* Completed operations are freed, the others keep their memory. The lock is not
 * held while they are tested, because that drives progress. */
void Group::keep(std::unique_ptr<Pending> pending)
{
    std::list<std::unique_ptr<Pending>> all;
    {
        std::lock_guard<std::mutex> guard(message_lock);

        all.swap(lazy);
    }
    all.remove_if([](const std::unique_ptr<Pending> &p) { return p->done(); });
    if (pending != nullptr && !pending->done()) {
        all.push_back(std::move(pending));
    }
    std::lock_guard<std::mutex> guard(message_lock);

    lazy.splice(lazy.end(), all);
}

size_t Group::drain(double seconds)
{
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::duration<double>(seconds);

    for (;;) {
        keep(nullptr);
        size_t left;
        {
            std::lock_guard<std::mutex> guard(message_lock);

            left = size_t(std::count_if(
                lazy.begin(), lazy.end(),
                [](const std::unique_ptr<Pending> &p) { return p->sends(); }));
        }
        if (left == 0 || clock::now() >= end) {
            return left;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

/* A probe drives progress, which may take the lock; so it is not held. */
std::string Group::lost_gradient()
{
    if (!any_unasked || lease_ == nullptr) {
        return "";
    }
    std::unique_lock<std::mutex> guard(message_lock);
    std::map<Envelope, std::string> all;

    for (const auto &[where, words] : unasked) {
        if (askers.count(where) == 0) {
            all.emplace(where, words);
        }
    }

    guard.unlock();
    for (const auto &[where, words] : all) {
        int there = 0;
        weft_message_info info;

        if (weft_iprobe(comm(), where.first, where.second, &there, &info) ==
                WEFT_OK &&
            there != 0) {
            guard.lock();
            unasked.erase(where);
            any_unasked = !unasked.empty();
            return "weft.mpi " + words +
                   ": its gradient came, but no backward receives it: it is "
                   "lost. Run the backward pass by "
                   "weft.mpi.backward(loss) or from comm.join(loss)";
        }
    }
    return "";
}

std::shared_ptr<Group> Group::with_comm(py::object group_comm)
{
    auto made = std::make_shared<Group>(std::move(group_comm));
    Register &all = group_register();
    std::lock_guard<std::mutex> guard(all.lock);

    for (const std::weak_ptr<Group> &known : all.groups) {
        GroupPtr group = known.lock();

        if (group && group->lease_ && group->comm() == made->comm()) {
            return group;
        }
    }
    all.groups[size_t(made->id)] = made;
    return made;
}

std::shared_ptr<Group> Group::by_id(int64_t id)
{
    Register &all = group_register();
    std::lock_guard<std::mutex> guard(all.lock);
    GroupPtr group = id >= 0 && size_t(id) < all.groups.size()
                         ? all.groups[size_t(id)].lock()
                         : nullptr;

    TORCH_CHECK_VALUE(group != nullptr, "weft.mpi: communicator ", id,
                      " does not exist or was freed");
    return group;
}

weft_comm *Group::comm() const
{
    if (lease_ == nullptr) {
        fail_mpi(WEFT_ERR_CLOSED, "weft.mpi: this communicator was freed, or "
                                  "weft.finalize() was called");
    }
    return lease_->comm();
}

weft_comm *Group::reversed()
{
    if (reversed_ == nullptr) {
        std::vector<uint32_t> ranks(static_cast<size_t>(size));

        std::iota(ranks.rbegin(), ranks.rend(), 0u);
        check_mpi(
            weft_comm_subset(comm(), ranks.data(), ranks.size(), &reversed_),
            "scan");
    }
    return reversed_;
}

void Group::close()
{
    std::lock_guard<std::mutex> guard(lock);

    chain->clear();
    weft_comm_destroy(reversed_);
    reversed_ = nullptr;
    keep(nullptr);
    for (std::unique_ptr<Pending> &pending : lazy) {
        (void)pending.release(); /* the library may still write there */
    }
    lazy.clear();
    unasked.clear();
    any_unasked = false;
    lease_.reset();
}

int64_t Group::next_mark(int64_t mark)
{
    bool of_another = (mark & (mark_backward | mark_is_tangent)) != 0;

    number++;
    return of_another ? mark : mark | (int64_t(number) & mark_number);
}

} // namespace weft_torch::mpi
