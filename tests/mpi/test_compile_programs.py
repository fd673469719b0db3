# SPDX-License-Identifier: Apache-2.0
"""Compiled programs as users write them: the same values, gradients and calls as without."""

import functools
import subprocess
import sys

import jobs
import pytest
import torch
import torch._dynamo
from torch import nn
from weft import mpi

close = torch.testing.assert_close
whole = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
parts = functools.partial(torch.compile, backend="aot_eager")
D = torch.float64
SIZES = (1, 2, 3) if jobs.FULL else (2,)

# What a first compilation imports, ranks would import each.
whole(lambda x: x.sin().sum())(torch.ones(1, requires_grad=True)).backward()


def numbers(comm, *shape, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + comm.rank)
    return torch.randn(*shape, generator=generator, dtype=D)


def step(comm, function, x, parameters):
    """Value and gradients, and how many operations that were, there and back."""
    x = x.clone().requires_grad_()
    for parameter in parameters:
        parameter.grad = None
    before = comm._number
    y = function(x)
    forth = comm._number - before
    mpi.backward((y * y).sum())
    assert comm.history == 0
    grads = [x.grad, *(parameter.grad for parameter in parameters)]
    return y.detach(), grads, (forth, comm._number - before - forth)


def check(comm, function, fast, x, parameters=()):
    expected = step(comm, function, x, parameters)
    for _ in range(2):
        close(step(comm, fast, x, parameters), expected)


class Norm(nn.Module):
    """Batch normalization over all ranks, which have batches of different lengths."""

    def __init__(self, comm):
        super().__init__()
        self.comm = comm
        self.scale = nn.Parameter(torch.ones(3, dtype=D))
        self.register_buffer("mean", torch.zeros(3, dtype=D))

    def forward(self, x):
        n = self.comm.Allreduce(torch.tensor(float(x.shape[0]), dtype=D))
        mean = self.comm.Allreduce(x.sum(0)) / n
        square = self.comm.Allreduce(((x - mean) ** 2).sum(0)) / n
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
        return (x - mean) / (square + 1e-5).sqrt() * self.scale


def normalizes(comm):
    """Nothing is communicated while a constant is traced."""
    plain, other = Norm(comm), Norm(comm)
    fast = whole(other)
    for seed in range(3):
        x = numbers(comm, 4 + comm.rank, 3, seed=seed)
        close(step(comm, fast, x, [other.scale]), step(comm, plain, x, [plain.scale]))
        close(other.mean, plain.mean)


def constants(comm):
    """Of collectives and messages; also where a transform or an export sees them."""

    def function(x):
        a = comm.Allreduce(torch.tensor([1.0, 2.0], dtype=D))
        comm.Send(torch.tensor(4.0, dtype=D), (comm.rank + 1) % comm.size)
        b = comm.Recv(torch.tensor(0.0, dtype=D), (comm.rank - 1) % comm.size)
        return comm.Scan(x * a + b)

    def inner(x):
        return torch.func.grad(lambda r: (comm.Bcast(torch.tensor(2.0)) * r).sum())(x)

    class Model(nn.Module):
        def forward(self, x):
            return comm.Allreduce(torch.tensor(2.0, dtype=D)) * x

    check(comm, function, whole(function), numbers(comm, 2))
    x = numbers(comm, 2)
    for make, calls in (
        (lambda: whole(inner)(x), 1),
        (lambda: torch.export.export(Model(), (x,)), 0),
    ):
        before = comm._number
        make()
        assert comm._number - before == calls


def experts(comm):
    """Rows go to the rank that a gate names; counts change from step to step."""
    torch.manual_seed(1)
    gate = nn.Linear(4, comm.size, dtype=D)
    expert = nn.Linear(4, 4, dtype=D)

    def function(x):
        score = gate(x).softmax(-1)
        top = score.argmax(-1)
        order = top.argsort(stable=True)
        counts = nn.functional.one_hot(top, comm.size).sum(0)
        sent, received = counts.tolist(), comm.Alltoall(counts).tolist()
        there = expert(comm.Alltoallv(x[order], sent, received)).relu()
        back = comm.Alltoallv(there, received, sent)
        return (back * score.gather(1, top[:, None])[order]).sum(0)

    parameters = [*gate.parameters(), *expert.parameters()]
    for scalars, make in ((False, parts), (True, whole)):
        torch._dynamo.reset()
        with torch._dynamo.config.patch(capture_scalar_outputs=scalars):
            fast = make(function)
            for seed in range(3):
                check(comm, function, fast, numbers(comm, 7, 4, seed=seed), parameters)


