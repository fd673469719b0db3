/* SPDX-License-Identifier: Apache-2.0 */
/* torch has one allocator for the CPU and means it to be set once. So ours is
 * set when it is first wanted, stays, and hands on to the one that was there
 * before whatever nobody wants shared, and what an arena has no room for.
 *
 * A storage frees its memory by a function of its own and keeps the allocator
 * for when it is resized: both may come at any time, from any thread, also when
 * the interpreter and the world are gone. The allocator is therefore never
 * deleted, and the library frees blocks without a world. */
#include "shared.hpp"

#include <atomic>
#include <c10/core/CPUAllocator.h>
#include <limits>
#include <weft/memory.h>

namespace weft_torch
{

namespace
{

namespace py = pybind11;

/* As in python/ext/arena.h, which is of another module. */
struct ArenaCalls {
    void *(*take)(uint64_t world, size_t bytes, bool zero);
};

/* Which tensors are to be shared: those of `minimum` bytes and more, with the
 * ranks of `world`, or of the first that is open if that is 0. */
struct Wish {
    size_t minimum = std::numeric_limits<size_t>::max();
    uint64_t world = 0;
};

/* Of the whole program. The two are read one after the other: a tensor that is
 * made while they change may go to the arena of the world before. */
std::atomic<size_t> minimum_for_all{Wish().minimum};
std::atomic<uint64_t> world_for_all{0};

thread_local Wish wish_of_thread;

void free_block(void *memory)
{
    if (memory != nullptr) {
        c10::profiledCPUMemoryReporter().Delete(memory);
        weft_arena_free(memory);
    }
}

class SharedAllocator final : public c10::Allocator
{
  public:
    SharedAllocator(c10::Allocator *before, const ArenaCalls *arena)
        : before_(before), arena_(arena)
    {
        raw_before = before->raw_deleter();
    }

    c10::DataPtr allocate(size_t bytes) override
    {
        void *memory = nullptr;

        if (bytes >= wish_of_thread.minimum) {
            memory = arena_->take(wish_of_thread.world, bytes, false);
        } else if (bytes >= minimum_for_all) {
            memory = arena_->take(world_for_all, bytes, false);
        }
        if (memory == nullptr) {
            return before_->allocate(bytes);
        }
        c10::profiledCPUMemoryReporter().New(memory, bytes);
        return {memory, memory, &free_block, c10::Device(c10::kCPU)};
    }

    /* Of a pointer alone it cannot be told where it came from, but of an
     * address it can. */
    c10::DeleterFnPtr raw_deleter() const override
    {
        return raw_before == nullptr ? nullptr : &free_either;
    }

    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }

  private:
    static void free_either(void *memory)
    {
        if (weft_arena_holds(memory)) {
            free_block(memory);
        } else {
            raw_before(memory);
        }
    }

    inline static c10::DeleterFnPtr raw_before = nullptr;
    c10::Allocator *const before_;
    const ArenaCalls *const arena_;
};

/* Put ours in front of the allocator that is set. Whoever set that one may have
 * given it a priority, which ours must reach. */
void install()
{
    static bool installed = false;

    if (installed) {
        return;
    }
    auto *arena = static_cast<const ArenaCalls *>(
        PyCapsule_Import("weft._core._arena", 0));

    if (arena == nullptr) {
        throw py::error_already_set();
    }
    auto *ours = new SharedAllocator(c10::GetCPUAllocator(), arena);

    for (int priority = 0; priority <= 255 && !installed; priority++) {
        c10::SetCPUAllocator(ours, static_cast<uint8_t>(priority));
        installed = c10::GetCPUAllocator() == ours;
    }
}

py::tuple share_on_thread(size_t minimum, uint64_t world)
{
    Wish before = wish_of_thread;

    install();
    wish_of_thread = {minimum, world};
    return py::make_tuple(before.minimum, before.world);
}

py::tuple share_all(size_t minimum, uint64_t world)
{
    py::tuple before =
        py::make_tuple(minimum_for_all.load(), world_for_all.load());

    install();
    world_for_all = world;
    minimum_for_all = minimum;
    return before;
}

} // namespace

void bind_shared(pybind11::module_ &module)
{
    module.attr("_SHARE_NONE") = Wish().minimum;
    module.def("_share_on_thread", &share_on_thread, py::arg("minimum"),
               py::arg("world"));
    module.def("_share_all", &share_all, py::arg("minimum"), py::arg("world"));
}

} // namespace weft_torch
