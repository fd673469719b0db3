# SPDX-License-Identifier: Apache-2.0
"""weft.compat.mpi4torch: mpi4torch's names and results, without its defects."""

import copy
import pickle
import warnings

import jobs
import pytest
import torch
import weft
from torch.testing import assert_close
from weft import mpi
from weft.compat import mpi4torch

SIZES = (1, 2, 3)

# TorchScript is deprecated; it is supported while torch has it.
warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit.*")


def world(comm):
    assert mpi4torch.COMM_WORLD.rank == comm.rank
    return mpi4torch.COMM_WORLD


def gradient_of(y, x):
    """Of the sum over ranks, with another weight for each element and rank."""
    weights = torch.arange(1.0, y.numel() + 1).view(y.shape) * (mpi.COMM_WORLD.rank + 1)
    y.backward(weights.to(y.dtype))
    return x.grad, weights


def of_rank(rank, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) + 100 * rank).view(shape)


def reductions(_):
    comm = world(_)
    ranks = range(comm.size)
    x = of_rank(comm.rank, 3).requires_grad_()
    y = comm.Allreduce(x, mpi4torch.MPI_SUM)
    assert_close(y, sum(of_rank(r, 3) for r in ranks))
    grad, weights = gradient_of(y, x)
    factor = sum(r + 1 for r in ranks) / (comm.rank + 1)
    assert_close(grad, weights.double() * factor)
    found = {
        mpi4torch.MPI_MAX: of_rank(comm.size - 1, 3),
        mpi4torch.MPI_MIN: of_rank(0, 3),
        mpi4torch.MPI_PROD: torch.stack([of_rank(r, 3) for r in ranks]).prod(0),
    }
    for op, want in found.items():
        assert_close(comm.Allreduce(x.detach(), op), want)
    bits = torch.tensor([1 << comm.rank, 0, 1])
    assert comm.Allreduce(bits, mpi4torch.MPI_BOR).tolist() == [(1 << comm.size) - 1, 0, 1]
    assert comm.Allreduce(bits, mpi4torch.MPI_LAND).tolist() == [1, 0, 1]
    with pytest.raises(RuntimeError, match="Collective operation not supported"):
        comm.Allreduce(x, 12)
    with pytest.raises(RuntimeError, match="pairs"):
        comm.Allreduce(x, mpi4torch.MPI_MINLOC)


def moves(_):
    comm = world(_)
    size, rank, root = comm.size, comm.rank, comm.size - 1
    parts = [of_rank(r, r + 1, 2) for r in range(size)]
    total = sum(p.shape[0] for p in parts)
    x = parts[rank].clone().requires_grad_()
    y = comm.Gather(x, 0, root)
    assert_close(y, torch.cat(parts)) if rank == root else None
    assert y.shape == ((total, 2) if rank == root else (0, 2))
    y.backward(torch.arange(2.0 * y.shape[0]).view(-1, 2).double())
    before = sum(p.shape[0] for p in parts[:rank])
    rows = torch.arange(2.0 * total).view(-1, 2).double()[before : before + rank + 1]
    assert_close(x.grad, rows)

    x.grad = None
    y = comm.Allgather(x, -2)
    assert_close(y, torch.cat(parts))
    y.backward(torch.full_like(y, float(rank + 1)))
    assert_close(x.grad, torch.full_like(x, sum(range(1, size + 1))))

    whole = torch.cat(parts) if rank == root else torch.zeros(1, dtype=torch.float64)
    whole.requires_grad_()
    y = comm.Scatter(whole, 0, rank + 1, root)
    assert_close(y, parts[rank])
    y.backward(parts[rank])
    assert_close(whole.grad, torch.cat(parts) if rank == root else torch.zeros_like(whole))


def transposes(_):
    comm = world(_)
    size, rank = comm.size, comm.rank
    total = size * (size + 1) // 2
    whole = of_rank(1, total, total)
    first = sum(range(1, rank + 1))
    mine = slice(first, first + rank + 1)
    x = whole[mine].clone().requires_grad_()
    y = comm.Alltoall(x, 0, 1, rank + 1)
    assert_close(y, whole[:, mine])
    y.backward(2 * y.detach())
    assert_close(x.grad, 2 * whole[mine])
    x.grad = None
    other = size - rank  # the same slices, dealt the other way round
    begin = sum(size - r for r in range(rank))
    y = comm.Alltoall(x, 0, 0, other)
    assert_close(y, whole[begin : begin + other])
    y.backward(3 * y.detach())
    assert_close(x.grad, 3 * whole[mine])


