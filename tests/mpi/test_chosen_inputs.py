# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.grad, backward(inputs=...) and torch.func behind a join run every communication.

Given inputs, torch runs only what leads to them. A receive leads to none of this
rank's, and its sender waits for the gradient.
"""

import jobs
import pytest
import torch
from torch.func import grad as func_grad
from weft import mpi
from weft.compat import mpi4torch

close = torch.testing.assert_close
D = torch.float64
SIZES = (2, 3, 5)


def weights(size):
    return torch.stack([(torch.arange(3.0, dtype=D) + r + 1) / 4 for r in range(size)])


def own(comm):
    return weights(comm.size)[comm.rank].clone().requires_grad_()


def start():
    return torch.arange(3.0, dtype=D) / 3 + 0.3


def stage(comm, w, receive):
    """One stage of a pipeline; the last one has the loss."""
    h = start() if comm.rank == 0 else receive()
    h = (h * w).sin()
    if comm.rank == comm.size - 1:
        return (h * h).sum()
    comm.Send(h, comm.rank + 1)
    return torch.zeros((), dtype=D)


def pipeline(comm, w):
    return stage(comm, w, lambda: comm.Recv(torch.empty(3, dtype=D), comm.rank - 1))


def started_pipeline(comm, w):
    def receive():
        return comm.Wait(comm.Irecv(torch.empty(3, dtype=D), comm.rank - 1))

    return stage(comm, w, receive)


def pipeline_whole(ws):
    h = start()
    for w in ws:
        h = (h * w).sin()
    return (h * h).sum()


def unused_paths(comm, w):
    """What is received meets the weights nowhere here, and is used behind the last message."""
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Send(w.sin(), up, 1)
    y = comm.Recv(torch.empty(3, dtype=D), down, 1)
    z = comm.Bcast(w if comm.rank == 0 else torch.zeros(3, dtype=D, requires_grad=True), 0)
    total = comm.Allreduce(z.cos())
    return y.cos().exp().sum() + (total * w).sum() + (y * y).sum()


def unused_paths_whole(ws):
    n = len(ws)
    ring = sum(ws[r - 1].sin().cos().exp().sum() + (ws[r - 1].sin() ** 2).sum() for r in range(n))
    return ring + (n * ws[0].cos() * ws.sum(0)).sum()


PROGRAMS = [
    (pipeline, pipeline_whole),
    (started_pipeline, pipeline_whole),
    (unused_paths, unused_paths_whole),
]


def by_grad(comm, program, w):
    return torch.autograd.grad(comm.join(program(comm, w)), w)[0]


def by_inputs(comm, program, w):
    mpi.backward(program(comm, w), inputs=[w])
    return w.grad


def by_graph(comm, program, w):
    return torch.autograd.grad(comm.join(program(comm, w)), w, create_graph=True)[0].detach()


def by_func(comm, program, w):
    return func_grad(lambda w: comm.join(program(comm, w)))(w.detach())


def first_derivatives(comm):
    for program, whole in PROGRAMS:
        expected = func_grad(whole)(weights(comm.size))[comm.rank]
        for way in (by_grad, by_inputs, by_graph, by_func):
            found = way(comm, program, own(comm))
            close(found, expected, msg=lambda text, at=(program, way): f"{at}: {text}")
            comm.detach_history()
            comm.Barrier()


@pytest.mark.parametrize("size", SIZES)
def test_pipelines_are_differentiated_by_inputs(size):
    jobs.run(size, first_derivatives)


def exchanged(comm, x):
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    y = comm.Sendrecv(x.sin(), up, 1, x.detach(), down, 1)
    return (x**3).sum() if comm.rank == 0 else (y * y * x).sum()


def sent(comm, x):
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Send(x.sin(), up, 1)
    y = comm.Recv(x.detach(), down, 1)
    return (x**3).sum() if comm.rank == 0 else (y * y * x).sum()


def handles(comm, x):
    """As mpi4torch's guide has it."""
    there = mpi4torch.COMM_WORLD
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    handle = there.Isend(x.sin(), up, 0)
    y = there.Recv(mpi4torch.JoinDummies(torch.empty_like(x), [handle.dummy]), down, 0)
    w = there.Wait(mpi4torch.JoinDummiesHandle(handle, [y]))
    loss = (x**3).sum() if comm.rank == 0 else (y * y * x).sum()
    return mpi4torch.JoinDummies(loss, [w])


def ring_whole(ws):
    rest = sum((ws[r - 1].sin() ** 2 * ws[r]).sum() for r in range(1, len(ws)))
    return (ws[0] ** 3).sum() + rest


def second_derivatives(comm):
    """Row by row; the rows of all ranks are added, as all losses are."""
    ws = weights(comm.size)
    expected = torch.autograd.functional.hessian(ring_whole, ws)[:, :, comm.rank].sum(0)
    for program in (exchanged, sent, handles):
        x = own(comm)
        (g,) = torch.autograd.grad(comm.join(program(comm, x)), x, create_graph=True)
        close(g.detach(), func_grad(ring_whole)(ws)[comm.rank])
        rows = [torch.autograd.grad(comm.join(each), x, retain_graph=True)[0] for each in g]
        close(torch.stack(rows), expected, msg=lambda text, at=program: f"{at}: {text}")
        comm.detach_history()
        comm.Barrier()


@pytest.mark.parametrize("size", SIZES)
def test_hessians_row_by_row(size):
    jobs.run(size, second_derivatives)


def some_inputs(comm):
    """Some of the weights, an intermediate result; what is left out is still there."""
    u, w = own(comm), own(comm)
    a = comm.Allreduce(u.sin())
    b = comm.Allreduce(w.cos())
    loss = (a * b).sum()
    (only,) = torch.autograd.grad(loss, w, retain_graph=True)
    (joined,) = torch.autograd.grad(comm.join(loss), w, retain_graph=True)
    close(joined, only)
    (of_a,) = torch.autograd.grad(comm.join(loss), a, retain_graph=True)
    close(of_a, b.detach())
    before = comm._number
    (of_b,) = torch.autograd.grad(comm.join(loss), b, retain_graph=True)
    close(of_b, a.detach())
    assert comm._number == before  # nothing was communicated since
    mpi.backward(loss)
    close(w.grad, only)
    assert comm.history == 0


def test_a_part_of_the_inputs():
    jobs.run(2, some_inputs)


def not_joined(comm):
    """A pipeline whose ranks do not join is told why it waits."""
    comm.weft_comm.timeout = 1000.0 if comm.rank == 0 else 60.0
    w = own(comm)
    h = start() if comm.rank == 0 else comm.Recv(torch.empty(3, dtype=D), 0)
    h = (h * w).sin()
    if comm.rank == 0:
        h = comm.Send(h, 1)
    torch.autograd.grad(h.sum(), w)


def test_what_is_not_joined_names_the_remedy():
    error = jobs.errors(2, not_joined)[0]
    assert "comm.join(loss)" in error and "torch.autograd.grad" in error, error
