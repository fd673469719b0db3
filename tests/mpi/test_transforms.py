# SPDX-License-Identifier: Apache-2.0
"""torch.func: transforms inside each other, messages nobody looks at, ranks that differ."""

import warnings

import jobs
import pytest
import torch
import weft
from cases import cases, inputs, real_cases
from torch.func import grad, jacfwd, jacrev, jvp, vmap
from weft import mpi

close = torch.testing.assert_close


def finite(y):
    return torch.where(torch.isfinite(y), y, torch.zeros_like(y))


def gradients(comm):
    """Of every operation, also where what was sent is used nowhere."""
    r = comm.rank
    for case in [*cases(), *real_cases()]:
        xs = inputs(case, comm.size, torch.float64)

        def of_all(x, case=case, xs=xs):
            ys = case.all_ranks([*xs[:r], x, *xs[r + 1 :]])
            return sum((finite(y).sin() * (s + 1)).sum() for s, y in enumerate(ys))

        def ours(x, case=case):
            return comm.join((finite(case.ours(comm, x)).sin() * (r + 1)).sum())

        close(grad(ours)(xs[r]), grad(of_all)(xs[r]), msg=lambda text, case=case: case.name + text)
    assert comm.history == 0


@pytest.mark.parametrize("size", (1, 3))
def test_gradients_of_every_operation(size):
    jobs.run(size, gradients)


def ring(comm, x):
    """With the result of the send, of which backward may be a batch."""
    handle = comm.Isend(x, (comm.rank + 1) % comm.size, 3)
    y = comm.Recv(x, (comm.rank - 1) % comm.size, 3)
    return comm.join(y, comm.Wait(handle))


def exchange(comm, x):
    return comm.Sendrecv(x, (comm.rank + 1) % comm.size, 0, x, (comm.rank - 1) % comm.size, 0)


OPERATIONS = {
    "ring": (ring, lambda w: torch.roll(w, 1, 0)),
    "exchange": (exchange, lambda w: torch.roll(w, 1, 0)),
    "sum": (lambda c, x: c.Allreduce(x), lambda w: w.sum(0).expand(w.shape)),
    "max": (lambda c, x: c.Allreduce(x, mpi.MAX), lambda w: w.amax(0).expand(w.shape)),
    "product": (lambda c, x: c.Allreduce(x, mpi.PROD), lambda w: w.prod(0).expand(w.shape)),
    "scan": (lambda c, x: c.Scan(x), lambda w: w.cumsum(0)),
}


def nested(comm):
    """Each way to a second derivative, next to one process that has all inputs."""
    r, n = comm.rank, comm.size
    gen = torch.Generator().manual_seed(5)
    w = torch.randn(n, 2, dtype=torch.float64, generator=gen)
    t = torch.randn(n, 2, dtype=torch.float64, generator=gen)
    for name, (ours, of_all) in OPERATIONS.items():

        def f(x, ours=ours):
            return (ours(comm, x.sin()) ** 3).sum()

        def whole(w, of_all=of_all):
            return (of_all(w.sin()) ** 3).sum()

        curved = jvp(grad(whole), (w,), (t,))[1][r]
        rows = jacrev(lambda w, of_all=of_all: of_all(w.sin()))(w)
        told = {
            "forward over backward": (jvp(grad(f), (w[r],), (t[r],))[1], curved),
            "backward over backward": (
                grad(lambda x, f=f: (grad(f)(x) * t[r]).sum())(w[r]),
                curved,
            ),
            "backward over forward": (
                grad(lambda x, f=f: jvp(f, (x,), (t[r],))[1])(w[r]),
                curved,
            ),
            "batch of gradients": (
                vmap(grad(f))(torch.stack([w[r], 2 * w[r]]))[1],
                grad(whole)(2 * w)[r],
            ),
            "jacrev": (jacrev(lambda x, ours=ours: ours(comm, x.sin()))(w[r]), rows.sum(0)[:, r]),
            "jacfwd": (jacfwd(lambda x, ours=ours: ours(comm, x.sin()))(w[r]), rows[r].sum(1)),
        }
        for way, (got, expected) in told.items():
            close(got, expected, msg=lambda text, at=(name, way): f"{at}: {text}")


