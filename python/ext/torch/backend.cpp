/* SPDX-License-Identifier: Apache-2.0 */
/* A Backend from its making to its end. Its operations are in collectives.cpp,
 * sparse.cpp and messages.cpp. */
#include "backend.hpp"

#include "callbacks.hpp"
#include "run.hpp"

namespace weft_torch
{

namespace
{

bool is_receive(c10d::OpType type)
{
    return type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
}

} // namespace

Lease::Lease(pybind11::object group_comm)
    : group_comm_(std::move(group_comm)),
      capsule_(group_comm_.attr("comm").attr("_lend")())
{
    void *comm = PyCapsule_GetPointer(capsule_.ptr(), "weft_comm");

    if (comm == nullptr) {
        throw pybind11::error_already_set();
    }
    comm_ = static_cast<weft_comm *>(comm);
}

Lease::~Lease()
{
    if (!Py_IsInitialized()) {
        /* Too late to free anything of Python's; the process ends anyway. */
        capsule_.release();
        group_comm_.release();
        return;
    }
    pybind11::gil_scoped_acquire gil;

    capsule_ = pybind11::object();
    group_comm_ = pybind11::object();
}

Backend::Backend(std::shared_ptr<Lease> lease,
                 c10::intrusive_ptr<GroupOptions> options, std::string name)
    : c10d::Backend(int(weft_comm_rank(lease->comm())),
                    int(weft_comm_size(lease->comm()))),
      name_(std::move(name)), options_(std::move(options)),
      lease_(std::move(lease)), staging_(options_->blocking_wait),
      last_(c10::intrusive_ptr<c10d::Work>())
{
    setTimeout(options_->timeout);
    init();
}

Backend::~Backend() = default;

weft_comm *Backend::comm() const
{
    TORCH_CHECK_WITH(DistBackendError, lease_ != nullptr,
                     "weft: this process group was destroyed");
    return lease_->comm();
}

pybind11::object Backend::group_comm() const
{
    comm();
    return lease_->group_comm();
}

void Backend::number(Call &call)
{
    call.sequence = ++sequence_;
    call.rank = rank_;
    call.size = size_;
    if (!c10d::isP2POp(call.type)) {
        call.order = ++collectives_;
        note_call(comm(), call.order);
    }
}

WorkPtr Backend::stage(Call &&call, Starts starts, const std::string &title)
{
    std::optional<Event> queued;

    staging_.check(comm(), call.name);
    staged_ = true;
    if (!call.async) {
        queued.emplace(title, call);
    }
    WorkPtr work = staging_.run(std::move(call), comm(), rank_, title, lock_,
                                std::move(starts));
    std::lock_guard<std::mutex> guard(lock_);

    if (coalescing_ && work != nullptr) {
        coalesced_.push_back(work);
    }
    return work;
}

void Backend::follow_staged(const char *what)
{
    if (staged_) {
        staging_.drain();
        staging_.check(comm(), what);
    }
}

/* Hand a Work out, and know of it while it lives. The end of the group waits
 * for it, but for no receive: nobody may ever send to it. */
WorkPtr Backend::remember(WorkPtr work)
{
    if (work != nullptr) {
        if (!is_receive(work->retrieveOpType())) {
            last_ = c10::weak_intrusive_ptr<c10d::Work>(work);
        }
        if (coalescing_) {
            coalesced_.push_back(work);
        }
    }
    return work;
}

void Backend::startCoalescing()
{
    std::lock_guard<std::mutex> guard(lock_);

    coalescing_ = true;
    coalesced_.clear();
}

WorkPtr Backend::endCoalescing()
{
    std::lock_guard<std::mutex> guard(lock_);

    coalescing_ = false;
    return c10::make_intrusive<WorkList>(std::move(coalesced_), rank_);
}

template <class Rank>
c10::intrusive_ptr<c10d::Backend>
Backend::descend(const char *method, const std::vector<Rank> &ranks,
                 const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    auto own = c10::dynamic_intrusive_pointer_cast<GroupOptions>(opts);
    std::shared_ptr<Lease> lease;

    comm();
    {
        pybind11::gil_scoped_acquire gil;

        lease =
            std::make_shared<Lease>(lease_->group_comm().attr(method)(ranks));
    }
    if (own == nullptr && opts == nullptr) {
        own = options_;
    }
    /* A copy, for torch passes the very options of the parent. */
    own = own != nullptr ? c10::make_intrusive<GroupOptions>(*own)
                         : c10::make_intrusive<GroupOptions>(opts->timeout);
    return c10::make_intrusive<Backend>(lease, own, name_);
}

c10::intrusive_ptr<c10d::Backend>
Backend::split(const c10::intrusive_ptr<c10d::Store> &,
               const std::vector<int> &ranks,
               const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    return std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()
               ? nullptr
               : descend("subset", ranks, opts);
}

/* torch destroys the group that is shrunk, so with either flag what is pending
 * on it ends. */
c10::intrusive_ptr<c10d::Backend>
Backend::shrink(const std::vector<int64_t> &exclude, int,
                const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    return descend("shrink", exclude, opts);
}

void Backend::setTimeout(std::chrono::milliseconds timeout)
{
    options_->timeout = timeout;
    weft_comm_set_timeout(comm(), double(timeout.count()) / 1000);
}

c10d::ErrorType Backend::getError()
{
    switch (weft_comm_error(comm())) {
    case WEFT_OK:
        return c10d::ErrorType::SUCCESS;
    case WEFT_ERR_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case WEFT_ERR_PEER:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

void Backend::abort()
{
    std::shared_ptr<Lease> lease;
    {
        std::lock_guard<std::mutex> guard(lease_lock_);
        lease = lease_;
    }
    if (lease != nullptr) {
        weft_comm_abort(lease->comm(), "the process group was aborted");
    }
}

/* How long the end of a group waits for operations that nobody waited for. */
constexpr std::chrono::seconds patience{10};

/* Let what is under way come to its end, then leave. */
void Backend::shutdown()
{
    if (lease_ == nullptr) {
        return;
    }
    staging_.finish(patience);
    if (WorkPtr last = last_.lock()) {
        try {
            last->wait(patience);
        } catch (const std::exception &) {
            /* The Work reports it. */
        }
    }
    {
        std::shared_ptr<Lease>
            lease; /* let go after the locks: takes the GIL */
        std::lock_guard<std::mutex> guard(lock_);
        std::lock_guard<std::mutex> lease_guard(lease_lock_);

        lease.swap(lease_);
    }
    staging_.close();
}

/* Memory that the other ranks see, so that collectives on it copy less. */
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    void *buffer = nullptr;

    if (options.device().type() != at::kCPU) {
        return at::empty({size}, options);
    }
    follow_staged("allocate_tensor");
    std::lock_guard<std::mutex> guard(lock_);
    std::shared_ptr<Lease> lease = lease_;

    check(
        weft_alloc(comm(), size_t(size) * options.dtype().itemsize(), &buffer),
        "allocate_tensor");
    return at::from_blob(
        buffer, {size},
        [lease](void *memory) { weft_free(lease->comm(), memory); }, options);
}

} // namespace weft_torch
