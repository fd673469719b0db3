/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on tensors of a device: staged through pinned host memory, in the
 * order of streams, without the host ever waiting.
 *
 *   current stream   ...... E1                            E2 ......
 *                            |                            ^
 *   staging stream           '-> copy to host, start, ... gate, copy back
 *                                                  |       ^
 *   library                                        '- the operation
 *
 * All of it is queued when the call is made. "start" is a function that the
 * driver calls on a thread of its own and that only starts the operation; the
 * "gate" is a wait of the stream for a word in pinned memory, which is opened
 * when the operation is over. A receive is started at once, and has a stream of
 * its own, so that it holds up no send.
 *
 * An operation that fails opens its gate too, for a stream must not wait for
 * what will not come. What no program may do then is go on with something that
 * looks like a result:
 *
 * 1. What is copied back is poison (NaN), never the input or a part of a
 * result.
 * 2. The Work and its future report the error, as on the host. If they let
 *    the host go on before it was known, or there was no Work, then every later
 *    call of the group fails with it.
 * 3. Nothing is started after such an error. */
#pragma once

#include <list>
#include <map>
#include <mutex>

#include "job.hpp"

namespace weft_torch
{

class Staging
{
  public:
    /* If `host_waits`, Work::wait and calls without a Work make it wait. */
    explicit Staging(bool host_waits) : host_waits_(host_waits)
    {
    }
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    /* Queue `call`; null if the caller wants no Work. `lock` is held around
     * each start, so that the library sees one call at a time. */
    c10::intrusive_ptr<c10d::Work> run(Call &&call, weft_comm *comm, int rank,
                                       const std::string &title,
                                       std::mutex &lock, Starts starts);

    /* Throws if `comm` is broken, or if the error of an earlier call has not
     * been reported; `what` is the next call. */
    void check(const weft_comm *comm, const char *what) const;
    /* Wait until the library has been given every call that was queued, so
     * that a call on host tensors does not overtake one on device tensors. */
    void drain();
    /* Wait for what was queued: for all that a stream or a program without a
     * Work waits for; for others up to `patience`, but not for receives, to
     * which nobody may ever send. */
    void finish(std::chrono::milliseconds patience);
    /* The group is no more: end what is left. */
    void close();

  private:
    StagingStream &stream_of(at::Device device, bool receives);
    void reap();

    std::mutex mutex_;
    const bool host_waits_;
    std::map<std::pair<c10::DeviceIndex, bool>, std::unique_ptr<StagingStream>>
        streams_;
    std::list<std::shared_ptr<Job>> jobs_; /* what may still be under way */
    std::shared_ptr<Unreported> unreported_ = std::make_shared<Unreported>();
};

} // namespace weft_torch
