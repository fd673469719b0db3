# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed: whoever needs it is told at once, in whatever call; all others go on."""

import datetime
import os
import signal
import time

import groups
import pytest
import torch
import torch.distributed as dist
import weft.torch

VICTIM = 1
LONG = 1 << 20  # elements; so many go through no buffer
HOUR = datetime.timedelta(hours=1)
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def parts(n=3):
    return [torch.ones(n) for _ in range(dist.get_world_size())]


def until_over(work):
    while not work.is_completed():
        time.sleep(0.01)
    work.wait()


def from_victim(call):
    """Let the victim, who is killed meanwhile, be the root."""
    return lambda: call(VICTIM)


CALLS = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(3)),
    "large all_reduce": lambda: dist.all_reduce(torch.ones(LONG)),
    "reduce": lambda: dist.reduce(torch.ones(3), 0),
    "broadcast": from_victim(lambda root: dist.broadcast(torch.ones(3), root)),
    "scatter": from_victim(lambda root: dist.scatter(torch.ones(3), None, root)),
    "gather": lambda: dist.gather(torch.ones(3), parts() if dist.get_rank() == 0 else None, 0),
    "all_gather": lambda: dist.all_gather(parts(), torch.ones(3)),
    "reduce_scatter": lambda: dist.reduce_scatter(torch.ones(3), parts()),
    "all_to_all": lambda: dist.all_to_all_single(torch.ones(6), torch.ones(6)),
    "barrier": dist.barrier,
    "monitored_barrier": lambda: weft.torch.monitored_barrier(timeout=HOUR),
    "objects": lambda: dist.all_gather_object([None] * 3, "x"),
    "a sparse tensor": lambda: dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,))),
    "recv": lambda: dist.recv(torch.ones(3), VICTIM),
    "long send": lambda: dist.send(torch.ones(LONG), VICTIM),
    "wait": lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
    "irecv": lambda: dist.irecv(torch.ones(3), VICTIM).wait(),
    "long isend": lambda: dist.isend(torch.ones(LONG), VICTIM).wait(),
    "future": lambda: dist.all_reduce(torch.ones(3), async_op=True).get_future().wait(),
    "a work that is asked": lambda: until_over(dist.irecv(torch.ones(3), VICTIM)),
    "batch": lambda: [
        work.wait()
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.ones(LONG), VICTIM),
                dist.P2POp(dist.irecv, torch.ones(LONG), VICTIM),
            ]
        )
    ],
}


def wait_until_others_wait():
    """Which the board shows, but not of what was started and is not waited for yet."""
    end = time.monotonic() + 1.0
    while weft.torch.comm_of().world.dump().count("last in") > 1 and time.monotonic() < end:
        time.sleep(0.01)


def killed_during(name):
    weft.torch.set_timeout(HOUR)
    others = dist.new_group([rank for rank in range(dist.get_world_size()) if rank != VICTIM])
    groups.meet("the groups are made")
    if dist.get_rank() == VICTIM:
        wait_until_others_wait()
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=f"[rR]ank {VICTIM} ") as first:
        CALLS[name]()
        dist.barrier()
    with pytest.raises(RuntimeError, match=f"rank {VICTIM} .*died"):
        dist.all_reduce(torch.ones(1))
    x = torch.ones(2)
    dist.all_reduce(x, group=others)
    assert x.tolist() == [2, 2]
    assert time.monotonic() - start < SOON
    return str(first.value)


@pytest.mark.parametrize("name", CALLS)
def test_a_killed_rank_is_named_at_once_in_every_call(name):
    ended = groups.start(3, killed_during, name)
    assert ended[VICTIM].error == "ended with -9"
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
