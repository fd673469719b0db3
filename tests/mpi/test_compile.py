# SPDX-License-Identifier: Apache-2.0
"""torch.compile keeps every communication, in order, forward and backward."""

import functools

import jobs
import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx
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
    comm.Send(x.cos(), (comm.rank + 1) % comm.size)
    y = comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size)
    return (y * y).sum()


def compiled(comm, body, backend):
    plain = functools.partial(body, comm)
    fast = torch.compile(plain, backend=backend, fullgraph=True)
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
    assert len(seen) == 1
    assert seen[0].count("weft.traced_allreduce") == 3
    comm.detach_history()


def test_a_function_is_one_graph():
    jobs.run(2, one_graph)


def lengths_left_open(comm):
    """Sizes that are marked as dynamic stay so; others are compiled once more."""
    graphs = []

    def count(graph, example):
        graphs.append(graph)
        return graph

    def function(x):
        y = comm.Allgather(comm.Allreduce(x.sin(), mpi.MAX), 0)
        z = comm.Alltoall(torch.cat([y, x * 2]), 0, 0)
        w = comm.Reduce_scatter(z) + comm.Scatter(z, 0, comm.size - 1)
        return (comm.Gather(w, 0) ** 2).sum() + comm.Sendrecv(w, comm.rank).sum()

    def gradient(function, n, mark):
        x = torch.arange(float(n * comm.size), dtype=torch.float64).cos().requires_grad_()
        if mark:
            torch._dynamo.mark_dynamic(x, 0)
        mpi.backward(function(x))
        return x.grad

    compiler = aot_autograd(fw_compiler=count)
    for mark, expected in ((True, 1), (False, 2)):
        torch._dynamo.reset()
        graphs.clear()
        fast = torch.compile(function, backend=compiler, fullgraph=True, dynamic=None)
        for n in (3, 5, 4):
            close(gradient(fast, n, mark), gradient(function, n, False))
        assert len(graphs) == 2 * expected, len(graphs)  # forward and backward


def test_dynamic_shapes():
    jobs.run(2, lengths_left_open)


def traced_otherwise(comm):
    """make_fx and export see the operations, and what they give runs."""

    class Model(torch.nn.Module):
        def forward(self, x):
            comm.Allreduce(x * 3)
            return comm.Scan(comm.Bcast(x.sin(), comm.size - 1))

    x = torch.arange(4.0)
    graph = make_fx(Model())(x)
    assert str(graph.graph).count("weft.") == 3
    close(graph(x), Model()(x))
    with torch.no_grad():
        program = torch.export.export(Model(), (x,), strict=False)
    close(program.module()(x), Model()(x))
    assert str(program.graph).count("weft.") == 3


def test_other_tracers():
    jobs.run(2, traced_otherwise)


def with_passes(comm):
    """Inductor's passes that remove and move code leave communications where they are."""

    def function(x):
        a = comm.Allreduce(x @ x)
        comm.Send(a.sum(0), (comm.rank + 1) % comm.size)
        b = (x @ x @ x).relu()
        comm.Allreduce(b)
        c = comm.Recv(x[0], (comm.rank - 1) % comm.size)
        comm.Allreduce(b * 2, mpi.MAX)
        return (c * c).sum() if comm.rank == 0 else x.sum()

    def gradient(function):
        x = (torch.arange(9.0, dtype=torch.float64) + comm.rank).reshape(3, 3).requires_grad_()
        before = comm._number
        mpi.backward(function(x))
        return x.grad, comm._number - before

    expected = gradient(function)
    with torch._inductor.config.patch(
        reorder_for_compute_comm_overlap=True, reorder_for_locality=True, use_dce=True
    ):
        found = gradient(torch.compile(function, fullgraph=True))
    close(found[0], expected[0])
    assert found[1] == expected[1]


@pytest.mark.skipif(not jobs.FULL, reason="inductor takes long: WT_FULL=1")
def test_inductor_passes():
    jobs.run(2, with_passes)


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
