/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on tensors of a device: staged through pinned host memory, in the
 * order of streams, without the host ever waiting.
 *
 *   current stream   ...... E1                            E2 ......
 *                            |                            ^
 *   side stream              '-> copy to host, start, ... gate, copy back
 *                                                  |       ^
 *   library                                        '- the operation
 *
 * All of it is queued when the call is made. "start" is a function that the
 * driver calls on a thread of its own and that only starts the operation; the
 * "gate" is a wait of the stream for a word in pinned memory, which the library
 * opens when the operation is over. A receive is started at once, and has a
 * side stream of its own, so that it holds up no send.
 *
 * The shim knows devices through c10 only; the two functions that c10 has no
 * words for are looked up in the driver's library when they are needed, so
 * that one build serves torch with and without CUDA. */
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <functional>
#include <list>
#include <map>
#include <mutex>

#include "call.hpp"

namespace weft_torch
{

class Staging
{
  public:
    /* Starts the operation: as a request, at once. */
    using Start = std::function<weft_status(weft_request **out)>;

    Staging() = default;
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    /* Queue `call`; null if the caller wants no Work. `lock` is held around
     * each start, so that the library sees one call at a time. */
    c10::intrusive_ptr<c10d::Work> run(Call &&call, int rank,
                                       const std::string &title,
                                       std::mutex &lock,
                                       std::vector<Start> starts);

    /* Wait until the library has been given every call that was queued, so
     * that a call on host tensors does not overtake one on device tensors. */
    void drain();
    /* Wait until all that was queued is over. */
    void finish();

    struct Job;

  private:
    struct Side {
        c10::Stream stream;
        void *handle; /* the same, as the driver knows it */
    };
    Side &side_of(at::Device device, bool receives);
    void reap();
    void wait_started();

    std::mutex mutex_;
    std::map<std::pair<c10::DeviceIndex, bool>, Side> sides_;
    std::list<std::shared_ptr<Job>> jobs_; /* what may still be under way */
};

/* Make the host wait for what is queued on `device` so far. */
void wait_for_device(at::Device device);

} // namespace weft_torch
