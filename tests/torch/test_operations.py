# SPDX-License-Identifier: Apache-2.0
"""Every operation of torch.distributed, on all types, waited for or not."""

import functools
import operator
import threading

import groups
import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

MOVED = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]
REDUCED = [t for t in MOVED if t.itemsize > 1 or t in (torch.uint8, torch.int8)]
COUNTS = (0, 1, 7, 3000)
SIZES = (1, 3)


def values(rank, count, dtype):
    """Small whole numbers, so that no order of additions changes the result."""
    numbers = torch.arange(count) % 3 + rank
    return numbers.to(torch.float32).to(dtype) if dtype.is_floating_point else numbers.to(dtype)


def wait(work):
    if work is not None:
        work.wait()


def each_way(function):
    """Do it blocking, then not."""
    for async_op in (False, True):
        function(async_op)


def same(a, b):
    assert a.dtype == b.dtype
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), (a, b)


def moves():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in MOVED:
        for count in COUNTS:
            each_way(functools.partial(move_one, rank, size, dtype, count))


def move_one(rank, size, dtype, count, async_op):
    all_of = [values(r, count, dtype) for r in range(size)]
    own = all_of[rank].clone()
    last = size - 1

    x = own.clone()
    wait(dist.broadcast(x, last, async_op=async_op))
    same(x, all_of[last])

    outs = [torch.empty_like(own) for _ in range(size)]
    wait(dist.all_gather(outs, own, async_op=async_op))
    for out, expected in zip(outs, all_of, strict=True):
        same(out, expected)

    out = torch.empty(size * count, dtype=dtype)
    wait(dist.all_gather_into_tensor(out, own, async_op=async_op))
    same(out, torch.cat([t.view(torch.uint8) for t in all_of]).view(dtype))

    outs = [torch.empty_like(own) for _ in range(size)] if rank == last else None
    wait(dist.gather(own, outs, dst=last, async_op=async_op))
    for out, expected in zip(outs or [], all_of, strict=rank == last):
        same(out, expected)

    out = torch.empty_like(own)
    wait(dist.scatter(out, all_of if rank == last else None, src=last, async_op=async_op))
    same(out, own)

    parts = [values(rank + r, count, dtype) for r in range(size)]
    outs = [torch.empty_like(own) for _ in range(size)]
    wait(dist.all_to_all(outs, parts, async_op=async_op))
    for r, out in enumerate(outs):
        same(out, values(r + rank, count, dtype))

    flat = torch.cat([t.view(torch.uint8) for t in parts]).view(dtype)
    out = torch.empty_like(flat)
    wait(dist.all_to_all_single(out, flat, async_op=async_op))
    same(out, torch.cat([t.view(torch.uint8) for t in outs]).view(dtype))


@pytest.mark.parametrize("size", SIZES)
def test_every_type_can_be_moved(size):
    groups.run(size, moves)


def reductions():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in REDUCED:
        for count in COUNTS:
            each_way(functools.partial(reduce_one, rank, size, dtype, count))


def reduce_one(rank, size, dtype, count, async_op):
    if dtype.itemsize == 1 and dtype.is_floating_point:
        with pytest.raises(TypeError, match="not reduced"):
            dist.all_reduce(torch.zeros(count, dtype=dtype))
        return
    all_of = [values(r, count, dtype) for r in range(size)]
    wide = torch.complex128 if dtype.is_complex else torch.float64
    total = functools.reduce(operator.add, [t.to(wide) for t in all_of]).to(dtype)
    own = all_of[rank]

    x = own.clone()
    wait(dist.all_reduce(x, async_op=async_op))
    assert torch.equal(x, total)

    x = own.clone()
    wait(dist.reduce(x, size - 1, async_op=async_op))
    assert torch.equal(x, total if rank == size - 1 else own)

    out = torch.empty_like(own)
    wait(dist.reduce_scatter(out, [own] * size, async_op=async_op))
    assert torch.equal(out, total)

    out = torch.empty_like(own)
    wait(dist.reduce_scatter_tensor(out, torch.cat([own] * size), async_op=async_op))
    assert torch.equal(out, total)


@pytest.mark.parametrize("size", SIZES)
def test_every_type_can_be_added_but_8_bit_floats(size):
    groups.run(size, reductions)


