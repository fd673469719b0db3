# SPDX-License-Identifier: Apache-2.0
"""Every operation, compiled: the same values, gradients and order as without."""

import cases
import jobs
import pytest
import torch
import torch._dynamo
from weft import mpi

close = torch.testing.assert_close

# What a first compilation imports, ranks would import each.
_warm = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
_warm(torch.ones(1, requires_grad=True)).backward()

BACKENDS = ("aot_eager", "inductor") if jobs.FULL else ("aot_eager",)
SIZES = (1, 2, 3) if jobs.FULL else (2,)
PARTS = 5 if jobs.FULL else 1  # a job has a deadline

# The others are much like these.
FEW = {
    "Reduce avg",
    "Bcast",
    "Gatherv, counts",
    "Allgatherv, counts",
    "Scatter",
    "Reduce_scatterv",
    "Alltoallv, counts",
    "Repartition",
    "Exscan",
    "halo, periodic",
    "Sendrecv",
    "Isend, Recv, Wait",
    "Irecv, Isend, Waitall",
    "Iallreduce",
    "Allreduce amax",
    "Allreduce prod",
    "Scan prod",
    "Replicate",
}

# What other ranks must be asked for, and handles, break the graph.
BREAKS = {"Gatherv", "Allgatherv", "Scatterv", "Alltoallv of two axes", "Repartition"}


def breaks(case):
    started = case.name.startswith("I") and case.name != "Isend, Recv, Wait"
    return started or case.name in BREAKS


def known_lengths():
    """The forms of any length, of which the caller knows the lengths."""
    return [
        cases.Case(
            "Gatherv, counts",
            lambda r, n: (2, cases.with_empty(r, n)),
            lambda c, x: c.Gatherv(x, 1, c.size - 1, cases.counts_of(c.size, cases.with_empty)),
            lambda xs: cases.gathered(xs, 1, cases.last(xs)),
        ),
        cases.Case(
            "Allgatherv, counts",
            lambda r, n: (cases.ragged(r, n), 2),
            lambda c, x: c.Allgatherv(x, 0, cases.counts_of(c.size, cases.ragged)),
            lambda xs: cases.same(torch.cat(xs, 0), xs),
        ),
        cases.Case(
            "Alltoallv, counts",
            lambda r, n: (sum(range(1, n + 1)), 2),
            lambda c, x: c.Alltoallv(
                x, [s + 1 for s in range(c.size)], [c.rank + 1] * c.size, 0, 0
            ),
            lambda xs: cases.transposed(xs, 0, 0, [s + 1 for s in range(len(xs))]),
        ),
        cases.Case(
            "Replicate", cases.flat, lambda c, x: c.Replicate(x), lambda xs: [x.clone() for x in xs]
        ),
    ]


def loss_of(case, comm, weights, x):
    y = case.ours(comm, x.sin())
    return (y * weights).sum()


def once(comm, function, x):
    """Value and gradient, and how many operations that were, there and back."""
    x = x.clone().requires_grad_()
    before = comm._number
    loss = function(x)
    forth = comm._number - before
    mpi.backward(loss)
    assert comm.history == 0
    return loss.detach(), x.grad, (forth, comm._number - before - forth)


def same_as_eager(comm, case, backend):
    torch._dynamo.reset()
    x = cases.inputs(case, comm.size, torch.float64)[comm.rank]
    outcome = case.all_ranks(cases.inputs(case, comm.size, torch.float64))[comm.rank]
    weights = torch.arange(outcome.numel(), dtype=torch.float64).reshape(outcome.shape) + comm.rank

    def function(x):
        return loss_of(case, comm, weights, x)

    value, grad, operations = once(comm, function, x)
    fast = torch.compile(function, backend=backend, fullgraph=not breaks(case))
    for _ in range(2):
        again = once(comm, fast, x)
        close(again[0], value)
        close(again[1], grad)
        assert again[2] == operations


def some_cases(comm, backend, part):
    chosen = [*cases.cases(), *cases.real_cases(), *known_lengths()]
    if not jobs.FULL:
        chosen = [case for case in chosen if case.name in FEW]
    for case in chosen[part::PARTS]:
        try:
            same_as_eager(comm, case, backend)
        except Exception as error:
            raise AssertionError(f"{case.name}: {error}") from error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation(size, backend, part):
    jobs.run(size, some_cases, backend, part)
