# SPDX-License-Identifier: Apache-2.0
"""Every operation, next to what it means.

A case has the inputs of all ranks (which every rank can compute), the operation
on this rank's input, and the same for all ranks at once, in plain torch: so
values, gradients of any order, tangents and batches have something to be
compared with.
"""

import dataclasses
from collections.abc import Callable

import torch
from weft import mpi


@dataclasses.dataclass
class Case:
    """One operation. `shape` is that of a rank's input."""

    name: str
    shape: Callable  # (rank, size) -> shape
    ours: Callable  # (comm, x) -> y
    all_ranks: Callable  # (list of x) -> list of y
    smooth: bool = True


def total(xs):
    return torch.stack(xs).sum(0)


def same(value, xs):
    return [value.clone() for _ in xs]


def on_root(value, xs, root):
    return [value if r == root else torch.zeros_like(value) for r in range(len(xs))]


def last(xs):
    return len(xs) - 1


def gathered(xs, axis, root):
    whole = torch.cat(xs, axis)
    return [whole if r == root else whole.narrow(axis, 0, 0) for r in range(len(xs))]


def parts(whole, counts, axis):
    return list(torch.split(whole, counts, axis))


def ragged(rank, size):
    return (rank * 2 + 1) % 4  # 1, 3, 1, 3, ...; with an empty one below


def with_empty(rank, size):
    return 0 if rank == 1 else rank + 1


def counts_of(size, length):
    return [length(r, size) for r in range(size)]


def flat(rank, size):
    return (3, 2)


def reduced(op, how):
    return Case(
        f"Allreduce {how.__name__}",
        flat,
        lambda comm, x: comm.Allreduce(x, op),
        lambda xs: same(how(torch.stack(xs)), xs),
    )


def amax(stack):
    return stack.amax(0)


def amin(stack):
    return stack.amin(0)


def prod(stack):
    return stack.prod(0)


def mean(stack):
    return stack.mean(0)


def scanned(xs, how, exclusive):
    first = {"sum": 0.0, "prod": 1.0, "amax": -float("inf"), "amin": float("inf")}
    result = []
    for r in range(len(xs)):
        some = xs[: r if exclusive else r + 1]
        result.append(
            how(torch.stack(some)) if some else torch.full_like(xs[0], first[how.__name__])
        )
    return result


def sum(stack):
    return stack.sum(0)


def exchanged(xs):
    """Alltoall along axis 0: block s of rank r becomes block r of rank s."""
    n = len(xs)
    blocks = [list(x.chunk(n, 0)) if x.shape[0] else [x] * n for x in xs]
    return [torch.cat([blocks[r][s] for r in range(n)], 0) for s in range(n)]


def transposed(xs, to, axis, counts):
    cut = [torch.split(x, counts, axis) for x in xs]
    return [torch.cat([c[s] for c in cut], to) for s in range(len(xs))]


def ring(xs, step):
    return [xs[(r - step) % len(xs)] for r in range(len(xs))]


def ring_case(name, ours):
    return Case(name, flat, ours, lambda xs: ring(xs, 1))


def send_then_receive(comm, x):
    """A ring, the way old programs write it."""
    handle = comm.Isend(x, (comm.rank + 1) % comm.size, 3)
    y = comm.Recv(torch.empty_like(x), (comm.rank - 1) % comm.size, 3)
    comm.Wait(handle)
    return y


def post_receive_first(comm, x):
    like = torch.empty_like(x)
    handle = comm.Irecv(like, (comm.rank - 1) % comm.size, 4)
    comm.Send(x, (comm.rank + 1) % comm.size, 4)
    return comm.Wait(handle)


def both_at_once(comm, x):
    handles = [
        comm.Irecv(torch.empty_like(x), (comm.rank - 1) % comm.size, 5),
        comm.Isend(x, (comm.rank + 1) % comm.size, 5),
    ]
    return comm.Waitall(handles)[0]


def sendrecv(comm, x):
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return comm.Sendrecv(x, up, 1, torch.empty_like(x), down, 1)


def all_to_last(comm, x):
    """Everybody sends to the last rank, which adds."""
    if comm.rank != comm.size - 1:
        comm.Send(x, comm.size - 1)
        return x * 0
    return torch.stack([x, *(comm.Recv(x, r) for r in range(comm.size - 1))]).sum(0)


def halo_1d(xs, low, high, periodic):
    n = len(xs)
    result = []
    for r in range(n):
        below, above = xs[(r - 1) % n], xs[(r + 1) % n]
        lo, hi = below[below.shape[0] - low :], above[:high]
        if not periodic and r == 0:
            lo = torch.zeros_like(lo)
        if not periodic and r == n - 1:
            hi = torch.zeros_like(hi)
        result.append(torch.cat([lo, xs[r], hi], 0))
    return result


