# SPDX-License-Identifier: Apache-2.0
"""Collectives with a part for each rank, and the reductions that are not for all ranks.

One job runs all cases of its size: arrays of every kind, blocking and not, with equal parts,
with lists and with counts.
"""

import functools
import itertools

import numpy as np
import pytest
import ranks
import weft

SIZES = [1, 2, 3, 5]


def torch_or_none():
    try:
        import torch
    except ImportError:
        return None
    return torch


class Arrays:
    """One kind of array: how to make one from numbers, or empty, and how to read it."""

    def __init__(self, name, make, zeros, reduces=True):
        self.name, self.make, self.zeros, self.reduces = name, make, zeros, reduces

    def read(self, x):
        return np.asarray(x).astype("i8").reshape(-1).tolist()


def numpy_kind(dtype, reduces=True):
    return Arrays(
        f"numpy {dtype}",
        lambda values: np.array(values, "i8").astype(dtype),
        lambda n: np.zeros(n, dtype),
        reduces,
    )


def numpy_strided(dtype):
    def make(values):
        x = np.full((len(values), 2), 77, dtype)
        x[:, 1] = values
        return x[:, 1]

    return Arrays(f"numpy {dtype} strided", make, lambda n: np.zeros((n, 3), dtype)[:, 2])


def torch_kind(torch, dtype, reduces=True):
    kind = getattr(torch, dtype)
    return Arrays(
        f"torch {dtype}",
        lambda values: torch.tensor(values, dtype=torch.int64).to(kind),
        lambda n: torch.zeros(n, dtype=kind),
        reduces,
    )


def torch_strided(torch):
    def make(values):
        x = torch.full((len(values), 2), 77.0)
        x[:, 0] = torch.tensor(values)
        return x[:, 0]

    return Arrays("torch strided", make, lambda n: torch.zeros((n, 2))[:, 0])


def kinds():
    torch = torch_or_none()
    found = [
        numpy_kind("f4"),
        numpy_kind("i8"),
        numpy_strided("f8"),
        numpy_kind(">i4"),
        numpy_kind("u2", reduces=False),
        numpy_kind("M8[s]", reduces=False),
    ]
    if torch is not None:
        found += [
            torch_kind(torch, "float32"),
            torch_kind(torch, "int64"),
            torch_strided(torch),
            torch_kind(torch, "uint16", reduces=False),
        ]
    return found


def call(comm, later, name, *args, **named):
    """Call a method, or its i-form and wait."""
    if later:
        return getattr(comm, f"i{name}")(*args, **named).wait()
    return getattr(comm, name)(*args, **named)


def block(source, target, n):
    """What `source` has for `target`: small numbers that tell all three apart."""
    return [(31 * source + 7 * target + i) % 251 for i in range(n)]


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def ragged(rank):
    return (1, 0, 3, 2, 4)[rank]  # one of them is empty


def check_allgather(comm, arrays, later):
    everyone = range(comm.size)
    x = arrays.make(block(comm.rank, 0, 3))
    expected = joined(block(r, 0, 3) for r in everyone)
    out = arrays.zeros(3 * comm.size)
    assert call(comm, later, "allgather", x, out) is out
    assert arrays.read(out) == expected
    x = arrays.make(block(comm.rank, 0, ragged(comm.rank)))
    parts = [arrays.zeros(ragged(r)) for r in everyone]
    assert call(comm, later, "allgather", x, parts) is parts
    assert [arrays.read(p) for p in parts] == [block(r, 0, ragged(r)) for r in everyone]
    counts = [ragged(r) for r in everyone]
    out = arrays.zeros(sum(counts))
    assert call(comm, later, "allgather", x, out, counts=counts) is out
    assert arrays.read(out) == joined(block(r, 0, ragged(r)) for r in everyone)


def check_gather(comm, arrays, later, root):
    everyone = range(comm.size)
    mine = comm.rank == root
    x = arrays.make(block(comm.rank, 0, 3))
    out = arrays.zeros(3 * comm.size) if mine else None
    assert call(comm, later, "gather", x, out, root) is out
    if mine:
        assert arrays.read(out) == joined(block(r, 0, 3) for r in everyone)
    x = arrays.make(block(comm.rank, 0, ragged(comm.rank)))
    parts = tuple(arrays.zeros(ragged(r)) for r in everyone) if mine else None
    assert call(comm, later, "gather", x, parts, root=root) is parts
    if mine:
        assert [arrays.read(p) for p in parts] == [block(r, 0, ragged(r)) for r in everyone]
        counts = [ragged(r) for r in everyone]
        out = arrays.zeros(sum(counts))
        call(comm, later, "gather", x, out, root, counts)
        assert arrays.read(out) == joined(block(r, 0, ragged(r)) for r in everyone)
    else:
        assert call(comm, later, "gather", x, root=root) is None


