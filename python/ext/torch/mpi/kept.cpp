/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/kept.hpp"

namespace weft_torch::mpi
{

LastMessage &last_message()
{
    static thread_local LastMessage last;

    return last;
}

void KeptResults::keep(const at::Tensor &y, const LastMessage &message)
{
    c10::weak_intrusive_ptr<c10::StorageImpl> memory =
        y.storage().getWeakStorageImpl();
    std::lock_guard<std::mutex> guard(lock_);

    for (auto at = entries_.begin(); at != entries_.end();) {
        at = at->second.memory.expired() ? entries_.erase(at) : std::next(at);
    }
    entries_.insert_or_assign(y.storage().unsafeGetStorageImpl(),
                              Entry{std::move(memory), message});
}

bool KeptResults::recall(const at::Tensor &y, LastMessage *out)
{
    if (!y.has_storage()) {
        return false;
    }
    std::lock_guard<std::mutex> guard(lock_);
    auto found = entries_.find(y.storage().unsafeGetStorageImpl());

    if (found == entries_.end()) {
        return false;
    }
    *out = found->second.message;
    return true;
}

} // namespace weft_torch::mpi