def operations():
    rank, size = dist.get_rank(), dist.get_world_size()
    ops = dist.ReduceOp
    x = torch.tensor([rank + 1, 6 - rank, 7])
    all_of = [torch.tensor([r + 1, 6 - r, 7]) for r in range(size)]
    stacked = torch.stack(all_of)
    expected = {
        ops.MIN: stacked.amin(0),
        ops.MAX: stacked.amax(0),
        ops.PRODUCT: stacked.prod(0),
        ops.BAND: functools.reduce(torch.bitwise_and, all_of),
        ops.BOR: functools.reduce(torch.bitwise_or, all_of),
        ops.BXOR: functools.reduce(torch.bitwise_xor, all_of),
    }
    for op, result in expected.items():
        y = x.clone()
        dist.all_reduce(y, op)
        assert torch.equal(y, result), op
    mean = torch.full((3,), float(rank))
    dist.all_reduce(mean, ops.AVG)
    assert torch.equal(mean, torch.full((3,), (size - 1) / 2))
    for factor in (0.5, torch.tensor([0.5])):
        half = torch.full((3,), float(rank + 1), dtype=torch.bfloat16)
        dist.all_reduce(half, dist._make_nccl_premul_sum(factor))
        assert torch.equal(half.float(), torch.full((3,), size * (size + 1) / 4))
    with pytest.raises(ValueError, match="band"):
        dist.all_reduce(torch.ones(3), ops.BAND)
    with pytest.raises(TypeError, match="not reduced"):
        dist.all_reduce(torch.ones(3, dtype=torch.uint16), ops.MAX)
    dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("size", SIZES)
def test_every_reduction(size):
    groups.run(size, operations)


def layouts():
    rank, size = dist.get_rank(), dist.get_world_size()
    base = torch.arange(24.0).reshape(4, 6)

    def strided(r):
        """Each rank has another layout."""
        return [base.t().contiguous().t(), base.clone(), base.repeat(2, 2)[::2, ::2][:, :6]][r % 3]

    shape = torch.stack([base] * 2)[0].shape

    def check(async_op):
        x = (strided(0) if rank == 0 else torch.zeros(6, 4).t()).clone(
            memory_format=torch.preserve_format
        )
        wait(dist.broadcast(x, 0, async_op=async_op))
        assert torch.equal(x, base)
        x = base.t().contiguous().t() if rank % 2 else base.clone()
        wait(dist.all_reduce(x, async_op=async_op))
        assert torch.equal(x, base * size)
        outs = [torch.zeros(shape[::-1]).t() for _ in range(size)]
        wait(dist.all_gather(outs, base if rank else base.t().contiguous().t(), async_op=async_op))
        for out in outs:
            assert torch.equal(out, base)
        out = torch.zeros(6, 4 * size).t()
        wait(dist.all_gather_into_tensor(out, base.t().contiguous().t(), async_op=async_op))
        assert torch.equal(out, torch.cat([base] * size))
        z = torch.view_as_complex(torch.arange(8.0).reshape(4, 2)).conj()
        wait(dist.all_reduce(z.resolve_conj(), async_op=async_op))

    each_way(check)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_need_not_agree_on_strides(size):
    groups.run(size, layouts)


