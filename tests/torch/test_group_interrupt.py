# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in whatever call waits: it is seen at once, and the other ranks are told."""

import datetime
import os
import signal
import time

import groups
import pytest
import torch
import torch.distributed as dist
import weft.torch

LONG = 1 << 20  # elements; so many go through no buffer
HOUR = datetime.timedelta(hours=1)
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def started():
    return dist.all_reduce(torch.ones(3), async_op=True)


CALLS = {
    "wait": lambda: started().wait(),
    "wait with a timeout": lambda: started().wait(HOUR),
    "barrier": dist.barrier,
    "barrier with a timeout": lambda: dist.barrier(timeout=HOUR),
    "monitored_barrier": lambda: weft.torch.monitored_barrier(timeout=HOUR),
    "objects": lambda: dist.broadcast_object_list([None], 1),
    "recv": lambda: dist.recv(torch.ones(3), 1),
    "irecv": lambda: dist.irecv(torch.ones(3), 1).wait(),
    "irecv with a timeout": lambda: dist.irecv(torch.ones(3), 1).wait(HOUR),
    "long send": lambda: dist.send(torch.ones(LONG), 1),
    "long isend": lambda: dist.isend(torch.ones(LONG), 1).wait(),
}


def interrupted(name):
    weft.torch.set_timeout(HOUR)
    call(name) if dist.get_rank() == 0 else interrupt()


def call(name):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        groups.meet("rank 0 calls")
        CALLS[name]()
        time.sleep(SOON)
    assert time.monotonic() - start < SOON
    with pytest.raises(RuntimeError, match="interrupted"):
        dist.barrier()


def interrupt():
    world = weft.torch.comm_of().world
    groups.meet("rank 0 calls")
    end = time.monotonic() + 1.0  # not every wait is on the board
    while "last in" in world.dump().splitlines()[0] and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(world.peers[0].pid, signal.SIGINT)
    with pytest.raises(RuntimeError, match="interrupted"):
        dist.recv(torch.ones(1), 0, tag=9)  # which never comes


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_is_seen_at_once_in_every_call_that_waits(name):
    if "barrier with" in name and groups.TORCH <= (2, 11):
        pytest.skip("this torch has no timeout for one barrier")
    groups.run(2, interrupted, name)
