# SPDX-License-Identifier: Apache-2.0
"""What a user reads when he has made a mistake: in his own tags, lengths and calls."""

import time

import jobs
import pytest
import torch
import weft
from torch.func import hessian
from weft import mpi

close = torch.testing.assert_close


def after(comm, doing):
    """Rank 0 goes on, and gives up soon, when rank 1 is seen to wait; rank 1 has all the time."""
    comm.Barrier()
    comm.weft_comm.timeout = 0.3 if comm.rank == 0 else 1000.0
    while comm.rank == 0 and not any(
        f"in {doing}" in line and "last in" not in line
        for line in weft.world().dump().splitlines()
        if line.startswith("rank 1 ")
    ):
        time.sleep(0.01)


def crossed(comm):
    after(comm, "receive")
    comm.Recv(torch.empty(3), 1 - comm.rank, 7)


def crossed_later(comm):
    after(comm, "receive")
    comm.Wait(comm.Irecv(torch.empty(3), 1 - comm.rank, 7))


def other_tags(comm):
    x = torch.ones(3)
    after(comm, "receive")
    comm.Sendrecv(x, 1 - comm.rank, 5, x, 1 - comm.rank, 7)


def told(body):
    both = jobs.errors(2, body, timeout=60.0)
    assert all("TimeoutError" in text for text in both), both
    return [text.strip().splitlines()[-1] for text in both]


@pytest.mark.parametrize("body", [crossed, crossed_later, other_tags], ids=lambda b: b.__name__)
def test_a_receive_of_what_nobody_sends(body):
    for rank, text in enumerate(told(body)):
        assert f"of Float [3], from rank {1 - rank} with tag 7" in text
        assert "in receive of 12 bytes from rank 1 (tag 7 on" in text
        assert "it is in receive of 12 bytes from rank 0, tag 7 on" in text
        assert "backward" not in text


def long_and_short(comm):
    n = 1_000_000
    after(comm, "receive" if comm.rank == 0 else "send")
    if comm.rank == 0:
        comm.Send(torch.ones(n), 1, 5)
    else:
        comm.Recv(torch.ones(n, dtype=torch.float64), 0, 6)


def test_a_long_message_with_another_tag():
    ours, theirs = told(long_and_short)
    assert "Send of Float [1000000], to rank 1 with tag 5" in ours
    assert "Recv of Double [1000000], from rank 0 with tag 6" in theirs
    for text in (ours, theirs):
        assert "send of 4000000 bytes to rank 1 (tag 5 on" in text
        assert "it is in receive of a message from rank 0, tag 6 on" in text


def wait_is_not_used(comm):
    """Both send back a gradient, which the other would take when it comes to its Wait."""
    x = torch.ones(1_000_000, requires_grad=True)
    handle = comm.Isend(x * 2, 1 - comm.rank, 3)
    y = comm.Recv(torch.empty(1_000_000), 1 - comm.rank, 3)
    comm.Wait(handle)
    loss = y.sum()
    after(comm, "send")
    loss.backward()


def test_a_backward_that_leaves_out_a_wait_is_told_of_join():
    for rank, text in enumerate(told(wait_is_not_used)):
        assert f"Send of a gradient, Float [1000000], to rank {1 - rank} with tag 3" in text
        assert "weft.mpi.backward(loss) or from comm.join(loss)" in text


def not_freed(comm):
    """finalize frees what was not, as MPI does; also what was made twice of one."""
    twin, part = comm.Dup(), comm.Split(0)
    same = mpi.Comm(twin)
    weft.finalize()
    for each in (comm, twin, part, same):
        with pytest.raises(weft.ClosedError, match=r"was freed, or weft\.finalize"):
            each.Allreduce(torch.ones(1))


@pytest.mark.parametrize("size", (1, 2))
def test_finalize_frees_all_communicators(size):
    jobs.run(size, not_freed)


def ring(comm, x):
    handle = comm.Isend(x, (comm.rank + 1) % comm.size, 3)
    y = comm.Recv(x, (comm.rank - 1) % comm.size, 3)
    return comm.join(y, comm.Wait(handle))


def curved(comm):
    """hessian puts batches into tangents of gradients of messages."""
    w = torch.arange(1.0, 1 + 2 * comm.size, dtype=torch.float64).view(-1, 2)
    got = hessian(lambda x: (ring(comm, x.sin()) ** 3).sum())(w[comm.rank])
    close(got, hessian(lambda x: (x.sin() ** 3).sum())(w[comm.rank]))


@pytest.mark.parametrize("size", (1, 2, 3))
def test_hessian_of_messages(size):
    jobs.run(size, curved)


def traced(comm):
    """A trace would have the result of this very call as a constant."""
    calls = [
        lambda x: comm.Allreduce(x) + 1,
        lambda x: comm.Wait(comm.Iallreduce(x)) + 1,
        lambda x: comm.Sendrecv(x, comm.rank) + 1,
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match=r"torch\.jit\.trace"):
            torch.jit.trace(call, (torch.ones(2),))
    close(calls[0](torch.ones(2)), torch.full((2,), comm.size + 1.0))


def test_jit_trace_is_refused():
    jobs.run(2, traced)


def forward_only(comm):
    """Started, waited for, and never differentiated: all but the last few are forgotten."""
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x = torch.ones(3, requires_grad=True)
    comm.set_history_limit(50)
    for _ in range(200):
        handles = [comm.Isend(x * 2, up), comm.Irecv(torch.empty(3), down), comm.Iallreduce(x)]
        _, y, z = comm.Waitall(handles)
    assert comm.history <= 2 * 50
    mpi.backward((y * z).sum())
    close(x.grad, torch.full((3,), 4.0 * comm.size))


@pytest.mark.parametrize("size", (1, 2))
def test_handles_that_were_waited_for_are_forgotten(size):
    jobs.run(size, forward_only)


def failing(comm):
    """A freed communicator fails with one status; its number is given to each class in turn."""
    freed = comm.Dup()
    freed.Free()
    real = weft.ClosedError.status
    for kind in weft.Error.__subclasses__():
        own = kind.status
        weft.ClosedError.status, kind.status = own, real
        with pytest.raises(kind, match="was freed") as raised:
            freed.Allreduce(torch.ones(2))
        assert type(raised.value) is kind
        kind.status, weft.ClosedError.status = own, real


def test_each_status_raises_its_own_class():
    jobs.run(1, failing)