def check_scatter(comm, arrays, later, root):
    everyone = range(comm.size)
    mine = comm.rank == root
    out = arrays.zeros(3)
    x = arrays.make(joined(block(root, r, 3) for r in everyone)) if mine else None
    assert call(comm, later, "scatter", x, out, root) is out
    assert arrays.read(out) == block(root, comm.rank, 3)
    for form in ("list", "counts"):
        out = arrays.zeros(ragged(comm.rank))
        parts = [block(root, r, ragged(r)) for r in everyone]
        if not mine:
            call(comm, later, "scatter", None, out, root)
        elif form == "list":
            call(comm, later, "scatter", [arrays.make(p) for p in parts], out, root)
        else:
            whole = arrays.make(joined(parts))
            call(comm, later, "scatter", whole, out, root, [len(p) for p in parts])
        assert arrays.read(out) == block(root, comm.rank, ragged(comm.rank))


def check_alltoall(comm, arrays, later):
    everyone = range(comm.size)
    me = comm.rank
    x = arrays.make(joined(block(me, r, 2) for r in everyone))
    out = arrays.zeros(2 * comm.size)
    assert call(comm, later, "alltoall", x, out) is out
    assert arrays.read(out) == joined(block(r, me, 2) for r in everyone)

    def length(source, target):
        return (source + 2 * target) % 3

    sent = [block(me, r, length(me, r)) for r in everyone]
    expected = [block(r, me, length(r, me)) for r in everyone]
    parts = [arrays.zeros(len(p)) for p in expected]
    assert call(comm, later, "alltoall", [arrays.make(p) for p in sent], parts) is parts
    assert [arrays.read(p) for p in parts] == expected
    out = arrays.zeros(sum(map(len, expected)))
    x = arrays.make(joined(sent))
    counts, out_counts = [len(p) for p in sent], [len(p) for p in expected]
    call(comm, later, "alltoall", x, out, counts=counts, out_counts=np.array(out_counts))
    assert arrays.read(out) == joined(expected)


def added(blocks):
    return [sum(column) for column in zip(*blocks, strict=True)]


def check_reduce_scatter(comm, arrays, later):
    everyone = range(comm.size)
    me = comm.rank
    x = arrays.make(joined(block(me, r, 2) for r in everyone))
    out = arrays.zeros(2)
    assert call(comm, later, "reduce_scatter", x, out) is out
    assert arrays.read(out) == added(block(r, me, 2) for r in everyone)
    parts = [block(me, r, ragged(r)) for r in everyone]
    for form in ("list", "counts"):
        out = arrays.zeros(ragged(me))
        if form == "list":
            call(comm, later, "reduce_scatter", [arrays.make(p) for p in parts], out, "max")
        else:
            counts = [len(p) for p in parts]
            call(comm, later, "reduce_scatter", arrays.make(joined(parts)), out, "max", counts)
        columns = zip(*(block(r, me, ragged(me)) for r in everyone), strict=True)
        assert arrays.read(out) == [max(column) for column in columns]


def check_reductions(comm, arrays, later):
    blocks = [block(r, 0, 4) for r in range(comm.size)]
    for root in range(comm.size):
        x = arrays.make(blocks[comm.rank])
        result = call(comm, later, "reduce", x, "sum", root)
        assert result is (x if comm.rank == root else None)
        assert arrays.read(x) == (added(blocks) if comm.rank == root else blocks[comm.rank])
        out = arrays.zeros(4) if comm.rank == root else None
        x = arrays.make(blocks[comm.rank])
        assert call(comm, later, "reduce", x, weft.SUM, root=root, out=out) is out
        assert arrays.read(x) == blocks[comm.rank]
        assert out is None or arrays.read(out) == added(blocks)
    x = arrays.make(blocks[comm.rank])
    assert call(comm, later, "scan", x) is x
    assert arrays.read(x) == added(blocks[: comm.rank + 1])
    x, out = arrays.make(blocks[comm.rank]), arrays.make([9, 9, 9, 9])
    assert call(comm, later, "exscan", x, "sum", out) is out
    assert arrays.read(out) == (added(blocks[: comm.rank]) if comm.rank else [9] * 4)
    call(comm, later, "exscan", x)
    assert arrays.read(x) == (added(blocks[: comm.rank]) if comm.rank else blocks[0])


