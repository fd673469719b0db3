# SPDX-License-Identifier: Apache-2.0
"""Inductor fuses and moves what it compiles; communications stay in their order.

It knows of no order but that of values: where nothing but the order ties a send
to the receive behind it, it would receive first, on every rank.
"""

import functools
import random

import jobs
import pytest
import torch
import torch._dynamo
import torch._inductor.config
from weft import mpi

close = torch.testing.assert_close
fast = functools.partial(torch.compile, backend="inductor", fullgraph=True)
D = torch.float64

# Ranks compile in turn with what they share: one process each is enough. What a first
# compilation imports, ranks would import each.
torch._inductor.config.compile_threads = 1
fast(lambda x: x.sin().sum())(torch.ones(1, requires_grad=True)).backward()


def number(comm):
    return (torch.arange(3.0, dtype=D) + comm.rank + 1) / 3


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def one_ring(comm, x):
    """Nothing here uses what is sent."""
    up, down = neighbours(comm)
    comm.Send(x.cos(), up)
    y = comm.Recv(torch.empty_like(x), down)
    return comm.Allreduce((y * y * x).sum())


def two_rings(comm, x):
    """One forward and one back; with something that is not recorded between them."""
    up, down = neighbours(comm)
    comm.Send(x.cos(), up, 1)
    y = comm.Recv(torch.empty_like(x), down, 1)
    comm.Send(x.detach() * 3, up, 2)
    data = comm.Recv(torch.empty_like(x), down, 2).detach()
    comm.Send(y.sin() * x, down, 3)
    z = comm.Recv(torch.empty_like(x), up, 3)
    return (z * z * y + data * x).sum()


def outcome(comm, function, grad):
    x = number(comm).requires_grad_(grad)
    with torch.set_grad_enabled(grad):
        loss = function(x)
    if grad:
        mpi.backward(loss)
    assert comm.history == 0
    return loss.detach(), x.grad


def check(comm, program, grad=True):
    """The same values and gradients as without the compiler, also the second time."""
    function = functools.partial(program, comm)
    expected = outcome(comm, function, grad)
    compiled = fast(function)
    for _ in range(2):
        close(outcome(comm, compiled, grad), expected)


def rings(comm):
    check(comm, one_ring)
    check(comm, two_rings)
    torch._dynamo.reset()
    check(comm, two_rings, grad=False)


@pytest.mark.parametrize("size", (1, 2, 3, 5) if jobs.FULL else (3,))
def test_messages_there_and_back_are_not_moved(size):
    jobs.run(size, rings)


STEPS = ("send", "recv", "allreduce", "max", "scan", "bcast", "sendrecv", "local", "data")


def chosen_program(seed):
    """Steps that are right MPI: what is sent is received, in that order."""
    dice = random.Random(seed)
    steps = dice.choices(STEPS, k=8)
    return [(step, dice.randrange(1000)) for step in steps]


def perform(steps, comm, x):
    up, down = neighbours(comm)
    values, sent = [x, x.sin()], 0
    for step, dice in steps:
        v = values[dice % len(values)]
        w = values[dice // 7 % len(values)]
        if step == "send":
            comm.Send(v.cos() + w, up, 5)
            sent += 1
        elif step == "recv" and sent:
            values.append(comm.Recv(torch.empty_like(x), down, 5))
            sent -= 1
        elif step == "allreduce":
            values.append(comm.Allreduce(v * w) / comm.size)
        elif step == "max":
            values.append(comm.Allreduce(v.sin(), mpi.MAX) * w)
        elif step == "scan":
            values.append(comm.Scan(v).cos())
        elif step == "bcast":
            values.append(comm.Bcast(v * w, dice % comm.size))
        elif step == "sendrecv":
            values.append(comm.Sendrecv(v.sin(), up, 1, torch.empty_like(x), down, 1))
        elif step == "data":
            comm.Send(v.detach() * 2, down, 6)
            values.append(w * comm.Recv(torch.empty_like(x), up, 6))
        else:
            values.append(v.sin() * w.cos())
    for _ in range(sent):
        values.append(comm.Recv(torch.empty_like(x), down, 5))
    used = values[:: comm.rank % 2 + 1]  # ranks differ in what they use
    return sum((value * value).sum() for value in used)


def at_random(comm, seeds):
    for seed in seeds:
        torch._dynamo.reset()
        try:
            check(comm, functools.partial(perform, chosen_program(seed)))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.skipif(not jobs.FULL, reason="inductor takes long: WT_FULL=1")
@pytest.mark.parametrize("size", (2, 3, 5))
def test_random_programs(size):
    jobs.run(size, at_random, range(5))
