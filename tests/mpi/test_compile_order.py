# SPDX-License-Identifier: Apache-2.0
"""The backward pass through compiled code runs every communication, in its order.

Ranks whose losses use different results must still make the same calls: numbers
are compared across ranks, so a call that is left out or moved is an error.
"""

import functools
import gc

import jobs
import pytest
import torch
import torch._dynamo
import torch._functorch.config
from torch.utils import checkpoint
from weft import mpi
from weft.torch._shim import shim

close = torch.testing.assert_close
compiled = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)

# What a first compilation imports, ranks would import each.
compiled(lambda x: x.sin().sum())(torch.ones(1, requires_grad=True)).backward()


def number(comm):
    x = torch.arange(3.0, dtype=torch.float64) + comm.rank + 1
    return x.requires_grad_()


def ring(comm, x):
    """Nothing of what is sent and summed here is used where it was."""
    comm.Send(x.cos(), (comm.rank + 1) % comm.size)
    comm.Allreduce(x * 3)
    like = torch.empty_like(x)
    return comm.Recv(like, (comm.rank - 1) % comm.size)


def gradient(comm, function):
    x = number(comm)
    loss = function(x)
    mpi.backward(loss)
    assert comm.history == 0
    return x.grad


def check(comm, function, make=compiled, times=2):
    """The same gradients as without the compiler, also the second time."""
    expected = gradient(comm, function)
    fast = make(function)
    for _ in range(times):
        close(gradient(comm, fast), expected)


def unused_results(comm):
    def function(x):
        y = ring(comm, x)
        return (y * y).sum() if comm.rank == 0 else x.sum()

    check(comm, function)
    check(comm, function, functools.partial(torch.compile, backend="eager"))


def joined_inside(comm):
    """A join in compiled code is behind all of it, and what came before it."""

    def function(x):
        y = ring(comm, x)
        return comm.join((y * y).sum() if comm.rank == 0 else x.sum())

    fast = compiled(function)
    grads = []
    for step in (function, fast, fast):
        x = number(comm)
        early = comm.Allreduce(x.exp())
        loss = step(x)
        if comm.rank == 1:
            loss = loss + early.sum()
        loss.backward()
        assert comm.history == 0
        grads.append(x.grad)
    close(grads[1], grads[0])
    close(grads[2], grads[0])


def several_in_a_step(comm):
    """Compiled, not compiled, compiled again; each rank uses another one of them."""
    other = comm.Dup()

    def first(x):
        return comm.Bcast(ring(comm, x), comm.size - 1), other.Allreduce(x.sin())

    def second(x):
        y = other.Scan(x * 2)
        return y * ring(comm, x).sum()

    def step(first, second, x):
        a, b = first(x)
        c = comm.Alltoall(torch.cat([x] * comm.size))
        d = second(x.sin())
        used = (a, b, c, d)[comm.rank % 4]
        return (used * used).sum()

    expected = gradient(comm, functools.partial(step, first, second))
    fast = functools.partial(step, compiled(first), compiled(second))
    for _ in range(2):
        close(gradient(comm, fast), expected)
        assert other.history == 0
    other.Free()


def one_rank_only(comm):
    """Rank 0 compiles, the others do not."""
    make = compiled if comm.rank == 0 else lambda function: function

    def function(x):
        y = comm.Allreduce(ring(comm, x), mpi.MAX)
        z = comm.Scatter(torch.cat([y] * comm.size), 0, comm.size - 1)
        w = comm.Sendrecv(z, (comm.rank + 1) % comm.size, 2, x, (comm.rank - 1) % comm.size, 2)
        return (comm.Allreduce(w, mpi.PROD) * y).sum()

    check(comm, function, make)


def plain_backward(comm):
    """Where every rank's loss depends on the last one, the usual backward is enough."""
    fast = compiled(lambda x: (comm.Allreduce(x.sin()) ** 2).sum())
    for _ in range(3):
        fast(number(comm)).backward()
        assert comm.history == 0
    x, y = number(comm), number(comm)
    first, second = fast(x), fast(y * 2)
    comm.Allreduce(x)
    first.backward()
    second.backward()
    assert comm.history == 1  # what is left is the last one
    comm.detach_history()
    with torch._functorch.config.patch(donated_buffer=False):  # else torch refuses to retain
        torch._dynamo.reset()
        loss = fast(x)
    loss.backward(retain_graph=True)
    assert comm.history == 1
    before = x.grad.clone()
    loss.backward()
    assert comm.history == 0
    close(x.grad * 2, before * 3)
    for _ in range(2):
        torch.autograd.grad(fast(x), x)
        assert comm.history == 0
    first, second = fast(x), fast(y)
    torch.autograd.grad(first, x)
    assert comm.history == 1
    mpi.backward(second)
    assert comm.history == 0


def no_backward(comm):
    """What nobody differentiates does not pile up; what is in use stays."""
    fast = compiled(lambda x: comm.Allreduce(x.sin()).sum())
    x = number(comm)
    with torch.no_grad():
        fast(x)
    assert comm.history == 0
    fast(x)
    comm.detach_history()
    assert comm.history == 0
    comm.set_history_limit(10)
    kept = fast(x)
    for _ in range(30):
        fast(x)
    assert comm.history == 31
    del kept
    for _ in range(40):
        fast(x)
    assert comm.history < 40
    comm.set_history_limit(1000)
    x.grad = None
    mpi.backward(fast(x))
    close(x.grad, x.detach().cos() * comm.size)


