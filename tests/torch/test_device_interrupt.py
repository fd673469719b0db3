# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C where the host waits for an operation on a device's tensors."""

import datetime
import os
import signal
import time

import devices
import groups
import pytest
import torch
import torch.distributed as dist
import waiting
import weft
import weft.torch

HOUR = datetime.timedelta(hours=1)
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def started(kind):
    return dist.all_reduce(torch.ones(3, device=kind), async_op=True)


# What is called, and what the library calls it.
CALLS = {
    "wait with a timeout": (lambda kind: started(kind).wait(HOUR), "allreduce"),
    "irecv with a timeout": (
        lambda kind: dist.irecv(torch.ones(3, device=kind), 1).wait(HOUR),
        "receive",
    ),
}


def interrupted(device, name):
    kind = devices.use(device)
    weft.torch.set_timeout(HOUR)
    comm = weft.torch.comm_of()
    call, shown = CALLS[name]
    torch.ones(3, device=kind)  # starts the driver, which looks for no signals
    if comm.rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            groups.meet("rank 0 calls")
            call(kind)
            time.sleep(SOON)
        assert time.monotonic() - start < SOON
    else:
        groups.meet("rank 0 calls")
        waiting.until_waits_in(comm.world, 0, shown)
        os.kill(comm.world.peers[0].pid, signal.SIGINT)
    with pytest.raises(weft.AbortedError, match="interrupted"):
        comm.recv(bytearray(1), 1 - comm.rank)


@pytest.mark.parametrize("device", devices.STAGED)
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_is_seen_at_once_where_the_host_waits(name, device):
    devices.run(2, interrupted, device, name)
