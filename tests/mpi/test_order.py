# SPDX-License-Identifier: Apache-2.0
"""The order of the backward pass, what it keeps alive, and the convention."""

import gc
import random
import resource
import threading
import warnings

import jobs
import pytest
import torch
from weft import mpi

close = torch.testing.assert_close


def random_graph(comm, seed, devices=("cpu",)):
    """The same communications on all ranks, whose results are used at random.

    Each rank makes its own graph around them: of everything that it has it
    combines what it likes, and its loss may use none of it. The backward of each
    communication is seen by a hook on its node.
    """
    same, own = random.Random(seed), random.Random(1000 * seed + comm.rank)
    leaf = torch.ones(2, requires_grad=True)
    pool, ran, recorded = [leaf], [], []
    for number in range(same.randrange(3, 12)):
        device = own.choice(devices)
        x = own.choice(pool).to(device)
        for _ in range(own.randrange(3)):
            x = (x * own.choice(pool).to(device)).sin()
        kind = same.randrange(5)
        if kind == 0:
            y = comm.Allreduce(x)
        elif kind == 1:
            y = comm.Bcast(x, same.randrange(comm.size))
        elif kind == 2:
            y = comm.Reduce(x, mpi.SUM, same.randrange(comm.size))
        elif kind == 3:
            y = comm.Scan(x)
        else:
            handle = comm.Isend(x, (comm.rank + 1) % comm.size)
            y = comm.Recv(x, (comm.rank - 1) % comm.size)
            comm.Wait(handle)
        recorded.append(number)
        node = y.grad_fn
        node.register_prehook(lambda _, number=number: ran.append(number))
        if own.randrange(3):
            pool.append(y)
    used = [own.choice(pool).sum().cpu() for _ in range(own.randrange(3))]
    loss = sum(used, torch.zeros(()))
    mpi.backward(loss, comm)
    assert ran == recorded[::-1], (ran, recorded)
    assert comm.history == 0


def fuzz(comm, first, count, *devices):
    for seed in range(first, first + count):
        random_graph(comm, seed, devices or ("cpu",))


@pytest.mark.parametrize("size", (2, 3))
def test_every_communication_runs_backward_in_reverse(size):
    jobs.run(size, fuzz, 100 * size, 100 if jobs.FULL else 30)


def losses_in_turn(comm):
    """Two losses over one history, the earlier first; then the other way round."""
    x = torch.ones(1, requires_grad=True)
    first, second = comm.Allreduce(x), comm.Allreduce(3 * x)
    first.sum().backward()
    assert comm.history == 1
    second.sum().backward()
    close(x.grad, torch.tensor([4.0 * comm.size]))
    x.grad = None
    first, second = comm.Allreduce(x), comm.Allreduce(3 * x)
    second.sum().backward(retain_graph=True)
    assert comm.history == 2
    first.sum().backward()
    second.sum().backward()
    assert comm.history == 0


def kept_losses(comm):
    """A loss that is kept does not tie one step to the next."""
    x = torch.ones(1, requires_grad=True)
    losses = []
    for _ in range(5):
        loss = comm.Allreduce(x).sum()
        mpi.backward(loss)
        losses.append(loss)
        assert comm.history == 0
    close(x.grad, torch.tensor([5.0 * comm.size]))


def two_threads(comm):
    """Operations recorded in another thread keep their place."""
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    results = []

    def one(leaf):
        for _ in range(50 if comm.rank == 0 else 1):
            leaf = leaf * 1
        results.append(comm.Allreduce(leaf))

    for leaf in (a, b):
        thread = threading.Thread(target=one, args=(leaf,))
        thread.start()
        thread.join()
    mpi.backward((results[0] * 10).sum() + results[1].sum())
    close(a.grad, torch.tensor([10.0 * comm.size]))
    close(b.grad, torch.tensor([1.0 * comm.size]))


def own_history(comm):
    """A second communicator has an order of its own; both are joined."""
    other = comm.Dup()
    part = comm.Split(comm.rank % 2, -comm.rank)
    x = torch.ones(1, requires_grad=True)
    y, z = comm.Allreduce(x), other.Allreduce(x * 2)
    w = part.Allreduce(x * 3)
    assert (comm.history, other.history, part.history) == (1, 1, 1)
    mpi.backward((y if comm.rank else z).sum() + w.sum())
    n = comm.size
    expected = (n - 1) * 1.0 + 2.0 + 3.0 * part.size
    close(x.grad, torch.tensor([expected]))
    assert comm.Split(None) is None