def exported(comm):
    """An exported program has the gradients that the module has."""

    class Model(nn.Module):
        def forward(self, x):
            comm.Allreduce(x * 3)
            y = comm.Scan(comm.Bcast(x.sin(), comm.size - 1)) * comm.Allreduce(x, mpi.PROD)
            comm.Send(y, (comm.rank + 1) % comm.size)
            return comm.join(comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size))

    x = numbers(comm, 3)
    for strict in (False, True):
        program = torch.export.export(Model(), (x,), strict=strict)
        expected = step(comm, Model(), x, ())
        close(step(comm, program.module(), x, ())[:2], expected[:2])


def elsewhere(comm):
    """The token is on the CPU, whatever the default is."""

    def function(x):
        comm.Barrier()
        return comm.Allreduce(x.sin())

    x = numbers(comm, 3)
    with torch.device("meta"):
        check(comm, function, whole(function), x)


def rings(comm):
    """What is started and waited for breaks the graph, and is right."""
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def function(x):
        received = comm.Irecv(x, down)
        sent = comm.Isend(x.sin(), up)
        summed = comm.Iallreduce(x)
        y = comm.Allgatherv(comm.Scan(x.cos()))
        results = comm.Waitall([sent, received])
        return comm.Wait(summed) * results[1] + y.sum()

    expected = step(comm, function, numbers(comm, 3), ())
    fast = parts(function)
    for _ in range(2):
        close(step(comm, fast, numbers(comm, 3), ()), expected)


def hooked(comm):
    """A hook that communicates in the backward pass."""

    def function(x):
        y = comm.Allreduce(x.sin())
        y.register_hook(torch.no_grad()(lambda grad: comm.Allreduce(grad) * 0.5))
        return comm.Scan(y)

    check(comm, function, parts(function), numbers(comm, 3))


BODIES = [normalizes, constants, experts, exported, elsewhere, rings, hooked]


@pytest.mark.parametrize("size", SIZES)
def test_programs(size):
    jobs.run(size, jobs.each, BODIES)


def told(function, x):
    with pytest.raises(Exception) as caught:
        function(x)
    return str(caught.value)


def refused(comm):
    """What cannot be in one graph, or is wrong, is an error that names the call."""
    x = numbers(comm, 4).requires_grad_()
    texts = {
        "Gatherv without counts": lambda x: comm.Gatherv(x.sin()),
        "Allgatherv without counts": lambda x: comm.Allgatherv(x.sin()),
        "Alltoallv without recvcounts": lambda x: comm.Alltoallv(x, [4 // comm.size] * comm.size),
        "Message: weft.mpi Irecv": lambda x: comm.Irecv(x, comm.rank).wait(),
        "`Iallreduce`": lambda x: comm.Iallreduce(x).wait(),
        "`Scatterv`": lambda x: comm.Scatterv(x, 0, 1),
        "not a reduction": lambda x: comm.Allreduce(x, 77),
        "the counts say length 1": lambda x: comm.Allgatherv(x, 0, [1] * comm.size),
    }
    for text, function in texts.items():
        torch._dynamo.reset()
        found = told(whole(function), x).split("from user code")[0]  # which is this file
        assert text in found, found
    comm.detach_history()


def test_what_cannot_be_compiled_is_named():
    jobs.run(1, refused)


def twice_differentiated(comm):
    """Compiled code has no second derivatives, and says so."""

    def second(x):
        function = torch.compile(lambda x: (comm.Allreduce(x.sin()) ** 3).sum(), backend="eager")
        return torch.autograd.grad(function(x), x, create_graph=True)

    assert "not support second derivatives" in told(second, numbers(comm, 3).requires_grad_())
    comm.detach_history()


def test_second_derivatives_are_refused():
    jobs.run(2, twice_differentiated)


def test_import_leaves_the_compiler_alone():
    """It takes longer than torch itself, and most programs do not compile."""
    look = "import sys, weft.mpi, weft.nn, weft.optim; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