def checkpointed(comm):
    """Around compiled code; and inside of it, with the policy that saves results."""
    policy = functools.partial(
        checkpoint.create_selective_checkpoint_contexts, mpi.checkpoint_policy
    )

    def body(x):
        ring(comm, x)
        return comm.Allreduce(x.sin()).cos()

    def inside(x):
        y = checkpoint.checkpoint(body, x.exp(), use_reentrant=False, context_fn=policy)
        return y.sum()

    expected = gradient(comm, lambda x: body(x.exp()).sum())
    fast = compiled(inside)
    for _ in range(2):
        before = comm._number
        close(gradient(comm, fast), expected)
        assert comm._number - before == 4  # two allreduces, there and back
    part = compiled(lambda x: comm.Allreduce(x.sin()).cos())
    for _ in range(2):
        x = number(comm)
        y = checkpoint.checkpoint(part, x, use_reentrant=False)
        y.sum().backward()
        assert comm.history == 0
        x2 = number(comm)
        comm.Allreduce(x2.sin()).cos().sum().backward()
        close(x.grad, x2.grad)


def dropped_communicator(comm):
    """The graph of compiled code keeps its communicator, as others do."""
    fast = compiled(lambda x, part: part.Allreduce(x.sin()).sum())
    x = number(comm)
    loss = fast(x, comm.Split(0))
    gc.collect()
    loss.backward()
    close(x.grad, x.detach().cos() * comm.size)
    part = comm.Split(0)
    number_of_part = part._id
    mpi.backward(fast(x, part))
    del part, loss
    gc.collect()
    with pytest.raises(ValueError, match="does not exist or was freed"):
        shim.mpi_order(number_of_part)


def long_messages(comm):
    """All send before they receive, there and back; more than fits into a buffer."""
    x = torch.linspace(0, 1, 300_000, dtype=torch.float64).requires_grad_()
    mpi.backward((compiled(functools.partial(ring, comm))(x) ** 2).sum())
    close(x.grad, -(2 * x.detach()).sin())


def receives(comm):
    """From anybody; and of what nobody wants the gradient of."""

    def from_any(x):
        if comm.rank == 0:
            return sum((comm.Recv(x, mpi.ANY_SOURCE) ** 2).sum() for _ in range(comm.size - 1))
        comm.Send(x * comm.rank, 0)
        return x.sum()

    check(comm, from_any)

    def data(x):
        if comm.rank == 0:
            comm.Send(x.detach(), 1)
            return x.sum()
        return (comm.Recv(torch.empty_like(x), 0) * x).sum() if comm.rank == 1 else x.sum()

    check(comm, data)


def inside_transforms(comm):
    def function(x):
        return torch.func.grad(lambda r: (comm.Allreduce(r.sin()) ** 2).sum())(x).sum()

    x = number(comm).detach()
    close(compiled(function)(x), function(x))

    def message(x):
        sent = comm.Send(x.cos(), (comm.rank + 1) % comm.size)
        y = comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size)
        return comm.join((y * y * x).sum(), sent)

    expected = torch.func.grad(message)(x)
    close(torch.compile(torch.func.grad(message), backend="aot_eager")(x), expected)
    batch = torch.vmap(lambda r: comm.Allreduce(r, mpi.SUM))
    close(compiled(lambda x: batch(x.reshape(3, 1)))(x), batch(x.reshape(3, 1)))
    comm.detach_history()


def chosen_inputs(comm):
    """Behind a join, gradients of chosen inputs run all that was compiled, too."""
    first, last = comm.rank == 0, comm.rank == comm.size - 1

    def stage(x, u):
        other = comm.Allreduce(u)
        h = x if first else comm.Recv(torch.empty_like(x), comm.rank - 1)
        if not last:
            comm.Send((h * x).sin(), comm.rank + 1)
        return (h * h * x * other).sum()

    def loss_of(function, x):
        early = x if first else comm.Recv(x, comm.rank - 1, 1)
        if not last:
            comm.Send(x.sin() + early, comm.rank + 1, 1)
        return function(x * 2, number(comm)) + (early**2).sum()

    x = number(comm)
    mpi.backward(loss_of(stage, x))
    fast = compiled(stage)
    for function in (stage, fast, fast):
        (found,) = torch.autograd.grad(comm.join(loss_of(function, y := number(comm))), y)
        close(found, x.grad)
        assert comm.history == 0


BODIES = [
    chosen_inputs,
    unused_results,
    joined_inside,
    several_in_a_step,
    one_rank_only,
    plain_backward,
    no_backward,
    checkpointed,
    dropped_communicator,
    long_messages,
    receives,
    inside_transforms,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("size", (1, 2, 3) if jobs.FULL else (2,))
def test_order(size, body):
    if size > 1 or body is not receives:
        jobs.run(size, body)


def one_records(comm):
    fast = compiled(lambda x: comm.Allreduce(x.sin()).sum())
    fast(number(comm).detach() if comm.rank == 1 else number(comm))


def receiver_does_not(comm):
    def function(x):
        if comm.rank == 0:
            comm.Send(x.sin(), 1)
            return x.sum()
        return comm.Recv(torch.empty_like(x), 0).sum()

    with torch.set_grad_enabled(comm.rank == 0):
        compiled(function)(number(comm))
    comm.Barrier()


@pytest.mark.parametrize(
    ("body", "text"),
    [(one_records, "allreduce"), (receiver_does_not, "rank 0 records gradients")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_ranks_that_differ_are_told(body, text):
    errors = jobs.errors(2, body)
    assert any(error and "MismatchError" in error and text in error for error in errors), errors
