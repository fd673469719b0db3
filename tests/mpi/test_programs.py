# SPDX-License-Identifier: Apache-2.0
"""What programs do with the operations: checkpoints, receives from any rank, copies, Ctrl-C."""

import copy
import os
import signal

import jobs
import pytest
import torch
import waiting
import weft
from torch.utils.checkpoint import checkpoint
from weft import mpi
from weft.mpi import _comm

close = torch.testing.assert_close
LONG = 600_000  # numbers: more than is sent before somebody asks for it


def with_checkpoints(comm):
    """What is computed again has its own backward, and leaves nothing behind."""
    n, grads = comm.size, []
    x = torch.ones(2, requires_grad=True)

    def layer(y):
        return comm.Allreduce(y.sin()).cos()

    for reentrant in (None, False, True):
        for keep in (False, True):
            y = comm.Allreduce(x.sin() / n)  # an earlier communication, whose turn comes later
            for _ in range(2):
                y = layer(y) if reentrant is None else checkpoint(layer, y, use_reentrant=reentrant)
            mpi.backward(y.sum(), retain_graph=keep)
            if keep:
                mpi.backward(y.sum())
            grads.append(x.grad / (2 if keep else 1))
            x.grad = None
            assert comm.history == 0, (reentrant, keep, comm.history)
    for grad in grads[1:]:
        close(grad, grads[0])


def checkpointed_send(comm, reentrant, end):
    """Rank 0 sends what it looks at no more; with more communication behind it, or without."""

    def f(x):
        y = x.sin()
        if comm.rank == 0:
            comm.Send(y * 1, 1)
        else:
            y = comm.Recv(x, 0).cos() + y
        if end == "another":
            y = comm.Allreduce(y)
        return comm.join(y) if end == "join" else y

    x = torch.ones(2, requires_grad=True)
    mpi.backward(checkpoint(f, x, use_reentrant=reentrant).sum())
    z = torch.ones(2, requires_grad=True)
    factor = 2 if end == "another" else 1
    (factor * (z.sin().sum() + (z.sin().cos().sum() if comm.rank == 0 else 0))).backward()
    close(x.grad, z.grad)
    assert comm.history == 0