def in_place():
    """Outputs that are also inputs, in their own place or in another one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    everyones = torch.arange(float(size)).repeat_interleave(2)

    def check(async_op):
        x = torch.zeros(2 * size)
        x[2 * rank : 2 * rank + 2] = rank
        wait(dist.all_gather_into_tensor(x, x[2 * rank : 2 * rank + 2], async_op=async_op))
        assert torch.equal(x, everyones)
        x = torch.full((2 * size,), float(rank))
        wait(dist.all_gather_into_tensor(x, x[:2], async_op=async_op))
        assert torch.equal(x, everyones)
        for at in (0, rank):
            x = torch.arange(2.0 * size)
            part = x[2 * at : 2 * at + 2]
            wait(dist.reduce_scatter_tensor(part, x, async_op=async_op))
            assert part.tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size]
            parts = [torch.full((2,), float(r)) for r in range(size)]
            wait(dist.reduce_scatter(parts[at], parts, async_op=async_op))
            assert parts[at].tolist() == [float(rank * size)] * 2
        x = torch.full((2 * size,), float(rank))
        wait(dist.all_to_all_single(x, x, async_op=async_op))
        assert torch.equal(x, everyones)
        parts = [torch.full((2,), float(rank)) for _ in range(size)]
        wait(dist.all_to_all(parts, parts, async_op=async_op))
        assert torch.equal(torch.cat(parts), everyones)
        parts = [torch.full((2,), float(rank)) for _ in range(size)]
        wait(dist.all_gather(parts, parts[0], async_op=async_op))
        assert torch.equal(torch.cat(parts), everyones)
        parts = [torch.full((2,), float(r)) for r in range(size)]
        wait(
            dist.scatter(parts[0], parts if rank == 1 % size else None, 1 % size, async_op=async_op)
        )
        assert parts[0].tolist() == [float(rank)] * 2
        x = torch.zeros(size + 1)
        overlapping = [x[r : r + 2] for r in range(size)]
        wait(dist.all_gather(overlapping, torch.full((2,), float(rank)), async_op=async_op))
        assert x.tolist() == [*range(size), size - 1]  # what came last stays

    each_way(check)


@pytest.mark.parametrize("size", SIZES)
def test_outputs_may_overlap_inputs_and_each_other(size):
    groups.run(size, in_place)


def awkward():
    """Tensors that are written through a copy, and some that cannot be."""
    size = dist.get_world_size()

    def check(async_op):
        with pytest.raises(ValueError, match="clone"):
            dist.all_reduce(torch.ones(1).expand(5), async_op=async_op)
        with pytest.raises(ValueError, match="clone"):
            dist.all_gather([torch.zeros(1).expand(5)] * size, torch.ones(5), async_op=async_op)
        # Read, an expanded tensor is like any other.
        outs = [torch.zeros(5) for _ in range(size)]
        wait(dist.all_gather(outs, torch.ones(1).expand(5), async_op=async_op))
        assert torch.stack(outs).eq(1).all()
        with torch.inference_mode():
            x = torch.ones(3, 4).t()
        work = dist.all_reduce(x, async_op=async_op)
        if work is not None:
            while not work.is_completed():
                pass
            work.wait()
        assert x.eq(size).all()
        leaf = torch.ones(3, 4, requires_grad=True)
        view = leaf.t()
        wait(dist.all_reduce(view, async_op=async_op))
        assert view.eq(size).all()
        assert type(view.grad_fn).__name__ == "TBackward0"

    each_way(check)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_of_inference_mode_of_autograd_and_expanded_ones(size):
    groups.run(size, awkward)


def uneven():
    rank, size = dist.get_rank(), dist.get_world_size()

    def check(async_op):
        outs = [torch.zeros(r) for r in range(size)]
        wait(dist.all_gather(outs, torch.full((rank,), float(rank)), async_op=async_op))
        assert [t.tolist() for t in outs] == [[float(r)] * r for r in range(size)]
        parts = [torch.full((r + 1,), float(rank)) for r in range(size)]
        outs = [torch.zeros(rank + 1) for _ in range(size)]
        wait(dist.all_to_all(outs, parts, async_op=async_op))
        assert [t.tolist() for t in outs] == [[float(r)] * (rank + 1) for r in range(size)]
        single = torch.zeros(size * (rank + 1), 2)
        sends = [r + 1 for r in range(size)]
        source = torch.full((sum(sends), 2), float(rank))
        takes = [rank + 1] * size
        wait(dist.all_to_all_single(single, source, takes, sends, async_op=async_op))
        assert torch.equal(single[:, 0], torch.arange(float(size)).repeat_interleave(rank + 1))
        out = torch.zeros(rank)
        lists = [torch.full((r,), 1.0) for r in range(size)]
        wait(dist.reduce_scatter(out, lists, async_op=async_op))
        assert out.tolist() == [float(size)] * rank
        unwanted = torch.zeros(2)
        same = torch.full((2,), float(rank))
        wait(dist.all_gather([unwanted] * size, same, async_op=async_op))
        assert unwanted.tolist() == [size - 1.0] * 2  # what came last stays

    each_way(check)


@pytest.mark.parametrize("size", SIZES)
def test_parts_may_differ_in_length(size):
    groups.run(size, uneven)


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    for async_ops in (False, True):
        a, b = torch.ones(3), torch.full((5,), 2.0, dtype=torch.bfloat16)
        with c10d._coalescing_manager(async_ops=async_ops) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        if async_ops:
            manager.wait()
        assert a.tolist() == [size] * 3
        assert b.tolist() == [2.0 * size] * 5
        outs = [torch.zeros(2 * size), torch.zeros(size)]
        with c10d._coalescing_manager(async_ops=async_ops) as manager:
            dist.all_gather_into_tensor(outs[0], torch.full((2,), float(rank)))
            dist.all_gather_into_tensor(outs[1], torch.full((1,), float(rank)))
        if async_ops:
            manager.wait()
        assert outs[1].tolist() == list(range(size))
        pieces = [torch.zeros(2), torch.zeros(1)]
        with c10d._coalescing_manager(async_ops=async_ops) as manager:
            dist.reduce_scatter_tensor(pieces[0], torch.ones(2 * size))
            dist.reduce_scatter_tensor(pieces[1], torch.ones(size))
        if async_ops:
            manager.wait()
        assert [p.tolist() for p in pieces] == [[size] * 2, [size]]
    with c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        work = group.allgather([[torch.zeros(1) for _ in range(size)]], [torch.ones(1)])
    assert work is not None
    manager.wait()


@pytest.mark.parametrize("size", SIZES)
def test_coalesced_calls(size):
    groups.run(size, coalesced)


def sparse():
    rank, size = dist.get_rank(), dist.get_world_size()

    def check(async_op):
        x = torch.sparse_coo_tensor([[rank, size]], torch.ones(2, 3), (size + 1, 3))
        wait(dist.all_reduce(x, async_op=async_op))
        dense = torch.ones(size + 1, 3)
        dense[size] = size
        assert torch.equal(x.to_dense(), dense)

    each_way(check)
    with pytest.raises(ValueError, match="SUM"):
        dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)), dist.ReduceOp.MAX)


@pytest.mark.parametrize("size", SIZES)
def test_sparse_tensors_are_added(size):
    groups.run(size, sparse)


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    works = [dist.irecv(torch.zeros(0), left, tag=9), dist.isend(torch.zeros(0), right, tag=9)]
    big = torch.full((300_000,), float(rank))
    got = torch.zeros(300_000)
    ops = [dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, big, right)]
    works += dist.batch_isend_irecv(ops)
    for work in works:
        work.wait()
    assert torch.equal(got, torch.full((300_000,), float(left)))
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            x = torch.zeros(2, 2).t()
            source = dist.recv(x, tag=5)
            assert x.tolist() == [[source, 1], [0, 2]]
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([[float(rank), 1.0], [0.0, 2.0]]), 0, tag=5)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]


def test_messages_with_tags_and_from_anyone():
    groups.run(3, messages)


def threads():
    """One thread waits for a message while another one sends on the same group."""
    rank = dist.get_rank()
    got = torch.zeros(3)
    other = 1 - rank
    waits = threading.Thread(target=dist.recv, args=(got, other))
    waits.start()
    if rank == 0:
        dist.send(torch.ones(3), other, tag=1)
        dist.send(torch.ones(3), other)
    else:
        dist.recv(torch.zeros(3), other, tag=1)
        dist.send(torch.ones(3), other)
    waits.join()
    assert got.tolist() == [1, 1, 1]
    groups_of_threads = [dist.new_group() for _ in range(3)]
    results = [torch.ones(5000) for _ in groups_of_threads]

    def reduce_often(x, group):
        for _ in range(20):
            dist.all_reduce(x, dist.ReduceOp.AVG, group=group)

    runs = [
        threading.Thread(target=reduce_often, args=pair)
        for pair in zip(results, groups_of_threads, strict=True)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert all(x.eq(1).all() for x in results)


def test_threads():
    groups.run(2, threads)


def dropped():
    """A Work that nobody keeps: its buffers live until the library is done."""
    size = dist.get_world_size()
    kept = torch.zeros(100_000).t()
    for _ in range(50):
        dist.all_reduce(torch.ones(100_000), async_op=True)
        dist.all_reduce(torch.ones(300, 300).t(), async_op=True)
    last = torch.ones(10)
    dist.all_reduce(last)
    assert last.tolist() == [size] * 10
    assert kept.sum() == 0


def test_a_work_may_be_dropped_before_it_is_over():
    groups.run(3, dropped)


def futures():
    size = dist.get_world_size()
    work = dist.all_reduce(torch.ones(50_000), async_op=True)
    doubled = work.get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((50_000,), 2.0 * size))
    assert work.is_completed()
    assert work.is_success()
    assert torch.equal(work.get_future().wait()[0], torch.full((50_000,), float(size)))

    # A callback may communicate, and wait for it.
    def again(f):
        x = f.value()[0].clone()
        dist.all_reduce(x)
        return x

    chain = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(again)
    assert chain.wait().tolist() == [float(size * size)] * 5


@pytest.mark.parametrize("size", SIZES)
def test_futures(size, capfd):
    groups.run(size, futures)
    assert "callback of a future" not in capfd.readouterr().err


def overtaken():
    """A callback that communicates after a call that came after its own."""
    store = c10d._get_default_store()
    called = threading.Event()

    def again(f):
        called.wait()
        dist.all_reduce(f.value()[0])

    # A future that is over runs a callback at once, on the thread that adds it, and this one
    # waits for what that thread does next. So the other rank joins only when it was added.
    if dist.get_rank() == 1:
        store.wait(["added"])
        dist.all_reduce(torch.ones(50_000))
        dist.barrier()
        dist.all_reduce(torch.ones(50_000))
        return
    chain = dist.all_reduce(torch.ones(50_000), async_op=True).get_future().then(again)
    store.set("added", "")
    dist.barrier()
    called.set()
    chain.wait()


def test_a_callback_whose_place_among_the_calls_is_open_is_warned_of(capfd):
    groups.run(2, overtaken)
    assert "callback of a future" in capfd.readouterr().err