@pytest.mark.parametrize("size", (1, 3))
def test_transforms_inside_each_other(size):
    jobs.run(size, nested)


def constant_on_one(comm):
    """A gradient that is a constant on rank 0 alone is differentiated by all."""
    w = torch.arange(1.0, 1 + 2 * comm.size, dtype=torch.float64).view(-1, 2)
    t = w + 1

    def f(x):
        y = comm.Allreduce(x * x)
        return comm.join(y.sum() if comm.rank == 0 else (y**2).sum())

    def whole(w):
        y = (w * w).sum(0)
        return y.sum() + (comm.size - 1) * (y**2).sum()

    got = grad(lambda x: comm.join((grad(f)(x) * t[comm.rank]).sum()))(w[comm.rank])
    close(got, jvp(grad(whole), (w,), (t,))[1][comm.rank])


def unused_vjp(comm):
    """Nobody goes backward: no gradient is lost, and the next one is right."""
    x = torch.ones(2)

    def f(x):
        if comm.rank == 0:
            comm.Send(x.sin(), 1)
        return x.sum() if comm.rank != 1 else (comm.Recv(x, 0) * 3).sum()

    for _ in range(2):
        torch.func.vjp(f, x)
        comm.Barrier()
    got = grad(lambda x: comm.join(f(x)))(x)
    comm.Barrier()
    close(got, [1 + 3 * x.cos(), torch.zeros(2), torch.ones(2)][comm.rank])


def test_what_ranks_need_not_have_in_common():
    jobs.run(3, jobs.each, [constant_on_one, unused_vjp])


def not_joined(comm):
    """Rank 0's function forgets what it sent."""
    x = torch.ones(2)
    if comm.rank == 0:
        grad(lambda x: (comm.Send(x.sin(), 1), x.sum())[1])(x)
    else:
        grad(lambda x: (comm.Recv(x, 0) * 3).sum())(x)
    comm.Barrier()
    comm.Barrier()


def on_one_rank_only(comm):
    x = torch.ones(2, requires_grad=True)
    if comm.rank == 0:
        grad(lambda x: comm.Send(x, 1).sum())(x.detach())
    else:
        mpi.backward(comm.Recv(x, 0).sum())


@pytest.mark.parametrize(
    "body, rank, text",
    [
        (not_joined, 0, "message 1 to rank 1 with tag 0: its gradient came"),
        (on_one_rank_only, 1, "rank 0 records gradients of what it sent, but rank 1 does not"),
    ],
    ids=["not_joined", "on_one_rank_only"],
)
def test_a_gradient_that_would_be_lost_is_an_error(body, rank, text):
    told = jobs.errors(2, body)[rank]
    assert told and "MismatchError" in told and text in told, told


def forgotten(comm):
    """The same without a transform, at the latest when the communicator goes."""
    x = torch.ones(2, requires_grad=True)
    other = comm.Dup()
    if comm.rank == 0:
        other.Send(x.sin(), 1)
        x.sum().backward()
    else:
        (other.Recv(x, 0) * 3).sum().backward()
    other.Barrier()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        other.Free()
    assert [("its gradient came" in str(w.message)) for w in seen] == [True] * (comm.rank == 0)


def only_forward(comm):
    """Passes without a backward in between raise no alarm."""
    x = torch.ones(2, requires_grad=True)
    for step in range(4):
        x.grad = None
        if comm.rank == 0:
            comm.Send(x.sin(), 1)
        loss = x.sum() if comm.rank == 0 else (comm.Recv(x, 0) * 3).sum()
        if step % 2:
            mpi.backward(loss)
            assert comm.rank == 1 or x.grad.allclose(1 + 3 * x.detach().cos())
        comm.detach_history()
        comm.Barrier()


def in_inference_mode(comm):
    """Who receives there is told, as with no_grad."""
    x = torch.ones(2, requires_grad=True)
    for receive in (lambda c: c.Recv(x, 0), lambda c: c.Wait(c.Irecv(x, 0))):
        other = comm.Dup()
        if comm.rank == 0:
            other.Send(x, 1)
        else:
            with torch.inference_mode(), pytest.raises(weft.MismatchError, match="rank 0 records"):
                receive(other)


def test_messages_and_gradients():
    jobs.run(2, jobs.each, [forgotten, only_forward, in_inference_mode])
