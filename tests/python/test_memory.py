# SPDX-License-Identifier: Apache-2.0
"""Comm.empty: arrays in memory that all ranks map, and how long it lives."""

import gc
import threading

import numpy as np
import pytest
import ranks
import weft


def test_numpy_arrays_of_every_type_and_shape_can_be_made(alone):
    for dtype in ("f4", "f8", "u2", "?", "c16", "M8[s]", "S3", [("a", "i4"), ("b", "f8")]):
        for shape in ((), 3, (2, 3), [4], (2, 0), 0):
            x = alone.empty(shape, dtype, like="numpy")
            like = np.zeros(shape, dtype)
            assert (x.shape, x.dtype, x.tobytes()) == (like.shape, like.dtype, like.tobytes())
            assert x.flags.writeable and x.flags.c_contiguous
    assert alone.empty(2, np.float32).dtype == np.float32
    assert alone.empty(2, like="numpy").dtype == np.float64


def test_tensors_of_every_type_and_shape_can_be_made(alone):
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "float16", "bool", "int64", "uint16", "float8_e4m3fn"):
        kind = getattr(torch, dtype)
        for shape in ((), 3, (2, 3), [4], (2, 0), 0, torch.Size([1, 2])):
            x = alone.empty(shape, kind)
            like = torch.zeros(shape, dtype=kind)
            assert (x.shape, x.dtype) == (like.shape, like.dtype)
            assert torch.equal(x.float(), like.float())
            assert alone.empty(shape, dtype).dtype is kind
    assert alone.empty(2).dtype is torch.get_default_dtype()
    assert alone.empty((2, 2), like="torch").is_contiguous()


def test_bad_arguments_are_told(alone):
    with pytest.raises(weft.InvalidError, match="'torch' or 'numpy'"):
        alone.empty(2, like="jax")
    with pytest.raises(weft.InvalidError, match="negative"):
        alone.empty((2, -1))
    with pytest.raises(TypeError):
        alone.empty("two")
    with pytest.raises(TypeError):
        alone.empty(2.5)
    with pytest.raises(TypeError, match="pointers"):
        alone.empty(2, object, like="numpy")
    with pytest.raises(TypeError, match="not a torch type"):
        pytest.importorskip("torch")
        alone.empty(2, "float31", like="torch")
    with pytest.raises(weft.NoMemError):
        alone.empty(1 << 50, "i1", like="numpy")
    with pytest.raises((weft.InvalidError, weft.NoMemError)):
        alone.empty(1 << 62, "f8", like="numpy")
    assert not alone.broken


def test_the_memory_lives_as_long_as_a_view_of_it(alone):
    with alone.dup() as comm:
        x = comm.empty((3, 4), "f8", like="numpy")
        view = x[1:, ::2]
        del x
        gc.collect()
        view[:] = 5
    assert comm.closed
    assert view.tolist() == [[5, 5], [5, 5]]
    comm = alone.dup()
    y = comm.empty(5, "i8", like="numpy")
    del comm
    gc.collect()
    y += 1
    weft.finalize()
    assert y.tolist() == [1] * 5
    assert view.sum() == 20


