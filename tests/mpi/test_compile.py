# SPDX-License-Identifier: Apache-2.0
"""torch.compile keeps every communication, in order, forward and backward."""

import functools

import jobs
import pytest
import torch
import torch._dynamo
from torch.utils import checkpoint
from weft import mpi

close = torch.testing.assert_close
BACKENDS = ("aot_eager", "inductor") if jobs.FULL else ("aot_eager",)


def collectives(comm, x):
    y = comm.Allreduce(x.sin())
    comm.Allreduce(x * 3)  # not used, and yet done
    z = comm.Bcast(y * 2, comm.size - 1)
    w = comm.Allgather(z, 0) * torch.arange(x.numel() * comm.size)
    v = comm.Reduce_scatter(w * w)
    m = comm.Allreduce(x, mpi.MAX)
    return (comm.Scan(v) * m).sum() + comm.Reduce(z, mpi.SUM, 0).sum()


def messages(comm, x):
    like = torch.empty_like(x).requires_grad_()
    sent = comm.Send(x.cos(), (comm.rank + 1) % comm.size)
    y = comm.Recv(like, (comm.rank - 1) % comm.size)
    return comm.join((y * y).sum(), sent)


def compiled(comm, body, backend):
    plain = functools.partial(body, comm)
    fast = torch.compile(plain, backend=backend)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    before = comm._number
    expected = plain(x)
    operations = comm._number - before
    mpi.backward(expected)
    grad, x.grad = x.grad, None
    for _ in range(2):
        x.grad = None
        before = comm._number
        value = fast(x)
        assert comm._number - before == operations
        mpi.backward(value)
        close(value, expected)
        close(x.grad, grad)
    comm.detach_history()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("body", [collectives, messages], ids=lambda body: body.__name__)
def test_compiled_is_the_same(body, backend):
    jobs.run(2, compiled, body, backend)


def one_graph(comm):
    """Communications do not break the graph, and those without use stay in it."""
    seen = []

    def look(graph, example):
        seen.append(str(graph.graph))
        return graph

    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: collectives(comm, x), backend=look, fullgraph=True)(x)
    assert seen[0].count("weft.allreduce") == 3
    comm.detach_history()


def test_a_function_is_one_graph():
    jobs.run(2, one_graph)


def saved_results(comm):
    """With the policy, a checkpoint computes again, but does not communicate again."""
    context = functools.partial(
        checkpoint.create_selective_checkpoint_contexts, mpi.checkpoint_policy
    )
    x = torch.ones(2, requires_grad=True)
    before = comm._number
    y = checkpoint.checkpoint(
        lambda x: comm.Allreduce(x.sin()).cos(), x, use_reentrant=False, context_fn=context
    )
    y.sum().backward()
    assert comm._number - before == 2  # one forward, one backward
    close(x.grad, -(x.detach().sin() * comm.size).sin() * x.detach().cos() * comm.size)


def test_selective_checkpoints():
    jobs.run(2, saved_results)
