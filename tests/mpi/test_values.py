# SPDX-License-Identifier: Apache-2.0
"""Types, long messages, conjugates, and arguments that make no sense."""

import jobs
import pytest
import torch
import weft
from weft import mpi

close = torch.testing.assert_close
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOAT = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def whole_numbers(comm):
    n = comm.size
    for dtype in WHOLE:
        xs = [
            torch.tensor([0, 1, 1, 0][r % 4 :] + [1, 0, 1, 1][: r % 4]).to(dtype) for r in range(n)
        ]
        stack, x = torch.stack(xs), xs[comm.rank]
        same = [
            (mpi.MAX, stack.to(torch.int64).amax(0)),
            (mpi.MIN, stack.to(torch.int64).amin(0)),
            (mpi.LAND, stack.bool().all(0)),
            (mpi.LOR, stack.bool().any(0)),
            (mpi.LXOR, stack.bool().sum(0) % 2),
            (mpi.BAND, stack.to(torch.int64).amin(0)),
            (mpi.BOR, stack.to(torch.int64).amax(0)),
            (mpi.BXOR, stack.to(torch.int64).sum(0) % 2),
        ]
        for op, expected in same:
            close(comm.Allreduce(x, op), expected.to(dtype))
            close(comm.Wait(comm.Iallreduce(x, op)), expected.to(dtype))
        if dtype != torch.bool:
            close(comm.Allreduce(x, "sum"), stack.sum(0).to(dtype))
            close(comm.Exscan(x, weft.SUM), stack[: comm.rank].sum(0).to(dtype))
            limits = torch.iinfo(dtype)
            first = comm.Exscan(x, mpi.MAX), comm.Exscan(x, mpi.MIN), comm.Exscan(x, mpi.BAND)
            if comm.rank == 0:
                ends = limits.min, limits.max, -1 if limits.min else limits.max
                assert [t[0].item() for t in first] == list(ends)
        assert not comm.Allreduce(x).requires_grad


def fractions(comm):
    for dtype in FLOAT:
        x = torch.full((3,), comm.rank + 1.0, dtype=dtype)
        close(comm.Allreduce(x, mpi.MAX), torch.full((3,), float(comm.size), dtype=dtype))
        close(comm.Reduce(x, mpi.AVG, 0)[0].item(), (comm.size + 1) / 2 if comm.rank == 0 else 0.0)
        assert comm.Allreduce(torch.empty(0, dtype=dtype)).shape == (0,)
        assert comm.Allreduce(torch.ones((), dtype=dtype)).shape == ()


def conjugates(comm):
    x = torch.randn(3, dtype=torch.complex64)
    close(comm.Bcast(x.conj(), 0), comm.Bcast(x, 0).conj())
    close(comm.Allreduce(x.conj().imag), -comm.Allreduce(x.imag.clone()))


def long_messages(comm):
    """Longer than what fits next to a header, and than what is sent eagerly."""
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in (500, 513, 300_000):
        x = torch.full((n,), comm.rank + 1.0, requires_grad=True)
        first = comm.Irecv(x, down, 7)
        sent = comm.Isend(x, up, 7)
        y = comm.Wait(first)
        comm.Wait(sent)
        z = comm.Sendrecv(y, up, 8, source=down)
        close(z.detach(), torch.full((n,), (comm.rank - 2) % comm.size + 1.0))
        mpi.backward((z * (comm.rank + 1)).sum())
        close(x.grad, torch.full((n,), (comm.rank + 2) % comm.size + 1.0))
    if comm.rank == 0:
        for _ in range(comm.size - 1):
            comm.Recv(torch.empty(300_000), mpi.ANY_SOURCE, 9)
    else:
        comm.Send(torch.ones(300_000), 0, 9)


def out_of_order(comm):
    """Two receives from one rank, waited for in the other order."""
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    handles = [comm.Irecv(torch.empty(1000), down, 1) for _ in range(2)]
    sent = [comm.Isend(torch.full((1000,), float(i)), up, 1) for i in range(2)]
    assert comm.Wait(handles[1])[0] == 1
    assert comm.Wait(handles[0])[0] == 0
    comm.Waitall(sent)


def no_sense(comm):
    x = torch.ones(4)
    wrong = [
        lambda: comm.Bcast(x, comm.size),
        lambda: comm.Reduce(x, mpi.SUM, -1),
        lambda: comm.Send(x, comm.size),
        lambda: comm.Recv(x, -5),
        lambda: comm.Send(x, 0, -1),
        lambda: comm.Send(x, 0, 1 << 27),
        lambda: comm.Allreduce(x, "plus"),
        lambda: comm.Allreduce(x, 99),
        lambda: comm.Allreduce(x, mpi.BAND),
        lambda: comm.Scan(x, mpi.AVG),
        lambda: comm.Reduce_scatter(torch.ones(comm.size * 2 + 1)) if comm.size > 1 else 1 / 0,
        lambda: comm.Allgatherv(x, 0, [4] * (comm.size + 1)),
        lambda: comm.Allgatherv(x, 0, [5] * comm.size),
        lambda: comm.Alltoallv(x, [-1] * comm.size),
        lambda: comm.Allreduce(torch.eye(3).to_sparse()),
        lambda: comm.Create_cart((comm.size + 1,)),
        lambda: comm.Create_cart((comm.size,)).halo_exchange(x, 5),
        lambda: comm.Allreduce(torch.ones(2).to(torch.float8_e5m2)),
        lambda: setattr(comm, "convention", "both"),
        lambda: comm.Allreduce((x, x), mpi.MAXLOC),
    ]
    for i, call in enumerate(wrong):
        try:
            call()
        except (ValueError, TypeError, IndexError, NotImplementedError, ZeroDivisionError):
            continue
        except RuntimeError as error:
            assert "Sparse" in str(error) or "sparse" in str(error), (i, error)
            continue
        raise AssertionError(f"number {i} was taken")
    close(comm.Allreduce(torch.ones(1)), torch.tensor([float(comm.size)]))


def one_sided_exchange(comm):
    """Sendrecv with gradients on one rank only is told of."""
    x = torch.ones(2, requires_grad=comm.rank == 0)
    told = (weft.MismatchError, weft.AbortedError)  # by oneself, or by the other rank
    with pytest.raises(told, match=r"rank 0 records .*, but rank 1 does not"):
        comm.Sendrecv(x, 1 - comm.rank)


def not_recorded(comm):
    x = torch.ones(2, requires_grad=True)
    if comm.rank == 0:
        comm.Send(x, 1)
    else:
        with torch.no_grad(), pytest.raises(weft.MismatchError, match="rank 0 records"):
            comm.Recv(x, 0)


BODIES = [whole_numbers, fractions, conjugates, long_messages, out_of_order, no_sense]


def all_bodies(comm):
    for body in BODIES:
        try:
            body(comm)
        except BaseException as error:
            raise AssertionError(f"{body.__name__}: {error!r}") from error


@pytest.mark.parametrize("size", (1, 3))
def test_values(size):
    jobs.run(size, all_bodies)


@pytest.mark.parametrize("body", [one_sided_exchange, not_recorded], ids=lambda b: b.__name__)
def test_messages_agree_on_gradients(body):
    jobs.run(2, body)