def dropped(comm):
    """Forward passes without a backward do not grow for ever."""
    comm.set_history_limit(50)
    x = torch.ones(1000, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(400):
            comm.Allreduce(x * 2)
        assert comm.history <= 100
    assert any("no_grad" in str(w.message) for w in seen)
    comm.detach_history()
    assert comm.history == 0
    mpi.backward(comm.Allreduce(x).sum())
    close(x.grad, torch.full((1000,), float(comm.size)))


def in_groups_of_inputs(comm):
    """torch.autograd.grad: what does not lead to the inputs is left out."""
    x = torch.ones(1, requires_grad=True)
    y = torch.ones(1, requires_grad=True)
    a, b = comm.Allreduce(x), comm.Allreduce(y)
    (gy,) = torch.autograd.grad((a * b).sum(), y, retain_graph=True)
    close(gy, torch.tensor([1.0 * comm.size * comm.size]))
    gx, gy = torch.autograd.grad((a * b).sum(), (x, y))
    close(gx, gy)
    assert comm.history == 0


def replicated(comm):
    """Under the other convention Allreduce's adjoint is the identity."""
    n = comm.size
    x = torch.full((2,), float(comm.rank + 1), requires_grad=True)
    for convention, factor in (("sum", n), ("replicated", 1)):
        comm.convention = convention
        x.grad = None
        loss = (comm.Allreduce(x) ** 2).sum()
        mpi.backward(loss)
        close(x.grad, torch.full((2,), factor * 2.0 * n * (n + 1) / 2))
        x.grad = None
        mpi.backward((comm.Allreduce(x, mpi.AVG) * 3).sum())
        close(x.grad, torch.full((2,), factor * 3.0 / n))
        x.grad = None
        mpi.backward((comm.Allgather(x) * 3).sum())
        close(x.grad, torch.full((2,), factor * 3.0))
        x.grad = None
        mpi.backward(comm.Allreduce(x, mpi.MAX).sum())
        close(x.grad, torch.full((2,), factor * float(comm.rank == n - 1)))
        x.grad = None
        w = comm.Bcast(x, 0)
        mpi.backward(comm.Allreduce((w * (comm.rank + 1)).sum()))
        expected = factor * n * (n + 1) / 2 if comm.rank == 0 else 0.0
        close(x.grad, torch.full((2,), expected))
        x.grad = None
        s = comm.Allreduce(x)
        (g,) = torch.autograd.grad(comm.join((s**3).sum()), x, create_graph=True)
        mpi.backward((g * g).sum())
        total = n * (n + 1) / 2
        first = factor * 3 * total**2
        close(x.grad, torch.full((2,), 2 * first * factor * 6 * total * n))
    comm.convention = "sum"


def with_checkpoint(comm):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2, requires_grad=True)
    y = checkpoint(lambda x: comm.Allreduce(x.sin()).cos(), x, use_reentrant=False)
    y.sum().backward()
    close(x.grad, -(x.detach().sin() * comm.size).sin() * x.detach().cos() * comm.size)


BODIES = [
    losses_in_turn,
    kept_losses,
    two_threads,
    own_history,
    dropped,
    in_groups_of_inputs,
    replicated,
    with_checkpoint,
]


@pytest.mark.parametrize("size", (1, 3))
def test_histories(size):
    jobs.run(size, jobs.each, BODIES)


def many_steps(comm, steps):
    x = torch.randn(50_000, requires_grad=True)
    used = []
    for step in range(steps):
        y = comm.Allreduce(x.sin())
        z = comm.Allgather(x)
        comm.Bcast(x, 0)  # not used: a dead branch
        handle = comm.Isend(x[:2], 1 - comm.rank)
        comm.Recv(x[:2], 1 - comm.rank)
        comm.Wait(handle)
        mpi.backward((y * y).sum() + z.mean())
        x.grad = None
        with torch.no_grad():
            comm.Allreduce(x)
        if step in (steps // 5, steps - 1):
            gc.collect()
            used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert used[1] - used[0] < 8 * 1024, used  # KiB; one step's graph is 1 MiB
    return used


def test_memory_does_not_grow():
    jobs.run(2, many_steps, 10000 if jobs.FULL else 400)


def gradcheck_finds(comm):
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    s = torch.randn(2, dtype=torch.complex128, requires_grad=True)
    assert mpi.gradcheck(lambda x: comm.Allgather(x.sin()) ** 2, [x], comm)
    assert mpi.gradcheck(lambda x, s: (comm.Scan(x), comm.Allreduce(s * s)), [x, s], comm)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.Allreduce(x)

        @staticmethod
        def backward(ctx, g):
            return g  # the other convention's

    if comm.size > 1:
        with pytest.raises(AssertionError, match="finite differences"):
            mpi.gradcheck(Wrong.apply, [x], comm)


@pytest.mark.parametrize("size", (1, 3))
def test_gradcheck(size):
    jobs.run(size, gradcheck_finds)
