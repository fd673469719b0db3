# SPDX-License-Identifier: Apache-2.0
"""The table of array cases in docs/guide/python.md, case by case."""

import array
import subprocess
import sys

import numpy as np
import pytest
import ranks
import weft

torch = pytest.importorskip("torch")


# --- plain memory ---------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(3),
        torch.nn.Parameter(torch.ones(3), requires_grad=False),
        np.ones(3),
        array.array("d", [1, 2]),
        bytearray(b"abc"),
        memoryview(bytearray(b"abc")),
        torch.tensor(5.0),
        np.array(5.0),
        torch.empty(0),
        torch.empty((3, 0, 2)),
        np.empty((0, 3)),
        torch.ones((2, 1, 3)),
    ],
    ids=lambda x: f"{type(x).__name__}{tuple(getattr(x, 'shape', ()))}",
)
def test_plain_arrays_are_reduced_in_place_and_returned(alone, x):
    assert alone.allreduce(x) is x
    assert alone.broadcast(x) is x


def test_a_read_only_array_is_a_source_but_no_target(alone):
    x = np.arange(3.0)
    x.flags.writeable = False
    out = np.empty(3)
    assert alone.allreduce(x, out=out) is out
    np.testing.assert_array_equal(out, x)
    for readonly in (x, b"abc", memoryview(b"abc"), np.broadcast_to(np.ones(1), 3)):
        with pytest.raises(weft.InvalidError, match="read-only"):
            alone.allreduce(readonly)
    assert alone.broadcast(b"abc") == b"abc"  # this rank is the root, which only reads


def test_out_must_match_in_type_and_count_and_not_overlap_in_part(alone):
    x = np.ones(4, "f4")
    with pytest.raises(weft.InvalidError, match="float32, but out has float64"):
        alone.allreduce(x, out=np.ones(4, "f8"))
    with pytest.raises(weft.InvalidError, match="4 elements, but out has 3"):
        alone.allreduce(x, out=np.ones(3, "f4"))
    both = np.ones(5, "f4")
    with pytest.raises(weft.InvalidError, match="overlap"):
        alone.allreduce(both[:4], out=both[1:])
    assert alone.allreduce(x, out=x) is x


# --- through a copy: right on two ranks, whatever the other's layout -------


def copies():
    comm = weft.init().comm
    total = np.arange(6.0).reshape(2, 3) * comm.size
    plain = torch.arange(6.0).reshape(2, 3)
    wide = torch.zeros(2, 6)
    wide[:, ::2] = plain
    layouts = [
        plain,
        plain.t().contiguous().t(),  # dense, but permuted
        wide[:, ::2],  # strided
        torch.nn.Parameter(plain.clone(), requires_grad=False),
    ]
    for mine in range(len(layouts)):
        x = layouts[mine if comm.rank == 0 else 0].clone(memory_format=torch.preserve_format)
        base = torch.zeros(2, 6)
        if mine == 2 and comm.rank == 0:
            base[:, ::2] = plain
            x = base[:, ::2]
        assert comm.allreduce(x) is x
        np.testing.assert_array_equal(x.detach().numpy(), total)
        assert base[:, 1::2].abs().sum() == 0  # what lies between is left alone
    x = np.zeros((3, 4))
    x[:, 1] = comm.rank + 1
    column = x[:, 1]
    comm.allreduce(column)
    np.testing.assert_array_equal(x.sum(axis=0), [0, 3 * sum(range(1, comm.size + 1)), 0, 0])
    backwards = np.arange(4.0)[::-1]
    comm.allreduce(backwards)
    np.testing.assert_array_equal(backwards, np.arange(4.0)[::-1] * comm.size)
    view = memoryview(bytearray(b"\1\0\1\0"))[::2]
    comm.allreduce(view)
    assert view.tobytes() == bytes([comm.size] * 2)


def test_strided_and_permuted_arrays_keep_their_logical_order():
    ranks.run(2, copies)