@pytest.mark.parametrize("end", ["another", "join", "nothing"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_that_sends(reentrant, end):
    if reentrant and end == "nothing":  # torch does not come by there
        told = jobs.errors(2, checkpointed_send, reentrant, end)[0]
        assert "message 2 to rank 1 with tag 0" in told and "comm.join" in told, told
    else:
        jobs.run(2, checkpointed_send, reentrant, end)


def any_rank_in_any_order(comm):
    """Messages go to receives in the order these were started, however they are waited for."""
    for tag, length in ((1, 3), (2, LONG)):
        if comm.rank == 0:
            like = torch.empty(length)
            handles = [comm.Irecv(like, source, tag) for source in 2 * [mpi.ANY_SOURCE, 1]]
            comm.Barrier() if length < LONG else None
            for i in (2, 0, 3, 1):
                y = comm.Wait(handles[i])
                assert y.min() == y.max() == i, (i, y.min(), y.max())
        else:
            if comm.rank == 1:
                for i in range(4):
                    comm.Send(torch.full((length,), float(i)), 0, tag)
            comm.Barrier() if length < LONG else None


def any_rank_in_the_background(comm):
    """A long receive from any rank goes on while its rank is busy elsewhere."""
    x = torch.full((LONG,), float(comm.rank), requires_grad=True)
    if comm.rank == 0:
        handles = [comm.Irecv(x, mpi.ANY_SOURCE, 3) for _ in range(comm.size - 1)]
        comm.Irecv(x, mpi.ANY_SOURCE, 4)  # dropped: still received
        comm.Barrier()
        got = comm.Waitall(handles[::-1])
        assert sorted(y[0].item() for y in got) == [float(r) for r in range(1, comm.size)]
        mpi.backward(sum((y * y).sum() for y in got))
    else:
        comm.Send(x, 0, 3)
        if comm.rank == 1:
            comm.Send(x.detach(), 0, 4)
        comm.Barrier()
        mpi.backward(torch.zeros(()))
        close(x.grad, 2 * x.detach())
    up = (comm.rank + 1) % comm.size
    y = comm.Sendrecv(torch.full((2,), float(comm.rank)), up, 5, source=mpi.ANY_SOURCE)
    assert y[0] == (comm.rank - 1) % comm.size


def started_with_wrong_counts(comm):
    """The counts are looked at before memory is, also by what is only started."""
    x, many = torch.ones(4), [100_000] * comm.size
    calls = [
        lambda: comm.Igatherv(x, 0, 0, many),
        lambda: comm.Iallgatherv(x, 0, many),
        lambda: comm.Ireduce_scatterv(x, many),
        lambda: comm.Ialltoallv(x, many, many),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the counts say"):
            call()


def started_maximum(comm):
    """What is started does not wait for the others: they may wait for us."""
    x = torch.full((2,), comm.rank + 1.0)
    if comm.rank == 1:
        comm.Recv(x, 0)
    handle = comm.Iallreduce(x, mpi.MAX)
    if comm.rank == 0:
        comm.Send(x, 1)
    close(comm.Wait(handle), torch.full((2,), float(comm.size)))


def freed_and_copied(comm):
    other = comm.Dup()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cart = other.Create_cart((other.size,))

    assert copy.copy(other) is other
    assert copy.deepcopy(Model()).cart.comm is other
    other.Free()
    other.Free()
    for call in (other.Dup, lambda: other.Split(0), other.Barrier, lambda: mpi.Comm(other)):
        with pytest.raises(weft.ClosedError, match="freed"):
            call()


def gradcheck_in_single_precision(comm):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(weft.InvalidError, match="double precision"):
        mpi.gradcheck(comm.Allreduce, [x], comm)


def first_of_exscan(comm):
    """It depends on nobody's numbers, and yet its backward is that of all."""
    x = torch.full((2,), 2.0, requires_grad=True)
    comm.Exscan(x, mpi.PROD).sum().backward()
    expected = [1.0, 0.0] if comm.size == 2 else [3.0, 2.0, 0.0]
    close(x.grad, torch.full((2,), expected[comm.rank]))
    assert comm.history == 0


def smallest_of_unsigned(comm):
    x = torch.tensor([comm.rank + 1], dtype=torch.int32).to(torch.uint16)
    y = comm.Exscan(x, mpi.BAND)
    assert comm.rank > 0 or y.item() == 0xFFFF


BODIES = [
    with_checkpoints,
    any_rank_in_any_order,
    any_rank_in_the_background,
    started_with_wrong_counts,
    started_maximum,
    freed_and_copied,
    gradcheck_in_single_precision,
    first_of_exscan,
    smallest_of_unsigned,
]


@pytest.mark.parametrize("size", (2, 3))
def test_programs(size):
    jobs.run(size, jobs.each, BODIES)


MOVES = {
    "Bcast": lambda comm, x: comm.Bcast(x, 0),
    "Gather": lambda comm, x: comm.Gather(x, 0, 0),
    "Allgather": lambda comm, x: comm.Allgather(x),
    "Alltoall": lambda comm, x: comm.Alltoall(x),
    "halo": lambda comm, x: comm.Create_cart((2,)).halo_exchange(x),
}


def bytes_of_another_type(comm):
    """As many bytes, but of another type: an error on whoever would read them."""
    told = []
    for name, move in MOVES.items():
        x = torch.ones(4, dtype=torch.float32 if comm.rank else torch.int32)
        try:
            move(comm.Dup(), x)
            told.append((name, "nothing"))
        except weft.MismatchError as error:
            told.append((name, str(error)))
    return told


def test_bytes_are_not_read_as_another_type():
    for name, text in jobs.run(2, bytes_of_another_type)[0]:
        assert "on Float" in text and "on Int" in text, (name, text)


def tell_when_draining(pipe):
    drain = mpi.Comm._drain

    def told(comm, seconds):
        os.write(pipe, b"!")
        return drain(comm, seconds)

    mpi.Comm._drain = told


def last_messages(comm, leaves, told):
    """What nobody waits for is received all the same, or it is said that it was not."""
    other = comm.Dup()
    if comm.rank == 0:
        _comm._DRAIN_SECONDS = 0.2
        other.Isend(torch.ones(LONG), 1)
        with pytest.warns(RuntimeWarning, match="1 messages of rank 0 were not received"):
            other.Free()
        _comm._DRAIN_SECONDS = 30.0
    comm.Barrier()
    if comm.rank == 0:
        comm.Isend(torch.full((LONG,), 3.0), 1)
        tell_when_draining(told)
        return
    assert os.read(leaves, 1) == b"!"  # rank 0 does so
    assert comm.Recv(torch.empty(LONG), 0)[-1] == 3


def test_last_messages():
    jobs.run(2, last_messages, *os.pipe())


def interrupted(comm, wait):
    """Ctrl-C while a rank waits for one that does not come."""
    if comm.rank == 1:
        comm.weft_comm.recv(bytearray(1), 0)
        waiting.until_asleep(weft.world().peers[0].pid)
        os.kill(weft.world().peers[0].pid, signal.SIGINT)
        with pytest.raises(weft.Error):
            comm.Barrier() if wait == "a queue" else comm.Recv(torch.ones(1), 0)
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        handles = [comm.Irecv(torch.ones(LONG), mpi.ANY_SOURCE, 5) for _ in range(2)]
        comm.weft_comm.send(b"!", 1)
        if wait == "a collective":
            comm.Allreduce(torch.ones(1))
        elif wait == "a message":
            comm.Recv(torch.ones(1), 1)
        else:
            comm.Wait(handles[1])
    comm.weft_comm.abort("interrupted")


@pytest.mark.parametrize("wait", ["a collective", "a message", "a queue"])
def test_ctrl_c_is_a_keyboard_interrupt(wait):
    jobs.run(2, interrupted, wait)
