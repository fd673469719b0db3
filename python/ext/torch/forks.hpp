/* SPDX-License-Identifier: Apache-2.0 */
/* Forked children, which have a copy of every object, and of all threads only
 * the one that forked. */
#pragma once

#include <cstdint>
#include <new>

namespace weft_torch
{

/* How many forks lie between this process and the one that loaded this: an
 * object that was made when it was another number is that of a parent. */
uint64_t forks();

/* What must be made anew in a child. */
class Renewable
{
  public:
    Renewable(const Renewable &) = delete;
    Renewable &operator=(const Renewable &) = delete;
    virtual void renew() = 0;

  protected:
    Renewable();
    ~Renewable();
};

/* A lock that threads hold, or a condition that they wait for, while other
 * ranks take their time: in a child nobody does, and nobody ever would let go
 * of it. */
template <class T> class Renewed : public T, private Renewable
{
    void renew() override
    {
        new (static_cast<T *>(this)) T;
    }
};

} // namespace weft_torch