def wrong_lengths(_):
    comm = world(_)
    comm.Alltoall(torch.zeros(2, comm.size + 1), 0, 1, 1)


def in_place(_):
    comm = world(_)
    ranks, root = range(comm.size), comm.size - 1
    leaf = of_rank(comm.rank, 3).requires_grad_()
    y = comm.Bcast_(leaf, root)
    assert y.data_ptr() == leaf.data_ptr()
    assert_close(leaf.detach(), of_rank(root, 3))
    y.backward(torch.ones(3, dtype=torch.float64))
    assert_close(leaf.grad, torch.full_like(leaf, comm.size if comm.rank == root else 0))

    x = of_rank(comm.rank, 3).requires_grad_()
    inner = x * 2
    version = inner._version
    y = comm.Reduce_(inner, mpi4torch.MPI_SUM, root)
    assert y.data_ptr() == inner.data_ptr() and inner._version > version
    want = sum(2 * of_rank(r, 3) for r in ranks)
    assert_close(inner.detach(), want if comm.rank == root else torch.zeros_like(want))
    gradient = torch.full((3,), comm.rank + 1.0, dtype=torch.float64)
    y.backward(gradient)
    assert_close(x.grad, torch.full_like(x, 2.0 * comm.size))
    assert gradient.tolist() == [comm.rank + 1.0] * 3  # a caller's gradient is left alone
    columns = of_rank(comm.rank, 3, 2).t()
    comm.Bcast_(columns, root)
    assert_close(columns, of_rank(root, 3, 2).t())
    expanded = torch.tensor([float(comm.rank)]).expand(4)
    assert comm.Bcast_(expanded, root).tolist() == [float(root)] * 4


def saved_values(_):
    comm = world(_)
    x = torch.ones(2, requires_grad=True)
    y = comm.Reduce_(x.exp(), mpi4torch.MPI_SUM, 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def spent(_):
    """What was given to Reduce_ and is used afterwards is an error; a part of it is not."""
    comm = world(_)
    x = torch.ones(2, requires_grad=True)
    for use in (lambda y, inner: y + inner, lambda y, inner: inner * 2, torch.mul):
        inner = x * 2
        y = comm.Reduce_(inner, mpi4torch.MPI_SUM, 0)
        loss = use(y, inner).sum()
        with pytest.raises(RuntimeError, match="Try using the return value"):
            loss.backward()
        comm._weft.detach_history()
    inner = x * 2
    version = inner._version
    with torch.no_grad():
        assert comm.Reduce_(inner, mpi4torch.MPI_SUM, 0) is inner
    assert inner._version > version
    whole = x * 2
    part = comm.Reduce_(whole[:1], mpi4torch.MPI_SUM, 0)
    (part.sum() + whole.sum()).backward()
    assert_close(x.grad, torch.tensor([4.0, 2.0]))  # what rank 0 reduced counts twice


def ring(comm, x, buffer):
    """The README's exchange, with its missing bracket."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    handle = comm.Isend(x, right, 0)
    res1 = comm.Recv(mpi4torch.JoinDummies(buffer, [handle.dummy]), left, 0)
    res2 = comm.Wait(mpi4torch.JoinDummiesHandle(handle, [res1]))
    return mpi4torch.JoinDummies(res1, [res2])


def plain_ring(comm, x, buffer):
    """The README's exchange without dummies; the result of Wait is dropped."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    handle = comm.Isend(x, right, 0)
    received = comm.Recv(buffer, left, 0)
    comm.Wait(handle)
    return received


def exchange(_, how):
    comm = world(_)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    x = of_rank(comm.rank, 3).requires_grad_()
    buffer = torch.full((6,), -1.0, dtype=torch.float64)[::2]
    y = how(comm, x, buffer)
    assert_close(y, of_rank(left, 3))
    assert_close(buffer, of_rank(left, 3))
    y.backward(torch.full((3,), comm.rank + 1.0, dtype=torch.float64))
    assert_close(x.grad, torch.full_like(x, right + 1.0))


def waits_left_out(_):
    """A Wait whose result nobody uses: the backward of the next step does not come back to it."""
    comm = world(_)
    right = (comm.rank + 1) % comm.size
    x = of_rank(comm.rank, 3).requires_grad_()
    for step in range(3):
        x.grad = None
        y = plain_ring(comm, x, torch.empty(3, dtype=torch.float64))
        y.backward(torch.full((3,), comm.rank + step + 1.0, dtype=torch.float64))
        assert_close(x.grad, torch.full_like(x, right + step + 1.0))
        assert mpi.COMM_WORLD.history == 0
    late = comm.Isend(x, right, 0)
    comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size, 0).sum().backward()
    comm.Wait(late)  # after the gradient came
    assert mpi.COMM_WORLD.history == 0
    # A collective that is waited for too late for the first loss still has a gradient.
    started = mpi.COMM_WORLD.Iallreduce(x)
    comm.Allreduce(x, mpi4torch.MPI_SUM).sum().backward()
    x.grad = None
    mpi.COMM_WORLD.Wait(started).sum().backward()
    assert_close(x.grad, torch.full_like(x, comm.size))


