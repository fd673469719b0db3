# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays in the arena."""

import contextvars
import gc
import os
import threading

import pytest
import ranks
import weft
from weft import _core

np = pytest.importorskip("numpy")

LARGE = 1 << 17  # of f64: a megabyte


def in_arena(array):
    return _core.arena_holds(array.ctypes.data)


def which():
    weft.init()
    private = np.ones(LARGE)
    with weft.shared_arrays():
        ones, zeros, small, none = np.ones(LARGE), np.zeros(LARGE), np.zeros(4), np.zeros(0)
        made = ones + zeros
        assert in_arena(made) and in_arena(made.copy()) and in_arena(made.astype("f4"))
    assert in_arena(ones) and in_arena(zeros) and not zeros.any()
    assert not any(map(in_arena, (private, small, none, np.ones(LARGE))))
    blocks = weft.world().arena.blocks
    del made, ones, zeros
    assert weft.world().arena.blocks == blocks - 3 == 0

    @weft.shared_arrays(minimum=8)
    def sums(n):
        return [np.full(n, 1.0), *(sums(n - 1) if n > 1 else [])]

    assert all(map(in_arena, sums(3))) and not in_arena(np.ones(LARGE))


def test_arrays_from_a_size_on_are_in_the_arena():
    ranks.run(2, which)


def collectives():
    comm = weft.init().comm
    with weft.shared_arrays():
        x = np.arange(LARGE, dtype="f4") if comm.rank else np.ones(LARGE, "f4")
    y = np.ones(LARGE, "f4")
    comm.allreduce(x)
    comm.broadcast(y, root=0)
    assert x[7] == 1 + 7 * (comm.size - 1) and y[-1] == 1


def test_collectives_take_them():
    ranks.run(3, collectives)


def growing():
    weft.init()
    with weft.shared_arrays():
        x = np.arange(LARGE)
    for n in (3 * LARGE, 10 * LARGE, 5, 0, LARGE):
        least = min(n, len(x))
        kept = x[:least].copy()
        x.resize(n, refcheck=False)
        assert (x[:least] == kept).all() and not x[least:].any()
    y = np.fromiter(range(100_000), float)
    with weft.shared_arrays():
        y.resize(200_000, refcheck=False)  # its memory was malloc's
        z = np.fromiter(range(100_000), float)
    z.resize(10, refcheck=False)
    assert y[99_999] == 99_999 and z.sum() == 45
    del x, y, z, kept
    assert weft.world().arena.blocks == 0


def test_arrays_can_be_resized():
    ranks.run(1, growing)


def contexts():
    weft.init()
    found = []
    with weft.shared_arrays():
        apart = threading.Thread(target=lambda: found.append(np.ones(LARGE)))
        inside = contextvars.copy_context()
        apart.start()
        apart.join()
    copied = inside.run(np.ones, LARGE)
    assert not in_arena(found[0]) and in_arena(copied)
    holder = [copied]
    del copied
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert weft.world().arena.blocks == 0


def test_a_context_of_python_has_it_and_any_thread_frees():
    ranks.run(1, contexts)


def lives():
    with weft.shared_arrays():
        assert not in_arena(np.ones(LARGE))  # before there is a world
        world = weft.init("alone")
        x = np.ones(LARGE)
        assert in_arena(x)
        world.close()
        weft.finalize()
        assert not in_arena(np.ones(LARGE))
        assert in_arena(x) and x.sum() == LARGE
    other = weft.init("alone")
    part = weft.shared_arrays(comm=other.comm)
    with part:
        assert in_arena(np.ones(LARGE))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with part:
                assert not in_arena(np.ones(LARGE)) and x.sum() == LARGE
            x[:] = 5
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert x.sum() == LARGE
    weft.finalize()
    with pytest.raises(weft.InvalidError, match="closed"):
        weft.shared_arrays(comm=other)


def test_arrays_outlive_worlds_and_are_a_childs_own():
    pid = os.fork()  # no other world has been here
    if pid == 0:
        code = 1
        try:
            lives()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_wrong_arguments_are_named():
    with pytest.raises(weft.InvalidError, match="must not be negative"):
        weft.shared_arrays(minimum=-1)
    with pytest.raises(TypeError, match="comm is int"):
        weft.shared_arrays(comm=3)
    with pytest.raises(TypeError):
        weft.shared_arrays(minimum="64K")
