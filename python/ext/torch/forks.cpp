/* SPDX-License-Identifier: Apache-2.0 */
#include "forks.hpp"

#include <atomic>
#include <mutex>
#include <pthread.h>

namespace weft_torch
{

namespace
{

std::atomic<uint64_t> forks_so_far{0};

/* Held over a fork, so that the list is whole in the child. */
struct RenewableList {
    std::mutex lock;
    Renewable *first = nullptr;
};

RenewableList &renewables();

void before_fork()
{
    renewables().lock.lock();
}

void after_in_parent()
{
    renewables().lock.unlock();
}

} // namespace

void renew_all()
{
    for (Renewable *r = renewables().first; r != nullptr; r = r->next_) {
        r->renew();
    }
}

namespace
{

void after_in_child()
{
    forks_so_far++;
    renew_all();
    renewables().lock.unlock();
}

RenewableList &renewables()
{
    static RenewableList *all = [] {
        pthread_atfork(before_fork, after_in_parent, after_in_child);
        return new RenewableList; /* outlives static destructors */
    }();

    return *all;
}

} // namespace

uint64_t forks()
{
    return forks_so_far;
}

Renewable::Renewable()
{
    RenewableList &all = renewables();
    std::lock_guard<std::mutex> guard(all.lock);

    next_ = all.first;
    at_ = &all.first;
    all.first = this;
    if (next_ != nullptr) {
        next_->at_ = &next_;
    }
}

Renewable::~Renewable()
{
    std::lock_guard<std::mutex> guard(renewables().lock);

    *at_ = next_;
    if (next_ != nullptr) {
        next_->at_ = at_;
    }
}

} // namespace weft_torch