def results(library):
    comm = weft.init().comm
    n = 100_003
    everyone = range(comm.size)
    x = comm.empty(n, "float32", like=library)
    y = comm.empty(n, "float32", like=library)
    plain = np.zeros(n, "f4")
    for round_number in range(3):
        for source, target in ((x, x), (x, y), (x, plain), (plain, y), (plain, plain)):
            source[:] = comm.rank + round_number
            comm.allreduce(source, out=target)
            assert (target == sum(r + round_number for r in everyone)).all()
    whole = comm.empty((comm.size, n), "float32", like=library)
    whole[comm.rank] = comm.rank
    comm.allgather(whole[comm.rank], whole)
    x[:] = -1.0
    for r in everyone:
        assert (whole[r] == r).all()
    comm.alltoall(whole, other := comm.empty((comm.size, n), "float32", like=library))
    assert (other == comm.rank).all()
    comm.reduce_scatter(whole, x)
    assert (x == comm.rank * comm.size).all()
    comm.broadcast(x, root=comm.size - 1)
    assert (x == (comm.size - 1) * comm.size).all()
    x[:] = 1.0
    request = comm.iallreduce(x)
    del x  # the request holds it
    gc.collect()
    assert (request.wait() == comm.size).all()
    half = y[: n // 2]
    half[:] = comm.rank
    comm.allreduce(half, "max")
    assert (half == comm.size - 1).all()
    if library == "torch":
        narrow = comm.empty((7, 11), "bfloat16")
        narrow += comm.rank + 1
        assert (comm.allreduce(narrow) == sum(range(1, comm.size + 1))).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_collectives_on_shared_memory_give_what_they_give_elsewhere(library):
    if library == "torch":
        pytest.importorskip("torch")
    ranks.run(3, results, library)


def lifetimes():
    world = weft.init()
    comm = world.comm
    before = world.arena.blocks
    x = comm.empty(1 << 16, "f4", like="numpy")
    assert world.arena.blocks == before + 1
    view = memoryview(x)[3:]
    del x
    gc.collect()
    assert world.arena.blocks == before + 1
    view.release()
    del view
    gc.collect()
    assert world.arena.blocks == before
    in_use = world.arena.in_use
    for _ in range(50):
        comm.empty(1 << 12, "f4", like="numpy")[:] = 1
        comm.barrier()
    assert world.arena.in_use == in_use
    # The last view goes on another thread, and while one is inside the communicator.
    x = [comm.empty(100, "f4", like="numpy")]
    waiting = threading.Thread(target=comm.barrier if comm.rank == 0 else x.clear)
    side = comm.dup()
    waiting.start()
    if comm.rank == 0:
        while "in barrier" not in world.dump().splitlines()[0]:
            pass
        x.clear()
    side.barrier()
    if comm.rank != 0:
        comm.barrier()
    waiting.join()
    assert world.arena.blocks == before
    # Requests that another thread may step look buffers up.
    for _ in range(20):
        kept = [comm.empty(1000, "f4", like="numpy") for _ in range(3)]
        requests = [comm.iallreduce(np.ones(30_000)) for _ in range(3)]
        kept.clear()
        assert all((r.wait() == comm.size).all() for r in requests)
    # Closed by hand: what is still used stays.
    x = side.empty(1 << 16, "f8", like="numpy")
    side.close()
    x[:] = comm.rank
    y = comm.empty(1 << 16, "f8", like="numpy")
    y[:] = comm.rank
    comm.barrier()
    assert (x == y).all()
    weft.finalize()
    y += x
    assert (y == 2 * x).all()
    with pytest.raises(weft.ClosedError):
        comm.empty(3)


@pytest.mark.parametrize("size", [2, 3])
def test_memory_is_given_back_with_the_last_view_and_outlives_its_communicator(size):
    ranks.run(size, lifetimes)


def some_let_go():
    comm = weft.init().comm
    n = 50_000
    x = comm.empty(n, "f8", like="numpy")
    x[:] = comm.rank
    if comm.rank == 0:
        x = np.zeros(n)  # this rank's part is given back; the others' are not
    comm.barrier()
    whole = np.full((comm.size, n), -1.0)
    comm.allgather(x, whole)
    assert (whole == np.arange(comm.size)[:, None]).all()
    assert (comm.allreduce(x.copy()) == sum(range(comm.size))).all()
    assert (comm.allreduce(x) == sum(range(comm.size))).all()
    x[:] = comm.rank
    comm.broadcast(x, root=comm.size - 1)
    assert (x == comm.size - 1).all()
    comm.alltoall(np.full((comm.size, n), comm.rank, "f8"), whole)
    assert (whole == np.arange(comm.size)[:, None]).all()


def test_a_rank_may_let_go_while_others_use_theirs():
    ranks.run(3, some_let_go)