def check_refused(comm, arrays):
    x = arrays.make(list(range(comm.size)))
    for reduction in (
        lambda: comm.reduce(x),
        lambda: comm.scan(x),
        lambda: comm.exscan(x),
        lambda: comm.reduce_scatter(x, arrays.zeros(1)),
        lambda: comm.ireduce_scatter([arrays.zeros(1)] * comm.size, arrays.zeros(1)),
    ):
        with pytest.raises(TypeError, match=f"{x.dtype}.* cannot be reduced".replace("[", r"\[")):
            reduction()


def every_case():
    comm = weft.init().comm
    for arrays, later in itertools.product(kinds(), (False, True)):
        check_allgather(comm, arrays, later)
        check_alltoall(comm, arrays, later)
        for root in range(comm.size):
            check_gather(comm, arrays, later, root)
            check_scatter(comm, arrays, later, root)
        if arrays.reduces:
            check_reduce_scatter(comm, arrays, later)
            check_reductions(comm, arrays, later)
        else:
            check_refused(comm, arrays)
    assert not comm.broken


@pytest.mark.parametrize("size", SIZES)
def test_parts_of_every_kind_of_array_arrive_where_they_belong(size):
    ranks.run(size, every_case)


def shapes():
    comm = weft.init().comm
    everyone = range(comm.size)
    number = np.array(comm.rank + 0.5)
    out = np.empty((comm.size, 1))
    comm.allgather(number, out)
    assert out.ravel().tolist() == [r + 0.5 for r in everyone]
    numbers = [np.array(0.0) for _ in everyone]
    comm.allgather(number, numbers)
    assert [float(n) for n in numbers] == [r + 0.5 for r in everyone]
    assert float(comm.scan(number)) == sum(r + 0.5 for r in everyone if r <= comm.rank)
    nothing = np.empty((0, 3))
    assert comm.allgather(nothing, np.empty((comm.size, 0))).size == 0
    assert comm.alltoall(nothing, np.empty(0)).size == 0
    assert comm.reduce_scatter(nothing, np.empty(0)).size == 0
    assert comm.scatter(nothing, np.empty(0)).size == 0
    assert comm.reduce(nothing, root=comm.size - 1) is (
        nothing if comm.rank == comm.size - 1 else None
    )
    empties = [np.empty(0) for _ in everyone]
    assert comm.alltoall(empties, [np.empty(0) for _ in everyone])
    assert comm.gather(np.empty(0), empties if comm.rank == 0 else None) is (
        empties if comm.rank == 0 else None
    )
    # A block may lie where the result wants it.
    table = np.zeros((comm.size, 4))
    table[comm.rank] = comm.rank
    comm.allgather(table[comm.rank], table)
    assert (table == np.arange(comm.size)[:, None]).all()
    table[:] = comm.rank + 1
    comm.reduce_scatter(table, table[comm.rank])
    assert (table[comm.rank] == sum(r + 1 for r in everyone)).all()
    table[:] = np.arange(comm.size)[:, None] + 10 * comm.rank
    comm.scatter(table, table[comm.rank], root=0)
    assert (table[comm.rank] == comm.rank).all()
    columns = np.zeros((4, comm.size))  # the same with parts that are not contiguous
    columns[:, comm.rank] = comm.rank
    comm.allgather(columns[:, comm.rank], [columns[:, r] for r in everyone])
    assert (columns == np.arange(comm.size)).all()
    # bytes can only be read
    assert comm.allgather(b"ab", bytearray(2 * comm.size)) == b"ab" * comm.size


@pytest.mark.parametrize("size", [1, 3])
def test_shapes_do_not_matter_and_results_may_be_in_place(size):
    ranks.run(size, shapes)


