/* SPDX-License-Identifier: Apache-2.0 */
/* Messages whose results a dispatch mode of torch gives again.
 *
 * The mode of selective checkpointing keeps what operations gave, as its policy
 * says, and gives it again in the place of calling them. What a receive learnt
 * from the message is then known by the memory of its result. */
#pragma once

#include <ATen/core/Tensor.h>
#include <map>
#include <mutex>

namespace weft_torch::mpi
{

/* What is known of the message that this thread has sent or received last, for
 * those who called the operation. */
struct LastMessage {
    int64_t numbers = 0; /* see mpi/message.hpp */
    int64_t mark = 0;    /* with which it was sent to us */
    int64_t peer = 0;    /* by whom */
    bool moved = false;  /* since whoever called the operation unset it */
};
LastMessage &last_message();

class KeptResults
{
  public:
    void keep(const at::Tensor &y, const LastMessage &message);
    /* Is this what was kept? Then `*out` is its message. */
    bool recall(const at::Tensor &y, LastMessage *out);

  private:
    struct Entry {
        c10::weak_intrusive_ptr<c10::StorageImpl> memory;
        LastMessage message;
    };
    std::mutex lock_;
    std::map<const c10::StorageImpl *, Entry> entries_;
};

} // namespace weft_torch::mpi
