# SPDX-License-Identifier: Apache-2.0
"""Every operation on every element type, against NumPy."""

import functools
import hashlib

import numpy as np
import pytest
import ranks
import weft

COUNTS = (0, 1, 7, 1025)
TYPES = ("bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
WHOLE = ("bool", "u1", "i1", "i2", "i4", "i8")
COMPLEX = ("c8", "c16")
OPS = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", "premul")
FACTOR = 0.5


def applies(op, kind):
    if op == "avg":
        return kind != "bool"
    if op in ("band", "bor", "bxor"):
        return kind in WHOLE
    if op in ("min", "max", "land", "lor", "lxor"):
        return kind not in COMPLEX
    return op != "premul" or kind not in WHOLE


def data(kind, count, rank, op):
    """Small whole numbers, so that no order of additions changes the result."""
    rng = np.random.default_rng([count, rank])
    low, high = (0, 2) if kind == "bool" else (1, 3) if op == "prod" else (0, 9)
    values = rng.integers(low, high, count)
    if kind in COMPLEX:
        return (values + 1j * rng.integers(low, high, count)).astype(kind)
    return values.astype(kind)


def reference(op, parts):
    kind = parts[0].dtype.kind
    if op in ("sum", "avg", "premul") and kind != "b":
        total = functools.reduce(np.add, parts)
        if op == "premul":
            return total * FACTOR
        if op == "avg" and kind in "iu":
            return np.trunc(total / len(parts))
        return total / len(parts) if op == "avg" else total
    truth = [part.astype(bool) for part in parts]
    fold = {
        "sum": (np.logical_or, parts),  # of bool
        "prod": (np.logical_and if kind == "b" else np.multiply, parts),
        "min": (np.minimum, parts),
        "max": (np.maximum, parts),
        "band": (np.bitwise_and, parts),
        "bor": (np.bitwise_or, parts),
        "bxor": (np.bitwise_xor, parts),
        "land": (np.logical_and, truth),
        "lor": (np.logical_or, truth),
        "lxor": (np.logical_xor, truth),
    }
    function, operands = fold[op]
    return functools.reduce(function, operands)


def as_op(op):
    return weft.premul_sum(FACTOR) if op == "premul" else op


def check(comm, op, kind, count, convert):
    parts = [data(kind, count, rank, op) for rank in range(comm.size)]
    given = convert(parts[comm.rank])
    result = comm.allreduce(given, as_op(op))
    assert result is given
    expected = reference(op, parts).astype(kind)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-3 if kind == "f2" else 1e-6)


def all_operations():
    import torch

    comm = weft.init().comm
    for convert in (np.array, lambda x: torch.from_numpy(x.copy())):
        for kind in TYPES:
            for op in OPS:
                if applies(op, kind):
                    for count in COUNTS:
                        check(comm, op, kind, count, convert)
                else:
                    with pytest.raises(weft.InvalidError):
                        comm.allreduce(convert(data(kind, 3, 0, op)), as_op(op))
    assert not comm.broken


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_allreduce_gives_what_numpy_gives_for_every_operation_and_type(size):
    ranks.run(size, all_operations, seconds=2 * ranks.DEADLINE)


def half_types():
    import torch

    comm = weft.init().comm
    for kind in (torch.bfloat16, torch.float16):
        for op in ("sum", "min", "max", "avg", "prod"):
            x = torch.full((70001,), comm.rank + 1.0, dtype=kind)
            parts = torch.stack([torch.full_like(x, r + 1.0) for r in range(comm.size)])
            wide = parts.to(torch.float32)
            expected = {
                "sum": wide.sum(0),
                "min": wide.amin(0),
                "max": wide.amax(0),
                "avg": wide.mean(0),
                "prod": wide.prod(0),
            }[op]
            torch.testing.assert_close(comm.allreduce(x, op), expected.to(kind))


def test_bfloat16_and_float16_are_reduced_in_float32():
    ranks.run(3, half_types)


def large_and_same_bits():
    comm = weft.init().comm
    rng = np.random.default_rng(comm.rank)
    x = rng.standard_normal(1_000_003).astype("f4")
    first = comm.allreduce(x, out=np.empty_like(x))
    second = comm.allreduce(x.copy())
    digest = hashlib.sha256(first.tobytes()).digest()
    assert first.tobytes() == second.tobytes()
    assert comm.broadcast(bytearray(digest), root=0) == digest
    expected = sum(
        np.random.default_rng(r).standard_normal(len(x)).astype("f4").astype("f8")
        for r in range(comm.size)
    )
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)


def test_large_results_have_the_same_bits_on_all_ranks_and_in_repeated_runs():
    ranks.run(3, large_and_same_bits)


def broadcasts():
    import torch

    comm = weft.init().comm
    for root in range(comm.size):
        for count in (0, 1, 1025, 300_001):
            x = torch.arange(count, dtype=torch.int64) * (root + 1)
            mine = x.clone() if comm.rank == root else torch.zeros_like(x)
            assert comm.broadcast(mine, root) is mine
            assert torch.equal(mine, x)
    text = b"only the root may pass what cannot be written"
    mine = text if comm.rank == 1 else bytearray(len(text))
    assert bytes(comm.broadcast(mine, root=1)) == text


def test_broadcast_copies_from_any_root():
    ranks.run(3, broadcasts)


def groups():
    world = weft.init()
    comm = world.comm
    halves = comm.split(comm.rank % 2, key=-comm.rank)
    assert halves.members == tuple(r for r in reversed(range(comm.size)) if r % 2 == comm.rank % 2)
    assert halves.allreduce(np.array([comm.rank]))[0] == sum(halves.members)
    assert comm.split(None if comm.rank == 0 else 1) is None or comm.rank != 0
    with comm.dup() as same:
        assert (same.rank, same.size) == (comm.rank, comm.size)
        same.barrier()
    assert same.closed and not comm.closed
    with pytest.raises(weft.ClosedError):
        same.barrier()
    if comm.rank in (0, 2):
        pair = comm.subset([2, 0])
        assert pair.members == (2, 0)
        assert pair.allreduce(np.array([comm.rank]))[0] == 2
        apart = comm.create_group([2, 0], tag=5, timeout=30)
        assert (apart.members, apart.timeout) == ((2, 0), 30)
        with pytest.raises(weft.InvalidError, match="does not contain the caller"):
            comm.create_group([1])
    comm.barrier()
    assert [peer.rank for peer in world.peers] == list(range(comm.size))
    node = world.peers[comm.rank].node
    assert all(peer.shares_memory == (peer.node == node) for peer in world.peers)
    assert "rank" in world.dump()


def test_split_dup_and_subset_make_the_groups_they_name():
    ranks.run(4, groups)


def test_one_process_without_a_launcher_is_a_world_of_one(alone):
    assert (weft.rank(), weft.size()) == (0, 1)
    x = np.array([2.0, 4.0])
    assert alone.allreduce(x, "avg") is x
    np.testing.assert_array_equal(alone.allreduce(x, weft.premul_sum(0.5)), [1.0, 2.0])
    alone.barrier()
    alone.broadcast(x)


def test_init_is_idempotent_and_refuses_other_arguments_the_second_time(alone):
    assert weft.init() is weft.world()
    with pytest.raises(weft.InvalidError, match="already"):
        weft.init("alone")