def halo_2d(xs, dims):
    """One wide on all sides, periodic: blocks of the whole, wrapped around."""
    rows = [torch.cat(xs[i * dims[1] : (i + 1) * dims[1]], 1) for i in range(dims[0])]
    whole = torch.cat(rows, 0)
    h, w = xs[0].shape
    result = []
    for r in range(len(xs)):
        i, j = divmod(r, dims[1])
        rolled = torch.roll(whole, (1 - i * h, 1 - j * w), (0, 1))
        wide = torch.cat([rolled, rolled, rolled], 0)
        wide = torch.cat([wide, wide, wide], 1)
        result.append(wide[: h + 2, : w + 2])
    return result


def grid(size):
    return (2, size // 2) if size % 2 == 0 else (1, size)


def waited(start):
    return lambda comm, x: comm.Wait(start(comm, x))


def cases():
    """All of them."""
    linear = [
        reduced(mpi.SUM, sum),
        reduced("avg", mean),
        Case(
            "Reduce",
            flat,
            lambda comm, x: comm.Reduce(x, mpi.SUM, comm.size - 1),
            lambda xs: on_root(total(xs), xs, last(xs)),
        ),
        Case(
            "Reduce avg",
            flat,
            lambda comm, x: comm.Reduce(x, mpi.AVG, comm.size // 2),
            lambda xs: on_root(total(xs) / len(xs), xs, len(xs) // 2),
        ),
        Case("Bcast", flat, lambda c, x: c.Bcast(x, c.size - 1), lambda xs: same(xs[-1], xs)),
        Case(
            "Gather",
            flat,
            lambda c, x: c.Gather(x, 1, c.size - 1),
            lambda xs: gathered(xs, 1, last(xs)),
        ),
        Case(
            "Gatherv",
            lambda r, n: (2, with_empty(r, n), 2),
            lambda c, x: c.Gatherv(x, 1, c.size // 2),
            lambda xs: gathered(xs, 1, len(xs) // 2),
        ),
        Case(
            "Allgather",
            flat,
            lambda c, x: c.Allgather(x, -1),
            lambda xs: same(torch.cat(xs, 1), xs),
        ),
        Case(
            "Allgather of single numbers",
            lambda r, n: (),
            lambda c, x: c.Allgather(x),
            lambda xs: same(torch.stack(xs), xs),
        ),
        Case(
            "Allgatherv",
            lambda r, n: (with_empty(r, n), 2),
            lambda c, x: c.Allgatherv(x, 0),
            lambda xs: same(torch.cat(xs, 0), xs),
        ),
        Case(
            "Scatter",
            lambda r, n: (2, 2 * n),
            lambda c, x: c.Scatter(x, 1, c.size - 1),
            lambda xs: parts(xs[-1], [2] * len(xs), 1),
        ),
        Case(
            "Scatterv",
            lambda r, n: (int(torch.tensor(counts_of(n, with_empty)).sum()), 2),
            lambda c, x: c.Scatterv(x, 0, with_empty(c.rank, c.size), c.size - 1),
            lambda xs: parts(xs[-1], counts_of(len(xs), with_empty), 0),
        ),
        Case(
            "Reduce_scatter",
            lambda r, n: (2, n * 2),
            lambda c, x: c.Reduce_scatter(x, mpi.SUM, 1),
            lambda xs: parts(total(xs), [2] * len(xs), 1),
        ),
        Case(
            "Reduce_scatter avg",
            lambda r, n: (n, 2),
            lambda c, x: c.Reduce_scatter(x, mpi.AVG),
            lambda xs: parts(total(xs) / len(xs), [1] * len(xs), 0),
        ),
        Case(
            "Reduce_scatterv",
            lambda r, n: (2, int(torch.tensor(counts_of(n, ragged)).sum())),
            lambda c, x: c.Reduce_scatterv(x, counts_of(c.size, ragged), mpi.SUM, 1),
            lambda xs: parts(total(xs), counts_of(len(xs), ragged), 1),
        ),
        Case("Alltoall", lambda r, n: (2 * n, 3), lambda c, x: c.Alltoall(x), exchanged),
        Case(
            "Alltoall of two axes",
            lambda r, n: (2 * n, 3),
            lambda c, x: c.Alltoall(x, 1, 0),
            lambda xs: transposed(xs, 1, 0, [2] * len(xs)),
        ),
        Case(
            "Alltoallv of two axes",
            lambda r, n: (ragged(r, n), 2, int(torch.tensor(counts_of(n, with_empty)).sum())),
            lambda c, x: c.Alltoallv(x, counts_of(c.size, with_empty), None, 0, 2),
            lambda xs: transposed(xs, 0, 2, counts_of(len(xs), with_empty)),
        ),
        Case(
            "Repartition",
            lambda r, n: (2, n - r),
            lambda c, x: c.Repartition(x, 1, c.rank + 1),
            lambda xs: parts(torch.cat(xs, 1), [r + 1 for r in range(len(xs))], 1),
        ),
        Case("Scan", flat, lambda c, x: c.Scan(x), lambda xs: scanned(xs, sum, False)),
        Case("Exscan", flat, lambda c, x: c.Exscan(x), lambda xs: scanned(xs, sum, True)),
        Case(
            "halo, open",
            lambda r, n: (3, 2),
            lambda c, x: c.Create_cart((c.size,)).halo_exchange(x, [(1, 2)], axes=[0]),
            lambda xs: halo_1d(xs, 1, 2, False),
        ),
        Case(
            "halo, periodic",
            lambda r, n: (3, 2),
            lambda c, x: c.Create_cart((c.size,), True).halo_exchange(x, 2, axes=[0]),
            lambda xs: halo_1d(xs, 2, 2, True),
        ),
        Case(
            "halo in two dimensions",
            lambda r, n: (2, 3),
            lambda c, x: c.Create_cart(grid(c.size), (True, True)).halo_exchange(x),
            lambda xs: halo_2d(xs, grid(len(xs))),
        ),
        ring_case("Sendrecv", sendrecv),
        ring_case("Isend, Recv, Wait", send_then_receive),
        ring_case("Irecv, Send, Wait", post_receive_first),
        ring_case("Irecv, Isend, Waitall", both_at_once),
        Case(
            "all send to the last",
            flat,
            all_to_last,
            lambda xs: [*(x * 0 for x in xs[:-1]), total(xs)],
        ),
    ]
    started = [
        Case(
            "Iallreduce", flat, waited(lambda c, x: c.Iallreduce(x)), lambda xs: same(total(xs), xs)
        ),
        Case("Ibcast", flat, waited(lambda c, x: c.Ibcast(x, 0)), lambda xs: same(xs[0], xs)),
        Case(
            "Iallgatherv",
            lambda r, n: (ragged(r, n), 2),
            waited(lambda c, x: c.Iallgatherv(x)),
            lambda xs: same(torch.cat(xs, 0), xs),
        ),
        Case(
            "Ireduce_scatter",
            lambda r, n: (n, 2),
            waited(lambda c, x: c.Ireduce_scatter(x)),
            lambda xs: parts(total(xs), [1] * len(xs), 0),
        ),
        Case("Ialltoall", lambda r, n: (n, 3), waited(lambda c, x: c.Ialltoall(x)), exchanged),
        Case("Iscan", flat, waited(lambda c, x: c.Iscan(x)), lambda xs: scanned(xs, sum, False)),
        Case(
            "Ireduce",
            flat,
            waited(lambda c, x: c.Ireduce(x, mpi.SUM, c.size - 1)),
            lambda xs: on_root(total(xs), xs, last(xs)),
        ),
        Case(
            "Igather",
            flat,
            waited(lambda c, x: c.Igather(x, 0, c.size - 1)),
            lambda xs: gathered(xs, 0, last(xs)),
        ),
        Case(
            "Iscatter",
            lambda r, n: (2 * n, 2),
            waited(lambda c, x: c.Iscatter(x)),
            lambda xs: parts(xs[0], [2] * len(xs), 0),
        ),
    ]
    return linear + started


def real_cases():
    """Those that complex numbers have no order for, and products."""
    return [
        reduced(mpi.MAX, amax),
        reduced(mpi.MIN, amin),
        reduced(mpi.PROD, prod),
        Case(
            "Reduce max",
            flat,
            lambda c, x: c.Reduce(x, mpi.MAX, c.size - 1),
            lambda xs: on_root(amax(torch.stack(xs)), xs, last(xs)),
        ),
        Case(
            "Reduce_scatter prod",
            lambda r, n: (2 * n, 2),
            lambda c, x: c.Reduce_scatter(x, mpi.PROD),
            lambda xs: parts(prod(torch.stack(xs)), [2] * len(xs), 0),
        ),
        Case(
            "Scan prod", flat, lambda c, x: c.Scan(x, mpi.PROD), lambda xs: scanned(xs, prod, False)
        ),
        Case(
            "Exscan prod",
            flat,
            lambda c, x: c.Exscan(x, mpi.PROD),
            lambda xs: scanned(xs, prod, True),
        ),
        Case(
            "Scan max", flat, lambda c, x: c.Scan(x, mpi.MAX), lambda xs: scanned(xs, amax, False)
        ),
    ]


def inputs(case, size, dtype, salt=0):
    """The inputs of all ranks, the same wherever they are computed."""
    result = []
    for rank in range(size):
        gen = torch.Generator().manual_seed(1000 * salt + 7 * rank + 1)
        result.append(torch.randn(case.shape(rank, size), dtype=dtype, generator=gen))
    return result