def lazies():
    comm = weft.init().comm
    z = torch.tensor([1 + 2j, 3 - 1j])
    conjugate = z.conj()
    comm.allreduce(conjugate)
    assert torch.equal(conjugate, torch.tensor([1 - 2j, 3 + 1j]) * comm.size)
    assert torch.equal(z, torch.tensor([1 + 2j, 3 - 1j]) * comm.size)  # the same memory
    for count in (1, 2):
        negative = torch.tensor([1 + 2j, 3 - 1j])[:count].conj().imag
        assert negative.is_neg()
        comm.allreduce(negative)
        assert torch.equal(negative, torch.tensor([-2.0, 1.0])[:count] * comm.size)
    swapped = np.arange(3, dtype=">i4")
    comm.allreduce(swapped)
    np.testing.assert_array_equal(swapped, np.arange(3) * comm.size)
    request = comm.iallreduce(conjugate)
    assert request.wait() is conjugate
    assert torch.equal(conjugate, torch.tensor([1 - 2j, 3 + 1j]) * comm.size**2)


def test_conjugated_negated_and_big_endian_arrays_give_their_values():
    ranks.run(2, lazies)


def test_a_tensor_that_turns_lazy_after_it_was_seen_is_noticed(alone):
    x = torch.ones(1)
    alone.allreduce(x)
    x.data = torch.tensor([2j]).conj().imag
    alone.allreduce(x)
    assert x.item() == -2.0


# --- refused, or allowed as a source only ---------------------------------


def test_an_expanded_array_is_a_source_but_no_target(alone):
    expanded = torch.ones(1).expand(3)
    out = torch.zeros(3)
    alone.allreduce(expanded, out=out)
    assert torch.equal(out, torch.ones(3))
    overlapping = torch.zeros(5).as_strided((3, 2), (1, 1))
    numpys = np.lib.stride_tricks.as_strided(np.zeros(5), (3, 2), (8, 8))
    for target in (expanded, overlapping, numpys):
        with pytest.raises(weft.InvalidError, match="share memory"):
            alone.allreduce(target)


def test_memory_that_is_not_the_hosts_is_refused_with_a_remedy(alone):
    with pytest.raises(weft.UnsupportedError, match=r"x\.cpu\(\)"):
        alone.allreduce(torch.ones(2, device="meta"))
    with pytest.raises(weft.UnsupportedError, match="to_dense"):
        alone.allreduce(torch.ones(2, 2).to_sparse())


def test_a_leaf_that_requires_grad_is_written_under_no_grad_only(alone):
    leaf = torch.ones(2, requires_grad=True)
    for target in (leaf, torch.nn.Parameter(torch.ones(2))):
        with pytest.raises(weft.InvalidError, match="no_grad"):
            alone.allreduce(target)
        with torch.no_grad():
            assert alone.allreduce(target) is target
        alone.allreduce(target, out=torch.empty(2))  # reading it is always fine
    inner = leaf * 2
    alone.allreduce(inner)  # its memory, as through detach()
    leaf.grad = torch.ones(2)
    alone.allreduce(leaf.grad, "avg")
    leaf.requires_grad_(False)
    alone.allreduce(leaf)
    leaf.requires_grad_()
    with pytest.raises(weft.InvalidError, match="no_grad"):
        alone.allreduce(leaf)


class Plain(torch.Tensor):
    """A subclass that adds nothing to the memory."""


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_subclasses_with_plain_memory_work_and_others_are_refused(alone):
    plain = torch.ones(3).as_subclass(Plain)
    assert alone.allreduce(plain, weft.premul_sum(2.0)) is plain
    assert plain.sum().item() == 6
    with pytest.raises(TypeError, match="__torch_dispatch__"):
        alone.allreduce(Wrapper(torch.ones(3)))
    with pytest.raises(TypeError, match="no shape yet"):
        alone.allreduce(torch.nn.LazyLinear(2).weight)


def test_tensors_that_torch_only_pretends_to_have_are_refused(alone):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(TypeError, match="FakeTensor"):
        alone.allreduce(fake)

    def inside(x):
        alone.allreduce(x, out=torch.empty(()))
        return x

    with pytest.raises(TypeError, match="vmap"):
        torch.vmap(inside)(torch.ones(3))