def handles(_):
    comm = world(_)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    x = torch.tensor([float(comm.rank)], requires_grad=True)
    buffer = torch.zeros(1, requires_grad=True)
    receive = comm.Irecv(buffer, left, 5)
    sent = comm.Wait(comm.Isend(x, right, 5))
    received = comm.Wait(receive)
    assert sent.item() == comm.rank and received.item() == left
    with pytest.raises(ValueError, match="waited for before"):
        comm.Wait(receive)
    # What comes back for the send counts, its own gradient does not; the buffer's is zero.
    (100 * sent + 7 * received).sum().backward()
    assert x.grad.item() == 7 and buffer.grad.item() == 0


def nothing_recorded(_):
    """Without gradients nothing waits for a backward."""
    comm = world(_)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    receive = comm.Irecv(torch.empty(2), left, 0)
    send = comm.Isend(torch.ones(2), right, 0)
    assert not receive.dummy.requires_grad
    received = comm.Wait(mpi4torch.JoinDummiesHandle(receive, [send.dummy]))
    comm.Wait(mpi4torch.JoinDummiesHandle(send, [received]))
    assert received.tolist() == [1, 1] and not received.requires_grad
    assert mpi.COMM_WORLD.history == 0


def dummies(_):
    x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    assert mpi4torch.JoinDummies(x, [torch.ones(1)]) is x
    z = mpi4torch.JoinDummies(x, [y])
    assert z.data_ptr() == x.data_ptr()
    (z * z).sum().backward()
    assert x.grad.tolist() == [2, 2] and y.grad.tolist() == [0, 0, 0]
    _, tangent = torch.func.jvp(lambda t: mpi4torch.JoinDummies(t * 1, [y]) * 3, (x,), (x,))
    assert tangent.tolist() == [3, 3]