def large():
    comm = weft.init().comm
    n = 200_003
    me = comm.rank
    x = np.arange(n * comm.size, dtype="f4").reshape(comm.size, n) + me
    out = np.empty_like(x)
    comm.alltoall(x, out)
    for r in range(comm.size):
        assert (out[r] == np.arange(n * me, n * (me + 1), dtype="f4") + r).all()
    comm.allgather(x[0], out)
    assert (out == np.arange(n, dtype="f4") + np.arange(comm.size, dtype="f4")[:, None]).all()
    part = comm.reduce_scatter(x, np.empty(n, "f4"), "max")
    assert (part == np.arange(n * me, n * (me + 1), dtype="f4") + comm.size - 1).all()
    requests = [comm.igather(x[0], out if me == r else None, r) for r in range(comm.size)]
    requests.append(comm.iscan(np.ones(n, "f4")))
    assert (requests[-1].wait() == me + 1).all()
    assert [r.wait() is out for r in requests[:-1]] == [r == me for r in range(comm.size)]
    assert (out[:, -1] == n - 1 + np.arange(comm.size)).all()
    counts = [n // (r + 1) for r in range(comm.size)]
    whole = np.empty(sum(counts), "f4")
    comm.allgather(x[0, : counts[me]], whole, counts)
    assert whole[-1] == counts[-1] - 1 + comm.size - 1


def test_large_parts_arrive_whole():
    ranks.run(3, large)


def pairs():
    comm = weft.init().comm
    for name, back in itertools.product(
        ("pair_f32", "pair_f64", "pair_i32", "pair_i64"), (False, True)
    ):
        x = np.zeros(6, getattr(weft, name))[:: -1 if back else 1]
        x["value"] = [3, 1, 2, 5, 5, 0]
        x["value"][comm.rank] = 9
        x["index"] = comm.rank * 10 + np.arange(6)
        y = x.copy()
        assert comm.allreduce(x, weft.MAXLOC) is x
        expected = [(9, 11 * i) for i in range(comm.size)]
        assert x.tolist()[: comm.size] == expected
        assert x.tolist()[5] == (0, 5)
        comm.allreduce(y, "minloc")
        assert y.tolist()[4] == (5, 4)
        table = np.zeros((comm.size, 6), x.dtype)
        comm.allgather(x, table)
        assert (table == x).all()
    x = np.zeros(2, [("v", "<f8"), ("where", "<i8")])  # names do not matter
    comm.allreduce(x, weft.MINLOC)
    with pytest.raises(weft.InvalidError, match="pair_f64"):
        comm.allreduce(x, "sum")
    with pytest.raises(weft.InvalidError, match="minloc"):
        comm.allreduce(np.ones(2), "minloc")
    for other in ([("v", "f4"), ("i", "u4")], [("v", "f4"), ("i", "i8")], "V8"):
        with pytest.raises(TypeError, match="cannot be reduced"):
            comm.allreduce(np.zeros(2, other), "minloc")
    with pytest.raises(AttributeError, match="pair_f16"):
        _ = weft.pair_f16


@pytest.mark.parametrize("size", [1, 3])
def test_minloc_and_maxloc_reduce_pairs_of_value_and_index(size):
    ranks.run(size, pairs)


def refusals():
    comm = weft.init().comm
    size, rank = comm.size, comm.rank
    two = np.zeros(2)
    readonly = np.zeros(2 * size)
    readonly.flags.writeable = False

    def refuse(error, text, method, *args, **named):
        for name in (method, f"i{method}"):
            with pytest.raises(error, match=text):
                getattr(comm, name)(*args, **named)

    invalid = functools.partial(refuse, weft.InvalidError)
    invalid(f"2 elements, but out has {2 * size + 1}", "allgather", two, np.zeros(2 * size + 1))
    invalid(f"3 elements, but x has {2 * size}", "reduce_scatter", np.zeros(2 * size), np.zeros(3))
    invalid(f"but there are {size} ranks", "allgather", two, [two] * (size + 1))
    invalid(f"but there are {size} ranks", "allgather", two, np.zeros(4), [4] * (size + 1))
    invalid("add up to", "allgather", two, np.zeros(2 * size + 2), [2] * size)
    invalid("are left", "allgather", two, np.zeros(2 * size), [2 * size + 1] * size)
    invalid("-1 elements", "allgather", two, np.zeros(2 * size), [-1] * size)
    invalid("lengths of their own", "allgather", two, [two] * size, [2] * size)
    invalid(f"for this rank, {rank}, has 3", "allgather", two, [np.zeros(3)] * size)
    invalid("float64, but out has float32", "allgather", two, np.zeros(2 * size, "f4"))
    invalid("float64, but out has uint32", "allgather", two, [np.zeros(2, "u4")] * size)
    invalid("read-only", "allgather", two, readonly)
    invalid("read-only", "scan", readonly)
    invalid("read-only", "alltoall", readonly, readonly)
    invalid("read-only", "alltoall", [two] * size, [readonly[:2]] * size)
    invalid(f"root {size} is out of range", "gather", two, root=size)
    invalid(f"root {size} is out of range", "scatter", None, two, root=size)
    invalid(f"root {size} is out of range", "reduce", two, root=size)
    invalid("root", "reduce", two, root=-1)
    invalid("not one of sum", "reduce_scatter", np.zeros(2 * size), two, "add")
    invalid("avg", "scan", two, "avg")
    if size > 1:
        invalid("different types", "alltoall", [two, *[np.zeros(1, "f4")] * (size - 1)], two)
        invalid("not a multiple", "alltoall", np.zeros(2 * size + 1), np.zeros(2 * size + 1))
        invalid("not a multiple", "alltoall", np.zeros(2 * size + 1), [two] * size)
        invalid("overlap", "allgather", (both := np.zeros(4 * size))[1:3], both[: 2 * size])
    wrong = functools.partial(refuse, TypeError)
    wrong("missing the argument 'out'", "allgather", two)
    wrong("needs out", "gather", two, root=rank)
    wrong("needs x", "scatter", None, two, root=rank)
    wrong("sequence of whole numbers", "allgather", two, np.zeros(2 * size), 2)
    wrong("whole number", "allgather", two, np.zeros(2 * size), [0.5] * size)
    wrong("torch tensors, NumPy arrays", "allgather", [two] * size, np.zeros(2 * size))
    wrong("torch tensors, NumPy arrays", "allgather", two, [None] * size)
    assert not comm.broken
    comm.barrier()


@pytest.mark.parametrize("size", [1, 2])
def test_what_does_not_fit_is_told_with_its_numbers_and_breaks_nothing(size):
    ranks.run(size, refusals)


def unequal():
    comm = weft.init().comm
    one = comm.dup()
    with pytest.raises(weft.MismatchError, match="rank"):
        one.gather(np.zeros(2 + comm.rank), np.zeros(2 * comm.size) if comm.rank == 0 else None)
        one.barrier()
    two = comm.dup()
    with pytest.raises(weft.MismatchError):
        parts = [np.zeros(1) for _ in range(comm.size)]
        two.allgather(np.zeros(1), parts if comm.rank == 0 else np.zeros(comm.size))
    comm.barrier()


def test_ranks_that_disagree_about_a_part_are_told():
    ranks.run(2, unequal)


def strange_tensors():
    import torch

    comm = weft.init().comm
    everyone = range(comm.size)
    for kind in (torch.float8_e4m3fn, torch.bfloat16, torch.complex32, torch.bool, torch.uint64):
        x = torch.ones(3, dtype=torch.uint8).to(kind)
        out = torch.zeros(3 * comm.size, dtype=torch.uint8).to(kind)
        comm.allgather(x, out)
        assert (out.view(torch.uint8) == x.view(torch.uint8).repeat(comm.size)).all()
    z = torch.tensor([1 + 2j], dtype=torch.complex32).conj()
    parts = [torch.zeros(1, dtype=torch.complex32) for _ in everyone]
    comm.allgather(z, parts)
    assert all(complex(p.to(torch.complex64).item()) == 1 - 2j for p in parts)
    leaf = torch.zeros(comm.size, requires_grad=True)
    with pytest.raises(weft.InvalidError, match="no_grad"):
        comm.allgather(torch.ones(1), leaf)
    with torch.no_grad():
        assert comm.allgather(torch.ones(1), leaf) is leaf
    halves = torch.zeros(2, comm.size)
    comm.allgather(torch.tensor([1.0, 2.0]), list(halves.T))  # columns, each strided
    assert (halves == torch.tensor([[1.0], [2.0]])).all()
    rows = torch.zeros(comm.size, 2)
    comm.allgather(np.array([1.0, 2.0], "f4"), list(rows))  # of another library, too
    assert (rows == torch.tensor([1.0, 2.0])).all()
    with pytest.raises(weft.InvalidError, match="overlap"):
        comm.allgather(torch.ones(2), [torch.zeros(2)] * comm.size)
    comm.igather(torch.ones(2), [torch.zeros(2) for _ in everyone] if comm.rank == 0 else None)
    comm.barrier()


def test_tensors_of_every_type_can_be_moved():
    pytest.importorskip("torch")
    ranks.run(2, strange_tensors)