def test_dtensor_is_refused_and_an_async_result_is_waited_for(alone):
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        from torch.distributed._functional_collectives import all_reduce
        from torch.distributed.tensor import distribute_tensor, init_device_mesh

        mesh = init_device_mesh("cpu", (1,))
        with pytest.raises(TypeError, match="to_local"):
            alone.allreduce(distribute_tensor(torch.ones(3), mesh))
        pending = all_reduce(torch.ones(3), "sum", dist.group.WORLD)
        assert alone.allreduce(pending) is pending
    finally:
        dist.destroy_process_group()


# --- element types --------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4, dtype=torch.float8_e4m3fn),
        torch.ones(4, dtype=torch.uint16),
        np.ones(4, "u8"),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
        np.zeros(2, np.longdouble),
        np.array(["text"]),
    ],
    ids=lambda x: str(x.dtype).rpartition(".")[2],
)
def test_types_without_arithmetic_can_be_moved_but_not_reduced(alone, x):
    assert alone.broadcast(x) is x
    with pytest.raises(TypeError, match="cannot be reduced") as caught:
        alone.allreduce(x)
    assert str(x.dtype) in str(caught.value)


def move_dates():
    comm = weft.init().comm
    if comm.rank == 0:
        comm.send(np.array(["2020-01-01", "2021-01-01"], "M8[D]")[::-1], 1)
    else:
        got = np.zeros((2, 2), "M8[D]")
        assert comm.recv(got[:, 0], 0).length == 2
        assert [str(day) for day in got[:, 0]] == ["2021-01-01", "2020-01-01"]


def test_any_type_can_be_sent():
    ranks.run(2, move_dates)


@pytest.mark.parametrize("x", [[1.0], (1.0,), 1.0, None, "text", {}], ids=str)
def test_what_has_no_memory_is_a_type_error(alone, x):
    with pytest.raises(TypeError, match="torch tensors, NumPy arrays and buffers"):
        alone.allreduce(x)


def test_python_objects_are_never_sent_as_memory(alone):
    for x in (np.array([None, "a"]), np.zeros(2, [("a", "i4"), ("b", "O")])):
        with pytest.raises(TypeError, match="pointers"):
            alone.broadcast(x)


class Foreign:
    """An array of another library: it has the DLPack methods and nothing else."""

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **how):
        return self._x.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


def test_arrays_of_other_libraries_are_read_through_dlpack(alone):
    x = np.arange(3.0)
    foreign = Foreign(x)
    assert alone.allreduce(foreign, weft.premul_sum(2.0)) is foreign
    np.testing.assert_array_equal(x, [0.0, 2.0, 4.0])


# --- lifetimes ------------------------------------------------------------


def test_no_reference_is_lost_or_kept(alone):
    def refused(*arguments):
        with pytest.raises(weft.InvalidError):
            alone.allreduce(*arguments)

    x, strided, n = torch.ones(3), torch.ones(3, 2)[:, 0], np.ones(3)
    calls = [
        lambda: alone.allreduce(x),
        lambda: alone.allreduce(strided),
        lambda: alone.allreduce(n),
        lambda: alone.iallreduce(x, "max").wait(),
        lambda: alone.iallreduce(strided).wait(),
        lambda: alone.ibroadcast(n),
        lambda: refused(x, "no such op"),
        lambda: refused(x.expand(2, 3)),
    ]
    for call in calls:
        call()
        before = [sys.getrefcount(o) for o in (x, strided, n, alone)]
        for _ in range(10):
            call()
        assert [sys.getrefcount(o) for o in (x, strided, n, alone)] == before


def test_a_buffer_cannot_be_resized_under_a_pending_request(alone):
    x = bytearray(4)
    request = alone.irecv(x, 0)
    with pytest.raises(BufferError):
        x.extend(b"more")
    alone.send(b"data", 0)
    assert request.wait(60).length == 4
    x.extend(b"more")
    assert x == b"datamore"


def test_a_tensor_can_be_dropped_or_moved_under_a_pending_request(alone):
    x = torch.zeros(1000)
    request = alone.irecv(x, 0)
    x.data = torch.empty(0)  # the request holds the memory it was given
    alone.send(torch.ones(1000), 0)
    assert request.wait(60).length == 1000
    assert x.numel() == 0


def test_importing_weft_imports_neither_torch_nor_numpy():
    code = "import sys, weft; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
