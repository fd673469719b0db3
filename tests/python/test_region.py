# SPDX-License-Identifier: Apache-2.0
"""weft.empty and its kin: tensors that all ranks see, and weft.region of them."""

import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import ranks
import waiting
import weft

FULL = os.environ.get("WT_FULL") == "1"
TORCH_TYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2"),
)
NUMPY_TYPES = ("?", "u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
ODD_TYPES = ("M8[s]", "S3", ">f4", [("a", "i4"), ("b", "f8")])


def regions_mapped():
    return pathlib.Path("/proc/self/maps").read_text().count("a weft region")


# In this process alone.


def test_every_type_of_torch_and_every_shape_can_be_made(alone):
    torch = pytest.importorskip("torch")
    for name in TORCH_TYPES:
        kind = getattr(torch, name)
        for shape in (3, (2, 3), [4], (2, 0), 0, (0, 5), (2, 3, 4, 5), torch.Size([1, 2])):
            t = weft.empty(shape, kind)
            like = torch.zeros(shape, dtype=kind)
            assert type(t) is torch.Tensor and not t._is_view() and t.is_contiguous()
            assert (t.shape, t.dtype, t.device) == (like.shape, kind, like.device)
            assert not t.view(torch.uint8).any() if t.numel() else True
            found = weft.region(t)
            assert (found.shape, found.dtype) == (tuple(like.shape), kind)
    assert weft.empty(2).dtype is torch.get_default_dtype()
    assert weft.zeros(2, "float16").dtype is torch.float16
    with pytest.raises(TypeError, match="scale"):
        weft.empty(2, torch.qint8)


def test_every_type_of_numpy_and_every_shape_can_be_made(alone):
    for dtype in (*NUMPY_TYPES, *ODD_TYPES):
        for shape in (3, (2, 3), [4], (2, 0), 0, (0, 5), (2, 3, 4, 5)):
            x = weft.empty(shape, dtype, like="numpy")
            like = np.zeros(shape, dtype)
            assert (x.shape, x.dtype, x.tobytes()) == (like.shape, like.dtype, like.tobytes())
            assert x.flags.writeable and x.flags.c_contiguous
            assert weft.region(x).dtype == like.dtype
    assert isinstance(weft.empty(2, np.int32), np.ndarray)


def test_full_takes_the_type_of_its_value(alone):
    torch = pytest.importorskip("torch")
    for value in (True, 3, 2.5, 1j):
        t = weft.full((3, 2), value)
        assert t.dtype is torch.full((), value).dtype and bool((t == value).all())
        x = weft.full(4, value, like="numpy")
        assert x.dtype == np.asarray(value).dtype and (x == value).all()
    assert weft.full(2, 7, torch.bfloat16).dtype is torch.bfloat16
    # Also where there is nothing to fill.
    with pytest.raises((RuntimeError, OverflowError)):
        weft.full(0, 300, torch.uint8)
    with pytest.raises(ValueError):
        weft.full(0, "many", "i4", like="numpy")


def test_wrong_arguments_are_told(alone):
    for bad, text in (
        ({"shape": ()}, "rows"),
        ({"shape": (2, -1)}, "negative"),
        ({"shape": (1,) * 9}, "dimensions"),
        ({"like": "jax"}, "'torch' or 'numpy'"),
        ({"device": "tpu"}, "'cpu', 'cuda'"),
        ({"device": "cuda:x"}, "'cpu', 'cuda'"),
        ({"partition": "even"}, "'round_robin'"),
        ({"partition": 5}, "'round_robin'"),
        ({"partition": ("round_robin", 0)}, "at least 1"),
        ({"partition": [1, 2]}, "each of the 1 ranks"),
        ({"partition": np.array([1, 2])}, "each of the 1 ranks"),
        ({"partition": [3]}, "4"),
        ({"partition": [-4]}, "negative"),
        ({"pages": "large"}, "'huge'"),
        ({"reach": "far"}, "'mapped'"),
        ({"max_rows": -1}, "negative"),
        ({"row_pitch": 3}, "pitch"),
        ({"timeout": -1}, "greater than 0"),
        ({"numa": -1}, "NUMA node"),
        ({"numa": 1 << 40}, "NUMA node"),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            weft.empty(**{"shape": (4, 2), "dtype": "f4", "like": "numpy", **bad})
    with pytest.raises(TypeError):
        weft.empty("two")
    with pytest.raises(TypeError):
        weft.empty(2.5)
    with pytest.raises(TypeError, match=r"weft\.Comm"):
        weft.empty(2, comm="world")
    with pytest.raises(TypeError, match=r"weft\.Comm"):
        weft.empty(2, comm=0)
    with pytest.raises(TypeError, match="integer"):
        weft.empty(2, numa="one")
    with pytest.raises(TypeError, match="pointers"):
        weft.empty(2, object, like="numpy")
    with pytest.raises(weft.NoMemError, match="MiB"):
        weft.empty((1 << 45, 2), "f4", like="numpy")
    with pytest.raises((weft.InvalidError, weft.NoMemError)):
        weft.empty((1 << 62, 1 << 40), "f4", like="numpy")
    with pytest.raises(weft.InvalidError, match="needs torch"):
        weft.empty(2, device="cuda", like="numpy")
    with pytest.raises(weft.InvalidError, match="does not lie in a region"):
        weft.region(np.ones(3))
    with pytest.raises(TypeError):
        weft.region([1])
    found = weft.table(3, "f4", like="numpy")
    with pytest.raises(weft.InvalidError, match="negative"):
        found.locate(-1)
    with pytest.raises(weft.InvalidError, match="negative"):
        found.wait(-1)
    assert not alone.broken


def test_memory_lasts_as_long_as_any_view_of_it(alone):
    before = regions_mapped()
    t = weft.empty((1000, 100), "f4", like="numpy")
    assert regions_mapped() == before + 1
    part = t[3:5, ::2]
    del t
    gc.collect()
    part[...] = 3
    assert weft.region(part).shape == (1000, 100)
    view = memoryview(part[0])
    del part
    gc.collect()
    assert view[0] == 3 and regions_mapped() == before + 1
    del view
    gc.collect()
    assert regions_mapped() == before


def test_tensors_keep_the_memory_and_it_goes_with_the_last(alone):
    torch = pytest.importorskip("torch")
    before = regions_mapped()
    t = weft.empty((100, 8), torch.float32)
    storage, column = t.untyped_storage(), t[:, 3]
    parameter = torch.nn.Parameter(t[2:4])
    array = t.numpy()
    del t
    gc.collect()
    column += 2
    assert parameter[0, 3] == 2 and array[5, 3] == 2
    assert weft.region(parameter).shape == (100, 8)
    assert storage.nbytes() == 100 * 8 * 4
    with pytest.raises(RuntimeError):
        storage.resize_(10)
    del storage, parameter, array
    gc.collect()
    assert regions_mapped() == before + 1
    del column
    gc.collect()
    assert regions_mapped() == before


def test_memory_outlives_the_world():
    weft.init("alone")
    t = weft.empty((5, 2), "f8", like="numpy")
    found = weft.region(t)
    weft.finalize()
    t += 1
    assert weft.gather(t, [4]).tolist() == [[1, 1]]
    assert found.local.sum() == 10
    for call in (found.barrier, lambda: found.signal(0), lambda: found.resize(3)):
        with pytest.raises(weft.ClosedError):
            call()


def test_a_table_need_not_be_one_tensor(alone):
    found = weft.table((5, 3), "f4", like="numpy", row_pitch=64)
    t = found.tensor
    assert t.strides == (64, 4)
    t[...] = np.arange(15).reshape(5, 3)
    assert weft.gather(found, [4, 0]).tolist() == [[12, 13, 14], [0, 1, 2]]
    assert found.view((1, -1), (-1, 2)).tolist() == t[1:, :2].tolist()
    for starts, ends in (((0,), (1,)), ((2, 0), (2, 1)), ((0, 0), (6, 1)), ((-2, 0), (1, 1))):
        with pytest.raises(weft.InvalidError):
            found.view(starts, ends)


def test_a_region_tells_what_it_is(alone):
    found = weft.table((7, 2), "i4", like="numpy", max_rows=20)
    text = repr(found)
    assert re.search(r"\(7, 2\) int32 on cpu.*equal.*7 rows on rank 0 of 1", text)
    facts = (found.rank, found.ranks, found.partition, found.reach, found.flat, found.device)
    assert facts == (0, 1, "equal", "mapped", True, "cpu")
    assert (found.start, found.stop, found.rows_per_rank, found.max_rows) == (0, 7, (7,), 20)
    assert found.comm is alone and found.locate(6) == (0, 6)
    with pytest.raises(weft.InvalidError):
        found.locate(7)
    with pytest.raises(weft.InvalidError, match="must be 0 to 0"):
        found.part(1)
    assert found.stats()["bytes"] >= 7 * 8
    assert weft.region(found) is found


def test_resize_moves_nothing(alone):
    found = weft.table((3, 2), "i8", like="numpy", max_rows=1000)
    t = found.tensor
    t[...] = 1
    larger = found.resize(1000)
    assert larger.shape == (1000, 2) and larger.ctypes.data == t.ctypes.data
    assert larger.sum() == 6
    larger[999] = 5
    assert found.readonly()[999, 1] == 5
    assert found.resize(2).sum() == 4
    assert found.resize(3).sum() == 4
    with pytest.raises(weft.InvalidError, match="1000"):
        found.resize(1001)
    with pytest.raises(weft.InvalidError, match="negative"):
        found.resize(-1)
    nothing = weft.empty((0, 2), "i8", like="numpy", max_rows=5)
    assert weft.region(nothing).resize(5).sum() == 0


def die_by_writing(library):
    weft.init("alone")
    t = weft.full((5, 2), 3.0, like=library)
    view = weft.region(t).readonly()
    t[0] = 4
    assert view[0, 1] == 4
    if library == "numpy":
        assert not view.flags.writeable
        import ctypes

        print("reads", flush=True)
        ctypes.memset(view.ctypes.data, 0, 1)
    else:
        print("reads", flush=True)
        view[0] = 1


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_write_to_read_only_memory_ends_the_process(library):
    pytest.importorskip(library)
    with ranks.Job(1, die_by_writing, library) as job:
        job.finish({0: -signal.SIGSEGV})
        assert "reads" in job[0].output()


def test_numpy_is_enough():
    code = """
    import sys
    sys.modules["torch"] = None
    import weft, numpy as np
    t = weft.empty((5, 2), "f4")
    assert isinstance(t, np.ndarray)
    weft.scatter(t, [1, 3], np.ones((2, 2), "f4"))
    weft.scatter_add(t, range(5), np.ones((5, 2), "f4"))
    assert weft.gather(t, [[3, 0]]).tolist() == [[[2, 2], [1, 1]]]
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, env=ranks.quiet_environment()
    )


# On several ranks.


def matrix():
    comm = weft.init().comm
    world, me = comm.size, comm.rank
    shapes = [
        (rows, *more)
        for rows in sorted({0, 1, world - 1, world, world + 1, 1009})
        for more in ((), (3,), (2, 3))
    ]
    for number, shape in enumerate(shapes):
        rows = shape[0]
        uneven = [0] * world
        uneven[number % world] += rows // 2
        uneven[(number + 1) % world] += rows - rows // 2
        dtype = (*NUMPY_TYPES, "V3")[number % (len(NUMPY_TYPES) + 1)]
        for partition in ("equal", uneven):
            t = weft.empty(shape, dtype, partition=partition, like="numpy")
            check_whole(comm, t, uneven if partition is uneven else None)
        for partition in ("round_robin", ("round_robin", 4)):
            check_dealt(comm, weft.table(shape, "i4", partition=partition, like="numpy"))
        check_dealt(comm, weft.table(shape, "i4", aligned=True, like="numpy"))
    assert not comm.broken
    assert me == comm.rank


def check_whole(comm, t, given):
    found = weft.region(t)
    share = -(-len(t) // comm.size)
    counts = given or [min(share, max(0, len(t) - r * share)) for r in range(comm.size)]
    assert found.rows_per_rank == tuple(counts)
    assert found.start == sum(counts[: comm.rank]) and found.stop - found.start == counts[comm.rank]
    pattern = np.random.default_rng(len(t)).bytes(t.nbytes)
    expected = np.frombuffer(pattern, t.dtype).reshape(t.shape)
    found.local[...] = expected[found.start : found.stop]
    found.barrier()
    assert t.tobytes() == expected.tobytes()
    parts = found.parts
    assert [len(part) for part in parts] == counts
    assert b"".join(part.tobytes() for part in parts) == expected.tobytes()
    ids = np.arange(len(t))[::-1]
    assert weft.gather(t, ids).tobytes() == expected[ids].tobytes()
    assert found.readonly().tobytes() == expected.tobytes()
    found.barrier()


def check_dealt(comm, found):
    rows = found.shape[0]
    numbers = np.arange(rows)
    values = np.broadcast_to(
        numbers.reshape(-1, *[1] * (len(found.shape) - 1)), found.shape
    ).astype("i4")
    mine = numbers[comm.rank :: comm.size]
    weft.scatter(found, mine, values[mine])
    found.barrier()
    assert weft.gather(found, numbers).tolist() == values.tolist()
    owners = [found.locate(row) for row in range(rows)]
    assert sum(found.rows_per_rank) == rows
    for row in range(rows):
        owner, local = owners[row]
        assert (found.part(owner)[local] == row).all()
    if not found.flat:
        with pytest.raises(weft.UnsupportedError, match=r"weft\.table"):
            _ = found.tensor
    found.barrier()


@pytest.mark.parametrize("size", [1, 2, 3, 5, *([7, 8, 16] if FULL else [])])
def test_all_ranks_see_what_each_wrote_to_its_part(size):
    ranks.run(size, matrix)


def rows_without_bytes():
    comm = weft.init().comm
    for reach in ("auto", "distributed", "hierarchy"):
        t = weft.empty((30, 0), "u1", row_pitch=6, reach=reach, like="numpy")
        found = weft.region(t)
        assert t.shape == (30, 0) and found.part(comm.size - 1).shape == (30 // comm.size, 0)
        assert weft.gather(found, [3, 29]).shape == (2, 0)


def test_rows_without_bytes_are_a_tensor_wherever_they_are():
    ranks.run(3, rows_without_bytes)


def torch_matrix():
    import torch

    comm = weft.init().comm
    for name in TORCH_TYPES:
        kind = getattr(torch, name)
        t = weft.empty((13, 5), kind)
        found = weft.region(t)
        found.local.view(torch.uint8)[...] = comm.rank + 1
        found.barrier()
        for rank, part in enumerate(found.parts):
            assert bool((part.view(torch.uint8) == rank + 1).all()), name
        ids = torch.tensor([[12, 0], [5, 5]])
        rows = weft.gather(t, ids)
        assert rows.shape == (2, 2, 5) and rows.dtype is kind
        assert torch.equal(rows.view(torch.uint8), t.view(torch.uint8)[ids])
        found.barrier()
    filled = weft.full((101, 3), 7, torch.bfloat16)
    assert bool((filled == 7).all())


def test_tensors_of_every_type_are_shared():
    pytest.importorskip("torch")
    ranks.run(2, torch_matrix)


def lifetimes():
    comm = weft.init().comm
    before = regions_mapped()
    a = weft.full((100, 3), 1.0, like="numpy")
    b = weft.full((100, 3), 2.0, like="numpy")
    if comm.rank % 2:  # let go in another order on each rank
        a = None
        gc.collect()
        assert (b == 2).all()
        comm.barrier()
        b = None
    else:
        slice_of_a = a[50:]
        a, b = None, None
        gc.collect()
        comm.barrier()
        assert (slice_of_a == 1).all()
        slice_of_a = None
    gc.collect()
    assert regions_mapped() == before
    # A communicator may go before its region.
    side = comm.dup()
    t = weft.empty((comm.size, 2), "i4", comm=side, like="numpy")
    found = weft.region(t)
    side.close()
    found.local[...] = comm.rank
    found.barrier()
    assert t[:, 0].tolist() == list(range(comm.size))
    comm.barrier()
    # Only some ranks.
    half = comm.split(comm.rank % 2)
    t = weft.full((10,), comm.rank % 2, "i8", comm=half, like="numpy")
    assert (t == comm.rank % 2).all() and weft.region(t).ranks == half.size


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_let_go_in_any_order(size):
    ranks.run(size, lifetimes)


def growth():
    comm = weft.init().comm
    found = weft.table((7, 2), "i4", like="numpy", max_rows=10_000)
    first = found.tensor
    found.local[...] = comm.rank + 1
    found.barrier()
    kept = first.copy()
    whole = found.resize(5000)
    assert (whole[:7] == kept).all() and not whole[7:].any()
    found.barrier()
    for part in found.locals:
        part[...] = comm.rank + 1
    found.barrier()
    assert sorted(np.unique(whole)) == list(range(1, comm.size + 1))
    assert sum(found.rows_per_rank) == 5000
    if len(found.locals) > 1:
        for ask in (lambda: found.local, lambda: found.start):
            with pytest.raises(weft.UnsupportedError, match="several ranges"):
                ask()
    covered = sorted(pair for rank in range(comm.size) for pair in found.ranges(rank))
    assert [a for a, _ in covered[1:]] == [b for _, b in covered[:-1]]
    found.barrier()
    assert found.resize(3).shape == (3, 2)


@pytest.mark.parametrize("size", [2, 3])
def test_a_region_grows_on_all_ranks(size):
    ranks.run(size, growth)


def signals():
    comm = weft.init().comm
    t = weft.empty((comm.size, 1), "i8", like="numpy")
    found = weft.region(t)
    following = (comm.rank + 1) % comm.size
    for lap in range(1, 50):
        t[following] = lap
        found.signal(following, 3)
        found.wait(lap, 3)
        assert t[comm.rank] >= lap
    assert found.signalled(comm.rank, 3) >= 49
    found.barrier()
    for bad in (lambda: found.signal(comm.size), lambda: found.signal(0, 16)):
        with pytest.raises(weft.InvalidError):
            bad()
    with pytest.raises(weft.TimeoutError):
        found.wait(1000, 5, timeout=0.1)
    found.barrier()


def test_ranks_signal_each_other():
    ranks.run(3, signals)


def mismatched(what):
    comm = weft.init(timeout=60).comm
    odd = comm.rank == comm.size - 1
    arguments = {
        "shape": {"shape": (11 if odd else 10, 4)},
        "type": {"dtype": "f8" if odd else "f4"},
        "element": {"dtype": "u2" if odd else ">i2"},
        "partition": {"partition": "round_robin" if odd else "equal"},
        "max_rows": {"max_rows": 20 if odd else 30},
    }[what]
    with pytest.raises(weft.MismatchError, match=rf"rank {comm.size - 1}\b"):
        weft.table(**{"shape": (10, 4), "dtype": "f4", "like": "numpy", **arguments})


@pytest.mark.parametrize("what", ["shape", "type", "element", "partition", "max_rows"])
def test_a_rank_that_asks_for_something_else_is_named(what):
    ranks.run(3, mismatched, what)


def filled_unlike(like):
    comm = weft.init(timeout=60).comm
    last = comm.size - 1
    for one, other in ((1.0, 1.5), (0.0, -0.0), (float("inf"), float("nan"))):
        with pytest.raises(
            weft.MismatchError, match=rf"rank {last} has a different value .* {one}"
        ):
            weft.full((10, 4), other if comm.rank == last else one, "float32", like=like)
    # What is no other value in this type is the same, a NaN included.
    weft.full(3, 16777217.0 if comm.rank == last else 16777216.0, "float32", like=like)
    assert weft.full(3, float("nan"), like=like)[0] != 0


@pytest.mark.parametrize("like", ["numpy", "torch"])
def test_a_rank_that_fills_with_another_value_is_named(like):
    if like == "torch":
        pytest.importorskip("torch")
    ranks.run(3, filled_unlike, like)


def filled_with_text():
    weft.init(timeout=60)
    long = "x" * 2000
    assert (weft.full(3, long, "U2000", like="numpy") == long).all()


def test_a_value_longer_than_what_travels_is_no_other():
    ranks.run(2, filled_with_text)


def interrupted():
    world = weft.init(timeout=60)
    found = weft.table((4,), "i4", like="numpy")
    if world.rank == 0:
        with pytest.raises(KeyboardInterrupt):
            print("once", flush=True)
            found.barrier()
        with pytest.raises(KeyboardInterrupt):
            print("again", flush=True)
            found.wait(5)
        print("over", flush=True)
    else:
        world.comm.recv(bytearray(1), 0)


def test_ctrl_c_is_seen_in_a_barrier_and_a_wait():
    with ranks.Job(2, interrupted) as job:
        # A signal that comes before the call does no harm, but is not the one that is meant.
        for line in ("once", "again"):
            job[0].line(line)
            waiting.until_asleep(job[0].process.pid)
            job.kill(0, signal.SIGINT)
        job[0].line("over")


def survivors():
    comm = weft.init(timeout=60).comm
    t = weft.full((30, 2), 4.0, like="numpy")
    found = weft.region(t)
    print("made", flush=True)
    if comm.rank == 1:
        signal.pause()
    with pytest.raises(weft.PeerError):
        found.barrier()
    assert (t >= 4).all()
    weft.scatter_add(t, np.arange(30), np.ones((30, 2)))
    assert (weft.gather(t, [0, 15, 29]) >= 5).all()


def test_the_memory_of_a_dead_rank_stays():
    with ranks.Job(3, survivors) as job:
        for rank in job.ranks:
            rank.line("made")
        job.kill(1)
        job.finish({1: -signal.SIGKILL})


def adding():
    comm = weft.init().comm
    t = weft.zeros((5, 33), "f4", like="numpy")
    ids = np.arange(2000) % 5
    weft.scatter_add(t, ids, np.ones((2000, 33), "f4"), threads=2)
    weft.region(t).barrier()
    assert (t == 400 * comm.size).all()


def test_no_addition_is_lost_between_ranks():
    ranks.run(3, adding)


def under_torchrun():
    import torch

    t = weft.full((10, 2), 3.0)
    assert isinstance(t, torch.Tensor)
    line = f"rank {weft.rank()} of {weft.region(t).ranks}: {t.sum():.0f}\n"
    os.write(1, line.encode())  # print would write the end of the line by itself


def test_it_works_under_torchrun_at_once():
    pytest.importorskip("torch")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*start, "--no-python", *ranks.child_command(under_torchrun)],
        env=ranks.quiet_environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 of 2: 60", "rank 1 of 2: 60"]


def on_two_nodes():
    os.environ["WEFT_NODE"] = os.environ["WEFT_RANK"]  # each a node of its own, it says
    comm = weft.init(timeout=60).comm
    with pytest.raises(weft.UnsupportedError, match=r"weft\.table"):
        weft.empty((10, 2), "f4", like="numpy")
    with pytest.raises(weft.UnsupportedError):
        weft.empty((10, 2), "f4", reach="mapped", like="numpy")
    found = weft.table((10, 2), "f4", like="numpy")
    assert not found.flat and found.reach == "distributed"
    found.local[...] = comm.rank
    with pytest.raises(weft.UnsupportedError, match="another node"):
        found.part(1 - comm.rank)
    found.barrier()
    assert weft.gather(found, [9, 0, -1]).tolist() == [[1, 1], [0, 0], [0, 0]]
    found.barrier()
    weft.scatter_add(found, np.arange(10), np.ones((10, 2), "f4"))
    found.barrier()
    assert weft.gather(found, np.arange(10))[:, 0].tolist() == [2] * 5 + [3] * 5
    moved = weft.table((10, 2), "u2", like="numpy")
    if comm.rank == 0:
        weft.scatter(moved, np.arange(10), np.full((10, 2), 60_000, "u2"))
    moved.barrier()
    assert (weft.gather(moved, [9, 0]) == 60_000).all()
    assert found.stats()["rows_remote"] > 0
    found.barrier()
    moved.barrier()


@pytest.mark.over("nodes")
def test_rows_on_another_node_are_no_single_tensor():
    ranks.run(2, on_two_nodes)
