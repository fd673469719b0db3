/* SPDX-License-Identifier: Apache-2.0 */
#include "forks.hpp"

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <set>

namespace weft_torch
{

namespace
{

std::atomic<uint64_t> forks_so_far{0};

/* The lock is held over a fork, so that the list is whole in the child. */
struct Renewables {
    std::mutex lock;
    std::set<Renewable *> all;
};

Renewables &renewables();

void before_fork()
{
    renewables().lock.lock();
}

void after_in_parent()
{
    renewables().lock.unlock();
}

void after_in_child()
{
    forks_so_far++;
    for (Renewable *renewable : renewables().all) {
        renewable->renew();
    }
    renewables().lock.unlock();
}

Renewables &renewables()
{
    static Renewables *made = [] {
        pthread_atfork(before_fork, after_in_parent, after_in_child);
        return new Renewables; /* outlives static destructors */
    }();

    return *made;
}

} // namespace

uint64_t forks()
{
    return forks_so_far;
}

Renewable::Renewable()
{
    std::lock_guard<std::mutex> guard(renewables().lock);

    renewables().all.insert(this);
}

Renewable::~Renewable()
{
    std::lock_guard<std::mutex> guard(renewables().lock);

    renewables().all.erase(this);
}

} // namespace weft_torch
