# SPDX-License-Identifier: Apache-2.0
"""Transforms of functions that are not the same on all ranks, and other combinations.

What one rank's loss does not depend on, or depends on linearly, has a gradient
that is a constant there, and a batch or a tangent elsewhere.
"""

import functools

import jobs
import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from weft import mpi
from weft.mpi.gradcheck import GradcheckError

close = torch.testing.assert_close


def loss_of(rank, y, own):
    """Of rank 0 nothing depends on y, of rank 2 nothing but constants do."""
    return own.sum() if rank == 0 else y.sum() if rank == 2 else (y**2).sum()


def summed(comm, x):
    y = comm.Allreduce(x.sin())
    return comm.join(loss_of(comm.rank, y, x))


def summed_whole(w):
    y = w.sin().sum(0)
    return sum(loss_of(r, y, w[r]) for r in range(len(w)))


def largest(comm, x):
    y = comm.Allreduce(x.sin(), mpi.MAX)
    return comm.join(loss_of(comm.rank, y, x))


def largest_whole(w):
    y = w.sin().amax(0)
    return sum(loss_of(r, y, w[r]) for r in range(len(w)))


def dealt(comm, x):
    """Scatter's gradient is a constant on all ranks but one."""
    y = comm.Allgather(comm.Bcast(x.sin(), comm.size - 1))
    y = comm.Scatterv(y, 0, x.shape[0], 0)
    return comm.join(loss_of(comm.rank, y, x))


def dealt_whole(w):
    return sum(loss_of(r, w[-1].sin(), w[r]) for r in range(len(w)))


def ring(comm, x):
    handle = comm.Isend(x.sin(), (comm.rank + 1) % comm.size)
    y = comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size)
    return comm.join(loss_of(comm.rank, y, x), comm.Wait(handle))


def ring_whole(w):
    return sum(loss_of(r, w[r - 1].sin(), w[r]) for r in range(len(w)))


def passed(comm, x):
    """What was sent is named nowhere."""
    comm.Send(x.sin(), (comm.rank + 1) % comm.size)
    y = comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size)
    return comm.join(loss_of(comm.rank, y, x))


FUNCTIONS = [
    (summed, summed_whole),
    (largest, largest_whole),
    (dealt, dealt_whole),
    (ring, ring_whole),
    (passed, ring_whole),
]


def numbers(comm, salt=1):
    gen = torch.Generator().manual_seed(salt)
    return torch.randn(2, comm.size, 3, dtype=torch.float64, generator=gen)


def ways(f, whole, w, t, r):
    """Name, what this rank gets, what one process with all inputs gets."""
    curved = [jvp(grad(whole), (w[b],), (t[b],))[1][r] for b in range(2)]
    along = jvp(f, (w[0, r],), (t[0, r],))[1]
    yield (
        "batch of gradients",
        vmap(grad(f))(w[:, r]),
        torch.stack([grad(whole)(w[b])[r] for b in range(2)]),
    )
    yield "forward over backward", jvp(grad(f), (w[0, r],), (t[0, r],))[1], curved[0]
    yield (
        "batch of tangents",
        vmap(lambda x, v: jvp(f, (x,), (v,))[1])(w[:, r], t[:, r])[0],
        along,
    )
    yield (
        "batch of forward over backward",
        vmap(lambda x, v: jvp(grad(f), (x,), (v,))[1])(w[:, r], t[:, r]),
        torch.stack(curved),
    )
    yield "jacfwd of grad", jacfwd(grad(f))(w[0, r]), jacfwd(grad(whole))(w[0])[r].sum(1)


def compare(comm):
    w, t = numbers(comm), numbers(comm, 2)
    for ours, whole in FUNCTIONS:
        f = functools.partial(ours, comm)
        for way, got, expected in ways(f, whole, w, t, comm.rank):
            close(got, expected, msg=lambda text, at=(ours.__name__, way): f"{at}: {text}")
    assert comm.history == 0


def hessian_of_all(comm):
    w = numbers(comm)[0]
    for ours, whole in FUNCTIONS:
        got = hessian(functools.partial(ours, comm))(w[comm.rank])
        close(got, jacfwd(grad(whole))(w)[comm.rank].sum(1))


def rows(comm):
    """The rows of rank 0's Jacobian do not depend on what was communicated."""
    x = numbers(comm)[0, comm.rank]
    eye = torch.eye(3, dtype=x.dtype)

    def f(x):
        y = comm.Allreduce(x.sin())
        return comm.join(x if comm.rank == 0 else y)

    expected = x.cos().diag() * (comm.size - 1) + (eye if comm.rank == 0 else 0)
    close(jacrev(f)(x), expected)


def dual_numbers(comm):
    """Forward over backward, without torch.func."""
    w, t = numbers(comm)[0], numbers(comm, 2)[0]
    with fwad.dual_level():
        x = fwad.make_dual(w[comm.rank].clone().requires_grad_(), t[comm.rank])
        (g,) = torch.autograd.grad(summed(comm, x), x, create_graph=True)
        tangent = fwad.unpack_dual(g).tangent
    close(tangent.detach(), jvp(grad(summed_whole), (w,), (t,))[1][comm.rank])


def linear_on_one(comm):
    """Backward over forward: rank 0's tangent is a constant."""
    w, t = numbers(comm)[0], numbers(comm, 2)[0]

    def f(x):
        return (comm.Allreduce(x if comm.rank == 0 else x.sin()) ** 2).sum()

    def whole(w):
        return len(w) * ((w[0] + w[1:].sin().sum(0)) ** 2).sum()

    got = grad(lambda x: comm.join(jvp(f, (x,), (t[comm.rank],))[1]))(w[comm.rank])
    close(got, jvp(grad(whole), (w,), (t,))[1][comm.rank])


@pytest.mark.parametrize("size", (1, 3))
def test_functions_that_differ_between_ranks(size):
    jobs.run(size, compare)


def test_derivatives_that_are_constants_on_one_rank():
    jobs.run(3, jobs.each, [hessian_of_all, rows, dual_numbers, linear_on_one])


def backward_without_recording(comm):
    """Like Tensor.backward, it does its work under no_grad."""
    x = torch.full((2,), 1.0 + comm.rank, requires_grad=True)
    loss = comm.Allreduce(x * x).sum()
    with torch.no_grad():
        mpi.backward(loss, comm)
    close(x.grad, 2 * comm.size * x.detach())


class NotANumber(torch.autograd.Function):
    """Its gradient is NaN."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


def gradcheck_sees_nan(comm):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(GradcheckError):
        mpi.gradcheck(lambda x: comm.Allreduce(NotANumber.apply(x)), [x], comm)


def gradcheck_of_strides(comm):
    x = torch.randn(3, 2, dtype=torch.float64).T.requires_grad_()
    assert mpi.gradcheck(lambda x: comm.Allreduce(x.sin()), [x], comm)


def old_batches(comm):
    """They would mix up gradients where one rank has none; all are told before that."""
    x = torch.ones(3, requires_grad=True)
    y = comm.Allreduce(x.sin())
    out = comm.join(x * 1 if comm.rank == 0 else y)
    with pytest.raises(NotImplementedError, match="use torch"):
        torch.autograd.grad(out, x, torch.eye(3), is_grads_batched=True)


def test_backward_and_gradcheck():
    bodies = [backward_without_recording, gradcheck_sees_nan, gradcheck_of_strides, old_batches]
    jobs.run(2, jobs.each, bodies)