def scripted_ring(x: torch.Tensor, comm: mpi4torch.MPI_Communicator) -> torch.Tensor:
    right, left = (comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size
    handle = comm.Isend(x, right, 0)
    other = comm.Irecv(torch.empty_like(x), left, 0)
    res1 = comm.Wait(mpi4torch.JoinDummiesHandle(other, [handle.dummy]))
    res2 = comm.Wait(mpi4torch.JoinDummiesHandle(handle, [res1]))
    comm.Send(x, right, 1)  # whose result nobody uses
    comm.Recv(torch.empty_like(x), left, 1)
    return mpi4torch.JoinDummies(res1, [res2])


def scripted_collectives(x: torch.Tensor, comm: mpi4torch.MPI_Communicator) -> torch.Tensor:
    y = comm.Reduce_(comm.Allgather(comm.Allreduce(x, 2), 0), 2, 0)
    y = comm.Scatter(comm.Gather(comm.Bcast_(y, 0), 0, 0), 0, 2 * comm.size, 0)
    return comm.Alltoall(y.view(comm.size, -1), 1, 0, 1)


def scripts(_):
    comm = world(_)
    x = torch.tensor([1.0 + comm.rank, 2.0], requires_grad=True)
    for function, repeat in ((scripted_ring, 3), (scripted_collectives, 3)):
        compiled = torch.jit.script(function)
        wanted = torch.autograd.grad(function(x, comm).square().sum(), x)[0]
        for _turn in range(repeat):
            y = compiled(x, comm)
            assert_close(y, function(x.detach(), comm))
            assert_close(torch.autograd.grad(y.square().sum(), x)[0], wanted)


def scripted_unused(x: torch.Tensor, comm: mpi4torch.MPI_Communicator) -> torch.Tensor:
    """Whose results nobody uses, or which look the same, or write into their argument."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size
    buffer, other = torch.zeros_like(x), torch.zeros_like(x)
    comm.Send(x, right, 0)
    comm.Send(x, right, 0)
    comm.Recv(buffer, left, 0)
    comm.Wait(comm.Irecv(other, left, 0))
    comm.Send(x, right, 1)
    comm.Bcast_(other, 0)
    return buffer + other


def nothing_is_dropped_in_scripts(_):
    comm = world(_)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    compiled = torch.jit.script(scripted_unused)
    for turn in range(3):
        y = compiled(torch.full((2,), float(comm.rank + turn)), comm)
        assert y.tolist() == [left + turn + (comm.size - 1) % comm.size + turn] * 2
        assert comm.Recv(torch.empty(2), left, 1).tolist() == [left + turn] * 2
    handle = comm.Isend(torch.ones(1), right, 2)
    waits = torch.jit.script(waited_in_a_script)
    with pytest.raises(RuntimeError, match="not made in a script"):
        waits(handle, comm)
    assert comm.Recv(torch.empty(1), left, 2).item() == 1


def waited_in_a_script(handle: mpi4torch.WaitHandle, comm: mpi4torch.MPI_Communicator) -> int:
    comm.Wait(handle)
    return comm.rank


def mistakes(_):
    """Of the kinds that are made most; each is told what to do."""
    comm = world(_)
    x = torch.ones(2)
    handle = comm.Isend(x, comm.rank, 0)
    join, join_handle = mpi4torch.JoinDummies, mpi4torch.JoinDummiesHandle
    wrong = (
        ("pass handle.dummy", lambda: join(x, [handle])),
        ("there is JoinDummiesHandle", lambda: join(handle, [x])),
        ("a list of tensors", lambda: join(x, x)),
        ("a list of tensors", lambda: join_handle(handle, x)),
        ("a dummy is a tensor", lambda: join_handle(handle, [1])),
        ("what Isend and Irecv", lambda: join_handle(x, [x])),
        ("what Isend and Irecv", lambda: comm.Wait(x)),
        ("must be mpi4torch.MPI_SUM", lambda: comm.Allreduce(x, "sum")),
    )
    for text, call in wrong:
        with pytest.raises(TypeError, match=text):
            call()
    for call in (comm.Isend, comm.Irecv, comm.Send, comm.Recv):
        with pytest.raises(ValueError, match="rank -9 is out of range"):
            call(x, -9, 0)
    comm.Recv(torch.empty(2), comm.rank, 0)
    lost = mpi4torch._wrap(mpi.COMM_WORLD.Dup())
    lost._weft = None
    with pytest.raises(RuntimeError, match="Unknown MPI communicator"):
        torch.jit.script(scripted_unused)(x, lost)


def wider(_):
    """What mpi4torch did not have: more types, tangents, vmap."""
    comm = world(_)
    for dtype in (torch.float16, torch.bfloat16, torch.complex64):
        x = torch.tensor([1, 2]).to(dtype)
        assert_close(comm.Allreduce(x, mpi4torch.MPI_SUM), x * comm.size)
    flags = torch.tensor([comm.rank == 0])
    assert comm.Allgather(flags, 0).tolist() == [r == 0 for r in range(comm.size)]
    x = of_rank(comm.rank, 3)
    functions = (
        lambda t: comm.Allreduce(t, mpi4torch.MPI_SUM),
        lambda t: comm.Bcast_(t * 1, 0),
        lambda t: comm.Allgather(t, 0),
        lambda t: ring(comm, t, torch.empty(3, dtype=torch.float64)),
    )
    for function in functions:
        y, tangent = torch.func.jvp(function, (x,), (2 * x,))
        assert_close(tangent, 2 * y)
    gradient = torch.func.grad(lambda t: comm.Bcast_(t, 0).square().sum())(x.clone())
    first = 2 * comm.size * of_rank(0, 3)
    assert_close(gradient, first if comm.rank == 0 else torch.zeros_like(x))
    batch = torch.stack([x, 2 * x])
    for function in functions[:3]:
        assert_close(torch.vmap(function)(batch)[1], 2 * function(x))


def pickles(_):
    comm = world(_)
    assert pickle.loads(pickle.dumps(comm)) is comm
    other = mpi4torch._wrap(mpi.COMM_WORLD.Dup())
    with pytest.raises(RuntimeError, match="not serializable"):
        pickle.dumps(other)


def copies(_):
    """A model with a communicator in it can be copied, and used in scripts after that."""
    model = torch.nn.Module()
    model.comm = mpi4torch._wrap(mpi.COMM_WORLD.Dup())
    twin = copy.deepcopy(model)
    assert twin.comm is model.comm and copy.copy(model.comm) is model.comm
    assert f"rank {model.comm.rank} of {model.comm.size}" in repr(twin.comm)
    y = torch.jit.script(scripted_collectives)(torch.ones(2), twin.comm)
    assert_close(y, scripted_collectives(torch.ones(2), model.comm))


def half_ported(_):
    """What comes from mpi4py or mpi4torch into weft.mpi by mistake."""
    comm = mpi.COMM_WORLD
    x = torch.ones(2)
    wrong = (
        ("Results are returned", lambda: comm.Allreduce(x, torch.empty(2))),
        ("Results are returned", lambda: comm.Reduce(x, object())),
        ("takes a tensor, not a ndarray", lambda: comm.Allreduce(x.numpy())),
        ("pair .values, indices.", lambda: comm.Allreduce(x, mpi.MINLOC)),
    )
    for text, call in wrong:
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(ValueError, match="99 is not a reduction"):
        comm.Allreduce(x, 99)
    freed = comm.Dup()
    freed.Free()
    for call in (freed.Dup, lambda: freed.Allreduce(x)):
        with pytest.raises(weft.ClosedError, match=r"or weft\.finalize"):
            call()


class OfMpi4py:
    """What a communicator of mpi4py looks like in a process that no mpirun started."""

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 1

    def allgather(self, value):
        return [value]


def alone_for_mpi4py(_):
    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning, match="started 2 ranks"):
        patch.setenv("WORLD_SIZE", "2")
        assert mpi.Comm(OfMpi4py()).size == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mpi.Comm(OfMpi4py()).size == 1


def one_rank_only(_):
    comm = world(_)
    x = torch.ones(2, requires_grad=comm.rank == 0)
    comm.Allreduce(x, mpi4torch.MPI_SUM).sum().backward()


BODIES = (
    *(reductions, moves, transposes, in_place, saved_values, spent),
    *(handles, waits_left_out, nothing_recorded, dummies, scripts, nothing_is_dropped_in_scripts),
    *(mistakes, half_ported, wider, pickles, copies),
)


def all_of(comm):
    """In one job: to start one takes longer than most of them."""
    for body in BODIES:
        body(comm)
        comm.detach_history()
    for how in (ring, plain_ring):
        exchange(comm, how)


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_api(size):
    jobs.run(size, all_of)


def test_a_wrong_sum_of_lengths_is_told_on_all_ranks():
    for error in jobs.errors(2, wrong_lengths):
        assert "ranks want [1, 1] slices" in error


def test_gradients_on_one_rank_only_are_told_and_do_not_hang():
    assert any("MismatchError" in (error or "") for error in jobs.errors(2, one_rank_only))


def growth(_):
    import resource

    comm = world(_)
    x = torch.ones(50_000, requires_grad=True)
    buffer = torch.empty(50_000)
    marks = []
    for _half in range(2):
        for _step in range(5000 if jobs.FULL else 100):
            ring(comm, x, buffer).sum().backward()
            x.grad = None
        marks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert marks[1] - marks[0] < 5 * 1024  # KiB; each step handles about 1 MiB


def test_ranks_that_mpi4py_does_not_see_are_told_of():
    jobs.run(1, alone_for_mpi4py)


def test_the_documented_exchange_does_not_leak():
    jobs.run(2, growth)


def test_names_and_constants():
    first = ["MAX", "MIN", "SUM", "PROD", "LAND", "BAND"]
    names = [*first, "LOR", "BOR", "LXOR", "BXOR", "MINLOC", "MAXLOC"]
    assert [getattr(mpi4torch, "MPI_" + name) for name in names] == list(range(12))
    assert mpi4torch.deactivate_cuda_aware_mpi_support() is None
    for name in mpi4torch.__all__:
        assert name == "COMM_WORLD" or hasattr(mpi4torch, name)
