/* SPDX-License-Identifier: Apache-2.0 */
/* torch's view of a communicator. Every method translates its tensors and
 * calls the library; the algorithms, the waiting and the errors are there. */
#pragma once

#include <memory>
#include <mutex>
#include <weft/weft.h>

#include "call.hpp"
#include "forks.hpp"
#include "staging.hpp"
#include "versions.hpp"

namespace weft_torch
{

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/* What init_process_group(pg_options=...) takes. */
struct GroupOptions : c10d::Backend::Options {
    /* Settings of the library, as "ENGINE=message SPIN=20us". */
    std::string settings;
    /* The timeout was chosen here; else init_process_group's counts. */
    bool own_timeout = false;
    /* Whoever waits for an operation on a device waits on the host. */
    bool blocking_wait = false;

    explicit GroupOptions(
        std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options("weft", timeout)
    {
    }
};

/* A communicator that a Python object lends: it lives as long as this does. */
class Lease
{
  public:
    /* `group_comm` is a GroupComm of python/weft/torch/_group_comm.py. */
    explicit Lease(pybind11::object group_comm);
    ~Lease();
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    weft_comm *comm() const
    {
        return comm_;
    }
    const pybind11::object &group_comm() const
    {
        return group_comm_;
    }

  private:
    pybind11::object group_comm_;
    pybind11::object capsule_;
    weft_comm *comm_;
};

class Backend : public c10d::Backend
{
  public:
    /* `name` begins the names of profiler events. */
    Backend(std::shared_ptr<Lease> lease,
            c10::intrusive_ptr<GroupOptions> options, std::string name);
    ~Backend() override;

    const std::string getBackendName() const override
    {
        return name_;
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override
    {
        return options_;
    }
    c10::intrusive_ptr<GroupOptions> options() const
    {
        return options_;
    }
    /* The GroupComm that lends the communicator; throws once shut down. */
    pybind11::object group_comm() const;

    WorkPtr broadcast(Tensors &tensors,
                      const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors,
                      const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors,
                             const c10d::AllreduceOptions &opts) override;
    WorkPtr
    allreduce_coalesced(Tensors &tensors,
                        const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr
    _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                         const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                     const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts,
                          bool wait_all_ranks) override;

    bool supportsCoalescing() const override
    {
        return true;
    }
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    bool supportsSplitting() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store,
          const std::vector<int> &ranks,
          const c10::intrusive_ptr<c10d::Backend::Options> &opts) override;

    bool supportsShrinking() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend>
    shrink(const std::vector<int64_t> &exclude, int flags,
           const c10::intrusive_ptr<c10d::Backend::Options> &opts) override;

    void setSequenceNumberForGroup() override
    {
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }
    void setTimeout(std::chrono::milliseconds timeout) override;
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }

  private:
    using Clock = std::chrono::steady_clock;

    weft_comm *comm() const;
    /* A backend over what a method of the GroupComm makes out of `ranks`. */
    template <class Rank>
    c10::intrusive_ptr<c10d::Backend>
    descend(const char *method, const std::vector<Rank> &ranks,
            const c10::intrusive_ptr<c10d::Backend::Options> &opts);
    void check_rank(int64_t rank, const char *role, const char *what) const;
    bool in_place(const at::Tensor &whole, const at::Tensor &part) const;
    Tensors &list_of_ranks(std::vector<Tensors> &lists, const at::Tensor &own,
                           const char *which, const char *what) const;
    /* How a part of a call starts that has a coalesced form, too. */
    auto reduces_all(const at::Tensor &memory, const c10d::ReduceOp &op) const;
    auto gathers_into(Call &call, const at::Tensor &output,
                      const at::Tensor &input) const;
    auto scatters_into(Call &call, const at::Tensor &output,
                       const at::Tensor &input, const c10d::ReduceOp &op) const;
    void number(Call &call);
    /* Before a call on the host: those on a device come first, and none of
     * them may have failed. */
    void follow_staged(const char *what);
    WorkPtr remember(WorkPtr work);
    void tell(int to, uint32_t tag);
    bool hear(int from, uint32_t tag, Clock::time_point end, std::string &why);
    void look_for_signals(Clock::time_point &next);
    WorkPtr receive(Call &&call, Tensors &tensors, uint32_t from, int tag);

    /* Carry out a call of `count` parts, or of one; see Start in call.hpp. */
    template <class Start>
    WorkPtr run(Call &&call, const Start *starts, size_t count);
    template <class Start> WorkPtr run(Call &&call, const Start &start);
    template <class Start>
    WorkPtr carry_out(Call &&call, const Start *starts, size_t count);
    WorkPtr stage(Call &&call, Starts starts, const std::string &title);

    const std::string name_;
    c10::intrusive_ptr<GroupOptions> options_;
    std::shared_ptr<Lease> lease_; /* null once shut down */
    /* Around letting go of it, for abort(): lock_ may be held by the very call
     * that is to be ended. */
    Renewed<std::mutex> lease_lock_;
    /* The library takes one call at a time. */
    Renewed<std::mutex> lock_;
    Staging staging_;
    std::atomic<bool> staged_{false}; /* there were calls on a device */
    std::atomic<uint64_t> sequence_{0};
    std::atomic<uint64_t> collectives_{0};
    c10::weak_intrusive_ptr<c10d::Work> last_;
    uint32_t monitored_ = 0; /* barriers so far */
    bool coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
};

} // namespace weft_torch
