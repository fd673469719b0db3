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


def trained(model, steps):
    """A few steps of DDP; the parameters after them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.full((4, 3), float(dist.get_rank() + step))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def goes_on_without(victim, flags):
    weft.torch.set_timeout(HOUR)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    trained(model, 2)
    groups.meet("all have trained")
    if dist.get_rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    old_rank = dist.get_rank()
    if old_rank == 0:  # the other one has not been told when it shrinks the group
        with pytest.raises(RuntimeError, match=r"died|to shrink it"):
            dist.barrier()
    dist.shrink_group([victim], shrink_flags=flags)
    assert (dist.get_rank(), dist.get_world_size()) == (old_rank - (old_rank > victim), 2)
    x = torch.full((3,), float(old_rank))
    dist.all_reduce(x)
    model = torch.nn.parallel.DistributedDataParallel(model.module)
    return x, trained(model, 2)


@pytest.mark.parametrize("flags", [dist.distributed_c10d.SHRINK_DEFAULT, 1])
def test_those_who_are_left_train_on_after_shrink_group(flags):
    ended = groups.start(3, goes_on_without, VICTIM, flags)
    assert ended[VICTIM].error == "ended with -9"
    assert ended[0].error is None, ended[0].error
    assert ended[2].error is None, ended[2].error
    assert ended[0].value[0].tolist() == [2, 2, 2]
    torch.testing.assert_close(ended[0].value, ended[2].value, rtol=0, atol=0)
