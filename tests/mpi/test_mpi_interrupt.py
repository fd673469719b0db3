# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in whatever call waits, there and back: it is seen at once, and others are told."""

import os
import signal
import time

import jobs
import pytest
import torch
import weft
from weft import mpi
from weft.compat import mpi4torch

LONG = 1 << 20  # elements; so many go through no buffer
HOUR = 3600.0
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def compat(name, *args):
    """A call of the compatible interface on the world."""
    return lambda comm: getattr(mpi4torch.COMM_WORLD, name)(torch.ones(3), *args)


CALLS = {
    "Allreduce": lambda comm: comm.Allreduce(torch.ones(3)),
    "Allgatherv": lambda comm: comm.Allgatherv(torch.ones(3)),
    "Recv": lambda comm: comm.Recv(torch.ones(3), 1),
    "Sendrecv": lambda comm: comm.Sendrecv(torch.ones(LONG), 1),
    "Wait": lambda comm: comm.Wait(comm.Iallreduce(torch.ones(3))),
    "Wait for a receive": lambda comm: comm.Wait(comm.Irecv(torch.ones(3), 1)),
    "Wait for a long send": lambda comm: comm.Wait(comm.Isend(torch.ones(LONG), 1)),
    "compat Allreduce": compat("Allreduce", mpi4torch.MPI_SUM),
    "compat Recv": compat("Recv", 1, 5),
}


def reduced(comm, x):
    return comm.Allreduce(x * 2).sum()


def sent(comm, x):
    """Rank 0 waits for the gradient of what rank 1 has received."""
    return comm.Send(x * 2, 1).sum() if comm.rank == 0 else comm.Recv(x, 0).sum()


BACKWARD = {"backward of Allreduce": reduced, "backward of Send": sent}


def interrupted(comm, name):
    beside = weft.world().comm.dup()
    x = torch.ones(3, requires_grad=True)
    loss = BACKWARD[name](comm, x) if name in BACKWARD else None
    if comm.rank == 0:
        call(beside, lambda: mpi.backward(loss) if name in BACKWARD else CALLS[name](comm))
        comm.weft_comm.abort("interrupted")  # as the end of the process would
    else:
        interrupt(beside)
    with pytest.raises(weft.AbortedError, match="interrupted"):
        comm.Recv(torch.ones(1), 1 - comm.rank, 9)  # which never comes
    comm.detach_history()


def call(beside, what):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        beside.send(b"!", 1)
        what()
        time.sleep(SOON)
    assert time.monotonic() - start < SOON


def interrupt(beside):
    beside.recv(bytearray(1), 0)
    end = time.monotonic() + 1.0  # not every wait is on the board
    while time.monotonic() < end:
        line = weft.world().dump().splitlines()[0]
        if "last in" not in line and "send of 1 " not in line:
            break
        time.sleep(0.01)
    os.kill(weft.world().peers[0].pid, signal.SIGINT)


@pytest.mark.parametrize("name", [*CALLS, *BACKWARD])
def test_ctrl_c_is_seen_at_once_in_every_call_that_waits(name):
    jobs.run(2, interrupted, name, timeout=HOUR)
