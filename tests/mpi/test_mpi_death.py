# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed: whoever needs it is told at once, there and back; all others go on."""

import os
import signal
import time

import jobs
import pytest
import torch
import weft
from weft import mpi
from weft.compat import mpi4torch

VICTIM = 1
LONG = 1 << 20  # elements; so many go through no buffer
HOUR = 3600.0
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def until_over(comm, handle):
    while not handle.test():
        time.sleep(0.01)
    comm.Wait(handle)


def backward_of(record):
    """All ranks take part in the forward pass, and the victim is killed before it goes back."""

    def call(comm):
        x = torch.ones(3, requires_grad=True)
        loss = record(comm, x).sum()
        strike(comm)
        mpi.backward(loss)

    return call


def ring(comm, x):
    y = comm.Sendrecv(x * 2, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
    return comm.Allreduce(y)


def both_ends(comm, x):
    """The victim has what all others sent; they wait for the gradient."""
    if comm.rank == VICTIM:
        return sum(comm.Recv(x, rank) for rank in range(comm.size) if rank != VICTIM)
    return comm.Send(x * 2, VICTIM)


def compat(name, *args):
    """A call of the compatible interface on the world."""
    return lambda comm: getattr(mpi4torch.COMM_WORLD, name)(torch.ones(3), *args)


CALLS = {
    "Allreduce": lambda comm: comm.Allreduce(torch.ones(3)),
    "Allreduce in place": lambda comm: comm.Allreduce_(torch.ones(LONG)),
    "Bcast": lambda comm: comm.Bcast(torch.ones(3), VICTIM),
    "Gather": lambda comm: comm.Gather(torch.ones(3), 0, 0),
    "Allgatherv": lambda comm: comm.Allgatherv(torch.ones(comm.rank)),
    "Alltoall": lambda comm: comm.Alltoall(torch.ones(3)),
    "Scan": lambda comm: comm.Scan(torch.ones(3)),
    "Barrier": lambda comm: comm.Barrier(),
    "Recv": lambda comm: comm.Recv(torch.ones(3), VICTIM),
    "Sendrecv": lambda comm: comm.Sendrecv(torch.ones(LONG), VICTIM),
    "halo_exchange": lambda comm: comm.Create_cart((3,), True).halo_exchange(torch.ones(4)),
    "Wait": lambda comm: comm.Wait(comm.Iallreduce(torch.ones(3))),
    "Wait for a receive": lambda comm: comm.Wait(comm.Irecv(torch.ones(3), VICTIM)),
    "Wait for a long send": lambda comm: comm.Wait(comm.Isend(torch.ones(LONG), VICTIM)),
    "a handle that is asked": lambda comm: until_over(comm, comm.Irecv(torch.ones(3), VICTIM)),
    "backward of Allreduce": backward_of(lambda comm, x: comm.Allreduce(x * 2)),
    "backward of a ring": backward_of(ring),
    "backward of messages": backward_of(both_ends),
    "compat Allreduce": compat("Allreduce", mpi4torch.MPI_SUM),
    "compat Recv": compat("Recv", VICTIM, 5),
    "compat Bcast_": compat("Bcast_", VICTIM),
}


def waiting(lines):
    """How many ranks the board shows in a call that is not the victim's last."""
    last = lines[VICTIM].partition("last in ")[2]
    return sum("last in" not in line and last not in line for line in lines)


def strike(comm):
    """The victim ends when the board shows that the others wait, which it need not show."""
    comm.weft_comm.barrier()
    end = time.monotonic() + 1.0
    while comm.rank == VICTIM:
        if waiting(weft.world().dump().splitlines()) == comm.size - 1 or time.monotonic() > end:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)


def killed_during(comm, name):
    others = comm.Split(None if comm.rank == VICTIM else 0)
    back = name.startswith("backward")
    if not back:
        strike(comm)
    start = time.monotonic()
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died") as first:
        CALLS[name](comm)
        comm.Barrier()
    for later in (comm.Allreduce, comm.Alltoall, comm.Bcast):
        with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died"):
            later(torch.ones(3))
    assert others.Allreduce(torch.ones(1)).item() == comm.size - 1
    assert time.monotonic() - start < SOON
    return str(first.value)


@pytest.mark.parametrize("name", CALLS)
def test_a_killed_rank_is_named_at_once_in_every_call(name):
    ended = jobs.start(3, killed_during, name, timeout=HOUR)
    assert ended[VICTIM].error == "ended with -9"
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
